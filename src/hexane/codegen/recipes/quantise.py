"""Quantising, dequantising, and convolutions of the bytes between them (docs/reference/compressed.md 4).

Apple's compiler is known to do this in the planar engine and the neural cores; no program of it shows the words, so
everything here is INFERRED.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.operations import COPY
from hexane.codegen.plan import Plan
from hexane.codegen.recipes import unary
from hexane.codegen.recipes.blocks import BYTE_FORMATS, Convolution
from hexane.codegen.recipes.conv import lower, window_of
from hexane.codegen.recipes.registry import constant, need_fp16, recipe
from hexane.codegen.weights import Weights
from hexane.errors import Reason, UnsupportedError
from hexane.graph.ir import Op
from hexane.lowering.affine import BYTES, affine_of
from hexane.lowering.eight_bit import byte_product
from hexane.lowering.fusion import Epilogue, sum_run

SHOWN = "8-bit maps that no program of Apple's compiler shows"


def _copy(x: Tensor) -> Plan:
    return Plan(pe=COPY, w=x.w, h=x.h, c=x.c, groups=x.n)


@recipe("quantize")
def quantize(ops: Sequence[Op], context: Context) -> Fragment:
    """quantize: one planar copy with a factor into bytes; a zero point is added in a second."""
    (op,) = ops
    need_fp16(op.arg("input"))
    if op.output.dtype not in BYTES:
        raise UnsupportedError(f"bytes of {op.output.dtype}", code=Reason.ELEMENT_TYPE)
    affine = affine_of(op)
    x, y = context.tensor(op.arg("input")), context.tensor(op.output)
    fragment = Fragment(context)
    plan = _copy(x).computing(scale=affine.inverse)
    if affine.zero:
        middle = fragment.tensor(*x.shape)
        fragment.add(unary.pe_stream(context.target, plan, x, middle))
        plan, x = _copy(x).computing(bias=float(affine.zero)), middle
    fragment.add(unary.pe_stream(context.target, plan, x, y))
    fragment.plans[-1] = fragment.plans[-1].writing(element=BYTE_FORMATS[op.output.dtype])
    fragment.inferred(SHOWN)
    return fragment


@recipe("dequantize")
def dequantize(ops: Sequence[Op], context: Context) -> Fragment:
    """dequantize: one planar copy of bytes with a factor; a zero point is taken off in a task before."""
    (op,) = ops
    need_fp16(op.output)
    dtype = op.arg("input").dtype
    if dtype not in BYTES:
        raise UnsupportedError(f"bytes of {dtype}", code=Reason.ELEMENT_TYPE)
    affine = affine_of(op)
    x, y = context.tensor(op.arg("input")), context.tensor(op.output)
    fragment = Fragment(context)
    plan = _copy(x)
    if affine.zero:
        middle = fragment.tensor(*y.shape)
        fragment.add(unary.pe_stream(context.target, plan.computing(bias=-float(affine.zero)), x, middle))
        plan, x = _copy(y), middle
    fragment.add(unary.pe_stream(context.target, plan.computing(scale=affine.scale), x, y))
    fragment.plans[0] = fragment.plans[0].reading(element=BYTE_FORMATS[dtype])
    fragment.inferred(SHOWN)
    return fragment


def _pair(op: Op, context: Context) -> tuple[Op, ...] | None:
    """The dequantised map's only user, a convolution, and what runs in its task."""
    user = op.output.only_user
    return (
        (op, *sum_run(user, context.on))
        if user is not None and user.type == "conv" and user.arg("x") is op.output
        else None
    )


@recipe("dequantize", match=_pair, rank=4)
def byte_convolution(ops: Sequence[Op], context: Context) -> Fragment:
    """dequantize and conv: a convolution of bytes with int8 weights, exact sums, one scale for each output."""
    conv = ops[1]
    product = byte_product(conv, context.limits)
    weight, bias = constant(conv.arg("weight")), conv.arg("bias")
    if product is None or weight is None or (bias is not None and not bias.is_constant):
        raise UnsupportedError("a convolution that computes in fp16")
    epilogue = Epilogue.of(ops[1:])
    weights = Weights(np.asarray(weight, np.float16), product.stream).scaled_by(epilogue.scale)
    x, y = context.tensor(product.bytes), context.tensor(ops[-1].output)
    fragment = lower(Convolution(x, y, weights, epilogue.bias_behind_scale, window_of(conv), epilogue), context)
    fragment.plans = [plan.reading(element=BYTE_FORMATS[product.bytes.dtype]) for plan in fragment.plans]
    fragment.inferred(SHOWN)
    return fragment
