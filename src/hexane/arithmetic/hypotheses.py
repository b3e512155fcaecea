"""Hypotheses on what docs/reference/numerics.md leaves open: one for each gap, in this one place, swappable.

Code that rests on a gap asks ``chosen(name)`` and obeys. ``assume(name, choice)`` swaps a choice for the calls made
inside a ``with`` block. Callers that mark results say *hypothesis (name)* for those that went through one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from hexane.errors import UsageError


@dataclass(frozen=True)
class Hypothesis:
    """One open question: where the reference leaves it open, what may be assumed, what is assumed.

    ``form``: it is about the ops that Apple's compiler makes of another, and decides when a program is compiled for
    dialect ``apple``, not when it runs.
    """

    name: str
    question: str
    source: str
    choices: Mapping[str, str]
    default: str
    form: bool = False


_ALL = (
    Hypothesis(
        "sum-order",
        "In which order does a running sum meet the limit of 2^15?",
        "docs/reference/numerics.md 3.3",
        {"channels-outside": "channels in increasing order, kernel positions (row by row) inside each channel"},
        "channels-outside",
    ),
    Hypothesis(
        "post-scale",
        "How is the sum scaled, and is the limit tested before?",
        "docs/reference/numerics.md 3.5 (2)",
        {
            "once": "h(sum * scale), one rounding; the limit is that of the sum before scaling",
            "twice": "h(h(sum) * scale)",
            "fixed-point": "the scaled sum is rounded half away to a unit of 2^-16 first, then to fp16",
        },
        "once",
    ),
    Hypothesis(
        "table-input",
        "Is a sum rounded to fp16 before a fused table?",
        "docs/reference/numerics.md 3.5 (5)",
        {"rounded": "yes, after the post-scale, as measured for a task without a sum"},
        "rounded",
    ),
    Hypothesis(
        "acc-bias",
        "How is the constant AccBias added?",
        "docs/reference/numerics.md 3.5 (3)",
        {"rounded": "h(x + constant) behind a single value; as the start value of a real sum"},
        "rounded",
    ),
    Hypothesis(
        "maximum-mode",
        "Is the NE's maximum over inputs (OpMode 3) exact?",
        "docs/reference/numerics.md 5",
        {"exact": "the largest input, with all its bits"},
        "exact",
    ),
    Hypothesis(
        "window-without-kernel",
        "What do a kernel window and the modes without a kernel stream (maximum, ones) give together?",
        "docs/reference/engine-h13.md 14.1, 14.2, 17 (18)",
        {"window": "the maximum or sum over the window, as with a kernel; padding never wins a maximum"},
        "window",
    ),
    Hypothesis(
        "reduction-max",
        "Is a maximum of the planar engine exact?",
        "docs/reference/numerics.md 7.2",
        {"exact": "the largest element, with all its bits"},
        "exact",
    ),
    Hypothesis(
        "scalar-exponent-31",
        "How does a constant multiplier (post-scale, planar scale) read an infinite operand?",
        "docs/reference/numerics.md 8 (log(0) = -45440: the table's -inf was read as 2^16)",
        {
            "binade": "as the multiplier does: 65536, so that a scale below 1 brings it back to finite values",
            "infinity": "as infinity",
        },
        "binade",
    ),
    Hypothesis(
        "product-mode",
        "What does the NE's product of two inputs (OpMode 2) round?",
        "docs/reference/numerics.md 5",
        {"once": "the exact product, once to fp16, half away"},
        "once",
    ),
    Hypothesis(
        "planar-scale",
        "How many roundings have Scale and Bias of the planar engine?",
        "docs/reference/numerics.md 7.1, docs/reference/engine-h13.md 8.3",
        {
            "each-step": "the operation, the product with Scale and the sum with Bias are rounded one by one",
            "after-operation": "the operation is rounded, then Scale and Bias together, once",
            "once": "operation, Scale and Bias are exact, one rounding",
        },
        "each-step",
    ),
    Hypothesis(
        "planar-shift-scale",
        "How many roundings has (source + shift) * scale of kind 4?",
        "docs/reference/numerics.md 7.1, docs/reference/engine-h13.md 8.4",
        {"each-step": "sum and product are rounded one by one", "once": "one rounding of the exact value"},
        "each-step",
    ),
    Hypothesis(
        "reduction-sum",
        "In which order, and with which adder, does the planar engine sum?",
        "docs/reference/numerics.md 7.2",
        {
            "groups-of-four": (
                "contiguous groups of four, one after the other, by an adder that aligns both operands to the larger "
                "exponent e and cuts them to multiples of 2^(e-11); groups are then added exactly"
            ),
            "exact": "an exact sum, rounded once",
        },
        "groups-of-four",
    ),
    Hypothesis(
        "reduction-finish",
        "Where is a reduction rounded before FinalScale, Epsilon and 1/x?",
        "docs/reference/numerics.md 7.2, 13, docs/reference/engine-h13.md 8.3",
        {
            "after-scale": "h(sum * FinalScale), then h(+ Epsilon), then h(1/x) or h(1/sqrt(x))",
            "every-step": "h(sum) before FinalScale as well",
        },
        "after-scale",
    ),
    Hypothesis(
        "reduction-range",
        "Do squares inside a reduction end at 65504, and the mean of them before its root?",
        "docs/reference/numerics.md 7.5 (language models with peaks of 410, 14858 and 50000 run such norms)",
        {
            "wide": "no: eleven bits without a limit of range until the result is stored",
            "fp16": "yes, they are fp16: a row that holds one value of 256 has an infinite sum of squares",
        },
        "wide",
    ),
    Hypothesis(
        "reciprocal",
        "What are 1/x, 1/sqrt(x) and sqrt(x) of the planar engine?",
        "docs/reference/numerics.md 13",
        {"correctly-rounded": "the correctly rounded value, half away"},
        "correctly-rounded",
    ),
    Hypothesis(
        "planar-square",
        "Is (a + b)^2 of the planar engine rounded before it is squared?",
        "docs/reference/numerics.md 7.1",
        {"each-step": "h(h(a + b)^2)", "once": "h((a + b)^2)"},
        "each-step",
    ),
    Hypothesis(
        "integer-scale",
        "How is an exact sum of integer products scaled?",
        "docs/reference/compressed.md 4 (one located dot of an M5 Pro; INFERRED for other chips)",
        {
            "twice": "h(h(sum) * scale), the inner rounding to eleven bits without a limit of range",
            "once": "h(sum * scale), one rounding",
        },
        "twice",
    ),
    Hypothesis(
        "scaled-bias",
        "Where is a bias added when outputs have a scale of their own?",
        "docs/reference/compressed.md 7 (bias beside scales was never seen)",
        {
            "with-scale": "h(h(sum) * scale + bias)",
            "rounded-before": "h(h(h(sum) * scale) + bias)",
        },
        "with-scale",
    ),
    Hypothesis(
        "int8-kernel",
        "How is an fp16 source multiplied by an int8 kernel (H13, BinaryPoint 0)?",
        "docs/reference/numerics.md 4, docs/reference/engine-h13.md 9.9",
        {"as-fp16": "as if the weights were fp16; known exact only for weights of +-1"},
        "as-fp16",
    ),
    Hypothesis(
        "winograd-bias",
        "Where does the bias enter a Winograd sum, and which sums meet the limit?",
        "docs/reference/numerics.md 6",
        {
            "output-sum": (
                "the bias is added to the combined sum; each of the four sums and the combined one meet the limit"
            )
        },
        "output-sum",
    ),
    Hypothesis(
        "winograd-transform-overflow",
        "What becomes of a transformed input above 65504?",
        "docs/reference/numerics.md 6",
        {"infinity-is-2^16": "it is stored as infinity, which the multiplier reads as 65536"},
        "infinity-is-2^16",
    ),
    Hypothesis(
        "byte-store",
        "How is an fp16 result stored as 8 bits?",
        "docs/reference/numerics.md 4, 13",
        {"half-away": "to nearest, ties away, saturating", "truncate": "cut towards zero, saturating"},
        "half-away",
    ),
    Hypothesis(
        "average-pooling",
        "Is an average a convolution with weights or a reduction?",
        "docs/reference/numerics.md 13, docs/reference/engine-h13.md 14.2",
        {"unit-weights": "a sum with weights 1.0 in the multiply-accumulate unit and 1/k^2 as post-scale"},
        "unit-weights",
    ),
    Hypothesis(
        "winograd-groups",
        "Does Winograd's form apply to each group of a grouped 3x3 kernel?",
        "docs/reference/numerics.md 6",
        {
            "each-group": "yes, as to a kernel that is laid out dense with zeros between the groups",
            "direct": "no, groups are summed directly as depthwise kernels are",
        },
        "each-group",
    ),
    Hypothesis(
        "hard-sigmoid",
        "How many roundings has hard sigmoid?",
        "docs/reference/numerics.md 7.6",
        {
            "clamp": "one: h(a * x + b) between 0 and 1, a line with two limits",
            "steps": "product, sum and clamp are rounded one by one",
        },
        "clamp",
        form=True,
    ),
    Hypothesis(
        "hard-swish",
        "What is hard swish of a map with four axes?",
        "docs/reference/numerics.md 7.6 (within fp16: coreai-torch 51)",
        {"product": "x times its hard sigmoid, one rounding more", "table": "a table fitted to it, half a unit apart"},
        "product",
        form=True,
    ),
    Hypothesis(
        "flat-hard-swish",
        "What is hard swish behind a product of fewer than four axes?",
        "docs/reference/numerics.md 7.6 (off by 3.9 %: coreai-torch 51; by 0.19 to 0.26 on an M4: coremltools 2625)",
        {
            "silu": "silu's table in its place: off by 2 to 5 %, as published",
            "fifth": "x * min(max(x / 5 + 1/2, 0), 1): off by 2 to 6 %",
            "product": "as with four axes: within fp16, which was not seen",
        },
        "silu",
        form=True,
    ),
)

ALL: Mapping[str, Hypothesis] = {h.name: h for h in _ALL}
"""Every hypothesis by name."""

_overrides: ContextVar[Mapping[str, str] | None] = ContextVar("hexane_hypotheses", default=None)


def chosen(name: str) -> str:
    """The choice in force for one hypothesis."""
    return (_overrides.get() or {}).get(name, ALL[name].default)


def in_force() -> tuple[tuple[str, str], ...]:
    """The choices that differ from the defaults, as something that can be compared and remembered by."""
    return tuple(sorted((_overrides.get() or {}).items()))


@contextmanager
def assume(name: str, choice: str) -> Iterator[None]:
    """Swap one hypothesis for the calls inside the block.

    >>> with assume("post-scale", "twice"):
    ...     y = mac(x, w, post_scale=3.0)
    """
    if name not in ALL:
        raise UsageError(f"there is no hypothesis {name!r}", hint=f"known are {', '.join(ALL)}")
    if choice not in ALL[name].choices:
        raise UsageError(f"hypothesis {name!r} has no choice {choice!r}", hint=f"use {', '.join(ALL[name].choices)}")
    token = _overrides.set({**(_overrides.get() or {}), name: choice})
    try:
        yield
    finally:
        _overrides.reset(token)
