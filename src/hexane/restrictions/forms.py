"""Forms into which Apple's compiler takes ops apart, and the forms of ops that come out wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hexane.graph.ops.conv import padded_transpose
from hexane.restrictions.bounds import beyond
from hexane.restrictions.numbers import SUMS, maker_of, squared_by
from hexane.restrictions.reports import runs, wrong
from hexane.restrictions.rule import Found, core_ml_rule, hit
from hexane.restrictions.subject import Subject, numbers_of

if TYPE_CHECKING:
    from hexane.graph.ir import Op, Value

SLICE_END = 4094
SLICES = ("slice_by_size", "slice_by_index", "split")


@core_ml_rule(
    "N7",
    "slice rows or channels instead (transpose before), or scale the tensor below 4094",
    wrong("ANEForge", "M1, M1 Max, M2 Pro", None, note="clean on M4, M5, M5 Pro, M6", tested=True),
)
def width_slice(subject: Subject) -> Found:
    """a slice that begins within the row is taken from 16 times the tensor: magnitudes beyond {limit} are infinite"""
    if not subject.system.is_on("h13", "h14"):
        return
    for statement in subject.calls(*SLICES):
        if within_row(statement.op):
            answer = beyond(subject, statement.op.arg("x"), SLICE_END)
            if answer:
                yield hit(statement.place, limit=SLICE_END, found=answer)


@core_ml_rule(
    "N8",
    "clip the product to the range of its codes before it is quantised, or give both pairs one scale",
    wrong("coreai-torch 112", "M5 Pro", 27, note="1 comes out as 2, 4, 8 for scales of 1/8, 1/4, 1/2", tested=True),
)
def quantised_product(subject: Subject) -> Found:
    """a product of quantised branches takes the codes of a branch by the scale of the result"""
    for statement in subject.calls("mul"):
        scales = product_scales(statement.op)
        if scales:
            branch, result = scales
            yield hit(statement.place, limit="one scale", found=f"branch {branch:g}, result {result:g}")


@core_ml_rule(
    "N12",
    "attend in blocks of fewer than 512 queries or keys, or write matmul, softmax, matmul",
    wrong("ANEForge", "", None, note="the native layer", tested=True),
    runs("Core ML's plan", "M4", 27),
)
def long_attention(subject: Subject) -> Found:
    """the native attention is wrong where the shorter of queries and keys is {limit} or more"""
    for statement in subject.calls("scaled_dot_product_attention"):
        query, key = statement.shape("query"), statement.shape("key")
        shorter = min(query[-2], key[-2]) if len(query) > 1 and len(key) > 1 else 0
        if shorter and shorter >= 512:
            yield hit(statement.place, limit=512, found=shorter)


@core_ml_rule(
    "N13",
    "store the weights as uint8 with zero point 127, or with a palette",
    wrong("coremltools 2114, 2675", "", None, note="MiDaS: infinite on the engine, one value on the GPU", tested=True),
)
def symmetric_int8(subject: Subject) -> Found:
    """int8 weights without a zero point (constexpr_affine_dequantize) came out wrong beside the CPU"""
    for statement in subject.calls("constexpr_affine_dequantize"):
        data, zero = statement.value("quantized_data"), statement.value("zero_point")
        if data is not None and data.dtype == "int8" and (zero is None or _is_zero(zero)):
            yield hit(statement.place, limit="uint8", found="int8, zero point 0")


@core_ml_rule(
    "N15",
    "give the product four axes (1 x 1 x m x n) before hard swish",
    wrong("coreai-torch 51", "", 27, note="relative error 3.9 %, 0.199; within fp16 with four axes", tested=True),
    wrong("coremltools 2625", "M4", None, note="MobileNetV3 small off by 0.19 to 0.26, on the CPU by 0.064 to 0.086"),
)
def flat_hard_swish(subject: Subject) -> Found:
    """hard swish behind a product of {found} axes is off by about 4 %; with {limit} it is within fp16"""
    for statement in subject.calls("mul"):
        x = behind_flat_product(statement.op)
        if x is not None:
            yield hit(statement.place, limit=4, found=x.rank)


@core_ml_rule(
    "N16",
    "divide epsilon by the square of the scale, or write the norm without a rescale",
    wrong(
        "coremltools 2821", "M3 Max", None, note="4 to 6 % in a model of 380 M parameters, on the CPU too", tested=True
    ),
)
def rescaled_norm(subject: Subject) -> Found:
    """rms norm of x / max(abs(x)): its epsilon counts max(abs(x))^2 times, as coremltools' converter writes it"""
    for statement in subject.calls(*SUMS):
        x = squared_by(maker_of(statement.op.arg("x")))
        divide = None if x is None else maker_of(x)
        top = None if divide is None or divide.type != "real_div" else maker_of(divide.arg("y"))
        while top is not None and top.type in ("maximum", "add", "clip"):
            top = maker_of(top.arg("x"))
        if divide is not None and top is not None and top.type == "reduce_max" and divide.arg("x") is _inside_abs(top):
            answer = beyond(subject, divide.arg("x"), 1.0)
            if answer:
                yield hit(statement.place, limit=1.0, found=answer)


