"""What comes out other than float32 says: overflows, lost products, tables, and how Apple's compiler takes ops apart.

These hold for Core ML's own route. Where the numbers decide and nobody has seen them, a rule says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.chips import Evidence
from hexane.graph.compressed import changes_along_inputs, kernel_of
from hexane.graph.types import TensorType
from hexane.restrictions.bounds import NOT_KNOWN, above, below, beyond
from hexane.restrictions.reports import runs, wrong
from hexane.restrictions.rule import INTERFACES, MLE5, Found, hit, rule
from hexane.restrictions.subject import Statement, Subject, numbers_of

if TYPE_CHECKING:
    from hexane.graph.ir import Op, Value

CORE_ML = (MLE5,)
LARGEST_HALF = 65504.0
EXP_END = 11.094  # docs/reference/numerics.md 8: the upper limit of the exp2 table, 16, by log2 e
SUM_END = 32768.0
SOFTPLUS_END = round(math.log(SUM_END), 3)
SQUARE_END = 255.9
SLICE_END = 4094
_SUMS = ("reduce_sum", "reduce_mean")
_FINE = ("clip", "maximum", "minimum", "greater", "less", "greater_equal", "less_equal", "equal", "not_equal", "pad",
         "batch_norm")  # fmt: skip
"""Ops whose constants are bounds, where an infinity bounds as well, or are folded before they are rounded."""


@rule(
    "O15",
    "write max(x, 0) + log(1 + exp(-abs(x)))",
    wrong("coremltools 2687", "M3 Max", 26, note="0 from 10.4 on", tested=True),
    wrong("coremltools 2687", "M4", 26, note="0 beyond 10.4", tested=True),
    wrong("q38", "M5 Max", 26, note="beyond 10.4", tested=True),
    wrong("coremltools 2618", "M1 Pro, M4 Pro", 26, note="mish of inputs 3.5 and 11 times as large", tested=True),
    runs("ANEForge", "M5", note="8e-4, in its range of inputs"),
    interfaces=INTERFACES,
)
def softplus_of_large(subject: Subject) -> Found:
    """softplus is log(1 + exp(x)), whose sum ends at 32768: 0 for inputs beyond {limit}"""
    for statement in subject.calls("softplus"):
        yield from _above(subject, statement, statement.op.arg("x"), SOFTPLUS_END)


@rule(
    "N1",
    "subtract the largest element before exp, or clip its input",
    wrong("ane-guide", "M1", None, note="infinite from 11.094 on", tested=True),
    wrong("coremltools 2729", "", None, note="exp before cumsum", tested=True),
    interfaces=CORE_ML,
)
def exp_of_large(subject: Subject) -> Found:
    """exp is infinite for inputs beyond {limit}"""
    for statement in subject.calls("exp"):
        yield from _above(subject, statement, statement.op.arg("x"), EXP_END)


@rule(
    "N2",
    "write max(x) + log(sum(exp(x - max(x))))",
    wrong("coremltools 2690", "M3 Max", 26, note="32 channels: 11.1, then 0 from 7.63 on", tested=True),
    interfaces=CORE_ML,
)
def log_sum_exp(subject: Subject) -> Found:
    """log-sum-exp over {count} elements takes no maximum out: the sum ends at 65504, and from {limit} on it is 0"""
    for statement in subject.calls("reduce_log_sum_exp"):
        x = statement.op.arg("x")
        count = _reduced(statement.op, x)
        if count:
            limit = round(math.log(LARGEST_HALF / count), 3)
            yield from _above(subject, statement, x, limit, count=count)


@rule(
    "N3",
    "write x - max(x) - log(sum(exp(x - max(x))))",
    wrong("coremltools 2728", "", None, note="-inf beside a logit that is 50 larger", tested=True),
    interfaces=CORE_ML,
)
def log_of_softmax(subject: Subject) -> Found:
    """log of a softmax: shares below 2^-25 are 0 in fp16, so that logits {limit} below the largest have no logarithm"""
    for statement in subject.calls("log"):
        soft = _maker(statement.op.arg("x"))
        if soft is None or soft.type != "softmax":
            continue
        x, axis = soft.arg("x"), soft.arg("axis")
        seen = subject.seen(x)
        found: str | None = NOT_KNOWN
        if seen is not None:
            gaps = seen.max(axis=axis, keepdims=True) - seen
            share = np.mean(gaps > 17.3)
            found = f"gaps up to {gaps.max():.5g}, {share:.3%} of the values" if share else None
        if found:
            yield hit(statement.place, limit=17.3, found=found)


@rule(
    "N4",
    "write layer_norm of [x, -x], or x * sqrt(n) / reduce_l2_norm(x): one op whose squares are not stored",
    wrong("executorch 19523", "", None, note="x * rsqrt(mean(x * x)) overflows at 255", tested=True),
    wrong("ane-guide", "M1", None, note="a square is infinite at 256", tested=True),
    interfaces=CORE_ML,
)
def stored_squares(subject: Subject) -> Found:
    """{op} is a mean or sum of squares that are stored: they end at 65504, inputs at {limit}"""
    for statement in subject.calls(*_SUMS):
        x = _squared(_maker(statement.op.arg("x")))
        found = None if x is None else beyond(subject, x, SQUARE_END)
        if found:
            yield hit(statement.place, op=statement.type, limit=SQUARE_END, found=found)


@rule(
    "N5",
    "scale the operands by powers of two (hexane run --autoscale), so that sums stay below 32752",
    wrong("ANEForge, M6 study", "M1, M4, M5, M6", None, note="infinite from 32768 on, by products", tested=True),
    interfaces=CORE_ML,
)
def large_sums(subject: Subject) -> Found:
    """the sums of {op} end at {limit}: beyond it they are infinite"""
    for statement in subject.calls("conv", "conv_transpose", "matmul", "linear"):
        found = beyond(subject, statement.op.outputs[0], 32752)
        if found and found is not NOT_KNOWN:
            yield hit(statement.place, op=statement.type, limit=32752, found=found)


MOST_BYTES = 1 << 26
"""Constants that are larger are not looked through."""
LOST = 0.05
"""Share of lost products from which a sum is worth a remark: docs/reference/numerics.md 9 has 5.5e-3 at 7 %."""


@rule(
    "N6",
    "scale an operand up by a power of two and the result down (hexane run --autoscale)",
    wrong("ANEForge, M6 study", "M1, M1 Max, M2 Pro, M4, M5 Pro, M6", None, note="493 rows", tested=True),
    interfaces=CORE_ML,
)  # fmt: skip
def lost_products(subject: Subject) -> Found:
    """{op} multiplies numbers whose product is below {limit}: it counts as 0"""
    for statement in subject.calls("conv", "matmul", "linear"):
        kernel = statement.value("weight") or statement.value("y")
        x = subject.seen(statement.value("x"))
        w = None if x is None else subject.seen(kernel)
        if x is None or w is None:
            continue
        share = _lost(x, w)
        if share > LOST:
            yield hit(statement.place, op=statement.type, limit=2.0**-17, found=f"{share:.1%} of the products")


@rule(
    "N7",
    "slice rows or channels instead (transpose before), or scale the tensor below 4094",
    wrong("ANEForge", "M1, M1 Max, M2 Pro", None, note="clean on M4, M5, M5 Pro, M6", tested=True),
    interfaces=CORE_ML,
)
def width_slice(subject: Subject) -> Found:
    """a slice that begins within the row is taken from 16 times the tensor: magnitudes beyond {limit} are infinite"""
    if not subject.system.is_on("h13", "h14"):
        return
    for statement in subject.calls("slice_by_size", "slice_by_index", "split"):
        if within_row(statement.op):
            found = beyond(subject, statement.op.arg("x"), SLICE_END)
            if found:
                yield hit(statement.place, limit=SLICE_END, found=found)


@rule(
    "N8",
    "clip the product to the range of its codes before it is quantised, or give both pairs one scale",
    wrong("coreai-torch 112", "M5 Pro", 27, note="1 comes out as 2, 4, 8 for scales of 1/8, 1/4, 1/2", tested=True),
    interfaces=CORE_ML,
)
def quantised_product(subject: Subject) -> Found:
    """a product of quantised branches takes the codes of a branch by the scale of the result"""
    for statement in subject.calls("mul"):
        scales = product_scales(statement.op)
        if scales:
            branch, result = scales
            yield hit(statement.place, limit="one scale", found=f"branch {branch:g}, result {result:g}")


@rule(
    "N9",
    "write x / (1 + exp(-x)) for silu, the tanh form for gelu, where small results matter",
    wrong("M6 study", "M4, M6", None, note="absolute errors up to 1.5e-2 (silu), 6.2e-3 (gelu)", tested=True),
    wrong("ane-guide", "M1", None, note="silu(0) and gelu(0) are not 0", tested=True),
    interfaces=CORE_ML,
)
def tables_near_zero(subject: Subject) -> Found:
    """{op} comes from a table: {at_zero} at 0, errors as large as the result for inputs within {limit} of 0"""
    values = {"silu": (-0.0017, 0.0034), "gelu": (-0.000754, 0.0015)}
    for statement in subject.calls(*values):
        at_zero, limit = values[statement.type]
        found = below(subject, statement.op.arg("x"), limit)
        if found:
            yield hit(statement.place, op=statement.type, at_zero=at_zero, limit=limit, found=found)


@rule(
    "N10",
    "round on the host, or numbers that are divided by a power of two",
    wrong("ane-guide", "M1", None, note="round(1024) = 1025", tested=True),
    interfaces=CORE_ML,
)
def round_of_large(subject: Subject) -> Found:
    """round is off by one for magnitudes from {limit} on"""
    for statement in subject.calls("round"):
        found = beyond(subject, statement.op.arg("x"), 1023.5)
        if found:
            yield hit(statement.place, limit=1024, found=found)


NO_NAN = "numbers that are no NaN: an engine has none, so that no value differs from itself"


@rule(
    "N11",
    "look for NaN on the host, before the network",
    wrong("ane-guide", "M1", None, note="a NaN counts as infinity", tested=True),
    wrong("M6 study", "M6", None, note="halfwords of NaN are numbers to the multiplier", tested=True),
    interfaces=CORE_ML,
)
def own_difference(subject: Subject) -> Found:
    """an engine has no NaN, so that no value differs from itself"""
    for statement in subject.calls("equal", "not_equal"):
        if statement.value("x") is not None and statement.value("x") is statement.value("y"):
            yield hit(statement.place, limit="no NaN", found=f"{statement.type}(x, x)")


@rule(
    "N12",
    "attend in blocks of fewer than 512 queries or keys, or write matmul, softmax, matmul",
    wrong("ANEForge", "", None, note="the native layer", tested=True),
    runs("Core ML's plan", "M4", 27),
    interfaces=CORE_ML,
)
def long_attention(subject: Subject) -> Found:
    """the native attention is wrong where the shorter of queries and keys is {limit} or more"""
    for statement in subject.calls("scaled_dot_product_attention"):
        query, key = statement.shape("query"), statement.shape("key")
        shorter = min(query[-2], key[-2]) if len(query) > 1 and len(key) > 1 else 0
        if shorter and shorter >= 512:
            yield hit(statement.place, limit=512, found=shorter)


@rule(
    "N13",
    "store the weights as uint8 with zero point 127, or with a palette",
    wrong("coremltools 2114, 2675", "", None, note="MiDaS: infinite on the engine, one value on the GPU", tested=True),
    interfaces=CORE_ML,
)
def symmetric_int8(subject: Subject) -> Found:
    """int8 weights without a zero point (constexpr_affine_dequantize) came out wrong beside the CPU"""
    for statement in subject.calls("constexpr_affine_dequantize"):
        data, zero = statement.value("quantized_data"), statement.value("zero_point")
        if data is not None and data.dtype == "int8" and (zero is None or _is_zero(zero)):
            yield hit(statement.place, limit="uint8", found="int8, zero point 0")


@rule(
    "N14",
    "one scale per output channel, or a palette per group of outputs",
    wrong("coreai-models 279", "A18 Pro", 27, note="8-bit blocks: cosine 0.367, palette 0.9975", tested=True),
    wrong("coreai-torch 93", "M5 Pro", 27, note="1,921 of 4,096 values, relative error 0.45", tested=True),
    interfaces=CORE_ML,
)
def block_scales(subject: Subject) -> Found:
    """weights of {op} have scales that change along their inputs: the engine takes one per output, silently"""
    for statement in subject.calls("conv", "linear", "matmul"):
        kernel = kernel_of(statement.op)
        if kernel is not None and changes_along_inputs(*kernel):
            yield hit(statement.place, op=statement.type, limit="one per output", found="several per output")


@rule(
    "N15",
    "give the product four axes (1 x 1 x m x n) before hard swish",
    wrong("coreai-torch 51", "", None, note="relative error 3.9 %; within fp16 with four axes", tested=True),
    interfaces=CORE_ML,
)
def flat_hard_swish(subject: Subject) -> Found:
    """hard swish behind a product of {found} axes is off by about 4 %; with {limit} it is within fp16"""
    for statement in subject.calls("mul"):
        line, x = _hard_swish(statement.op)
        product = None if x is None else _maker(x)
        if (
            line is not None
            and x is not None
            and product is not None
            and product.type in ("linear", "matmul")
            and x.rank < 4
        ):
            yield hit(statement.place, limit=4, found=x.rank)  # fmt: skip


@rule(
    "N16",
    "divide epsilon by the square of the scale, or write the norm without a rescale",
    wrong(
        "coremltools 2821", "M3 Max", None, note="4 to 6 % in a model of 380 M parameters, on the CPU too", tested=True
    ),
    interfaces=CORE_ML,
)
def rescaled_norm(subject: Subject) -> Found:
    """rms norm of x / max(abs(x)): its epsilon counts max(abs(x))^2 times, as coremltools' converter writes it"""
    for statement in subject.calls(*_SUMS):
        x = _squared(_maker(statement.op.arg("x")))
        divide = None if x is None else _maker(x)
        top = None if divide is None or divide.type != "real_div" else _maker(divide.arg("y"))
        while top is not None and top.type in ("maximum", "add", "clip"):
            top = _maker(top.arg("x"))
        if divide is not None and top is not None and top.type == "reduce_max" and divide.arg("x") is _inside_abs(top):
            found = beyond(subject, divide.arg("x"), 1.0)
            if found:
                yield hit(statement.place, limit=1.0, found=found)


