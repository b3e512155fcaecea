"""Convolution, pooling and resizing of classic Core ML networks."""

from __future__ import annotations

from typing import Any

from hexane.errors import GraphError, UnsupportedError
from hexane.formats.coreml.layers.context import LayerContext
from hexane.formats.coreml.layers.registry import borders, ints, layer, shape_of
from hexane.formats.operands import Operand


def _padding(c: LayerContext, field: str) -> dict[str, Any]:
    """MIL's ``pad_type`` and ``pad`` of a convolution or pooling layer."""
    if field == "same":
        heavy_front = c.params.same.asymmetryMode == 1
        return {"pad_type": "same_lower" if heavy_front else "same"}
    pad = borders(c, c.params.valid)
    return {"pad_type": "custom", "pad": pad} if pad.any() else {"pad_type": "valid"}


@layer("convolution")
def convolution(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    if len(c) > 1:
        raise UnsupportedError("weights that are computed at run time")
    kernel = tuple(int(k) for k in p.kernelSize) or (3, 3)
    strides, dilations = ints(p.stride or (1, 1)), ints(p.dilationFactor or (1, 1))
    groups = int(p.nGroups) or 1
    how = _padding(c, p.WhichOneof("ConvolutionPaddingType") or "valid")
    extra = {"bias": c.weight(p.bias, (int(p.outputChannels),))} if p.hasBias else {}
    if p.isDeconvolution:
        weight = c.weight(p.weights, (int(p.kernelChannels), int(p.outputChannels) // groups, *kernel))
        if p.outputShape:
            shape = shape_of(x)
            how["output_shape"] = ints([shape[0], p.outputChannels, *p.outputShape])
        return c.ops.conv_transpose(
            x=x, weight=weight, strides=strides, dilations=dilations, groups=groups, **how, **extra
        )
    weight = c.weight(p.weights, (int(p.outputChannels), int(p.kernelChannels), *kernel))
    return c.ops.conv(x=x, weight=weight, strides=strides, dilations=dilations, groups=groups, **how, **extra)


@layer("pooling")
def pooling(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    kinds = ("max", "avg", "l2")
    if p.type >= len(kinds):
        raise GraphError(f"pooling of type {p.type}")
    kind = kinds[p.type]
    axis = c.channel_axis(x) + 1
    if p.globalPooling:
        op = {"max": "reduce_max", "avg": "reduce_mean", "l2": "reduce_l2_norm"}[kind]
        return c.ops.op(op, x=x, axes=ints((axis, axis + 1)), keep_dims=True)
    field = p.WhichOneof("PoolingPaddingType") or "valid"
    if field == "includeLastPixel":
        amounts = [int(n) for n in p.includeLastPixel.paddingAmounts] or [0, 0]
        pad = ints((amounts[0], amounts[0], amounts[1], amounts[1]))
        how: dict[str, Any] = {"pad_type": "custom", "pad": pad, "ceil_mode": True}
    else:
        how = _padding(c, field)
    if kind == "avg":
        how["exclude_padding_from_average"] = bool(p.avgPoolExcludePadding)
    return c.ops.op(
        f"{kind}_pool", x=x, kernel_sizes=ints(p.kernelSize or (3, 3)), strides=ints(p.stride or (1, 1)), **how
    )


@layer("globalPooling3d")
def global_pooling_3d(c: LayerContext) -> Operand:
    axes = ints((-3, -2, -1))
    return c.ops.op("reduce_mean" if c.params.type else "reduce_max", x=c[0], axes=axes, keep_dims=True)


@layer("upsample")
def upsample(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    factors = [float(f) for f in p.fractionalScalingFactor] or [int(f) for f in p.scalingFactor] or [1, 1]
    if p.mode == 0:
        return c.ops.upsample_nearest_neighbor(x=x, scale_factor_height=factors[0], scale_factor_width=factors[1])
    align = p.linearUpsampleMode == 1
    if p.linearUpsampleMode == 0:
        target = [int(n * f) for n, f in zip(shape_of(x)[-2:], factors)]
        return c.ops.resize_bilinear(
            x=x, target_size_height=target[0], target_size_width=target[1], sampling_mode="DEFAULT"
        )
    return c.ops.upsample_bilinear(
        x=x, scale_factor_height=factors[0], scale_factor_width=factors[1], align_corners=align
    )


@layer("resizeBilinear")
def resize_bilinear(c: LayerContext) -> Operand:
    p = c.params
    modes = ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "DEFAULT", "OFFSET_CORNERS")
    size = [int(n) for n in p.targetSize]
    mode = modes[p.mode.samplingMethod]
    return c.ops.resize_bilinear(x=c[0], target_size_height=size[0], target_size_width=size[1], sampling_mode=mode)
