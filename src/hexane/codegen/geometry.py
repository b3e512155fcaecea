"""Division of a task among the cores: cores, lanes, work-unit shape, patches, tiles.

Source: docs/reference/engine-h13.md 4.3, 7.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hexane.rounding import ceil_div

if TYPE_CHECKING:
    from hexane.codegen.targets import Target

PATCH_PIXELS = 128
KERNEL_WEIGHT = 6.25
"""Bytes moved, kernels and border rows too, that weigh as much as a coefficient of a one-row patch: 6.12 to 6.44."""
PATCH_BYTES = 256  # 8-bit maps: twice as many pixels (logical_not of 64x64 has patches of 64x4)


def ceil_log2(value: int) -> int:
    return max(0, (value - 1).bit_length())


def floor_log2(value: int) -> int:
    return value.bit_length() - 1


def cores_log2(channels: int) -> int:
    """log2 of the cores that share ``channels`` outputs (§4.3.1)."""
    return min(4, ceil_log2(channels))


def transposing_cores_log2(wout: int) -> int:
    """The same for a transposing copy, which counts output columns."""
    return min(4, floor_log2(max(8, wout)))


def output_group(lanes: int, *, small: bool, transposed: bool) -> int:
    """OCGSize: output channels per core that share one pass over the source (§4.3)."""
    cap = 5 if small and not transposed else 4
    return min(ceil_log2(lanes), cap)


def patch_count(width: int, height: int, s: int, pixels: int = PATCH_PIXELS) -> int:
    return ceil_div(width, pixels >> s) * ceil_div(height, 1 << s)


def largest_shape(width: int, height: int, pixels: int = PATCH_PIXELS, *, narrow: bool = False) -> int:
    """ShMax: the patch height (log2) that covers the output with the fewest patches, the smallest on a tie.

    ``narrow``: no patch is wider than a map of several rows.
    """
    shapes = list(range(5))
    if narrow and height > 1:
        shapes = [s for s in shapes if pixels >> s <= width] or shapes
    return min(shapes, key=lambda s: (patch_count(width, height, s, pixels), s))


def is_small_source(target: Target, width: int, height: int, kernel_bytes_per_core: int) -> bool:
    """SmallSourceMode of a task with weights in the const section (§4.3, Cfg bit 2)."""
    choices = target.choices
    small = width * height <= choices.small_area if choices.small_area else width <= 8 and height <= 8
    return small and kernel_bytes_per_core <= choices.small_kernel_bytes


def work_shape(
    target: Target,
    size: tuple[int, int],
    coefficients: int,
    traffic: int,
    pixels: int = PATCH_PIXELS,
    alone: bool = False,
) -> tuple[int, int, int]:
    """(ShPref, ShMin, ShMax) of a task that is neither small-source, locked nor a transposing copy (§4.3.1).

    ``size`` is the width and the height of the result, ``coefficients`` are those of one core. The large patch is
    enforced when streaming all coefficients once per one-row patch costs more than moving ``traffic`` bytes; a side
    that stays in L2 moves none.
    """
    wout, hout = size
    s = largest_shape(wout, hout, pixels, narrow=alone and target.choices.narrow_copies)
    weight = target.choices.copy_weight if alone else KERNEL_WEIGHT
    one_row_patches = hout * ceil_div(wout, PATCH_PIXELS)
    if weight * one_row_patches * coefficients >= traffic:
        return (s, s, s)
    return (0, 0, s)


def transposing_shape(
    target: Target, channels: int, width: int, height: int, *, interleaved: bool, few: int = 16
) -> tuple[int, int, int]:
    """(ShPref, ShMin, ShMax) of a copy with transposed output that reads by DMA (§4.3.1); ``few`` channels share it."""
    s = largest_shape(width, height, narrow=target.choices.narrow_copies)
    if channels == height == 1 and target.choices.plain_pixel_copies:
        return (0, 0, 0)
    if target.choices.shared_inputs:
        inputs = inputs_per_core(target, channels)
        pref = 3 if inputs == 1 else 4 - ceil_log2(inputs)
        if not (inputs == 1 and s == 4 and width <= 128):
            low = min(pref, max(floor_log2(height), 7 - ceil_log2(width)))
            return (pref, low, max(pref, s))
    if channels <= 8 and s == 4 and width <= 128:
        return (4, 4, 4)
    if channels <= 8 or interleaved or (channels <= few and s < 4):
        low = min(3, max(floor_log2(height), 7 - ceil_log2(width)))
        return (3, low, max(3, s))
    return (0, 0, s)


def inputs_per_core(target: Target, channels: int) -> int:
    """Input channels that a core of a turned copy sees (UnicastCin)."""
    return min(8, ceil_div(channels, 16)) if target.choices.shared_inputs else 1


def pe_patch(width: int, height: int, *, operands: int) -> tuple[int, int]:
    """(PatchWidthLog2, PatchHeightLog2) of a PE task (§4.3.2)."""
    pixels = 512 if operands == 1 else 256
    if width <= 256:
        wide = max(4, ceil_log2(width))
        high = min(ceil_log2(height), floor_log2(max(1, pixels >> wide)))
        return (wide, high)
    if height == 1 or width % 512 == 0:
        return (9, 0)
    return (5, floor_log2(pixels // 32))


def joint_shape(width: int, height: int) -> int:
    """s of an NE task and the PE task locked to it.

    PE patches are max(16, 128 >> s) x 2^s; the fewest patches win, the tallest on a tie.

    From the locked pairs of softmax and attention: 64x1 s = 1, 8x8, 16x16, 256x256 and 375x375 s = 4, 256x1 s = 0.
    """
    return min(range(5), key=lambda s: (ceil_div(width, max(16, 128 >> s)) * ceil_div(height, 1 << s), -s))


def joint_patch(s: int) -> tuple[int, int]:
    """PE patch of a task locked to an NE task of shape s (§4.3.1)."""
    return (max(4, 7 - s), s)
