"""Form of each op where features are channels and tokens lie along W (hexane.passes.columns)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hexane.graph.registry import has, spec_of
from hexane.graph.traits import ELEMENTWISE, REDUCES, RESHAPES, SAME_VALUES, Trait
from hexane.passes.rewriting import known

if TYPE_CHECKING:
    from hexane.graph.ir import Op, Value
    from hexane.lowering.compilation import Compilation
    from hexane.passes.attention import Operands

FLOATS = ("fp16", "fp32")
SPLIT_TO_HEADS = (0, 2, 1, 3)


class Kind(Enum):
    """Transposed view of a value.

    ROWS: [.., S, C] as [1, C, B, S]. HEADS: [.., S, D] as [.., D, S]. SPLIT: [1, S, H, D] as [1, H, D, S].
    """

    ROWS = "rows"
    HEADS = "heads"
    SPLIT = "split"


Relation = dict["Value", Kind]


@dataclass
class Analysis:
    """Relations of a function: the kind of each value, and of each op the kinds that its transposed form goes with."""

    compilation: Compilation
    attention: Operands
    kinds: dict[Value, Kind] = field(default_factory=dict)
    ops: dict[Op, Relation] = field(default_factory=dict)
    scales: dict[Op, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    """Products whose operand still wants a factor and a summand per feature."""
    done: dict[Op, Value] = field(default_factory=dict)
    """Ops that an op in front of them has computed too."""

    def is_turned_already(self, value: Value) -> bool:
        """True where a value from outside costs no copy: moves cancel, or attention makes it so."""
        if value.shape[-1] == 1 or value in self.attention.results:
            return True
        op = value.op
        if op is None or op.type != "transpose" or not known(op.arg("perm")):
            return False
        return _swaps_last(op) and value.only_user is not None


def _swaps_last(op: Op) -> bool:
    rank = len(op.output.shape)
    return [p % rank for p in op.arg("perm")] == last_two_swapped(rank)


def last_two_swapped(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]


def images_of(shape: tuple[int, ...]) -> int:
    """Number of images of [tokens, features] in a shape."""
    return prod(shape[:-2])


# -- which kinds go together -------------------------------------------------------------------------------------------


def relation(op: Op, analysis: Analysis) -> Relation | None:
    """The kinds of an op's operands and results if it is computed turned; None for an op that has no turned form."""
    rule = _RELATIONS.get(op.type) or next((rule for trait, rule in _BY_TRAIT.items() if has(op, trait)), None)
    if rule is None or op in analysis.attention.kept or not op.outputs:
        return None
    for value in (*op.operands(), *op.outputs):
        shape = value.shape
        if not value.is_constant and (None in shape or value.dtype not in FLOATS or len(shape) < 2):
            return None
    return rule(op, analysis)


def _kind_of(analysis: Analysis, *values: Value) -> Kind | None:
    return next((analysis.kinds[v] for v in values if v in analysis.kinds), None)


def _product(op: Op, _analysis: Analysis) -> Relation | None:
    x = op.inputs["x"]
    if matrix_of(op) is None or x.is_constant or (x.op is not None and x.op.type == "dequantize"):
        return None
    return {x: Kind.ROWS, op.output: Kind.ROWS}


def matrix_of(op: Op) -> tuple[Value, np.ndarray, np.ndarray | None] | None:
    """(constant, weights [N, K], bias) of a product with a constant matrix that no file has packed."""
    weight, bias = op.inputs["weight" if op.type == "linear" else "y"], op.inputs.get("bias")
    constant = weight.constant
    if constant is None or constant.coding is not None or weight.dtype not in FLOATS or len(weight.shape) < 2:
        return None
    if prod(weight.shape[:-2]) != 1 or (bias is not None and not bias.is_constant):
        return None
    if op.type == "matmul" and op.arg("transpose_x"):
        return None
    values = np.asarray(weight.data).reshape(weight.shape[-2:])
    turned_weights = op.type == "linear" or op.arg("transpose_y")
    return weight, values if turned_weights else values.T, None if bias is None else np.asarray(bias.data).reshape(-1)


