"""Networks of onnx's light zoo, and MobileNetV2, with weights that mean something; where the fetched networks lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

MODELS = Path(__file__).resolve().parents[2] / "models"

ZOO = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)


MOBILENET_V2 = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
)  # fmt: skip
"""Factor of channels inside, outputs, repeats and first stride of its blocks (Sandler et al., 2018, table 2)."""


def fetched(relative: str) -> Path:
    """A file of ``make models``, or a visible skip."""
    path = MODELS / relative
    if not path.exists():
        pytest.skip(f"{relative} is not fetched: run `make models`")
    return path


def sentence_encoder(weights: Path) -> Any:
    """MiniLM as a PyTorch module of ids and mask: weights from the package, architecture from transformers.

    Its inner model is in evaluation mode; the pooling around it is in training mode, as PyTorch makes it.
    """
    import safetensors.torch
    import torch
    import transformers

    config = transformers.BertConfig.from_json_file(str(weights.with_name("config.json")))
    config._attn_implementation = "eager"
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    missing, _ = model.load_state_dict(safetensors.torch.load_file(str(weights)), strict=False)
    assert not [name for name in missing if "position_ids" not in name]

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any, mask: Any) -> Any:
            hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
            weight = mask.unsqueeze(-1).to(hidden.dtype)
            return (hidden * weight).sum(1) / weight.sum(1)

    return Encoder()


def sentence() -> tuple[Any, Any]:
    """Ids and mask of 128 tokens, the last 38 of them padding."""
    import torch

    torch.manual_seed(0)
    mask = torch.ones(1, 128, dtype=torch.long)
    mask[:, 90:] = 0
    return torch.randint(1000, 20000, (1, 128)), mask


def light_model(name: str, seed: int = 0) -> Any:
    """A light zoo network whose constant weights are replaced by seeded random ones that keep the variance.

    Its stored weights are ``ConstantOfShape`` nodes (every element alike), which would hide any mistake in their order.
    """
    import onnx

    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    model = onnx.load(path)
    rng = np.random.default_rng(seed)
    shapes = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    roles = {}
    for node in model.graph.node:
        for index, value in enumerate(node.input):
            roles.setdefault(value, (node.op_type, index))
    # Scale and bias of densenet and inception_v2 reach Mul and Add through an Unsqueeze.
    for node in model.graph.node:
        if node.op_type == "Unsqueeze":
            roles[node.input[0]] = roles[node.output[0]]
    kept, weights = [], []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(int(extent) for extent in shapes[node.input[0]])
        weights.append(onnx.numpy_helper.from_array(_weight(rng, shape, *roles[node.output[0]]), node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    drawn = {tensor.name for tensor in weights}
    used = {value for node in kept for value in node.input}
    for tensor in list(model.graph.initializer):
        if tensor.name in used and tensor.name not in drawn and tensor.data_type == onnx.TensorProto.FLOAT:
            array = _weight(rng, tuple(tensor.dims), *roles[tensor.name])
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    model.graph.initializer.extend(weights)
    return model


def settled_model(name: str, seed: int = 0) -> Any:
    """As `light_model`, each convolution and linear layer scaled in turn so that its result has variance 1.

    So values stay in fp16 all the way, as those of a trained network do; the inputs are `zoo_inputs`.
    """
    import onnx

    from hexane.formats import onnx as reader
    from hexane.graph.evaluate import Evaluation, checked_input

    model = light_model(name, seed)
    function = reader.load(model).main
    run, inputs = Evaluation(), zoo_inputs(function.inputs, seed)
    for value in function.inputs:
        run.environment[value] = checked_input(value, inputs[value.name])
    factors = []
    for op in function.ops:
        results = run.op(op)
        if op.type in ("conv", "linear", "matmul"):
            factors.append(np.float32(1 / max(float(results[0].std()), 1e-6)))
            results = (results[0] * factors[-1],)
        run.environment.update(zip(op.outputs, results))
    layers = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    assert len(layers) == len(factors), f"{name}: {len(layers)} layers of weights, {len(factors)} in the graph"
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    shaped = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "Reshape"}
    for node, factor in zip(layers, factors):
        for weight in (shaped.get(name, name) for name in node.input[1:]):
            scaled = onnx.numpy_helper.to_array(tensors[weight]) * factor
            tensors[weight].CopyFrom(onnx.numpy_helper.from_array(scaled, weight))
    return model


def mobilenet_v2(seed: int = 0) -> Any:
    """MobileNetV2 (1.0, 224) by its paper's table, norms folded, with seeded random weights that keep the variance."""
    import onnx
    from onnx import TensorProto, helper

    rng, nodes, tensors = np.random.default_rng(seed), [], []

    def constant(name: str, array: Any) -> str:
        tensors.append(onnx.numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def conv(x: str, cin: int, cout: int, k: int = 1, stride: int = 1, groups: int = 1, clip: bool = True) -> str:
        number = len(nodes)
        weight = rng.standard_normal((cout, cin // groups, k, k)) * np.sqrt((1 + clip) * groups / (cin * k * k))
        names = constant(f"w{number}", weight), constant(f"b{number}", rng.standard_normal(cout) * 0.1)
        nodes.append(
            helper.make_node("Conv", [x, *names], [f"c{number}"], strides=[stride] * 2, pads=[k // 2] * 4, group=groups)
        )
        if clip:
            nodes.append(helper.make_node("Clip", [f"c{number}", "zero", "six"], [f"r{number}"]))
        return nodes[-1].output[0]

    constant("zero", 0), constant("six", 6)
    x, cin = conv("x", 3, 32, 3, 2), 32
    for times, cout, repeats, first in MOBILENET_V2:
        for number in range(repeats):
            stride, hidden = first if number == 0 else 1, cin * times
            y = x if times == 1 else conv(x, cin, hidden)
            y = conv(conv(y, hidden, hidden, 3, stride, hidden), hidden, cout, clip=False)
            if stride == 1 and cin == cout:
                nodes.append(helper.make_node("Add", [x, y], [f"a{len(nodes)}"]))
            x, cin = nodes[-1].output[0], cout
    nodes.append(helper.make_node("GlobalAveragePool", [conv(x, cin, 1280)], ["mean"]))
    nodes.append(helper.make_node("Flatten", ["mean"], ["features"]))
    weight = constant("w", rng.standard_normal((1000, 1280)) / np.sqrt(1280))
    nodes.append(helper.make_node("Gemm", ["features", weight, constant("b", np.zeros(1000))], ["y"], transB=1))
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (1, 3, 224, 224)), ("y", (1, 1000)))
    ]
    graph = helper.make_graph(nodes, "mobilenet_v2", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def zoo_inputs(values: Any, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of a network by name, for anything with a name and a shape: normal, standard deviation 1/2."""
    rng = np.random.default_rng(seed)
    return {v.name: (0.5 * rng.standard_normal(v.shape)).astype(np.float32) for v in values}


def two_lines_of_text() -> np.ndarray:
    """A picture for the text detector: float32 (1, 3, 320, 320) from -1 to 1."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (320, 320), "white")
    pen = ImageDraw.Draw(picture)
    pen.text((30, 60), "planar engine", fill="black", font_size=32)
    pen.text((60, 200), "neural cores", fill="navy", font_size=28)
    pixels = np.asarray(picture, np.float32).transpose(2, 0, 1)[None]
    return (pixels / 255 - 0.5) / 0.5


def _weight(rng: np.random.Generator, shape: tuple[int, ...], op: str, index: int) -> np.ndarray:
    if op in ("Conv", "Gemm") and index == 1:
        fan = int(np.prod(shape[1:]))
        return (rng.standard_normal(shape) * np.sqrt(2 / fan)).astype(np.float32)
    if (op == "BatchNormalization" and index in (1, 4)) or op == "Mul":
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    return (rng.standard_normal(shape) * 0.1).astype(np.float32)
