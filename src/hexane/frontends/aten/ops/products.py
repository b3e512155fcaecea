"""Matrix products and convolutions."""

from __future__ import annotations

import numpy as np

from hexane.formats.compositions import Refused, custom_pad
from hexane.formats.operands import Operand
from hexane.frontends.aten.node import AtenNode, aten


def _floats_only(c: AtenNode) -> None:
    if not c.out().dtype.startswith("fp"):
        raise Refused("a product of integers")


@aten("mm.default", "bmm.default")
def product(c: AtenNode) -> Operand:
    _floats_only(c)
    return c.ops.matmul(x=c.x(), y=c.x("mat2"))


@aten("addmm.default", "addmv.default")
def addmm(c: AtenNode) -> Operand:
    """``beta self + alpha (a b)``."""
    _floats_only(c)
    bias, alpha, beta = c.x(), c.number("alpha"), c.number("beta")
    a, b = (c.x("mat1"), c.x("mat2")) if "mat1" in c.arguments else (c.x("mat"), c.x("vec"))
    if c.rank(b) == 1:
        y = c.reshape(c.ops.matmul(x=a, y=c.reshape(b, (*c.shape(b), 1))), c.out().shape)
    elif isinstance(b, np.ndarray) and alpha == 1 and beta == 1 and c.rank(b) == 2:
        return c.linear(a, b.T, bias)
    else:
        y = c.ops.matmul(x=a, y=b)
    return c.weighted(alpha, y, beta, bias)


@aten("addbmm.default")
def addbmm(c: AtenNode) -> Operand:
    """``beta self + alpha`` times the sum of the products over the batch."""
    _floats_only(c)
    product_ = c.ops.matmul(x=c.x("batch1"), y=c.x("batch2"))
    total = c.ops.reduce_sum(x=product_, axes=[0], keep_dims=False)
    return c.weighted(c.number("alpha"), total, c.number("beta"), c.x())


@aten("convolution.default", "_convolution.default")
def convolution(c: AtenNode) -> Operand:
    _floats_only(c)
    x, weight, bias = c.x("input"), c.x("weight"), c["bias"]
    spatial = c.rank(weight) - 2
    if c.rank(x) != c.rank(weight):
        raise Refused("a convolution without a batch axis")

    strides, padding, dilation = (c.each(name, spatial) for name in ("stride", "padding", "dilation"))
    how = {"strides": strides, "dilations": dilation, "groups": c["groups"]}
    if c["transposed"]:
        more = c.each("output_padding", spatial)
        return c.conv_transpose(x, weight, bias, [(pad, pad - extra) for pad, extra in zip(padding, more)], **how)
    return c.conv(x, weight, bias, **how, **custom_pad([(pad, pad) for pad in padding]))
