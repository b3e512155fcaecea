"""Weights of which blocks are zero, as of a convolution in groups that was written as a whole one.

Zero weights add nothing, in whatever order (docs/reference/numerics.md 3.3), so outputs that use the same few inputs
are a product of their own, of those inputs only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from hexane.rounding import ceil_div

COUNTS = (2, 3, 4, 6, 8, 12, 16)
LEAST_GAIN = 0.75
"""Of the products that are left, over all: below, packing in blocks pays."""


class NonzeroBlocks(NamedTuple):
    """``number`` blocks of as many outputs; output o is of block o % number if they are ``woven``, else they come one
    after the other. ``terms`` (number, n): which terms a block has, in order."""

    number: int
    woven: bool
    terms: np.ndarray

    def outputs(self, x: np.ndarray) -> np.ndarray:
        """An array (O, ...) as (number, O / number, ...), a view."""
        per = x.shape[0] // self.number
        one, block = (x.strides[0] * self.number, x.strides[0]) if self.woven else (x.strides[0], x.strides[0] * per)
        return as_strided(x, (self.number, per, *x.shape[1:]), (block, one, *x.strides[1:]))


def blocks_of(weights: np.ndarray, rows: int) -> NonzeroBlocks | None:
    """The blocks of halfwords (O, K) that leave the fewest products, or None; ``rows`` is the height of a tile."""
    nonzero = weights & 0x7FFF != 0
    if np.count_nonzero(nonzero) > nonzero.size * LEAST_GAIN:
        return None
    outputs, depth = weights.shape
    best, best_blocks = LEAST_GAIN * ceil_div(outputs, rows) * depth, None
    for count in COUNTS:
        if outputs % count or outputs // count < rows // 2:
            continue
        for woven in (False, True):
            blocks = NonzeroBlocks(count, woven, np.empty(0))
            any_row = blocks.outputs(nonzero).any(1)
            most = int(any_row.sum(1).max())
            work = count * -(-outputs // count // rows) * most
            if most > 0 and work < best:
                # the terms that a block has, and as many others as make all blocks equal
                order = np.argsort(~any_row, axis=1, kind="stable")[:, :most]
                best, best_blocks = work, blocks._replace(terms=np.sort(order, axis=1))
    return best_blocks
