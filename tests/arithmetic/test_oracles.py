"""Published checksums over whole outputs: where docs/reference/numerics.md states a rule, hexane gives them to the
printed digit."""

from __future__ import annotations

import json

import pytest

from arithmetic import oracles
from facts import fact_folder

PATH = fact_folder() / "numerics" / "dev_oracles.json"
CASES = json.loads(PATH.read_text())["cases"]


def heavy(case: dict) -> bool:
    p = case["params"]
    return case["kind"] == "conv_chain" or p.get("C", 0) > 64 or p.get("K", 0) * p.get("N", 0) > 1 << 24


def params() -> list:
    ruled = [c for c in CASES if c["rule"] != "open"]
    out = []
    for case in ruled:
        name = f"{case['id']}-{case['kind']}"
        several = "R" in case["params"]
        out.append(pytest.param(case, several, id=name, marks=[pytest.mark.slow] if heavy(case) else []))
        if several:
            out.append(pytest.param(case, False, id=f"{name}-all", marks=pytest.mark.slow))
    return out


@pytest.mark.parametrize(("case", "few"), params())
def test_checksum(case, few):
    given = oracles.evaluate(case, few)
    for chip, expected in case["expected"].items():
        wanted = expected if isinstance(expected, list) else [expected]
        for value, published in zip(given, wanted, strict=False):
            assert abs(value - published) <= 10 * case["agreement"] * published, chip
