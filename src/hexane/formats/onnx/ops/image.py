"""Resampling: resize, grid sampling, regions of interest, affine grids."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.formats.onnx.context import NodeContext
from hexane.formats.onnx.ops.shape import static_shape
from hexane.formats.onnx.registry import onnx_op
from hexane.formats.operands import Operand, type_of
from hexane.graph.ops.onnx_resize import resize_plan


@onnx_op("Upsample")
def upsample(c: NodeContext) -> Operand:
    """Resize with ``asymmetric`` coordinates and rounding down."""
    mode = {"nearest": "nearest", "linear": "linear", "bilinear": "linear"}.get(c.attr("mode", "nearest"))
    if mode is None:
        raise GraphError(f"Upsample has no mode {c.attr('mode')!r}")
    arguments: dict[str, Any] = {"mode": mode, "coordinate_mode": "asymmetric", "nearest_mode": "floor"}
    if c.has_attr("scales"):
        return resize_of(c, c.need(0), c.attr("scales"), None, None, arguments)
    if c.is_constant(1):
        return resize_of(c, c.need(0), c.need_constant(1).reshape(-1).tolist(), None, None, arguments)
    return c.at_run_time("Resize", "scales", x=c.need(0), scales=c.need(1), **arguments)


@onnx_op("Resize")
def resize(c: NodeContext) -> Operand:
    x = c.need(0)
    mode = c.attr("mode", "nearest")
    if mode not in ("nearest", "linear", "cubic"):
        raise GraphError(f"Resize has no mode {mode!r}")
    if c.version < 11:
        arguments: dict[str, Any] = {"mode": mode, "coordinate_mode": "asymmetric", "nearest_mode": "floor"}
        scales_at, sizes_at, roi_at = 1, 99, 99
    else:
        arguments = {
            "mode": mode,
            "coordinate_mode": c.attr("coordinate_transformation_mode", "half_pixel"),
            "nearest_mode": c.attr("nearest_mode", "round_prefer_floor"),
            "cubic_coeff_a": c.attr("cubic_coeff_a", -0.75),
            "exclude_outside": bool(c.attr("exclude_outside", 0)),
            "antialias": bool(c.attr("antialias", 0)),
            "extrapolation_value": c.attr("extrapolation_value", 0.0),
            "policy": c.attr("keep_aspect_ratio_policy", "stretch"),
        }
        scales_at, sizes_at, roi_at = 2, 3, 1
    axes = c.attr("axes")
    if axes is not None:
        arguments["axes"] = axes
    if arguments["coordinate_mode"] == "tf_crop_and_resize":
        if not c.is_constant(roi_at):
            arguments["roi"] = c.need(roi_at)
        elif (roi := c.constant(roi_at)) is not None:
            arguments["roi"] = roi.astype(np.float32)
    if not (c.is_constant(scales_at) and c.is_constant(sizes_at)):
        by_scale = c.has(scales_at) and not (c.is_constant(scales_at) and c.need_constant(scales_at).size == 0)
        which = {"scales": c.need(scales_at)} if by_scale else {"sizes": c.need(sizes_at)}
        return c.at_run_time("Resize", "scales or sizes", x=x, **which, **arguments)
    scales, sizes = c.constant(scales_at), c.ints(sizes_at) or None
    factors = None if scales is None or scales.size == 0 else [float(scale) for scale in scales.reshape(-1)]
    return resize_of(c, x, factors, None if factors else sizes, axes, arguments)


def resize_of(
    c: NodeContext,
    x: Operand,
    scales: list[float] | None,
    sizes: list[int] | None,
    axes: list[int] | None,
    how: dict[str, Any],
) -> Operand:
    """One of MIL's resizing ops where it samples at the same places, ``onnx.Resize`` where none does."""
    shape = static_shape(c, x)
    out, factors = resize_plan(shape, scales, sizes, axes, how.get("policy", "stretch"))
    if (
        tuple(out) == shape
        and all(factor == 1 for factor in factors)
        and how["coordinate_mode"] != "tf_crop_and_resize"
    ):
        return c.ops.identity(x=x)
    plane = (
        len(shape) == 4
        and tuple(out[:2]) == shape[:2]
        and type_of(x).dtype in ("fp16", "fp32")
        and not how.get("antialias")
    )
    exact = all(abs(factor * extent - new) < 1e-6 for factor, extent, new in zip(factors, shape, out))
    if plane and exact and not isinstance(x, np.ndarray):
        operand = _mil_resize(c, x, shape, out, factors, how)
        if operand is not None:
            return operand
    size: dict[str, Any] = {"scales": np.array(scales, np.float32)} if scales else {"sizes": sizes}
    return c.ops.op("onnx.Resize", x=x, **size, **how)


