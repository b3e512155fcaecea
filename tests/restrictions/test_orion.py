"""Each of the twenty published restrictions that a text can show: a minimal program that breaks it, and a fixed one."""

from __future__ import annotations

import pytest
from tests.restrictions.programs import CONV, X, blob, call, const, conv, program, tensor, unary

import hexane
from hexane.restrictions import RULES

HALF = tensor(1, 32, 1, 512)
ATTENTION = tensor(1, 12, 64, 64)
QKV = f"{ATTENTION} k, {ATTENTION} q, {ATTENTION} v"
MATMUL = const("bool", "f", "false") + const("bool", "t", "true")
SCORES = call(ATTENTION, "s", "matmul", "transpose_x = f, transpose_y = t, x = q, y = k")
AXIS = const("int32", "ax", "-1") + const("int32", "one", "1") + const("bool", "no", "false")
TWO = call(X, "a", "mul", "x = x, y = x") + call(X, "z", "add", "x = x, y = x")
UNEQUAL = (
    const("tensor<int32, [4]>", "bg", "[0, 0, 0, 0]")
    + const("tensor<int32, [4]>", "sz", "[1, 32, 1, 512]")
    + call(HALF, "b", "slice_by_size", "begin = bg, size = sz, x = x")
    + call(X, "a", "mul", "x = x, y = x")
)
BIASED = blob((64, 64, 1, 1), "w") + blob((64,), "b", "b.bin")
WIDE = tensor(1, 32000, 1, 64)
OUT = tensor(1, 64, 1, 64)
CASES = {
    "O1": (
        program(AXIS + call(tensor(1, 64, 1, 512), "y", "concat", "axis = one, interleave = no, values = (b, x)"),
                f"{HALF} b, {HALF} x", "y"),
        program(call(HALF, "p", "mul", "x = b, y = b") + call(HALF, "q", "mul", "x = x, y = x"),
                f"{HALF} b, {HALF} x", "p, q"),
        "disputed",
    ),
    "S1": (program(UNEQUAL, f"{X} x", "a, b"), program(UNEQUAL, f"{X} x", "a, b"), "fails"),
    "S2": (program(TWO, f"{X} x", "z, a"), program(TWO, f"{X} x", "a, z"), "silently wrong"),
    "S3": (
        program(call(tensor(1, 8, 1, 32), "y", "mul", "x = x, y = x"), f"{tensor(1, 8, 1, 32)} x", "y"),
        program(call(X, "y", "mul", "x = x, y = x"), f"{X} x", "y"),
        "disputed",
    ),
    "O4": (
        program(call(ATTENTION, "y", "scaled_dot_product_attention", "attn_mask = m, key = k, query = q, value = v"),
                f"{ATTENTION} k, {ATTENTION} m, {ATTENTION} q, {ATTENTION} v", "y"),
        program(MATMUL + AXIS + SCORES + call(ATTENTION, "n", "add", "x = s, y = m")
                + call(ATTENTION, "p", "softmax", "axis = ax, x = n")
                + call(ATTENTION, "y", "matmul", "transpose_x = f, transpose_y = f, x = p, y = v"),
                f"{ATTENTION} k, {ATTENTION} m, {ATTENTION} q, {ATTENTION} v", "y"),
        "silently wrong",
    ),
    "W2": (
        program(CONV + blob((64, 64, 1, 1), "w", offset=128) + conv("w"), f"{X} x", "y"),
        program(CONV + blob((64, 64, 1, 1), "w") + conv("w"), f"{X} x", "y"),
        "silently wrong",
    ),
    "O2": (unary("gelu", ", mode = m", const("string", "m", '"EXACT"')), unary("sigmoid"), "rejected"),
    "T5": (
        program(call(ATTENTION, "y", "matmul", "x = k, y = q, transpose_y = true"),
                f"{ATTENTION} k, {ATTENTION} q", "y"),
        program(MATMUL + call(ATTENTION, "y", "matmul", "transpose_x = f, transpose_y = t, x = k, y = q"),
                f"{ATTENTION} k, {ATTENTION} q", "y"),
        "disputed",
    ),
    "O3": (
        program(CONV + BIASED + conv("w", more=", bias = b"), f"{X} x", "y"),
        program(CONV + blob((64, 64, 1, 1), "w") + blob((1, 64, 1, 1), "b", "b.bin") + conv("w", result="c")
                + call(X, "y", "add", "x = c, y = b"), f"{X} x", "y"),
        "rejected",
    ),
    "T6": (
        program(call(X, "y", "mul", "x = x, y = x"), f"{X} x", "nothing"),
        program(call(X, "y", "mul", "x = x, y = x"), f"{X} x", "y"),
        "rejected",
    ),
    "S10": (
        program(CONV + blob((64, 32000, 1, 1), "w") + conv("w", type_=OUT), f"{WIDE} x", "y"),
        program(CONV + blob((64, 64, 1, 1), "w") + conv("w"), f"{X} x", "y"),
        "rejected",
    ),
    "P1": (
        program(MATMUL + blob((1, 1, 64, 64), "w")
                + call(tensor(1, 1, 64, 512), "y", "matmul", "transpose_x = f, transpose_y = f, x = w, y = x"),
                f"{tensor(1, 1, 64, 512)} x", "y"),
        program(CONV + blob((64, 64, 1, 1), "w") + conv("w"), f"{X} x", "y"),
        "slow",
    ),
    "S6": (
        program(UNEQUAL + call(HALF, "y", "add", "x = b, y = c"), f"{HALF} c, {X} x", "y"),
        program(call(X, "y", "add", "x = c, y = x"), f"{X} c, {X} x", "y"),
        "fails",
    ),
    "S7": (
        program(call(X, "y", "sub", "x = x, y = w"), f"{X} x, {X} w", "y"),
        program(call(X, "y", "sub", "x = x, y = w"), f"{X} w, {X} x", "y"),
        "silently wrong",
    ),
}  # fmt: skip
RUNTIME = {"R1", "W8", "T1", "W1", "R2", "S8"}
"""What no text shows: call sequences in tests/mil."""