def _norm(op: Op, _analysis: Analysis) -> Relation | None:
    x = op.inputs["x"]
    if (
        not runs_over(op, -1)
        or x.shape[-1] < 2
        or any(op.inputs.get(name) is not None and not op.inputs[name].is_constant for name in ("gamma", "beta"))
    ):
        return None
    return {x: Kind.ROWS, op.output: Kind.ROWS}


def runs_over(op: Op, axis: int) -> bool:
    """True where an op reduces just this axis, counted from the end."""
    axes, rank = op.arg("axes"), len(op.inputs["x"].shape)
    return axes is not None and [a % rank for a in axes] == [rank + axis]


def _reduction(op: Op, analysis: Analysis) -> Relation | None:
    x = op.inputs["x"]
    if runs_over(op, -1) and op.arg("keep_dims") and op.type == "reduce_mean" and x.shape[-1] > 1 and _is_square(x):
        return {x: Kind.ROWS, op.output: Kind.ROWS}
    if runs_over(op, -2) and analysis.kinds.get(x) is Kind.ROWS and images_of(x.shape) == 1:
        return {x: Kind.ROWS}
    return None


def _is_square(value: Value) -> bool:
    op = value.op
    if op is None:
        return False
    return op.type == "square" or (op.type == "mul" and op.inputs["x"] is op.inputs["y"])


def has_no_epsilon(op: Op) -> bool:
    return not np.float16(op.arg("epsilon"))


def _elementwise(op: Op, analysis: Analysis) -> Relation | None:
    tensors = spec_of(op).tensors
    if tensors == ("x", "y"):
        return _two_operands(op, analysis)
    if tensors != ("x",):
        return None
    x = op.inputs["x"]
    kind = _kind_of(analysis, x, op.output)
    if kind is None or x.shape != op.output.shape:
        return None
    return {x: kind, op.output: kind}


def _two_operands(op: Op, analysis: Analysis) -> Relation | None:
    out = op.output
    operands = [op.inputs["x"], op.inputs["y"]]
    computed = [v for v in operands if not v.is_constant]
    kind = _kind_of(analysis, out, *computed)
    if kind is None or all(v.shape != out.shape for v in computed):
        return None
    kinds = {out: kind}
    for value in operands:
        if value.is_constant:
            if turned_constant(value, kind, out.shape) is None:
                return None
        elif value.shape != out.shape and value.shape != (*out.shape[:-1], 1):
            return None
        else:
            kinds[value] = kind
    return kinds


def turned_constant(value: Value, kind: Kind, shape: tuple[int, ...]) -> np.ndarray | None:
    """A constant operand of a result of this shape, turned with it; None for one that has no such form."""
    data = np.asarray(value.data)
    if data.dtype.kind != "f" or data.ndim > len(shape):
        return None
    if data.size == 1:
        return data.reshape(())
    data = data.reshape((1,) * (len(shape) - data.ndim) + data.shape)
    if kind is Kind.SPLIT:
        return data.transpose(0, 2, 3, 1)
    if kind is Kind.HEADS:
        return np.swapaxes(data, -1, -2)
    if images_of(data.shape) not in (1, images_of(shape)):
        return None
    return data.reshape(-1, *data.shape[-2:]).transpose(2, 0, 1)[None]


