"""A fixed program computes the same, and breaks the rule no more."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.restrictions.programs import CONV, X, blob, call, const, conv, program, tensor, unary
from tests.restrictions.test_orion import CASES, QKV

import hexane
from blobs import blob_bytes
from hexane.restrictions.fixes import fixed

HALF = tensor(1, 32, 1, 512)
SLICED = program(
    const("tensor<int32, [4]>", "bg", "[0, -40, 0, 0]") + const("tensor<int32, [4]>", "en", "[1, 56, 1, 512]")
    + call(HALF, "h", "slice_by_index", "begin = bg, end = en, x = x") + CONV + blob((8, 32, 1, 1), "w")
    + conv("w", x="h", type_=tensor(1, 8, 1, 512)), f"{X} x", "y",
)  # fmt: skip
CASES_TO_FIX = {
    "T2": unary("mul", ", y = x").replace("buildInfo", "info"),
    "T5": CASES["T5"][0],
    "T8": program(const("int32", "ax", "1") + call(tensor(1, 128, 1, 512), "y", "concat", "axis = ax, values = (b, x)"),
                  f"{X} b, {X} x", "y"),
    "T10": unary("log"),
    "O2": unary("gelu", ", mode = m", const("string", "m", '"TANH_APPROXIMATION"')),
    "O3": CASES["O3"][0],
    "O5": unary("rsqrt", ", epsilon = e", const("fp16", "e", "0x1p-10")),
    "O8": unary("identity"),
    "O10": SLICED,
    "S2": CASES["S2"][0],
    "S7": CASES["S7"][0],
    "W2": CASES["W2"][0],
}  # fmt: skip
ASKED = {"chip": "M3 Max", "os": "macOS 15"}


def weights(text: str) -> dict[str, bytes]:
    """Made-up weight files of the sizes that a text asks for."""
    rng = np.random.default_rng(5)
    graph = hexane.parse_mil(text)
    files = {}
    for value in graph.main.constants():
        if value.constant is not None and value.constant.source is not None:
            files[value.constant.source.path] = blob_bytes(
                [(rng.normal(0, 0.1, value.shape).astype(np.float16), "fp16")]
            )
    return files


@pytest.mark.parametrize("rule", CASES_TO_FIX)
def test_a_fix_keeps_the_numbers(rule: str) -> None:
    text = CASES_TO_FIX[rule]
    assert rule in {f.rule for f in hexane.check_mil(text, **ASKED)}
    new, done = fixed(text, lambda t: hexane.check_mil(t, **ASKED))
    assert rule in {f.rule for f in done}
    assert rule not in {f.rule for f in hexane.check_mil(new, **ASKED)}
    if rule == "W2":
        return  # before it there was nothing to read
    files = weights(text)
    old_graph, new_graph = hexane.parse_mil(text, files), hexane.parse_mil(new, files)
    rng = np.random.default_rng(3)
    inputs = {
        n: np.abs(rng.normal(0, 1, t.shape)).astype(np.float16) + np.float16(0.1) for n, t in old_graph.inputs.items()
    }
    expected, got = old_graph.evaluate(inputs), new_graph.evaluate(inputs)
    assert set(expected) == set(got)
    for name, array in expected.items():
        np.testing.assert_allclose(got[name].astype(float), array.astype(float), rtol=4e-3, atol=2e-3)


def test_a_fixed_text_is_fixed(facts: Path) -> None:
    """Of the whole corpus: it parses, its findings are fewer, and a second pass changes nothing."""
    for record in json.loads((facts / "mil" / "index.json").read_text())[::12]:
        text = (facts / "mil" / record["file"]).read_text()
        check = lambda t, r=record: hexane.check_mil(t, chip=r["chip"], os=r["os"], interface=r["interface"])  # noqa: E731
        new, done = fixed(text, check)
        if done:
            hexane.parse_mil(new)
            assert len(check(new)) < len(check(text)), record["file"]
            assert fixed(new, check)[0] == new


def test_several_flags_in_one_statement() -> None:
    text = program(
        call(tensor(1, 12, 64, 64), "y", "matmul", "x = q, y = k, transpose_x = false, transpose_y = true"), QKV, "y"
    )
    new, _ = fixed(text, lambda t: hexane.check_mil(t, chip="M4"))
    assert "T5" not in {f.rule for f in hexane.check_mil(new)}
    hexane.parse_mil(new).verify()
