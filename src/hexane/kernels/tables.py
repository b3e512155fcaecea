"""A look-up table as a value: limits, 33 nodes, end lines, spacing and mode of its 128 bytes.

Source: docs/reference/engine-h13.md 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from hexane.errors import FormatError, UsageError

NODES = 33
HALFWORDS = 64

_NODES = slice(4, 4 + NODES)


class LookupMode(IntEnum):
    """The mode halfword of the tables that have been seen; the evaluation of each: docs/reference/numerics.md 8."""

    CENTRED = 0x01
    ODD = 0x60
    EXP2 = 0x0A
    LOG2 = 0xC9
    SQRT = 0xC5
    RSQRT = 0xC6
    RECIPROCAL = 0x67
    FRACTION = 0x63
    INTEGER = 0x64


@dataclass(frozen=True)
class LookupTable:
    """The 64 halfwords of a table, readable by name. Any 128 bytes are a table; none of their bits is lost.

    ``np.asarray(table)`` gives the halfwords as uint16, which is what :func:`hexane.arithmetic.lookup` takes.
    """

    halfwords: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.halfwords) != HALFWORDS or not all(0 <= word <= 0xFFFF for word in self.halfwords):
            raise UsageError("a look-up table has 64 halfwords of 16 bits", where="LookupTable")

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> LookupTable:
        """Decode 128 bytes; `FormatError` for another length."""
        if len(data) != 2 * HALFWORDS:
            raise FormatError(f"a look-up table has 128 bytes, not {len(data)}", where="table")
        return cls(tuple(np.frombuffer(data, "<u2").tolist()))

    @classmethod
    def build(
        cls,
        mode: LookupMode | int,
        *,
        nodes: Sequence[float] | np.ndarray = (0.0,) * NODES,
        spacing_log2: int = 0,
        lower: float = -np.inf,
        upper: float = np.inf,
        below: float = 0.0,
        above: float = 0.0,
        low_line: tuple[float, float] = (0.0, 0.0),
        high_line: tuple[float, float] = (0.0, 0.0),
    ) -> LookupTable:
        """A table from its parts; numbers are rounded to fp16.

        Parameters
        ----------
        nodes : 33 values.
        spacing_log2 : m, the nodes are 2^-m apart (halfword 41).
        lower, upper : inputs at or beyond which ``below`` and ``above`` are the result.
        low_line, high_line : (slope, intercept) between a limit and the nodes.
        """
        if len(nodes) != NODES:
            raise UsageError(f"a look-up table has {NODES} nodes, not {len(nodes)}", where="nodes")
        if not 0 <= spacing_log2 <= 0xFFFF:
            raise UsageError(f"spacing 2^-{spacing_log2} cannot be stored", where="spacing_log2")
        words = np.zeros(HALFWORDS, "<f2")
        with np.errstate(over="ignore"):
            words[:4] = lower, upper, below, above
            words[_NODES] = nodes
            words[37:39], words[39:41] = low_line, high_line
        bits = words.view("<u2")
        bits[41], bits[42] = spacing_log2, int(mode)
        return cls(tuple(bits.tolist()))

    # ---- parts ---

    def _number(self, index: int) -> float:
        return float(np.uint16(self.halfwords[index]).view(np.float16))

    @property
    def lower(self) -> float:
        """Inputs at or below this one give ``below``."""
        return self._number(0)

    @property
    def upper(self) -> float:
        """Inputs at or above this one give ``above``."""
        return self._number(1)

    @property
    def below(self) -> float:
        return self._number(2)

    @property
    def above(self) -> float:
        return self._number(3)

    @property
    def nodes(self) -> np.ndarray:
        """The 33 nodes, float16."""
        return np.array(self.halfwords[_NODES], "<u2").view("<f2")

    @property
    def low_line(self) -> tuple[float, float]:
        """Slope and intercept between ``lower`` and the nodes."""
        return self._number(37), self._number(38)

    @property
    def high_line(self) -> tuple[float, float]:
        """Slope and intercept between the nodes and ``upper``."""
        return self._number(39), self._number(40)

    @property
    def spacing_log2(self) -> int:
        """m: nodes are 2^-m apart. In a trunc table 5, without a known meaning."""
        return self.halfwords[41]

    @property
    def mode(self) -> int:
        """A `LookupMode`, or a number that no known table has."""
        word = self.halfwords[42]
        return LookupMode(word) if word in LookupMode._value2member_map_ else word

    # ---- use ---

    def to_bytes(self) -> bytes:
        """The 128 bytes as they stand in a kernel section."""
        return np.array(self.halfwords, "<u2").tobytes()

    __bytes__ = to_bytes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.halfwords, np.uint16 if dtype is None else dtype)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The engine's result for float16 ``x``, bit by bit (:func:`hexane.arithmetic.lookup`)."""
        from hexane.arithmetic import lookup

        return lookup(np.asarray(self), x)

    def __str__(self) -> str:
        mode = self.mode
        name = mode.name.lower() if isinstance(mode, LookupMode) else f"mode {mode:#04x}"
        return f"{name} table, nodes 2^-{self.spacing_log2} apart, limits {self.lower:g} and {self.upper:g}"


def known_table(name: str) -> LookupTable:
    """One of Apple's nine tables: sigmoid, tanh, gelu, silu, exp2, log2, sqrt, rsqrt, recip (appendix B).

    `UnsupportedError` for another name.
    """
    from hexane.arithmetic.function_tables import function_table

    return LookupTable(tuple(function_table(name).tolist()))
