"""Tables that give their function exactly, without interpolation (docs/reference/engine-h13.md 10, "Derived tables").

With a spacing of 2^-64 the nodes cover nothing but zero: every other input meets a limit or an end line, and a line is
rounded once. Comparisons, clips and functions of two straight pieces are of this kind.
"""

from __future__ import annotations

import math

from hexane.errors import UsageError
from hexane.kernels.tables import NODES, LookupMode, LookupTable

NO_SPACING = 0x40
"""The spacing halfword of Apple's step and clip tables: nodes 2^-64 apart, far below the smallest fp16."""

SMALLEST = 2.0**-24
"""The smallest positive fp16; limits at plus and minus this leave only zero between them."""

WITH_EXPONENT = (LookupMode.EXP2, LookupMode.RSQRT, LookupMode.RECIPROCAL)
"""Modes whose interpolated value is multiplied by a power of two that the input's exponent gives."""

Line = tuple[float, float]
"""Slope and intercept."""


def two_line_table(
    low: Line,
    high: Line,
    *,
    at_zero: float | None = None,
    lower: float = -math.inf,
    below: float | None = None,
    upper: float = math.inf,
    above: float | None = None,
) -> LookupTable:
    """``low`` for negative x, ``high`` for positive x, constants at and beyond the limits.

    ``at_zero`` is the result for 0 (default: the intercept of ``high``). ``below`` and ``above`` default to what the
    lines reach at their limits. Every result is the exact value rounded once to fp16.
    """
    zero = high[1] if at_zero is None else at_zero
    return LookupTable.build(
        LookupMode.CENTRED,
        nodes=(zero,) * NODES,
        spacing_log2=NO_SPACING,
        lower=lower,
        upper=upper,
        below=_reach(low, lower) if below is None else below,
        above=_reach(high, upper) if above is None else above,
        low_line=low,
        high_line=high,
    )


def _reach(line: Line, x: float) -> float:
    """The line at x; a flat line stays what it is at infinity."""
    slope, intercept = line
    return slope * x + intercept if slope else intercept


def leaky_relu_table(alpha: float) -> LookupTable:
    """x for x >= 0, alpha * x below; `[APPLE]`."""
    return two_line_table((alpha, 0.0), (1.0, 0.0))


def limited_line_table(alpha: float, beta: float, low: float = 0.0, high: float = 1.0) -> LookupTable:
    """alpha x + beta cut to [low, high], alpha > 0 (a hard sigmoid); the form of ``clip_table`` [INFERRED]."""
    line = (alpha, beta)
    lower, upper = (low - beta) / alpha, (high - beta) / alpha
    zero = min(max(beta, low), high)
    return two_line_table(line, line, at_zero=zero, lower=lower, below=low, upper=upper, above=high)


def clip_table(low: float = -math.inf, high: float = math.inf) -> LookupTable:
    """x cut to [low, high].

    Apple's bytes for a lower limit above zero; elsewhere its form with the result at zero and both lines filled in,
    which that form leaves out where it cannot be reached [INFERRED].
    """
    zero = min(max(0.0, low), high)
    return two_line_table((1.0, 0.0), (1.0, 0.0), at_zero=zero, lower=low, below=low, upper=high, above=high)


def step_table(negative: float, zero: float, positive: float) -> LookupTable:
    """Three constants: for x < 0, x = 0 (either sign) and x > 0.

    The form of Apple's comparisons; their bytes for (1, 0, 0), (1, 0, 1) and (0, 1, 0) `[APPLE]`.
    """
    return LookupTable.build(
        LookupMode.CENTRED,
        nodes=(zero,) * (NODES - 1) + (0.0,),
        spacing_log2=NO_SPACING,
        lower=-SMALLEST,
        upper=SMALLEST,
        below=negative,
        above=positive,
        low_line=(0.0, negative),
        high_line=(0.0, positive),
    )


def less_than_zero_table() -> LookupTable:
    """1 for x < 0, else 0; `[APPLE]`."""
    return step_table(1.0, 0.0, 0.0)


def not_zero_table() -> LookupTable:
    """1 for x != 0, else 0; `[APPLE]`."""
    return step_table(1.0, 0.0, 1.0)


def is_zero_table() -> LookupTable:
    """1 for x = 0, else 0 (logical not); `[APPLE]`."""
    return step_table(0.0, 1.0, 0.0)


def sign_table() -> LookupTable:
    """-1, 0 or 1."""
    return step_table(-1.0, 0.0, 1.0)


def fraction_table() -> LookupTable:
    """x - trunc(x); `[APPLE]`."""
    return LookupTable.build(LookupMode.FRACTION)


def integer_table() -> LookupTable:
    """trunc(x); `[APPLE]`."""
    return LookupTable.build(LookupMode.INTEGER, below=-math.inf, above=math.inf, spacing_log2=5)


def scaled_table(table: LookupTable, scale: float, shift: float) -> LookupTable:
    """scale * f(x) + shift for the f of a centred table: every node, line and limit scaled and shifted, and rounded.

    Interpolation is linear, so that nothing but these roundings is added. Tables that put an exponent behind their
    interpolation (exp2, rsqrt, reciprocal) take a power of two as scale and no shift; every step is exact then.
    `UsageError` for other tables and numbers.
    """
    if (scale, shift) == (1.0, 0.0):
        return table
    if table.mode in WITH_EXPONENT and shift == 0.0 and scale > 0 and math.frexp(scale)[0] == 0.5:
        return LookupTable.build(
            table.mode,
            nodes=scale * table.nodes.astype(float),
            spacing_log2=table.spacing_log2,
            lower=table.lower,
            upper=table.upper,
            below=scale * table.below,
            above=scale * table.above,
        )
    if table.mode is not LookupMode.CENTRED or not scale or not math.isfinite(scale) or not math.isfinite(shift):
        raise UsageError(f"a {table} with scale {scale:g} and shift {shift:g}", where="scaled_table")

    def line(of: Line) -> Line:
        return scale * of[0], scale * of[1] + shift

    return LookupTable.build(
        table.mode,
        nodes=scale * table.nodes.astype(float) + shift,
        spacing_log2=table.spacing_log2,
        lower=table.lower,
        upper=table.upper,
        below=scale * table.below + shift,
        above=scale * table.above + shift,
        low_line=line(table.low_line),
        high_line=line(table.high_line),
    )