@rule(
    "N17",
    "leave output_shape out and cut or pad the result",
    wrong("coremltools 2281", "", None, note="other values than the CPU's", tested=True),
    interfaces=CORE_ML,
)
def transposed_output_shape(subject: Subject) -> Found:
    """conv_transpose with output_shape gives other numbers on the engine than on the CPU"""
    for statement in subject.calls("conv_transpose"):
        shape = statement.constant("output_shape")
        if shape is not None:
            yield hit(statement.place, limit="no output_shape", found="x".join(map(str, shape)))


@rule(
    "N18",
    "use an epsilon of at least 6e-8, the smallest number of fp16",
    wrong("docs/reference/numerics.md 2", note="arithmetic of fp16"),
    interfaces=CORE_ML,
    evidence=Evidence.INFERRED,
)
def vanishing_epsilon(subject: Subject) -> Found:
    """the epsilon of {op} is 0 in fp16: a row of equal numbers has no inverse root"""
    for statement in subject.calls("layer_norm", "instance_norm", "l2_norm"):
        epsilon = statement.constant("epsilon")
        if isinstance(epsilon, (int, float, np.floating)) and abs(float(epsilon)) < 2.0**-25:
            yield hit(statement.place, op=statement.type, limit=2.0**-25, found=f"{epsilon:g}")