def test_the_twenty_are_all_here() -> None:
    listed = {rule.id: rule.orion for rule in RULES.values() if rule.orion}
    assert sorted(listed.values()) == list(range(1, 21))
    assert set(listed) == set(CASES) | RUNTIME


@pytest.mark.parametrize("rule", CASES)
def test_a_restriction_and_its_way_out(rule: str) -> None:
    failing, good, severity = CASES[rule]
    asked = {"chip": "M4 Max", "os": "macOS 15"}
    found = {f.rule: f for f in hexane.check_mil(failing, **asked)}
    assert rule in found, sorted(found)
    assert found[rule].severity == severity
    surfaces = "uniform_largest" if rule == "S1" else "own_size"
    assert rule not in {f.rule for f in hexane.check_mil(good, **asked, surfaces=surfaces)}
    assert not [f for f in hexane.check_mil(good, **asked, surfaces=surfaces) if f.refuses]


@pytest.mark.parametrize("chip, severity", [("M4 Max", "fails"), ("M4", "disputed")])
def test_who_measured_this_chip_and_release_outweighs_its_generation(chip: str, severity: str) -> None:
    """The surface of the smaller input goes to the larger: seen to fail on M4 Max, to run on M4, both with macOS 15."""
    squares = call(HALF, "a", "mul", "x = x, y = x") + call(X, "b", "mul", "x = c, y = c")
    text = program(squares, f"{HALF} x, {X} c", "a, b")
    verdicts = {f.rule: f.severity for f in hexane.check_mil(text, chip=chip, os="macOS 15", surfaces="own_size")}
    assert verdicts["S7"] == severity


def test_a_restriction_points_at_its_words() -> None:
    found = hexane.check_mil(CASES["O4"][0], chip="M4")
    mask = next(f for f in found if f.rule == "O4")
    assert CASES["O4"][0].split("\n")[mask.line - 1][mask.column - 1 :].startswith("m, key")
    assert "^" in mask.show(CASES["O4"][0], "program.mil")
