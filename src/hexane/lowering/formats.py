"""Formats of compressed weights by name: ``palette4``, ``palette4:scales``, ``int8``, ``int4:32``, ``sparse:0.5``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from hexane.errors import UnsupportedError, UsageError
from hexane.kernels.layout import PALETTE_BITS
from hexane.rounding import ceil_div

NAMES = "fp16, palette1|2|3|4|6|8, palette4:scales, palette4:16 (a table for 16 outputs), int8, int8:tensor, int4, "
NAMES += "int4:32 (blocks of 32 inputs), sparse:0.5, sparse:0.5+palette4"
_PALETTE = re.compile(r"palette(\d)(?::(scales|\d+))?")
_INTEGER = re.compile(r"int([48])(?::(tensor|\d+))?")
_SPARSE = re.compile(r"sparse:(0?\.\d+)(?:\+palette(\d))?")


@dataclass(frozen=True)
class WeightFormat:
    """Storage of a layer's weights.

    kind : "fp16", "palette", "integer" or "sparse".
    bits : of an index or integer; of what stands behind a mask, 16 or an index.
    per_output : a scale for each output channel.
    group : outputs that share a table (palette), inputs that share a scale (integer); 0: the whole tensor.
    sparsity : share of the weights that become zero.
    """

    name: str
    kind: str
    bits: int = 16
    per_output: bool = False
    group: int = 0
    sparsity: float = 0.0

    @classmethod
    def of(cls, name: str) -> WeightFormat:
        """The format of a name; UsageError lists the names."""
        if name == "fp16":
            return cls(name, "fp16")
        if (match := _PALETTE.fullmatch(name)) and int(match[1]) in PALETTE_BITS:
            scales, group = match[2] == "scales", int(match[2]) if match[2] and match[2].isdigit() else 0
            return cls(name, "palette", int(match[1]), scales, group)
        if match := _INTEGER.fullmatch(name):
            group = int(match[2]) if match[2] and match[2].isdigit() else 0
            return cls(name, "integer", int(match[1]), match[2] != "tensor", group)
        if (match := _SPARSE.fullmatch(name)) and (match[2] is None or int(match[2]) in PALETTE_BITS):
            return cls(name, "sparse", int(match[2]) if match[2] else 16, sparsity=float(match[1]))
        raise UsageError(f"no weight format is called {name!r}", hint=f"there are {NAMES}")

    def check(self, shape: tuple[int, ...]) -> None:
        """UnsupportedError where groups do not divide a weight [outputs, inputs, ...]."""
        axis, what = (0, "outputs") if self.kind == "palette" else (1, "inputs")
        if self.group and shape[axis] % self.group:
            raise UnsupportedError(f"{shape[axis]} {what} are no multiple of {self.group}", hint="choose another group")

    def bytes_of(self, shape: tuple[int, ...]) -> int:
        """Bytes of a weight [outputs, inputs, ...] in a file, tables and scales included."""
        count = prod(shape)
        outputs, inputs = shape[0], count // max(shape[0], 1)
        if self.kind == "palette":
            tables = ceil_div(outputs, self.group) if self.group else 1
            return ceil_div(count * self.bits, 8) + tables * (2 << self.bits) + 2 * outputs * self.per_output
        if self.kind == "integer":
            blocks = outputs * ceil_div(inputs, self.group) if self.group else outputs if self.per_output else 1
            return ceil_div(count * self.bits, 8) + 2 * blocks
        if self.kind == "sparse":
            nonzero = count - int(count * self.sparsity)
            table = 0 if self.bits == 16 else 2 << self.bits
            return ceil_div(count, 8) + ceil_div(nonzero * self.bits, 8) + table
        return 2 * count
