"""`mac` and `mac_int8` on the fast kernels; arguments are checked already."""

from __future__ import annotations

import numpy as np

from hexane.arithmetic import multiply
from hexane.arithmetic.fast import matrix
from hexane.arithmetic.fast.rounding import round_half_away
from hexane.arithmetic.fast.targets import VectorKernels, kernels
from hexane.arithmetic.fast.workspace import Workspace
from hexane.arithmetic.formats import LIMIT
from hexane.arithmetic.multiply import Activation, Sums

EXACT_DEPTH = 1024
"""Terms of int8 products, 2^14 each, whose sum a float32 product holds exactly: 2^24."""


def mac(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray,
    post_scale: float,
    activation: Activation,
    use: VectorKernels | None = None,
) -> np.ndarray:
    """As `hexane.arithmetic.mac`, with the vector code of `use`."""
    use = use or kernels()
    start = multiply.bias_units(bias) if bias.any() else matrix.NO_START
    finish = matrix.finish_of(post_scale, activation)
    shape = (x.shape[0], w.shape[1])
    with Workspace() as space:
        rows = matrix.pack_rows(x.view(np.uint16), use, space)
        columns, terms = matrix.pack_columns(w.view(np.uint16)[:, None], np.arange(len(w)), use, space)
        product = matrix.MatrixProduct(rows, terms, use, column_start=start, finish=finish or matrix.Finish())
        if finish is None:
            sums = Sums(np.empty(shape, np.int32), np.empty(shape, np.int8))
            product.sums(columns, sums.units, sums.overflow)
            return multiply.finish(sums.value(), post_scale, activation)
        out = np.empty(shape, np.uint16)
        product.into(columns, matrix.place_of(out[:, None], (shape[1], shape[1], 1)), out)
    return out.view(np.float16)


def mac_int8(x: np.ndarray, w: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """As `hexane.arithmetic.mac_int8`: float32 matrix products of parts that are exact, added in float64."""
    total = _exact_product(x, w)
    if x.shape[1] << 14 >= LIMIT:
        # A partial sum can only reach the limit where the sum of magnitudes does; there the order matters.
        reach = _exact_product(np.abs(x.astype(np.int16)), np.abs(w.astype(np.int16)))
        for i, j in zip(*np.nonzero(reach >= LIMIT), strict=True):
            partial = np.cumsum(x[i].astype(np.int64) * w[:, j].astype(np.int64))
            met = np.flatnonzero(np.abs(partial) >= LIMIT)
            if met.size:
                total[i, j] = np.inf * np.sign(partial[met[0]])
    return round_half_away(multiply.scaled_sum(total, scale.astype(np.float64)))


def _exact_product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    total = np.zeros((x.shape[0], w.shape[1]), np.float64)
    for k in range(0, x.shape[1], EXACT_DEPTH):
        part = slice(k, k + EXACT_DEPTH)
        total += x[:, part].astype(np.float32) @ w[part].astype(np.float32)
    return total
