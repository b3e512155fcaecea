"""``hexane.compress``: a network with compressed weights, one format for all or one for each layer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from hexane import chips, passes
from hexane.errors import UnsupportedError, UsageError
from hexane.frontends.networks import network_of
from hexane.graph import Graph, GraphBuilder, Op, Value
from hexane.graph.registry import has, spec_of
from hexane.graph.rewrite import fold_constants, remove_dead
from hexane.graph.traits import PRODUCTS
from hexane.lowering.compilation import Compilation
from hexane.lowering.formats import WeightFormat
from hexane.studies.encode import encoded

WORTH = 2048
"""Weights of fewer elements stay, where others have as many: their tables and scales would weigh as much."""
FOLDED = ("remove_identities", "fold_norms", "fold_scales")
"""Passes that run first: what multiplies a layer's outputs belongs into its weights before they are quantised."""


@dataclass(frozen=True)
class WeightLayer:
    """A layer whose weights can be compressed: its name (the op's first result), its op, its constant's shape.

    ``finite``: its weights are numbers, all of them.
    """

    name: str
    op: str
    shape: tuple[int, ...]
    finite: bool = True

    @property
    def count(self) -> int:
        return prod(self.shape)

    def check(self, form: WeightFormat) -> None:
        """UnsupportedError where the layer cannot take a format."""
        try:
            form.check(self.shape)
            if form.kind != "fp16" and not self.finite:
                raise UnsupportedError("weights that are not finite cannot be compressed")
        except UnsupportedError as error:
            raise UnsupportedError(error.message, where=f"{self.op} {self.name!r}", hint=error.hint) from None


def compress(
    graph: Graph | str | os.PathLike[str],
    weights: str | WeightFormat | Mapping[str, str | WeightFormat] = "palette4",
    *,
    smallest: int | None = None,
) -> Graph:
    """A copy of the network whose convolutions, products and embeddings store their constant weights in a format.

    Parameters
    ----------
    graph : a network, or the path of one; stays as it is. Weights that are compressed already are left alone.
    weights : a format by name (``WeightFormat``) for all layers that can take it, or one for each layer by the name of
        its result. Other layers stay as they are.
    smallest : weights of fewer elements stay; by default 2048, or 1 where no layer has as many.

    Norms and factors behind a layer are folded into its weights first, as compiling would. The result evaluates with
    the values that the format holds, and is written as ``constexpr`` ops of iOS 18 to ``.mil`` and ``.mlpackage``.
    UsageError for an unknown format or layer, or a network in which nothing can be compressed; UnsupportedError where
    no layer, or a layer that is named, can take the format: its groups do not divide the shape, a weight is infinite.
    """
    copy = _folded(network_of(graph))
    smallest = _least(copy, smallest)
    layers = {layer.name: layer for layer in _layers(copy, smallest)}
    format_of = _formats(layers, weights)
    if not layers:
        raise UsageError(
            "no layer has constant weights to compress",
            hint=f"convolutions, products and embeddings of {smallest} weights or more",
        )
    ops = {op.outputs[0].name: op for op in copy.main.walk() if op.outputs}
    replacements: dict[tuple[Value, str, bool], Value] = {}
    for name, form in format_of.items():
        op = ops[name]
        weight = _weight(op, smallest)
        assert weight is not None
        if form.kind == "fp16":
            continue
        key = (weight, form.name, _turned(op))
        if key not in replacements:
            builder = GraphBuilder(function=copy.main, before=_first(copy, op))
            replacements[key] = _as_operand(builder, op, np.asarray(weight.data), form)
        op.set_input(_weights_name(op), replacements[key])
    return copy


def layers_of(graph: Graph, smallest: int | None = None) -> list[WeightLayer]:
    """The layers that `compress` would change, in order."""
    folded = _folded(graph)
    return _layers(folded, _least(folded, smallest))


