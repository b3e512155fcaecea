"""Cost of a part of a network of tokens as it stands and with features as channels, on the chip compiled for.

Both forms are written down as the layers that time their tasks (hexane.cost), which are the same functions that price
plans and programs: copies that turn rows in front of products, norms of rows against means as products with ones,
changes of unit, traffic of maps that L2 does not hold. Ops that both forms share count in both, since a change of unit
depends on what stands in front.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hexane.chips import Chip
from hexane.cost.work import Layer, Unit
from hexane.graph.ir import Op, Value
from hexane.graph.registry import has, spec_of
from hexane.graph.traits import ELEMENTWISE, RESHAPES
from hexane.lowering.fusion import fused_ops
from hexane.passes.column_relations import Analysis, matrix_of
from hexane.passes.feature_sums import ranges
from hexane.passes.prices import dense_sum, planar, price_us

SUMS = ("linear", "matmul")
LEAST_GAIN = 0.04
"""Of the plain form: the layers are those of most programs, not of each."""


def is_cheaper_turned(part: list[Op], analysis: Analysis, leaves: Callable[[Value], bool]) -> bool:
    """True where a part costs less with features as channels, the copies at its border included.

    ``leaves`` says which results have to be turned back.
    """
    chip = analysis.compilation.chip
    plain, columns_us = price_us(_plain(part, analysis), chip), price_us(_turned(part, analysis, leaves), chip)
    return columns_us < plain * (1 - LEAST_GAIN)


# -- both forms --------------------------------------------------------------------------------------------------------


def _plain(part: list[Op], analysis: Analysis) -> list[Layer]:
    layers: list[Layer] = []
    chip = analysis.compilation.chip
    rows: set[Value] = set()
    for op in _of_their_own(part, analysis):
        x = next(iter(op.operands()))
        if op.type in SUMS:
            x = op.inputs["x"]
            if x not in rows and not analysis.is_turned_already(x):
                layers.append(_map("move", x, chip))
            rows.add(x)
            layers.append(dense_sum(*_sizes(op), chip))
        elif op.type == "layer_norm":
            layers += [_map("reduce", x, chip), _map("reduce", x, chip, 2), _map("unary", x, chip)]
            for name in ("gamma", "beta"):
                if op.inputs.get(name) is not None:
                    layers += [planar("move", x.shape[-1], chip), _map("binary", x, chip, 2)]
        elif op.type == "reduce_mean":
            layers += [_map("reduce", x, chip), planar("unary", _tokens(op.output), chip)]
        else:
            layers += _shared(op, chip)
    return layers


def _turned(part: list[Op], analysis: Analysis, leaves: Callable[[Value], bool]) -> list[Layer]:
    layers: list[Layer] = []
    chip = analysis.compilation.chip
    inside, entering, tasks = set(part), set(), set(_of_their_own(part, analysis))
    for op in part:
        for value in analysis.ops[op]:
            if value.op not in inside and value not in entering and not analysis.is_turned_already(value):
                entering.add(value)
                layers.append(_map("move", value, chip))
        x = next(iter(op.operands()))
        if op.type in SUMS:
            layers.append(dense_sum(*_sizes(op), chip))
        elif op.type == "layer_norm":
            tokens, features = _tokens(x), x.shape[-1]
            layers += [dense_sum(tokens, features, 1, chip), _map("binary", x, chip, 2), _map("unary", x, chip)]
            layers += [*_root(tokens, features, chip), _map("binary", x, chip, 2)]
            if op.inputs.get("gamma") is not None and not _feeds_sums(op.output):
                layers.append(_affine(x, chip))
        elif op.type == "reduce_mean":
            layers += _root(_tokens(x), x.shape[-1], chip)
        elif op in tasks:
            layers += _shared(op, chip, behind_sum=bool(layers) and layers[-1].unit == "mac")
        layers += [_map("move", value, chip) for value in op.outputs if leaves(value)]
    return layers


def _of_their_own(part: list[Op], analysis: Analysis) -> list[Op]:
    """The ops that a product before them does not do behind its sums: a bias, a table."""
    on = analysis.compilation.on
    behind = {op for first in part if first.type in SUMS for op in fused_ops(first, on)[1:]}
    return [op for op in part if op not in behind]


def _shared(op: Op, chip: Chip, *, behind_sum: bool = False) -> list[Layer]:
    """Element-wise ops of two computed operands, which both forms have."""
    names = spec_of(op).tensors if has(op, ELEMENTWISE) else ()
    computed = [op.inputs[name] for name in names if not op.inputs[name].is_constant]
    if len(names) < 2 or not computed:
        return []
    follows = behind_sum and _pairs(_tokens(op.output), chip)
    return [_map("binary", op.output, chip, len(computed), follows=follows)]


def _pairs(tokens: int, chip: Chip) -> bool:
    """True where tasks of both units run as locked pairs on maps of so many tokens: never behind a small source."""
    return tokens > chip.generation.small_source_tokens


# -- layers ------------------------------------------------------------------------------------------------------------


def _root(tokens: int, features: int, chip: Chip) -> list[Layer]:
    """Inverse roots of means of squares, one for each range, and the largest of them."""
    parts, follows = ranges(features), _pairs(tokens, chip)
    sums = [dense_sum(tokens, features, 1, chip, follows=follows and not i) for i in range(len(parts))]
    return sums + [planar("binary", tokens, chip, 2, follows=follows and i == 1) for i in range(1, len(parts))]


def _map(unit: Unit, value: Value, chip: Chip, operands: int = 1, *, follows: bool = False) -> Layer:
    """A planar task or copy of a whole map, through memory where L2 does not hold two of them."""
    return planar(unit, prod(value.shape), chip, operands, follows=follows)


def _affine(x: Value, chip: Chip) -> Layer:
    tokens, features = _tokens(x), x.shape[-1]
    return dense_sum(tokens, features, features, chip, follows=_pairs(tokens, chip), groups=features)


def _sizes(op: Op) -> tuple[int, int, int]:
    """(rows, operands, results) of a product with constant weights."""
    matrix = matrix_of(op)
    assert matrix is not None  # it has a relation
    outputs, inputs = matrix[1].shape
    return _tokens(op.output), inputs, outputs


def _tokens(value: Value) -> int:
    return prod(value.shape[:-1])


def _feeds_sums(value: Value) -> bool:
    """True where only products take a norm's result, whose weights then hold its factors."""
    users = list(value.users)
    return (
        bool(users)
        and not value.is_output
        and all(user.type in SUMS or (has(user, RESHAPES) and _feeds_sums(user.output)) for user in users)
    )