@core_ml_rule(
    "N17",
    "leave output_shape out and cut or pad the result",
    wrong("coremltools 2281", "", None, note="1x3x4x4 with a 3x3 kernel asked for 4x4 in place of 6x6", tested=True),
)
def transposed_output_shape(subject: Subject) -> Found:
    """conv_transpose gives other numbers on the engine where output_shape is not {limit}, what its padding gives"""
    for statement in subject.calls("conv_transpose"):
        shape = statement.constant("output_shape")
        if shape is None:
            continue
        window = {name: statement.constant(name) for name in ("pad", "pad_type", "strides", "dilations")}
        own = padded_transpose(statement.shape("x"), statement.shape("weight"), None, **window)[3]
        asked = tuple(shape)[-len(own) :]
        if asked != own:  # coremltools writes the op's own extents into every conv_transpose
            yield hit(statement.place, limit="x".join(map(str, own)), found="x".join(map(str, asked)))


def _is_zero(value: Value) -> bool:
    data = numbers_of(value)
    return data is not None and not np.any(data)


def _inside_abs(op: Op) -> Value | None:
    inner = maker_of(op.arg("x"))
    return inner.arg("x") if inner is not None and inner.type == "abs" else None


def within_row(op: Op) -> bool:
    """True where a slice begins behind the first element of the innermost axis."""
    x = op.arg("x")
    if op.type == "split":
        return op.arg("axis") in (x.rank - 1, -1)
    begin = op.arg("begin")
    if not isinstance(begin, (tuple, list)) or not begin or len(begin) != x.rank:
        return False
    mask = op.arg("begin_mask") if op.type == "slice_by_index" else None
    return bool(begin[-1]) and not (mask and mask[-1])


def product_scales(op: Op) -> tuple[float, float] | None:
    """(scale of a quantised branch, scale of the result) of a product, where they differ."""
    users = op.outputs[0].users
    quantised = next(iter(users)) if len(users) == 1 else None
    if quantised is None or quantised.type != "quantize":
        return None
    result = _scale(quantised)
    for name in ("x", "y"):
        branch = op.arg(name).op
        scale = _scale(branch) if branch is not None and branch.type == "dequantize" else None
        if scale is not None and result is not None and scale != result:
            return scale, result
    return None


def _scale(op: Op) -> float | None:
    scale = op.inputs.get("scale")
    data = None if scale is None or isinstance(scale, tuple) else numbers_of(scale)
    return None if data is None or data.size != 1 else float(data.reshape(-1)[0])


def gated(op: Op) -> Value | None:
    """x of x * sigmoid(x)."""
    if op.type == "mul":
        for gate, x in _pairs(op):
            if gate.op is not None and gate.op.type == "sigmoid" and gate.op.arg("x") is x:
                return x
    return None


def hard_swish(op: Op) -> tuple[Op, Value] | None:
    """(the gate, x) of x * hard_sigmoid(x), spelled with clip, relu6 or sigmoid_hard, scaled anywhere."""
    for gate, x in _pairs(op):
        inner = maker_of(gate)
        while inner is not None and inner.type in ("mul", "real_div") and inner.arg("y").is_constant:
            inner = maker_of(inner.arg("x"))
        if inner is not None and inner.type in ("sigmoid_hard", "relu6", "clip") and x in _sources(inner):
            return inner, x
    return None


def is_sixth(gate: Op) -> bool:
    """True where a ``sigmoid_hard`` is that of hard swish: slope 1/6 and shift 1/2 to the four digits of files."""
    return bool(np.allclose((gate.arg("alpha"), gate.arg("beta")), (1 / 6, 0.5), atol=1e-4))


def behind_flat_product(op: Op) -> Value | None:
    """x of hard swish where a product of fewer than four axes makes it."""
    match = hard_swish(op)
    if match is None:
        return None
    x = match[1]
    product = maker_of(x)
    return x if product is not None and product.type in ("linear", "matmul") and x.rank < 4 else None


def _pairs(op: Op) -> Iterator[tuple[Value, Value]]:
    x, y = op.arg("x"), op.arg("y")
    yield from ((x, y), (y, x))


def _sources(op: Op) -> tuple[Value, ...]:
    """Source of an op of one operand, a constant added on the way."""
    x = op.arg("x")
    below = x.op
    return (x, *(below.operands() if below is not None and below.type == "add" else ()))