def _reshape(op: Op, analysis: Analysis) -> Relation | None:
    x, out = op.inputs["x"], op.output
    before, after = analysis.kinds.get(x), analysis.kinds.get(out)
    if x.shape[-2:] == out.shape[-2:]:
        kind = before or after
        return None if kind in (None, Kind.SPLIT) else {x: kind, out: kind}
    for (rows, _), (split, _), forwards in (((x, out), (out, x), True), ((out, x), (x, out), False)):
        if len(split.shape) != 4 or images_of(rows.shape) != 1 or split.shape[0] != 1:
            continue
        tokens, heads, dims = split.shape[1:]
        if rows.shape[-2:] != (tokens, heads * dims):
            continue
        kinds = (before, after) if forwards else (after, before)
        if kinds[0] is Kind.ROWS or kinds[1] is Kind.SPLIT:
            return {rows: Kind.ROWS, split: Kind.SPLIT}
    return None


def _transpose(op: Op, analysis: Analysis) -> Relation | None:
    x, out = op.inputs["x"], op.output
    if not known(op.arg("perm")):
        return None
    rank = len(x.shape)
    perm = tuple(p % rank for p in op.arg("perm"))
    before, after = analysis.kinds.get(x), analysis.kinds.get(out)
    if perm == SPLIT_TO_HEADS and x.shape[0] == 1:
        if before is Kind.SPLIT or after is Kind.HEADS:
            return {x: Kind.SPLIT, out: Kind.HEADS}
        if before is Kind.HEADS or after is Kind.SPLIT:
            return {x: Kind.HEADS, out: Kind.SPLIT}
    if perm == (0, 2, 3, 1) and before is Kind.SPLIT:
        return {x: Kind.SPLIT}
    if _swaps_last(op) and before is not None and before is not Kind.SPLIT and images_of(x.shape) == 1:
        return {x: before}
    return None


def _slice(op: Op, analysis: Analysis) -> Relation | None:
    x, out = op.inputs["x"], op.output
    kind = _kind_of(analysis, x, out)
    if kind is None or kind is Kind.SPLIT or not known(op.arg("begin")):
        return None
    if kind is Kind.ROWS and x.shape[:-2] != out.shape[:-2]:
        return None
    return {x: kind, out: kind}


def _pieces(op: Op, analysis: Analysis) -> Relation | None:
    """concat and split: along features or tokens, heads along any axis."""
    values = (*op.inputs["values"], op.output) if op.type == "concat" else (op.inputs["x"], *op.outputs)
    kind = _kind_of(analysis, *values)
    rank = len(values[0].shape)
    if kind is None or kind is Kind.SPLIT or any(v.is_constant for v in values):
        return None
    if op.type == "concat" and (op.arg("interleave") or len(set(values)) < len(values)):
        return None
    if kind is Kind.ROWS and op.arg("axis") % rank < rank - 2:
        return None
    return dict.fromkeys(values, kind)


def _pad(op: Op, analysis: Analysis) -> Relation | None:
    """Tokens behind the last one."""
    x, out = op.inputs["x"], op.output
    kind, pad = _kind_of(analysis, x, out), op.arg("pad")
    if kind is None or kind is Kind.SPLIT or not known(pad) or op.arg("mode") != "constant":
        return None
    return {x: kind, out: kind} if x.shape[:-2] == out.shape[:-2] and x.shape[-1] == out.shape[-1] else None


def _tile(op: Op, analysis: Analysis) -> Relation | None:
    x, reps = op.inputs["x"], op.arg("reps")
    kind = _kind_of(analysis, x, op.output)
    if kind is not Kind.HEADS or not known(reps) or any(r != 1 for r in list(reps)[-2:]):
        return None
    return {x: kind, op.output: kind}


_RELATIONS: Mapping[str, Callable[[Op, Analysis], Relation | None]] = {
    "linear": _product,
    "matmul": _product,
    "layer_norm": _norm,
    "transpose": _transpose,
    "slice_by_size": _slice,
    "concat": _pieces,
    "split": _pieces,
    "tile": _tile,
    "pad": _pad,
}
_BY_TRAIT: Mapping[Trait, Callable[[Op, Analysis], Relation | None]] = {
    ELEMENTWISE | SAME_VALUES: _elementwise,
    REDUCES: _reduction,
    RESHAPES: _reshape,
}
