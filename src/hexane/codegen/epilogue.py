"""What a neural engine task does behind its sums: scalar factor, ReLU or table (spec/engine-h13 §8.1, limits 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hexane.codegen.operations import NeNonlinear
from hexane.codegen.plan import Plan
from hexane.isa.numbers import fp16_value
from hexane.lowering.functions import FUNCTIONS, lookup_table
from hexane.lowering.fusion import channel_constant, factor_of, table_name

if TYPE_CHECKING:
    from hexane.graph.ir import Op


@dataclass(frozen=True)
class Epilogue:
    """PostScale (rounded to fp16 by the encoder), then identity, ReLU or a table."""

    relu: bool = False
    table_name: str | None = None
    scale: float = 1.0
    bias: np.ndarray | None = None

    @classmethod
    def of(cls, ops: Sequence[Op]) -> Epilogue:
        """The epilogue that the ops behind the first one ask for."""
        scale, relu, name, bias = 1.0, False, None, None
        for op in ops[1:]:
            if op.type == "add":
                bias = channel_constant(op, ops[0])
            elif op.type == "mul":
                factor = factor_of(op)
                assert factor is not None  # riders took it for its number
                scale = factor
            elif op.type == "relu":
                relu = True
            else:
                name = table_name(op)
                scale *= fp16_value(FUNCTIONS[op.type].scale)
        return cls(relu, name, float(scale), bias)

    @property
    def table(self) -> bytes | None:
        return None if self.table_name is None else lookup_table(self.table_name)

    def apply(self, plan: Plan) -> None:
        plan.post_scale = self.scale
        if self.relu:
            plan.mac = plan.mac.then(NeNonlinear.RELU)
        if self.table_name is not None:
            plan.mac = plan.mac.then(NeNonlinear.TABLE)
            plan.tables += (self.table_name,)
