"""Matrix products of the multiply-accumulate unit: the front of plain statement and fast kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hexane.arithmetic import multiply, tier
from hexane.arithmetic.checks import activation_of, bias_of, float16_of, int8_of, post_scale_of, scale_of
from hexane.arithmetic.formats import halfwords
from hexane.arithmetic.multiply import Activation
from hexane.errors import UsageError


def mac(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    post_scale: float = 1.0,
    exact: bool = False,
    *,
    activation: Activation = None,
) -> np.ndarray:
    """Multiply-accumulate x (M, K) by w (K, N), float16; result (M, N) float16 with the engine's bits.

    Parameters
    ----------
    bias : (N,) float16, the start value of every sum.
    post_scale : what the sum is multiplied with before it is rounded, held as fp16 (hypothesis ``post-scale``).
    exact : True for the plain statement, False for the fast kernel; the same bits.
    activation : None, "relu", or the 64 halfwords of a look-up table.

    Terms are taken in increasing k, which matters only where a sum can reach 2^15 (docs/reference/numerics.md 3.3).
    Raises `UsageError` for wrong dtypes or shapes.
    """
    x, w = float16_of(x, "x", 2), float16_of(w, "w", 2)
    if x.shape[1] != w.shape[0]:
        raise UsageError(f"x {x.shape} and w {w.shape} do not share K", where="w")
    bias, post_scale, activation = bias_of(bias, w.shape[1]), post_scale_of(post_scale), activation_of(activation)
    if not (exact or tier.plain(x.size * w.shape[1])):
        from hexane.arithmetic.fast import mac as fast

        return fast.mac(x, w, bias, post_scale, activation)
    start = np.broadcast_to(multiply.bias_units(bias), (x.shape[0], w.shape[1]))
    sums = multiply.accumulate(halfwords(x), halfwords(w), start)
    return multiply.finish(sums.value(), post_scale, activation)


def mac_int8(x: ArrayLike, w: ArrayLike, scale: ArrayLike, exact: bool = False) -> np.ndarray:
    """int8 x (M, K) times int8 w (K, N), summed exactly in 32 bits, rounded, times scale, rounded again.

    `scale`: a number or (N,), held as float32: input scale times weight scale. Result (M, N) float16; a sum that
    reaches 2^31 is infinite. Where it is rounded: hypothesis ``integer-scale``, docs/reference/compressed.md 4.
    """
    x, w = int8_of(x, "x", 2), int8_of(w, "w", 2)
    if x.shape[1] != w.shape[0]:
        raise UsageError(f"x {x.shape} and w {w.shape} do not share K", where="w")
    factor = scale_of(scale, w.shape[1])
    if not (exact or tier.plain(x.size * w.shape[1])):
        from hexane.arithmetic.fast import mac as fast

        return fast.mac_int8(x, w, factor)
    sums = multiply.accumulate_int8(x, w)
    return multiply.finish_int8(sums.value(unit_bits=0), factor)


def matmul(
    a: ArrayLike, b: ArrayLike, *, post_scale: float = 1.0, activation: Activation = None, exact: bool = False
) -> np.ndarray:
    """Product of two runtime tensors a (..., M, K) and b (..., K, N), float16, batch axes broadcast.

    See docs/reference/numerics.md 3.
    """
    a, b = float16_of(a, "a"), float16_of(b, "b")
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise UsageError(f"a {a.shape} and b {b.shape} do not multiply", where="b")
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError as error:
        raise UsageError(f"batch axes of a {a.shape} and b {b.shape} do not broadcast", where="b") from error
    left, right = np.broadcast_to(a, (*batch, *a.shape[-2:])), np.broadcast_to(b, (*batch, *b.shape[-2:]))
    result = np.empty((*batch, a.shape[-2], b.shape[-1]), np.float16)
    for index in np.ndindex(*batch):
        result[index] = mac(left[index], right[index], None, post_scale, exact, activation=activation)
    return result
