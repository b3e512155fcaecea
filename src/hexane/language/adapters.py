"""Adapters of low rank (LoRA) for a decoder: a folder as PEFT writes it, and how it joins the base.

A product ``y = W x`` becomes ``W x + s B A x`` with A [rank, inputs], B [outputs, rank] and s = alpha / rank (its
root, for rsLoRA): huggingface.co/docs/peft, "LoRA". Merged, W is another W and everything is compiled again. Beside the
base, as one public project has it on the engine (docs/reference/adapters.md), A and B are constants of their own, which
are patched, or inputs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.files import is_file, read_text
from hexane.formats.safetensors import Tensors, json_object, read_safetensors
from hexane.language.architecture import Architecture, Keys
from hexane.language.chunks import product_shapes

CONFIG, FILE = "adapter_config.json", "adapter_model.safetensors"
MERGED, BESIDE, INPUTS = "merged", "beside", "inputs"
ADAPTER_FORMS = (MERGED, BESIDE, INPUTS)
"""How an adapter joins: in the base's weights; as constants beside them; as inputs."""
_TENSOR = re.compile(
    r"(?:.+\.)?layers\.(\d+)\.(?:self_attn\.([qkvo])|mlp\.(gate|up|down))_proj\.lora_([AB])(?:\.default)?\.weight"
)
_REFUSED = {"use_dora": False, "fan_in_fan_out": False, "modules_to_save": None, "alpha_pattern": None,
            "bias": "none", "layer_replication": None}  # fmt: skip
"""Fields that change what an adapter computes, and the value with which they do not."""


@dataclass(frozen=True, eq=False)
class Adapter:
    """The matrices of an adapter: (layer, product) -> A [rank, inputs], B [outputs, rank] times its scale, float32."""

    name: str
    pairs: Mapping[tuple[int, str], tuple[np.ndarray, np.ndarray]]

    @property
    def products(self) -> tuple[str, ...]:
        """Names of the products that it changes in any layer."""
        return tuple(sorted({name for _, name in self.pairs}))

    @cached_property
    def shapes(self) -> dict[tuple[int, str], tuple[tuple[int, ...], tuple[int, ...]]]:
        """Shapes that programs beside the base are made for: another adapter of these shapes needs no other program."""
        return {key: (a.shape, b.shape) for key, (a, b) in self.pairs.items()}

    @property
    def rank(self) -> int:
        """The largest."""
        return max(a.shape[0] for a, _ in self.pairs.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices in fp16: what a swap writes."""
        return sum(2 * (a.size + b.size) for a, b in self.pairs.values())

    def merged(self, layer: int, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The weights of a layer with the adapter in them."""
        return dict(weights) | {
            name: weights[name] + b @ a for (number, name), (a, b) in self.pairs.items() if number == layer
        }

    def beside(self, layer: int, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The weights of a layer, and the adapter's matrices as ``NAME.lora_A`` and ``NAME.lora_B``."""
        more = dict(weights)
        for (number, name), (a, b) in self.pairs.items():
            if number == layer:
                more[f"{name}.lora_A"], more[f"{name}.lora_B"] = a, b
        return more


def read_adapter(folder: str | os.PathLike[str], architecture: Architecture) -> Adapter:
    """The adapter of a folder with ``adapter_config.json`` and ``adapter_model.safetensors``.

    UsageError for a folder without them, UnsupportedError for what is no plain LoRA of the seven products of a layer,
    FormatError for damaged files or matrices that do not fit the model.
    """
    path = Path(folder)
    if not is_file(path / CONFIG):
        raise UsageError("no adapter", where=str(path), hint=f"a folder with {CONFIG} and {FILE}")
    where = str(path / CONFIG)
    c = Keys(json_object(read_text(path / CONFIG), where), where)
    if c.get("peft_type") != "LORA":
        raise UnsupportedError(f"an adapter of type {c.get('peft_type')!r}", where=where, hint="known is LORA")
    for name, plain in _REFUSED.items():
        if c.get(name, plain) not in (plain, {}, []):
            raise UnsupportedError(f"an adapter with {name} = {c.get(name)!r}", where=where)
    alpha, power = c.number("lora_alpha", 8), 0.5 if c.get("use_rslora") else 1.0
    return Adapter(path.name, _pairs(read_safetensors(path / FILE), architecture, alpha, power))


def _pairs(
    tensors: Tensors, a: Architecture, alpha: float, power: float
) -> dict[tuple[int, str], tuple[np.ndarray, np.ndarray]]:
    shapes, halves = product_shapes(a), dict[tuple[int, str, str], str]()
    for name in tensors:
        match = _TENSOR.fullmatch(name)
        product = (match[2] or match[3]) if match else None
        if match is None or product not in shapes or a.norm == "layer":
            hint = "an adapter of q, k, v, o, gate, up and down by themselves"
            raise UnsupportedError(f"the adapter's tensor {name!r}", where=tensors.where, hint=hint)
        if int(match[1]) >= a.layers:
            raise FormatError(f"{name!r}, and the model has {a.layers} layers", where=tensors.where)
        halves[int(match[1]), product, match[4]] = name
    pairs = {}
    for layer, product in sorted({key[:2] for key in halves}):
        names = [halves[layer, product, half] for half in "AB" if (layer, product, half) in halves]
        if len(names) < 2:
            raise FormatError(f"one matrix of two for {product} of layer {layer}", where=tensors.where)
        outputs, inputs = shapes[product]
        rank = (tensors[names[0]].shape or (0,))[0]
        if not rank:
            raise FormatError(f"{names[0]!r} has no rank", where=tensors.where)
        low, high = tensors.array(names[0], (rank, inputs)), tensors.array(names[1], (outputs, rank))
        scale = np.float32(alpha / rank**power)
        pairs[layer, product] = np.asarray(low, np.float32), np.asarray(high, np.float32) * scale
    if not pairs:
        raise FormatError("an adapter without matrices", where=tensors.where)
    return pairs
