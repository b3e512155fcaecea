"""Dtypes, shapes and ranges that callers may pass, checked once at the border of the package."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hexane.arithmetic.multiply import Activation
from hexane.arithmetic.tables import table_halfwords
from hexane.errors import UsageError


def float16_of(x: ArrayLike, name: str, ndim: int | None = None) -> np.ndarray:
    """A float16 array with the asked number of axes and no empty axis."""
    array = _array_of(x, name)
    if array.dtype != np.float16:
        raise UsageError(
            f"{name} has dtype {array.dtype}, the engine computes in float16",
            where=name,
            hint="convert it with .astype(numpy.float16)",
        )
    return _shaped(array, name, ndim)


def int8_of(x: ArrayLike, name: str, ndim: int | None = None) -> np.ndarray:
    """An int8 array with the asked number of axes and no empty axis."""
    array = _array_of(x, name)
    if array.dtype != np.int8:
        raise UsageError(f"{name} has dtype {array.dtype}, expected int8", where=name)
    return _shaped(array, name, ndim)


def _array_of(x: ArrayLike, name: str) -> np.ndarray:
    try:
        return np.asarray(x)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} is not an array: {error}", where=name) from error


def scale_of(scale: ArrayLike, size: int) -> np.ndarray:
    """The scale of int8 sums as float32: a number, or one per column."""
    try:
        with np.errstate(over="ignore"):
            factor = np.asarray(scale, np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"scale {scale!r} is not a number", where="scale") from error
    if factor.shape not in ((), (1,), (size,)) or not np.isfinite(factor).all():
        raise UsageError(f"scale must be finite as float32, a number or ({size},)", where="scale")
    return factor


def _shaped(array: np.ndarray, name: str, ndim: int | None) -> np.ndarray:
    if ndim is not None and array.ndim != ndim:
        raise UsageError(f"{name} has shape {array.shape}, expected {ndim} axes", where=name)
    if array.size == 0:
        raise UsageError(f"{name} is empty, shape {array.shape}", where=name)
    return array


def bias_of(bias: ArrayLike | None, size: int) -> np.ndarray:
    """The bias as (size,) float16; zeros without one."""
    if bias is None:
        return np.zeros(size, np.float16)
    array = float16_of(bias, "bias")
    if array.shape != (size,):
        raise UsageError(f"bias has shape {array.shape}, expected ({size},)", where="bias")
    return array


def post_scale_of(post_scale: float) -> float:
    """The post-scale as its fp16 register holds it."""
    try:
        with np.errstate(over="ignore"):
            scale = float(np.float16(post_scale))
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"post_scale {post_scale!r} is not a number", where="post_scale") from error
    if not np.isfinite(scale):
        raise UsageError(f"post_scale {post_scale} is not a finite fp16 value", where="post_scale")
    return scale


def activation_of(activation: Any) -> Activation:
    """None, "relu" or a table of 64 halfwords."""
    if activation is None:
        return None
    if isinstance(activation, str):
        if activation != "relu":
            raise UsageError(
                f"no activation is called {activation!r}",
                where="activation",
                hint="use 'relu' or a table of 64 halfwords (function_table)",
            )
        return activation
    return table_halfwords(activation)


def pair_of(value: int | tuple[int, int], name: str) -> tuple[int, int]:
    """One positive number for both axes, or (vertical, horizontal)."""
    vertical, horizontal = _integers((value, value) if np.isscalar(value) else value, 2, name)
    if vertical < 1 or horizontal < 1:
        raise UsageError(f"{name} must be positive, got {value!r}", where=name)
    return vertical, horizontal


def pads_of(value: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Left, top, right, bottom; the first two not negative."""
    left, top, right, bottom = _integers(value, 4, "pads")
    if left < 0 or top < 0:
        raise UsageError(f"left and top padding cannot be negative: {value}", where="pads")
    return left, top, right, bottom


def _integers(value: Any, count: int, name: str) -> list[int]:
    try:
        numbers = [int(v) for v in value]
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{name} must be {count} integers, got {value!r}", where=name) from error
    if len(numbers) != count or numbers != list(value):
        raise UsageError(f"{name} must be {count} integers, got {value!r}", where=name)
    if any(abs(number) > MOST for number in numbers):
        raise UsageError(f"{name} is {value!r}", where=name, hint=f"at most {MOST}")
    return numbers


MOST = 1 << 20
"""Strides, dilations and borders; the engine's own registers end far below."""

MOST_ELEMENTS = 1 << 31
"""Of a padded input or a result."""


def groups_of(groups: int) -> int:
    """A whole number from 1 on."""
    if not isinstance(groups, int | np.integer) or isinstance(groups, bool) or groups < 1:
        raise UsageError(f"groups must be a whole number from 1 on, got {groups!r}", where="groups")
    return int(groups)


def require_bounded(channels: int, extents: tuple[int, int], name: str) -> None:
    """UsageError for planes that no memory of an engine holds."""
    if channels * extents[0] * extents[1] > MOST_ELEMENTS:
        raise UsageError(f"{channels} planes of {extents[0]}x{extents[1]}", where=name, hint="make the borders smaller")
