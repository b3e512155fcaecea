"""What came of a case of a foreign library, and how near its results have to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

RELATIVE, ABSOLUTE = 2e-2, 4e-3
"""fp16: of a result itself, and of the largest (at least of 1)."""
APPLES = {"sigmoid": 3.355e-3, "tanh": 1.613e-3, "gelu": 6.159e-3, "silu": 1.491e-2}
"""The largest errors of Apple's own tables (docs/lookup-tables.md)."""


@dataclass(frozen=True)
class Outcome:
    """What came of one case: pass, refused, wrong or crash (tinygrad's tests know two more, native and special).

    ``engine`` is the share of ops on the engine.
    """

    name: str
    kind: str
    reason: str = ""
    engine: float = 0.0


def table_error(program: Any, *, apples: bool) -> float:
    """The largest errors of the fitted tables that the program reads, added up (docs/lookup-tables.md).

    apples: those of Apple's own tables count too.
    """
    from hexane.kernels import fitted_table
    from hexane.kernels.functions import RECIPES

    kinds = {op.partition(" ")[0] for segment in program.segments for op in segment.ops}
    return sum(fitted_table(name).max_error for name in kinds & set(RECIPES)) + sum(
        error for name, error in APPLES.items() if apples and name in kinds
    )


def difference(
    got: np.ndarray, wanted: np.ndarray, relative: float, absolute: float, more: float = 0.0, narrow: float = 0.0
) -> str:
    """What is wrong with a result, in words; nothing where it is right. Beyond ``narrow``, infinite is right."""
    if got.shape != wanted.shape:
        return f"shape {got.shape} for {wanted.shape}"
    if wanted.dtype.kind in "biu":
        return "" if np.array_equal(got, wanted) else "whole numbers differ"
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0))
    limit = relative * np.abs(wanted) + absolute * max(1.0, min(largest, 65504) if narrow else largest)
    with np.errstate(invalid="ignore"):
        off = np.abs(got - wanted)
    bad = ~((off <= limit + more) | (got == wanted) | np.isnan(wanted))
    if narrow:
        bad &= ~(np.isinf(got) & (np.abs(wanted) >= narrow) & (np.sign(got) == np.sign(wanted)))
    else:
        bad |= np.isnan(wanted) & ~np.isnan(got)
    return f"{int(bad.sum())} of {bad.size} off by up to {np.nanmax(off[bad], initial=0):.3g}" if bad.any() else ""
