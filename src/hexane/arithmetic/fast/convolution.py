"""Whole convolutions on the fast kernels."""

from __future__ import annotations

import numpy as np

from hexane.arithmetic import convolution as plain
from hexane.arithmetic.multiply import Activation


def conv2d(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray,
    window: plain.Window,
    groups: int,
    post_scale: float,
    activation: Activation,
    winograd: bool,
) -> np.ndarray:
    """As `hexane.arithmetic.conv2d`, arguments checked."""
    form = plain.conv2d_winograd_plain if winograd else plain.conv2d_plain
    return form(x, w, bias, window, groups, post_scale, activation)