@rule(
    "N19",
    "take the decision in float32 on the host, or raise what separates the logits",
    wrong("docs/reference/numerics.md 9", note="fp16 results differ by 2^-11 of their size"),
    interfaces=CORE_ML,
    evidence=Evidence.INFERRED,
)
def close_logits(subject: Subject) -> Found:
    """the two largest of {op} are nearer to each other than {limit} of their size: rounding decides"""
    for statement in subject.calls("softmax", "reduce_argmax", "topk"):
        x, axis = statement.value("x"), statement.constant("axis")
        seen = subject.seen(x)
        if seen is None or x is None or x.is_constant or not isinstance(axis, int) or seen.shape[axis] < 2:
            continue
        if statement.type == "softmax" and not any(v in subject.graph.main.outputs for v in statement.op.outputs):
            continue
        two = np.sort(np.moveaxis(seen, axis, -1), -1)[..., -2:]
        close = two[..., 1] - two[..., 0] < 2.0**-10 * np.abs(two[..., 1])
        if np.any(close):
            yield hit(statement.place, op=statement.type, limit=2.0**-10, found=f"{np.mean(close):.1%} of the rows")


@rule(
    "N20",
    "use -10000 (or -30000) where a mask hides something, and weights within 65504",
    wrong("cactus 734", "M4 Pro", None, note="masks of -1e9: NaN and infinities", tested=True),
    wrong("coremltools 2669", "", None, note="-3.4e38 is -inf in fp16", tested=True),
    interfaces=CORE_ML,
)
def constant_beyond_half(subject: Subject) -> Found:
    """a constant of {op} is beyond {limit}, the end of fp16: it becomes an infinity"""
    for statement in subject.statements:
        if statement.type in _FINE:
            continue
        for value in statement.op.operands():
            number = _beyond_half(value)
            if number is not None:
                yield hit(statement.place, op=statement.type, limit=LARGEST_HALF, found=f"{number:g}")
                break


