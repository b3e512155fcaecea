"""Convolutions in the engine's accumulation order.

Source: docs/reference/engine-h13.md 8.1, docs/reference/numerics.md 3.3, 6.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hexane.arithmetic import tier
from hexane.arithmetic.checks import (
    activation_of,
    bias_of,
    float16_of,
    groups_of,
    pads_of,
    pair_of,
    post_scale_of,
    require_bounded,
)
from hexane.arithmetic.hypotheses import chosen
from hexane.arithmetic.multiply import Activation
from hexane.arithmetic.plain_convolution import Grouped, Plain, PlainConvolution, PlainWindow
from hexane.errors import UsageError

GROUP = 700
"""Elements whose time the plain statement takes for each group of channels by itself."""


def conv2d(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    strides: int | tuple[int, int] = 1,
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilations: int | tuple[int, int] = 1,
    groups: int = 1,
    post_scale: float = 1.0,
    activation: Activation = None,
    form: str = "direct",
    exact: bool = False,
) -> np.ndarray:
    """Convolution of x (N, C, H, W) with w (O, C / groups, KH, KW), float16 both; result (N, O, OH, OW) float16.

    Parameters
    ----------
    bias : (O,) float16, the start value of every sum.
    strides, dilations : one number or (vertical, horizontal).
    pads : zero border left, top, right, bottom; right and bottom may be negative (columns that no output reads).
    groups : C gives depthwise.
    post_scale : what the sum is multiplied with, held as fp16.
    activation : None, "relu", or the 64 halfwords of a look-up table.
    form : "direct" (all chips up to M4) or "winograd" (M5 and M6: used where the kernel is 3x3 or 1x3, not depthwise,
        with stride 1 and no dilation, else direct; of groups by hypothesis ``winograd-groups``;
        docs/reference/numerics.md 6).
    exact : the plain statement instead of the fast kernel; same bits.

    Raises `UsageError` for wrong dtypes or shapes. Rules: docs/reference/numerics.md 3 and 6.
    """
    x = float16_of(x, "x", 4)
    ready = prepare(
        x.shape[1:], w, bias, strides=strides, pads=pads, dilations=dilations, groups=groups,
        post_scale=post_scale, activation=activation, form=form, exact=exact,
    )  # fmt: skip
    return ready(x)


def prepare(
    shape: tuple[int, int, int],
    w: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    strides: int | tuple[int, int] = 1,
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilations: int | tuple[int, int] = 1,
    groups: int = 1,
    post_scale: float = 1.0,
    activation: Activation = None,
    form: str = "direct",
    exact: bool = False,
) -> PlainConvolution:
    """`conv2d` for inputs (N, C, H, W) of one `shape` (C, H, W), checked once; what it returns takes the input.

    A weight that many inputs meet need not be made ready for each: see `PlainConvolution.keep`.
    """
    w = float16_of(w, "w", 4)
    activation, post_scale = activation_of(activation), post_scale_of(post_scale)
    if form not in ("direct", "winograd"):
        raise UsageError(f"no form of convolution is called {form!r}", where="form", hint="use 'direct' or 'winograd'")
    groups = groups_of(groups)
    if shape[0] != w.shape[1] * groups or w.shape[0] % groups:
        raise UsageError(
            f"x has {shape[0]} channels, w is {w.shape} in {groups} groups",
            where="w",
            hint="w must be (O, C / groups, KH, KW) with O a multiple of groups",
        )
    window = PlainWindow(
        kernel=(w.shape[2], w.shape[3]),
        strides=pair_of(strides, "strides"),
        dilations=pair_of(dilations, "dilations"),
        pads=pads_of(pads),
        input=(shape[1], shape[2]),
    )
    if min(window.output) < 1:
        raise UsageError(f"the kernel {window.kernel} does not fit the padded input {window.input}", where="w")
    left, top, right, bottom = window.pads
    require_bounded(shape[0], (shape[1] + top + bottom, shape[2] + left + right), "pads")
    require_bounded(w.shape[0], window.output, "pads")
    bias = bias_of(bias, w.shape[0])
    use_winograd = form == "winograd" and window.winograd and not (w.shape[1] == 1 and groups == w.shape[0] > 1)
    if use_winograd and groups > 1:
        if chosen("winograd-groups") == "each-group":
            each, cin = w.shape[0] // groups, w.shape[1]
            parts = [slice(g * each, (g + 1) * each) for g in range(groups)]
            return Grouped(
                tuple(
                    prepare(
                        (cin, *shape[1:]), w[part], bias[part], strides=strides, pads=pads, dilations=dilations,
                        post_scale=post_scale, activation=activation, form=form, exact=exact,
                    )
                    for part in parts
                ),
                cin,
            )  # fmt: skip
        use_winograd = False
    plain = Plain(w, bias, window, groups, post_scale, activation, use_winograd)
    pixels = window.output[0] * window.output[1]
    outputs = w.shape[0] * pixels + GROUP * groups
    if not (exact or tier.plain(w.size * pixels, outputs, shape[0] * w.shape[2] * w.shape[3] * pixels)):
        from hexane.arithmetic.fast import convolution as fast

        return fast.prepare(plain)
    return plain