def _layers(folded: Graph, smallest: int) -> list[WeightLayer]:
    layers = []
    for op in folded.main.walk():
        weight = _weight(op, smallest)
        if weight is not None:
            first, second, *rest = weight.shape
            outputs_first = (second, first, *rest) if _turned(op) else weight.shape
            finite = bool(np.isfinite(np.asarray(weight.data)).all())
            layers.append(WeightLayer(op.outputs[0].name, op.type, outputs_first, finite))
    return layers


def fitting(layers: Iterable[WeightLayer], form: WeightFormat) -> dict[str, WeightFormat]:
    """The format for every layer that can take it, by the layer's name; UnsupportedError where none can."""
    forms, refusal = {}, None
    for layer in layers:
        try:
            layer.check(form)
        except UnsupportedError as error:
            refusal = refusal or error
        else:
            forms[layer.name] = form
    if refusal is not None and not forms:
        raise refusal
    return forms


def _folded(graph: Graph) -> Graph:
    """A copy after the passes that come first. What is compressed already stays so: nothing folds its ops."""
    copy = graph.clone()
    anywhere = Compilation(chips.get("M1"))  # these passes are the same for every chip
    for names in ((), FOLDED):
        copy = passes.run(copy, anywhere, names)
        for function in copy.functions.values():
            fold_constants(function, keep=lambda op: op.type.startswith("constexpr_"))
            remove_dead(function)
    return copy


def _formats(
    layers: Mapping[str, WeightLayer], weights: str | WeightFormat | Mapping[str, str | WeightFormat]
) -> dict[str, WeightFormat]:
    def of(form: str | WeightFormat) -> WeightFormat:
        return WeightFormat.of(form) if isinstance(form, str) else form

    if isinstance(weights, (str, WeightFormat)):
        return fitting(layers.values(), of(weights))
    unknown = [name for name in weights if name not in layers]
    if unknown:
        raise UsageError(
            f"no layer with weights is called {unknown[0]!r}", hint=f"there are {', '.join(list(layers)[:8])}"
        )
    forms = {name: of(form) for name, form in weights.items()}
    for name, form in forms.items():
        layers[name].check(form)
    return forms


def _least(graph: Graph, smallest: int | None) -> int:
    """Number of elements that weights must have: as asked, or what suits the network."""
    if smallest is not None:
        return smallest
    return WORTH if any(_weight(op, WORTH) is not None for op in graph.main.walk()) else 1


def _weights_name(op: Op) -> str:
    """The operand that is a layer's weights; of gather a table of embeddings, whose rows are the outputs; or ""."""
    if has(op, PRODUCTS):
        return spec_of(op).tensors[1]
    return "x" if op.type == "gather" else ""


def _weight(op: Op, smallest: int) -> Value | None:
    """The constant that an op multiplies with, where it is large enough and of two axes or more."""
    value = op.inputs.get(_weights_name(op))
    if not isinstance(value, Value) or not value.is_constant or value.dtype not in ("fp16", "fp32"):
        return None
    if value.rank < 2 or prod(value.shape) < smallest or (op.type == "matmul" and value.rank != 2):
        return None
    if op.type == "gather" and (value.rank != 2 or op.arg("axis") != 0 or op.arg("indices").is_constant):
        return None
    return None if op.type == "conv_transpose" and op.arg("groups") != 1 else value


def _turned(op: Op) -> bool:
    """True where the outputs are the second axis of an op's weights, not the first."""
    return op.type == "conv_transpose" or (op.type == "matmul" and not op.arg("transpose_y"))


def _as_operand(b: GraphBuilder, op: Op, weight: np.ndarray, form: WeightFormat) -> Value:
    """The compressed weight in the op's own orientation."""
    if not _turned(op):
        return encoded(b, weight, form)
    dense = encoded(b, np.ascontiguousarray(weight.swapaxes(0, 1)), form)
    transposed = b.transpose(x=dense, perm=[1, 0, *range(2, weight.ndim)])
    assert isinstance(transposed, Value)
    return transposed


def _first(graph: Graph, op: Op) -> Op:
    """Place of new ops: at the front of the function, so that every user comes behind."""
    for first in graph.main.ops:
        return first
    return op