SMALL = 0.01
"""Relative error of a sum that is worth a remark."""


@rule(
    "N21",
    "scale an operand up by a power of two and the result down (hexane run --autoscale)",
    wrong("cadamcat", "M5 Pro", None, note="P @ V over 4096 keys: 3.95 %, with P times 64 0.060 %", tested=True),
    wrong("ANEForge, M6 study", "M1, M5 Pro, M6", None, note="2.6e-3 for 512 terms to 6.2e-2 for 8192", tested=True),
    interfaces=CORE_ML,
)
def small_results(subject: Subject) -> Found:
    """products of {op} are rounded to 2^-16, and its results are small: off by {found}, more than {limit}"""
    for statement in subject.calls("conv", "matmul", "linear"):
        seen, terms = subject.seen(statement.op.outputs[0]), _terms(statement)
        rms = 0.0 if seen is None else float(np.sqrt(np.mean(np.square(seen, dtype=np.float64))))
        error = math.sqrt(terms / 12) * 2.0**-16 / rms if rms and math.isfinite(rms) else 0.0
        if error > SMALL:
            yield hit(statement.place, op=statement.type, limit=SMALL, found=f"about {error:.1%}")


def _terms(statement: Statement) -> int:
    """How many products one result sums; 0 where that is not known."""
    if statement.type == "matmul":
        x = statement.shape("x")
        inner = x[-2 if statement.constant("transpose_x") and len(x) > 1 else -1] if x else 0
        return inner or 0
    return math.prod(extent or 0 for extent in statement.shape("weight")[1:])


