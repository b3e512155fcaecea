"""A small language model from a folder: plan, tokens in float32 and with the engine's arithmetic.

python language_model.py [FOLDER]      a folder with config.json and model.safetensors; else one is written, of random
                                       weights, which say nothing
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from hexane.language import Decoder

CONFIG = {
    "model_type": "llama", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 10000.0, "tie_word_embeddings": True,
}  # fmt: skip


def write(folder: Path) -> None:
    """The folder of a model: every tensor of CONFIG, drawn, in one safetensors file."""
    shapes = {"model.embed_tokens.weight": (256, 64), "model.norm.weight": (64,)}
    for layer in range(2):
        at = f"model.layers.{layer}."
        shapes |= {f"{at}{name}_layernorm.weight": (64,) for name in ("input", "post_attention")}
        shapes |= {f"{at}self_attn.{name}_proj.weight": (size, 64) for name, size in zip("qkvo", (64, 32, 32, 64))}
        shapes |= {f"{at}mlp.{name}_proj.weight": (128, 64) for name in ("gate", "up")}
        shapes[f"{at}mlp.down_proj.weight"] = (64, 128)
    random, header, data = np.random.default_rng(0), {}, b""
    for name, shape in shapes.items():
        drawn = random.standard_normal(shape) * shape[-1] ** -0.5 if len(shape) == 2 else np.ones(shape)
        part = drawn.astype("<f2").tobytes()
        ends = [len(data), len(data) + len(part)]
        header[name], data = {"dtype": "F16", "shape": shape, "data_offsets": ends}, data + part
    text = json.dumps(header).encode()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


with tempfile.TemporaryDirectory() as own:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(own)
    if len(sys.argv) == 1:
        write(folder)
    model = Decoder.from_pretrained(folder)
    plan = model.plan("M4", 64)
    print("programs:", ", ".join(chunk.name for chunk in plan.chunks), "on the host:",
          sorted({place.op for place in plan.places if place.hexane == "host"}))  # fmt: skip
    print(f"tokens per second on M4: {plan.decode_tok_s.low:.0f} to {plan.decode_tok_s.high:.0f}, scale {plan.scale}")
    for level in ("float32", "graph"):
        print(f"{level}:", model.generate([1, 2, 3], 8, chip="M4", level=level))
