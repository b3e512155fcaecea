"""Convolution, pooling and resizing of classic Core ML networks."""

from __future__ import annotations

from typing import Any

from hexane.errors import GraphError, UnsupportedError
from hexane.formats.compositions import custom_pad
from hexane.formats.coreml.layers.context import LayerContext
from hexane.formats.coreml.layers.registry import borders, layer
from hexane.formats.operands import Operand


def _padding(c: LayerContext, field: str) -> dict[str, Any]:
    """MIL's ``pad_type`` and ``pad`` of a convolution or pooling layer."""
    if field == "same":
        heavy_front = c.params.same.asymmetryMode == 1
        return {"pad_type": "same_lower" if heavy_front else "same"}
    return custom_pad(borders(c.params.valid.paddingAmounts))


@layer("convolution")
def convolution(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    if len(c) > 1:
        raise UnsupportedError("weights that are computed at run time")
    kernel = tuple(int(k) for k in p.kernelSize) or (3, 3)
    strides, dilations = list(p.stride) or (1, 1), list(p.dilationFactor) or (1, 1)
    groups = int(p.nGroups) or 1
    how = _padding(c, p.WhichOneof("ConvolutionPaddingType") or "valid")
    bias = c.weight(p.bias, (int(p.outputChannels),)) if p.hasBias else None
    if p.isDeconvolution:
        weight = c.weight(p.weights, (int(p.kernelChannels), int(p.outputChannels) // groups, *kernel))
        if p.outputShape:
            shape = c.shape(x)
            how["output_shape"] = [shape[0], p.outputChannels, *p.outputShape]
    else:
        weight = c.weight(p.weights, (int(p.outputChannels), int(p.kernelChannels), *kernel))
    op = "conv_transpose" if p.isDeconvolution else "conv"
    return c.conv(x, weight, bias, op, strides=strides, dilations=dilations, groups=groups, **how)


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
        return c.ops.op(op, x=x, axes=(axis, axis + 1), keep_dims=True)
    field = p.WhichOneof("PoolingPaddingType") or "valid"
    if field == "includeLastPixel":
        amounts = [int(n) for n in p.includeLastPixel.paddingAmounts] or [0, 0]
        how = {**custom_pad([(amounts[0], amounts[0]), (amounts[1], amounts[1])]), "ceil_mode": True}
    else:
        how = _padding(c, field)
    if kind == "avg":
        how["exclude_padding_from_average"] = bool(p.avgPoolExcludePadding)
    return c.ops.op(
        f"{kind}_pool", x=x, kernel_sizes=list(p.kernelSize) or (3, 3), strides=list(p.stride) or (1, 1), **how
    )


@layer("globalPooling3d")
def global_pooling_3d(c: LayerContext) -> Operand:
    axes = (-3, -2, -1)
    return c.ops.op("reduce_mean" if c.params.type else "reduce_max", x=c[0], axes=axes, keep_dims=True)


@layer("upsample")
def upsample(c: LayerContext) -> Operand:
    p, x = c.params, c[0]
    factors = [float(f) for f in p.fractionalScalingFactor] or [int(f) for f in p.scalingFactor] or [1, 1]
    if p.mode == 0:
        return c.ops.upsample_nearest_neighbor(x=x, scale_factor_height=factors[0], scale_factor_width=factors[1])
    align = p.linearUpsampleMode == 1
    if p.linearUpsampleMode == 0:
        target = [int(n * f) for n, f in zip(c.shape(x)[-2:], factors)]
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
    size = [int(n) for n in p.targetSize] or [1, 1]
    if len(size) != 2:
        raise GraphError(f"a target size of {len(size)} numbers, height and width are two")
    mode = modes[p.mode.samplingMethod]
    return c.ops.resize_bilinear(x=c[0], target_size_height=size[0], target_size_width=size[1], sampling_mode=mode)