def _mil_resize(
    c: NodeContext, x: Operand, shape: tuple[int, ...], out: list[int], factors: list[float], how: dict[str, Any]
) -> Operand | None:
    mode, coordinates = how["mode"], how["coordinate_mode"]
    whole = all(float(factor).is_integer() and factor >= 1 for factor in factors[2:])
    if mode == "nearest":
        # A whole factor repeats every element wherever the sample falls inside its own cell.
        floor = coordinates == "asymmetric" and how["nearest_mode"] == "floor"
        centre = coordinates in ("half_pixel", "pytorch_half_pixel") and how["nearest_mode"].startswith("round")
        odd = all(out[i] > 1 for i in (2, 3)) or coordinates == "half_pixel"
        if whole and (floor or (centre and odd)):
            return c.ops.upsample_nearest_neighbor(
                x=x, scale_factor_height=int(factors[2]), scale_factor_width=int(factors[3])
            )
        return None
    if mode != "linear" or how.get("exclude_outside"):
        return None
    sampling = {"align_corners": "STRICT_ALIGN_CORNERS", "half_pixel": "UNALIGN_CORNERS"}.get(coordinates)
    if coordinates == "pytorch_half_pixel" and min(out[2:]) > 1:
        sampling = "UNALIGN_CORNERS"
    if sampling is None or (sampling == "STRICT_ALIGN_CORNERS" and min(out[2:]) < 2):
        return None
    return c.ops.resize_bilinear(x=x, target_size_height=out[2], target_size_width=out[3], sampling_mode=sampling)


@onnx_op("GridSample")
def grid_sample(c: NodeContext) -> Operand:
    """The names of modes changed with op set 20."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(c.attr("mode", "linear"), c.attr("mode", "linear"))
    return c.ops.op(
        "onnx.GridSample",
        x=c.need(0),
        grid=c.need(1),
        mode=mode,
        padding_mode=c.attr("padding_mode", "zeros"),
        align_corners=bool(c.attr("align_corners", 0)),
    )


@onnx_op("RoiAlign")
def roi_align(c: NodeContext) -> Operand:
    """Coordinates are half a pixel off from op set 16 on, unless the node says otherwise."""
    default = "half_pixel" if c.version >= 16 else "output_half_pixel"
    return c.ops.op(
        "onnx.RoiAlign",
        x=c.need(0),
        rois=c.need(1),
        batch_indices=c.need(2),
        mode=c.attr("mode", "avg"),
        output_height=c.attr("output_height", 1),
        output_width=c.attr("output_width", 1),
        sampling_ratio=c.attr("sampling_ratio", 0),
        spatial_scale=c.attr("spatial_scale", 1.0),
        half_pixel=c.attr("coordinate_transformation_mode", default) == "half_pixel",
    )


@onnx_op("AffineGrid")
def affine_grid(c: NodeContext) -> Operand:
    """Constant points times the affine map."""
    theta, align = c.need(0), bool(c.attr("align_corners", 0))
    size: Any = c.ints(1) if c.is_constant(1) else c.need(1)
    shape: Any = [size[0], *size[2:], len(size) - 2] if c.is_constant(1) else c.declared_shape("size")
    return c.ops.op("onnx.AffineGrid", x=theta, size=size, align_corners=align, output_shape=shape)


@onnx_op("ImageDecoder")
def image_decoder(c: NodeContext) -> Operand:
    """The size of the picture must be declared: it is known when its bytes are."""
    layout = c.attr("pixel_format", "RGB")
    if layout not in ("RGB", "BGR", "Grayscale"):
        raise GraphError(f"ImageDecoder has no pixel format {layout!r}")
    return c.at_run_time("ImageDecoder", "the picture", x=c.need(0), pixel_format=layout)
