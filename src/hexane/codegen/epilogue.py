"""What a neural engine task does behind its sums: scalar factor, ReLU or table (spec/engine-h13 §8.1, limits 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hexane.codegen.plan import Plan
from hexane.codegen.recipes.registry import follows, fp16_bits, scalar
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

    @classmethod
    def of(cls, ops: Sequence[Op]) -> Epilogue:
        """The epilogue that the ops behind the first one ask for."""
        scale, relu, name = 1.0, False, None
        for op in ops[1:]:
            if op.type == "mul":
                scale = factor_of(op) or 1.0
            elif op.type == "relu":
                relu = True
            else:
                name = gelu_table(op) if op.type == "gelu" else FUNCTIONS[op.type].table
                if FUNCTIONS[op.type].scale != 0x3C00:
                    scale *= float(np.uint16(FUNCTIONS[op.type].scale).view(np.float16))
        return cls(relu, name, fp16_bits(scale))

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


def match_epilogue(op: Op) -> tuple[Op, ...]:
    """The op, then at most one scalar product and one ReLU or table that only it feeds."""
    run, last = [op], op
    product = follows(last, "mul")
    if product is not None and factor_of(product) is not None:
        run.append(product)
        last = product
    function = follows(last, "relu", *FUSED)
    if function is not None and not (function.type == "exp" and len(run) > 1):
        run.append(function)
    return tuple(run)