def _above(subject: Subject, statement: Statement, value: Value, limit: float, **words: Any) -> Found:
    found = above(subject, value, limit)
    if found:
        yield hit(statement.place, limit=limit, found=found, **words)


def _beyond_half(value: Value) -> float | None:
    """A finite number beyond fp16 in a constant of floats."""
    if not value.is_constant or not isinstance(value.type, TensorType) or value.dtype not in ("fp32", "fp64"):
        return None
    if value.type.nbytes > MOST_BYTES:
        return None
    data = numbers_of(value)
    if data is None:
        return None
    over = data[np.isfinite(data) & (np.abs(data) > LARGEST_HALF + 16)] if data.size else data
    return float(over.reshape(-1)[0]) if over.size else None


def _reduced(op: Op, x: Value) -> int:
    """How many elements one result is made of; 0 where that is not known."""
    axes = op.arg("axes")
    extents = x.shape if axes is None else [x.shape[axis] for axis in axes]
    return 0 if None in extents else math.prod(extents)


def _maker(value: Value) -> Op | None:
    """The op that makes a value, casts and views left out."""
    op = value.op
    while op is not None and op.type in ("cast", "identity", "reshape", "expand_dims", "squeeze"):
        op = op.arg("x").op
    return op


def _squared(op: Op | None) -> Value | None:
    """x of x * x, square(x) or pow(x, 2)."""
    if op is None:
        return None
    x = op.inputs.get("x")
    if op.type == "square" or (op.type == "mul" and x is op.inputs.get("y")):
        return op.arg("x")
    exponent = numbers_of(op.arg("y")) if op.type == "pow" else None
    return op.arg("x") if exponent is not None and np.all(exponent == 2) else None


