"""What a neural engine task does behind its sums: scalar factor, ReLU or table (spec/engine-h13 §8.1, limits 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hexane.codegen.plan import Plan
from hexane.codegen.recipes.registry import fp16_bits
from hexane.codegen.tasks import RELU, TABLE
from hexane.lowering.functions import FUNCTIONS, lookup_table
from hexane.lowering.fusion import channel_constant, factor_of, table_name

if TYPE_CHECKING:
    from hexane.graph.ir import Op


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
                bias = channel_constant(op, ops[0])
            elif op.type == "mul":
                factor = factor_of(op)
                assert factor is not None  # riders took it for its number
                scale = factor
            elif op.type == "relu":
                relu = True
            else:
                name = table_name(op)
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
