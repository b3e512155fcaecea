"""The one-dimensional Winograd form F(2,3) of 3x3 and 1x3 convolutions on M5 and M6 (docs/reference/numerics.md 6),
stated plainly.

Two neighbouring outputs of a row share four transformed inputs. The transforms are rounded once to fp16, the products
follow the rules of the multiplier, and the four sums are combined exactly.
"""

from __future__ import annotations

import numpy as np

from hexane.arithmetic.formats import LIMIT, halfwords, multiplier_value, round_half_away
from hexane.arithmetic.multiply import Sums


def transform_kernel(w: np.ndarray) -> np.ndarray:
    """Four transformed weights (4, O, I, KH) fp16 of a kernel (O, I, KH, 3)."""
    g = multiplier_value(w)
    g0, g1, g2 = g[..., 0], g[..., 1], g[..., 2]
    return np.stack(
        [
            halfwords(w)[..., 0].view(np.float16),
            round_half_away((g0 + g1 + g2) / 2),
            round_half_away((g0 - g1 + g2) / 2),
            halfwords(w)[..., 2].view(np.float16),
        ]
    )


def transform_input(x: np.ndarray) -> np.ndarray:
    """Four transformed inputs (4, N, C, H, T) fp16 of padded rows (N, C, H, 2T + 2): pair t starts at column 2t.

    A transformed value above 65504 is stored as infinity (hypothesis ``winograd-transform-overflow``).
    """
    pairs = (x.shape[-1] - 2) // 2
    d = multiplier_value(x)
    d0, d1, d2, d3 = (d[..., i : i + 2 * pairs : 2] for i in range(4))
    return np.stack(
        [round_half_away(d0 - d2), round_half_away(d1 + d2), round_half_away(d2 - d1), round_half_away(d1 - d3)]
    )


def combine(sums: list[Sums], start: np.ndarray) -> tuple[Sums, Sums]:
    """The even and the odd outputs' sums from the four sums m0..m3 and the bias (hypothesis ``winograd-bias``)."""
    m0, m1, m2, m3 = sums
    even = _combined([(1, m0), (1, m1), (1, m2)], start)
    odd = _combined([(1, m1), (-1, m2), (-1, m3)], start)
    return even, odd


def _combined(terms: list[tuple[int, Sums]], start: np.ndarray) -> Sums:
    units = np.zeros(terms[0][1].units.shape, np.int64) + start
    overflow = np.zeros(units.shape, np.int8)
    for sign, m in terms:
        units = units + sign * m.units
        overflow = np.where(overflow == 0, sign * m.overflow, overflow).astype(np.int8)
    met = (overflow == 0) & (np.abs(units) >= LIMIT)
    return Sums(units, np.where(met, np.sign(units), overflow).astype(np.int8))
