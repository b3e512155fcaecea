"""Numbers that come out other than float32 says: lost products, no NaN, close decisions.

These hold for Core ML's own route. Where the numbers decide and nobody has seen them, a rule says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hexane.chips import Evidence
from hexane.graph.registry import has
from hexane.graph.traits import RESHAPES, SAME_VALUES
from hexane.restrictions.bounds import NOT_KNOWN
from hexane.restrictions.reports import wrong
from hexane.restrictions.rule import Found, core_ml_rule, hit
from hexane.restrictions.subject import Subject, numbers_of, unconverted

if TYPE_CHECKING:
    from hexane.graph.ir import Op, Value

SUMS = ("reduce_sum", "reduce_mean")
LARGEST_GAP = 17.3
LOG_SOFTMAX = "LogSoftmax"
"""The node of an ONNX file that coremltools writes as log(softmax)."""


@core_ml_rule(
    "N3",
    "write x - max(x) - log(sum(exp(x - max(x))))",
    wrong("coremltools 2728", "", None, note="-inf beside a logit that is 50 larger", tested=True),
)
def log_of_softmax(subject: Subject) -> Found:
    """log of a softmax: shares below 2^-25 are 0 in fp16, so that logits {limit} below the largest have no logarithm"""
    nodes = unconverted(subject.graph)
    for statement in subject.calls("log", "sub"):
        if statement.type == "sub":
            here = nodes.get(statement.op.outputs[0].name, ("", ""))[1] if nodes else ""
            x, axis = (here == LOG_SOFTMAX and spelled_log_softmax(statement.op)) or (None, 0)
        else:
            soft = maker_of(statement.op.arg("x"))
            is_soft = soft is not None and soft.type == "softmax"
            x, axis = (soft.arg("x"), soft.arg("axis")) if soft is not None and is_soft else (None, 0)
        logits = subject.seen(x)
        answer: str | None = NOT_KNOWN if x is not None else None
        if logits is not None:
            gaps = logits.max(axis=axis, keepdims=True) - logits
            share = np.mean(gaps > LARGEST_GAP)
            answer = f"gaps up to {gaps.max():.5g}, {share:.3%} of the values" if share else None
        if answer:
            yield hit(statement.place, limit=LARGEST_GAP, found=answer)


LOST = 0.05
"""Share of lost products from which a sum is worth a remark: docs/reference/numerics.md 9 has 5.5e-3 at 7 %."""


@core_ml_rule(
    "N6",
    "scale an operand up by a power of two and the result down (hexane run --autoscale)",
    wrong("ANEForge, M6 study", "M1, M1 Max, M2 Pro, M4, M5 Pro, M6", None, note="493 rows", tested=True),
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


NO_NAN = "numbers that are no NaN: an engine has none, so that no value differs from itself"


@core_ml_rule(
    "N11",
    "look for NaN on the host, before the network",
    wrong("ane-guide", "M1", None, note="a NaN counts as infinity", tested=True),
    wrong("M6 study", "M6", None, note="halfwords of NaN are numbers to the multiplier", tested=True),
)
def own_difference(subject: Subject) -> Found:
    """an engine has no NaN, so that no value differs from itself"""
    for statement in subject.calls("equal", "not_equal"):
        if statement.value("x") is not None and statement.value("x") is statement.value("y"):
            yield hit(statement.place, limit="no NaN", found=f"{statement.type}(x, x)")


@core_ml_rule(
    "N19",
    "take the decision in float32 on the host, or raise what separates the logits",
    wrong("docs/reference/numerics.md 9", note="fp16 results differ by 2^-11 of their size"),
    evidence=Evidence.INFERRED,
)
def close_logits(subject: Subject) -> Found:
    """the two largest of {op} are nearer to each other than {limit} of their size: rounding decides"""
    for statement in subject.calls("softmax", "reduce_argmax", "topk"):
        x, axis = statement.value("x"), statement.constant("axis")
        logits = subject.seen(x)
        if logits is None or x is None or x.is_constant or not isinstance(axis, int) or logits.shape[axis] < 2:
            continue
        if statement.type == "softmax" and not any(v in subject.graph.main.outputs for v in statement.op.outputs):
            continue
        two = np.sort(np.moveaxis(logits, axis, -1), -1)[..., -2:]
        close = two[..., 1] - two[..., 0] < 2.0**-10 * np.abs(two[..., 1])
        if np.any(close):
            yield hit(statement.place, op=statement.type, limit=2.0**-10, found=f"{np.mean(close):.1%} of the rows")


def maker_of(value: Value) -> Op | None:
    """The op that makes a value, casts and views left out."""
    op = value.op
    while op is not None and has(op, SAME_VALUES | RESHAPES):
        op = op.arg("x").op
    return op


def spelled_log_softmax(op: Op) -> tuple[Value, int] | None:
    """(x, axis) of x - max(x) - log(sum(exp(x - max(x)))) or x - max(x) - log-sum-exp of it."""
    low, total = op.arg("x"), op.arg("y").op
    shifted = low.op
    if total is None or shifted is None or shifted.type != "sub":
        return None
    if total.type == "log":
        inner = total.arg("x").op
        source = inner.arg("x").op if inner is not None and inner.type == "reduce_sum" else None
        same = source is not None and source.type == "exp" and source.arg("x") is low
    else:
        inner, same = total, total.type == "reduce_log_sum_exp" and total.arg("x") is low
    top = shifted.arg("y").op
    if not same or inner is None or top is None or top.type != "reduce_max" or top.arg("x") is not shifted.arg("x"):
        return None
    axes = inner.arg("axes")
    if axes is None or len(axes) != 1 or list(top.arg("axes") or ()) != list(axes):
        return None
    return shifted.arg("x"), axes[0]


def squared_by(op: Op | None) -> Value | None:
    """x of x * x, square(x) or pow(x, 2)."""
    if op is None:
        return None
    x = op.inputs.get("x")
    if op.type == "square" or (op.type == "mul" and x is op.inputs.get("y")):
        return op.arg("x")
    exponent = numbers_of(op.arg("y")) if op.type == "pow" else None
    return op.arg("x") if exponent is not None and np.all(exponent == 2) else None


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
