"""What a neural engine task does behind its sums: scalar factor, ReLU or table (spec/engine-h13 §8.1, limits 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hexane.codegen.plan import Plan
from hexane.codegen.recipes.registry import constant, follows, fp16_bits, scalar
from hexane.codegen.recipes.unary import FUNCTIONS, gelu_table
from hexane.codegen.tables import lookup_table
from hexane.codegen.tasks import RELU, TABLE

if TYPE_CHECKING:
    from hexane.graph.ir import Op

FUSED = tuple(name for name, function in FUNCTIONS.items() if not function.epsilon)


@dataclass(frozen=True)
class Epilogue:
    """PostScale, then identity, ReLU or a table."""

    relu: bool = False
    table_name: str | None = None
    scale: int = 0x3C00
    bias: np.ndarray | None = None

    @classmethod
    def of(cls, ops: Sequence[Op]) -> Epilogue:
        """The epilogue that the ops behind the first one ask for."""
        scale, relu, name, bias = 1.0, False, None, None
        for op in ops[1:]:
            if op.type == "add":
                bias = channel_constant(op, channels_of(ops[0]))
            elif op.type == "mul":
                scale = factor_of(op) or 1.0
            elif op.type == "relu":
                relu = True
            else:
                name = gelu_table(op) if op.type == "gelu" else FUNCTIONS[op.type].table
                if FUNCTIONS[op.type].scale != 0x3C00:
                    scale *= float(np.uint16(FUNCTIONS[op.type].scale).view(np.float16))
        return cls(relu, name, fp16_bits(scale), bias)

    @property
    def table(self) -> bytes | None:
        return None if self.table_name is None else lookup_table(self.table_name)

    def apply(self, plan: Plan) -> None:
        plan.post_scale = self.scale
        if self.relu:
            plan.mac |= RELU
        if self.table_name is not None:
            plan.mac |= TABLE
            plan.tables += (self.table_name,)


def factor_of(op: Op) -> float | None:
    """The number by which a mul multiplies, None when it is not a number."""
    x, y = op.arg("x"), op.arg("y")
    return scalar(y) if not x.is_constant else scalar(x)


def channels_of(op: Op) -> tuple[int, int]:
    """(axis counted from the end, extent) of the output channels of a convolution or product."""
    shape = op.output.shape
    axis = 1 - len(shape) if op.type == "conv" else -1
    return axis, shape[axis]


def channel_constant(op: Op, channels: tuple[int, int]) -> np.ndarray | None:
    """The constant that an add adds per output channel, as a vector; None when it is anything else."""
    x, y = op.arg("x"), op.arg("y")
    data = constant(y) if not x.is_constant else constant(x)
    if data is None or (x.is_constant and y.is_constant):
        return None
    axis, extent = channels
    others = [e for i, e in enumerate(data.shape, -data.ndim) if i != axis]
    if any(e != 1 for e in others) or data.ndim < -axis or data.shape[axis] != extent:
        return None
    return np.asarray(data, np.float16).reshape(-1)


def match_epilogue(op: Op) -> tuple[Op, ...]:
    """The op, then at most one bias, one scalar product and one ReLU or table, each the only user of the one before."""
    run, last = [op], op
    shift = follows(last, "add")
    if shift is not None and op.inputs.get("bias") is None and channel_constant(shift, channels_of(op)) is not None:
        run.append(shift)
        last = shift
    product = follows(last, "mul")
    if product is not None and factor_of(product) is not None:
        run.append(product)
        last = product
    function = follows(last, "relu", *FUSED)
    if function is not None and not (function.type == "exp" and len(run) > 1):
        run.append(function)
    return tuple(run)