def _is_zero(value: Value) -> bool:
    data = numbers_of(value)
    return data is not None and not np.any(data)


def _inside_abs(op: Op) -> Value | None:
    inner = _maker(op.arg("x"))
    return inner.arg("x") if inner is not None and inner.type == "abs" else None


def within_row(op: Op) -> bool:
    """Whether a slice begins behind the first element of the innermost axis."""
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


def _hard_swish(op: Op) -> tuple[Op | None, Value | None]:
    """(the gate, x) of x * hard_sigmoid(x), spelled with clip, relu6 or sigmoid_hard, scaled anywhere."""
    for gate, x in _pairs(op):
        inner = _maker(gate)
        while inner is not None and inner.type in ("mul", "real_div") and inner.arg("y").is_constant:
            inner = _maker(inner.arg("x"))
        if inner is not None and inner.type in ("sigmoid_hard", "relu6", "clip") and x in _sources(inner):
            return inner, x
    return None, None


def _pairs(op: Op) -> Iterator[tuple[Value, Value]]:
    x, y = op.arg("x"), op.arg("y")
    yield from ((x, y), (y, x))


def _sources(op: Op) -> tuple[Value, ...]:
    """What an op of one operand is computed from, a constant added on the way."""
    x = op.arg("x")
    below = x.op
    return (x, *(below.operands() if below is not None and below.type == "add" else ()))


def _lost(x: np.ndarray, w: np.ndarray) -> float:
    """The share of products whose exponents sum to -17 or less, operands taken as independent of each other."""
    counts = [np.bincount(np.clip(_exponents(a) + 15, 0, 30), minlength=31) for a in (x, w)]
    if not all(c.sum() for c in counts):
        return 0.0
    pairs = np.convolve(*(c / c.sum() for c in counts))
    return float(pairs[: -17 + 30 + 1].sum())


def _exponents(a: np.ndarray) -> np.ndarray:
    """floor(log2) of the numbers that are not 0, in fp16, at most a million of them."""
    a = a.reshape(-1)[:: max(1, a.size >> 20)]
    with np.errstate(over="ignore"):
        half = np.asarray(a, np.float16).astype(np.float32)
    return np.maximum(np.frexp(half[half != 0])[1] - 1, -14)
