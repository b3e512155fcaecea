"""Integer weights and scales of outputs: exact sums, rounded, scaled, rounded again (docs/reference/compressed.md 4).

A kernel of integers is multiplied as integers, never as dequantised weights. The sum S is exact in units of the
unscaled integers; the result is h(h(S) * s) with one scale s per output (or one for all). The inner rounding keeps
eleven significant bits whatever the size of S is; only the outer one ends at fp16's range. Measured on an M5 Pro by one
located dot and on an M6 by sums of up to 2.6e8; for other chips INFERRED.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hexane.arithmetic import multiply
from hexane.arithmetic.checks import activation_of, bias_of, float16_of, scale_of
from hexane.arithmetic.convolution import prepare
from hexane.arithmetic.formats import multiplier_value, round_half_away
from hexane.arithmetic.hypotheses import chosen
from hexane.arithmetic.mac import mac
from hexane.arithmetic.multiply import Activation
from hexane.arithmetic.plain_convolution import PlainConvolution, PlainWindow
from hexane.errors import UsageError

_LOW = 2.0**-4
"""Where activations are cut in two so that both sums are exact in float64."""
_EXACT = 2.0**53


def exact_sums(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """x (..., K) float64 as the multiplier reads fp16, times integers w (K, N) as float64: sums (..., N) in float64.

    Exact where float64 holds them; else the neighbour on the same side of every tie of `multiply.relative`.
    """
    reach = float(np.abs(x).max(initial=0.0)) * float(np.abs(w).sum(axis=0).max(initial=0.0))
    if reach * 2.0**24 < _EXACT:
        return x @ w
    high = np.trunc(x / _LOW) * _LOW
    a, b = high @ w, (x - high) @ w
    total = a + b
    rest = b - (total - a)
    return np.where(rest == 0, total, np.nextafter(total, np.copysign(np.inf, rest)))


def finish_scaled(sums: np.ndarray, scale: np.ndarray, bias: np.ndarray, activation: Activation) -> np.ndarray:
    """From exact sums to fp16: h(h(S) * s), the bias behind the scale, then ReLU or table.

    ``scale`` float64 and ``bias`` float16 broadcast over the sums.
    """
    scaled = multiply.scaled_sum(sums, scale)
    if bias.any():
        if chosen("scaled-bias") == "rounded-before":
            scaled = round_half_away(scaled).astype(np.float64)
        scaled = scaled + bias.astype(np.float64)
    return multiply.activate(round_half_away(scaled), activation)


def mac_integer(
    x: ArrayLike, w: ArrayLike, scale: ArrayLike = 1.0, bias: ArrayLike | None = None, *, activation: Activation = None
) -> np.ndarray:
    """float16 x (M, K) times integer weights w (K, N), int8 or uint8, times a scale; result (M, N) float16.

    ``scale``: a number or (N,), held as float32; ``bias``: (N,) float16, added behind the scale (hypothesis
    ``scaled-bias``). Raises `UsageError` for wrong dtypes or shapes.
    """
    x, w = float16_of(x, "x", 2), np.asarray(w)
    if w.dtype not in (np.int8, np.uint8) or w.ndim != 2 or x.shape[1] != w.shape[0]:
        raise UsageError(f"x {x.shape} and w {w.dtype} {w.shape} do not multiply", where="w", hint="w is int8 (K, N)")
    factor = scale_of(scale, w.shape[1]).astype(np.float64)
    start, activation = bias_of(bias, w.shape[1]), activation_of(activation)
    return finish_scaled(exact_sums(multiplier_value(x), w.astype(np.float64)), factor, start, activation)


def mac_scaled(
    x: np.ndarray, w: np.ndarray, scales: np.ndarray, bias: np.ndarray | None = None, activation: Activation = None
) -> np.ndarray:
    """float16 x (M, K) times w (K, N) with a scale (N,) behind every sum; result (M, N) float16.

    ``w``: int8 or uint8 is multiplied as integers, float16 (the entries of a palette) by the multiplier's rules.
    """
    start, activation = bias_of(bias, w.shape[1]), activation_of(activation)
    sums = mac(x, w).astype(np.float64) if w.dtype == np.float16 else exact_sums(multiplier_value(x), w.astype(float))
    return finish_scaled(sums, scales.astype(np.float64), start, activation)


def prepare_scaled(
    shape: tuple[int, int, int],
    w: np.ndarray,
    scales: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    groups: int = 1,
    activation: Activation = None,
) -> PlainConvolution:
    """`hexane.arithmetic.convolution.prepare` with a scale for each output behind the sums.

    ``w`` (O, C / groups, KH, KW): int8 or uint8 is multiplied as integers, float16 (the entries of a palette) by the
    multiplier's rules. ``scales`` (O,) float64, ``bias`` (O,) float16.
    """
    start, activation = bias_of(bias, w.shape[0]), activation_of(activation)
    if w.dtype == np.float16:
        inner = prepare(shape, w, strides=strides, pads=pads, groups=groups)
        return ScaledConvolution(inner, scales, start, activation)
    window = PlainWindow((w.shape[2], w.shape[3]), strides, (1, 1), pads, (shape[1], shape[2]))
    return IntegerConvolution(w, scales, start, window, groups, activation)


@dataclass(frozen=True)
class IntegerConvolution:
    """A convolution with integer weights; `PlainConvolution`.

    w : (O, C / groups, KH, KW) integers; scales : (O,) float64; bias : (O,) float16.
    """

    w: np.ndarray
    scales: np.ndarray
    bias: np.ndarray
    window: PlainWindow
    groups: int
    activation: Activation

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        outputs, (oh, ow) = self.w.shape[0], self.window.output
        per_group = outputs // self.groups
        weights = self.w.reshape(self.groups, per_group, -1).astype(np.float64)
        scales, bias = (row.reshape(self.groups, 1, per_group) for row in (self.scales, self.bias))
        result = np.empty((x.shape[0], self.groups, per_group, oh * ow), np.float16)
        for n in range(x.shape[0]):
            terms = multiplier_value(self.window.taps(x[n : n + 1])[0]).reshape(self.groups, -1, oh * ow)
            for g in range(self.groups):
                sums = exact_sums(np.ascontiguousarray(terms[g].T), np.ascontiguousarray(weights[g].T))
                result[n, g] = finish_scaled(sums, scales[g], bias[g], self.activation).T
        return result.reshape(x.shape[0], outputs, oh, ow)

    def keep(self) -> int:
        return 0


@dataclass(frozen=True)
class ScaledConvolution:
    """A convolution whose outputs have a scale each behind fp16 products (a palette with scales); `PlainConvolution`.

    ``inner`` gives h(S) without bias and activation; what follows is the same as behind integers.
    """

    inner: PlainConvolution
    scales: np.ndarray
    bias: np.ndarray
    activation: Activation

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        sums = self.inner(x).astype(np.float64)
        scales, bias = (row.reshape(-1, 1, 1) for row in (self.scales, self.bias))
        return finish_scaled(sums, scales, bias, self.activation)

    def keep(self) -> int:
        return self.inner.keep()
