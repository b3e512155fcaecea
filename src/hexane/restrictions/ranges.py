"""Numbers beyond what fp16, a sum or a function's table takes, and results too small for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.chips import Evidence
from hexane.formats.mil.literals import array_of
from hexane.graph.registry import with_trait
from hexane.graph.traits import PRODUCTS
from hexane.graph.types import TensorType
from hexane.restrictions.bounds import (
    LARGEST_HALF,
    LARGEST_SUM,
    LEAST_INFINITY,
    NOT_KNOWN,
    above,
    below,
    beyond,
    beyond_half,
    first_beyond_half,
)
from hexane.restrictions.forms import gated
from hexane.restrictions.numbers import SUMS, maker_of, squared_by
from hexane.restrictions.reports import runs, wrong
from hexane.restrictions.rule import INTERFACES, Found, core_ml_rule, hit, rule
from hexane.restrictions.subject import Statement, Subject, unconverted

if TYPE_CHECKING:
    from hexane.graph.ir import Op, Value

EXP_END = 11.094  # docs/reference/numerics.md 8: the upper limit of the exp2 table, 16, by log2 e
SUM_END = 32768.0
SOFTPLUS_END = round(math.log(SUM_END), 3)
SQUARE_END = 255.9
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


@core_ml_rule(
    "N1",
    "subtract the largest element before exp, or clip its input",
    wrong("ane-guide", "M1", None, note="infinite from 11.094 on", tested=True),
    wrong("coremltools 2729", "", None, note="exp before cumsum", tested=True),
)
def exp_of_large(subject: Subject) -> Found:
    """exp is infinite for inputs beyond {limit}"""
    for statement in subject.calls("exp"):
        yield from _above(subject, statement, statement.op.arg("x"), EXP_END)


@core_ml_rule(
    "N2",
    "write max(x) + log(sum(exp(x - max(x))))",
    wrong("coremltools 2690", "M3 Max", 26, note="32 channels: 11.1, then 0 from 7.63 on", tested=True),
)
def log_sum_exp(subject: Subject) -> Found:
    """log-sum-exp over {count} elements takes no maximum out: the sum ends at 65504, and from {limit} on it is 0"""
    for statement in subject.calls("reduce_log_sum_exp"):
        x = statement.op.arg("x")
        count = _reduced(statement.op, x)
        if count:
            limit = round(math.log(LARGEST_HALF / count), 3)
            yield from _above(subject, statement, x, limit, count=count)


@core_ml_rule(
    "N4",
    "write layer_norm of [x, -x], or x * sqrt(n) / reduce_l2_norm(x): one op whose squares are not stored",
    wrong("executorch 19523", "", None, note="x * rsqrt(mean(x * x)) overflows at 255", tested=True),
    wrong("ane-guide", "M1", None, note="a square is infinite at 256", tested=True),
)
def stored_squares(subject: Subject) -> Found:
    """{op} is a mean or sum of squares that are stored: they end at 65504, inputs at {limit}"""
    for statement in subject.calls(*SUMS):
        x = squared_by(maker_of(statement.op.arg("x")))
        answer = None if x is None else beyond(subject, x, SQUARE_END)
        if answer:
            yield hit(statement.place, op=statement.type, limit=SQUARE_END, found=answer)


@core_ml_rule(
    "N5",
    "scale the operands by powers of two (hexane run --autoscale), so that sums stay below 32752",
    wrong("ANEForge, M6 study", "M1, M4, M5, M6", None, note="infinite from 32768 on, by products", tested=True),
)
def large_sums(subject: Subject) -> Found:
    """the sums of {op} end at {limit}: beyond it they are infinite"""
    for statement in subject.calls(*with_trait(PRODUCTS)):
        answer = beyond(subject, statement.op.outputs[0], LARGEST_SUM)
        if answer and answer is not NOT_KNOWN:
            yield hit(statement.place, op=statement.type, limit=LARGEST_SUM, found=answer)


@core_ml_rule(
    "N9",
    "write x / (1 + exp(-x)) for silu, the tanh form for gelu, where small results matter",
    wrong("M6 study", "M4, M6", None, note="absolute errors up to 1.5e-2 (silu), 6.2e-3 (gelu)", tested=True),
    wrong("ane-guide", "M1", None, note="silu(0) and gelu(0) are not 0", tested=True),
)
def tables_near_zero(subject: Subject) -> Found:
    """{op} comes from a table: {at_zero} at 0, errors as large as the result for inputs within {limit} of 0"""
    values = {"silu": (-0.0017, 0.0034), "gelu": (-0.000754, 0.0015)}
    is_converted = unconverted(subject.graph) is None
    for statement in subject.calls("mul", *values):
        if statement.type == "mul" and (is_converted or gated(statement.op) is None):
            continue
        at_zero, limit = values["silu" if statement.type == "mul" else statement.type]
        answer = below(subject, gated(statement.op) or statement.op.arg("x"), limit)
        if answer:
            op = "x * sigmoid(x)" if statement.type == "mul" else statement.type
            yield hit(statement.place, op=op, at_zero=at_zero, limit=limit, found=answer)


@core_ml_rule(
    "N10",
    "round on the host, or numbers that are divided by a power of two",
    wrong("ane-guide", "M1", None, note="round(1024) = 1025", tested=True),
)
def round_of_large(subject: Subject) -> Found:
    """round is off by one for magnitudes from {limit} on"""
    for statement in subject.calls("round"):
        answer = beyond(subject, statement.op.arg("x"), 1023.5)
        if answer:
            yield hit(statement.place, limit=1024, found=answer)


@core_ml_rule(
    "N18",
    "use an epsilon of at least 6e-8, the smallest number of fp16",
    wrong("docs/reference/numerics.md 2", note="arithmetic of fp16"),
    evidence=Evidence.INFERRED,
)
def vanishing_epsilon(subject: Subject) -> Found:
    """the epsilon of {op} is 0 in fp16: a row of equal numbers has no inverse root"""
    for statement in subject.calls("layer_norm", "instance_norm", "l2_norm"):
        epsilon = statement.constant("epsilon")
        if isinstance(epsilon, (int, float, np.floating)) and abs(float(epsilon)) < 2.0**-25:
            yield hit(statement.place, op=statement.type, limit=2.0**-25, found=f"{epsilon:g}")


@rule(
    "N20",
    "use -10000 (or -30000) where a mask hides something, and weights within 65504",
    wrong("coremltools 2669", "", None, note="-3.4e38 is -inf in fp16", tested=True),
    wrong("maderix", "M4", 15),
    wrong("Orion", "M4 Max", 15),
    interfaces=INTERFACES,
)
def constant_beyond_half(subject: Subject) -> Found:
    """a constant of {op} is beyond {limit}, the end of fp16: it becomes an infinity"""
    for statement in subject.statements:
        if statement.type in _FINE:
            continue
        numbers = [n for n in map(beyond_half, statement.op.operands()) if n is not None and abs(n) >= LEAST_INFINITY]
        if numbers:
            yield hit(statement.place, op=statement.type, limit=LARGEST_HALF, found=f"{numbers[0]:g}")
    for call in subject.constants:  # of a text: fp16 that is spelled larger than it can be
        value = call.attributes.get("val")
        type_ = None if value is None else value.type
        if not isinstance(type_, TensorType) or type_.dtype != "fp16":
            continue
        if value is not None and isinstance(value.payload, (int, float, list)):
            number = first_beyond_half(np.asarray(array_of(value.payload, type_.with_dtype("fp32"))))
            if number is not None:
                name = call.results[0]
                yield hit(name.place, op=name.name, limit=LARGEST_HALF, found=f"{number:g}")


SMALL = 0.01
"""Relative error of a sum that is worth a remark."""


@core_ml_rule(
    "N21",
    "scale an operand up by a power of two and the result down (hexane run --autoscale)",
    wrong("cadamcat", "M5 Pro", None, note="P @ V over 4096 keys: 3.95 %, with P times 64 0.060 %", tested=True),
    wrong("ANEForge, M6 study", "M1, M5 Pro, M6", None, note="2.6e-3 for 512 terms to 6.2e-2 for 8192", tested=True),
)
def small_results(subject: Subject) -> Found:
    """products of {op} are rounded to 2^-16, and its results are small: off by {found}, more than {limit}"""
    for statement in subject.calls("conv", "matmul", "linear"):
        results, terms = subject.seen(statement.op.outputs[0]), _terms(statement)
        rms = 0.0 if results is None else float(np.sqrt(np.mean(np.square(results, dtype=np.float64))))
        error = math.sqrt(terms / 12) * 2.0**-16 / rms if rms and math.isfinite(rms) else 0.0
        if error > SMALL:
            yield hit(statement.place, op=statement.type, limit=SMALL, found=f"about {error:.1%}")


def _terms(statement: Statement) -> int:
    """Number of products that one result sums; 0 where that is not known."""
    if statement.type == "matmul":
        x = statement.shape("x")
        inner = x[-2 if statement.constant("transpose_x") and len(x) > 1 else -1] if x else 0
        return inner or 0
    return math.prod(extent or 0 for extent in statement.shape("weight")[1:])


def _above(subject: Subject, statement: Statement, value: Value, limit: float, **words: Any) -> Found:
    answer = above(subject, value, limit)
    if answer:
        yield hit(statement.place, limit=limit, found=answer, **words)


def _reduced(op: Op, x: Value) -> int:
    """Number of elements that one result is made of; 0 where that is not known."""
    axes = op.arg("axes")
    extents = x.shape if axes is None else [x.shape[axis] for axis in axes]
    return 0 if None in extents else math.prod(extents)
