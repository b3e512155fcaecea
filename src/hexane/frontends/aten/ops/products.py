"""Matrix products and convolutions."""

from __future__ import annotations

import numpy as np

from hexane.formats.operands import Operand
from hexane.frontends.aten.node import AtenNode, Refused, aten


def _floats_only(c: AtenNode) -> None:
    if not c.out().dtype.startswith("fp"):
        raise Refused("a product of integers")


@aten("mm.default", "bmm.default", "matmul.default")
def product(c: AtenNode) -> Operand:
    _floats_only(c)
    return c.ops.matmul(x=c.x(), y=c.x("mat2" if "mat2" in c.arguments else "other"))


@aten("mv.default")
def mv(c: AtenNode) -> Operand:
    _floats_only(c)
    x, y = c.x(), c.x("vec")
    return c.reshape(c.ops.matmul(x=x, y=c.reshape(y, (*c.shape(y), 1))), c.out().shape)


@aten("dot.default", "vdot.default")
def dot(c: AtenNode) -> Operand:
    _floats_only(c)
    x, y = c.x(), c.x("tensor" if "tensor" in c.arguments else "other")
    return c.reshape(c.ops.matmul(x=c.reshape(x, (1, *c.shape(x))), y=c.reshape(y, (*c.shape(y), 1))), ())


@aten("linear.default")
def linear(c: AtenNode) -> Operand:
    _floats_only(c)
    x, weight = c.x("input"), c.x("weight")
    bias = c["bias"]
    return _linear(c, x, weight, bias)


def _linear(c: AtenNode, x: Operand, weight: Operand, bias: Operand | None) -> Operand:
    """``x weight^T + bias``; the op ``linear`` where the weight is a constant."""
    if isinstance(weight, np.ndarray) and not isinstance(x, np.ndarray) and c.rank(weight) == 2 and c.rank(x) >= 2:
        more = {"bias": np.ascontiguousarray(bias)} if isinstance(bias, np.ndarray) and bias.ndim == 1 else {}
        made = c.ops.linear(x=x, weight=np.ascontiguousarray(weight), **more)
        return made if more or bias is None else c.ops.add(x=made, y=bias)
    column = weight if c.rank(weight) == 2 else c.reshape(weight, (1, *c.shape(weight)))
    made = c.ops.matmul(x=x, y=c.swapped(column))
    made = c.reshape(made, c.shape(made)[:-1]) if c.rank(weight) == 1 else made
    return made if bias is None else c.ops.add(x=made, y=bias)


@aten("addmm.default", "addmv.default", "baddbmm.default")
def addmm(c: AtenNode) -> Operand:
    """``beta self + alpha (a b)``."""
    _floats_only(c)
    bias, alpha, beta = c.x(), c.number("alpha"), c.number("beta")
    if "mat1" in c.arguments:
        a, b = c.x("mat1"), c.x("mat2")
    elif "mat" in c.arguments:
        a, b = c.x("mat"), c.x("vec")
    else:
        a, b = c.x("batch1"), c.x("batch2")
    if c.rank(b) == 1:
        operand = c.reshape(c.ops.matmul(x=a, y=c.reshape(b, (*c.shape(b), 1))), c.out().shape)
    elif isinstance(b, np.ndarray) and alpha == 1 and beta == 1 and c.rank(b) == 2:
        return _linear(c, a, b.T, bias)
    else:
        operand = c.ops.matmul(x=a, y=b)
    operand = operand if alpha == 1 else c.ops.mul(x=operand, y=c.like(alpha, operand))
    if beta == 0:
        return operand
    return c.ops.add(x=operand, y=bias if beta == 1 else c.ops.mul(x=bias, y=c.like(beta, bias)))


@aten("addbmm.default")
def addbmm(c: AtenNode) -> Operand:
    """``beta self + alpha`` times the sum of the products over the batch."""
    _floats_only(c)
    operand = c.ops.matmul(x=c.x("batch1"), y=c.x("batch2"))
    operand = c.ops.reduce_sum(x=operand, axes=np.array([0], np.int32), keep_dims=False)
    alpha, beta, bias = c.number("alpha"), c.number("beta"), c.x()
    operand = operand if alpha == 1 else c.ops.mul(x=operand, y=c.like(alpha, operand))
    if beta == 0:
        return operand
    return c.ops.add(x=operand, y=bias if beta == 1 else c.ops.mul(x=bias, y=c.like(beta, bias)))


@aten("convolution.default", "_convolution.default")
def convolution(c: AtenNode) -> Operand:
    _floats_only(c)
    x, weight, bias = c.x("input"), c.x("weight"), c["bias"]
    spatial = c.rank(weight) - 2
    if c.rank(x) != c.rank(weight):
        raise Refused("a convolution without a batch axis")

    def each(name: str) -> list[int]:
        given = c.ints(name)
        return given * spatial if len(given) == 1 else given

    strides, padding, dilation = each("stride"), each("padding"), each("dilation")
    common = {
        "strides": np.array(strides, np.int32),
        "dilations": np.array(dilation, np.int32),
        "groups": c["groups"],
        "pad_type": "custom",
    }
    if isinstance(bias, np.ndarray):
        common["bias"] = np.ascontiguousarray(bias)
    if c["transposed"]:
        extra = each("output_padding")
        ends = [pad - more for pad, more in zip(padding, extra)]
        # What the padding at the end cannot give (more output than the kernel reaches) is cut from a wider input.
        if min(ends) < 0:
            raise Refused("an output padding that is wider than the padding")
        pad = np.array([side for pair in zip(padding, ends) for side in pair], np.int32)
        operand = c.ops.conv_transpose(x=x, weight=_whole(weight), pad=pad, **common)
    else:
        pad = np.array([side for one in padding for side in (one, one)], np.int32)
        operand = c.ops.conv(x=x, weight=_whole(weight), pad=pad, **common)
    if bias is None or isinstance(bias, np.ndarray):
        return operand
    return c.ops.add(
        x=operand, y=c.reshape(bias, (1, -1 if isinstance(bias, np.ndarray) else c.shape(bias)[0], *[1] * spatial))
    )


def _whole(weight: Operand) -> Operand:
    return np.ascontiguousarray(weight) if isinstance(weight, np.ndarray) else weight
