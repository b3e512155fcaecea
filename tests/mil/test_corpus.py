"""Every accepted program of the corpus evaluates as a model, and agrees with float32 within stated bounds.

The bound on the root-mean-square error, relative to the size of float32's output: 2^-10 (the rounding of fp16) for
every op on the longest way through the program, and 2^-7 where a function comes from a table (sigmoid, tanh, softmax,
pow: docs/numerics-open.md). Inputs have a size of 0.1 to 1, so that sums stay within fp16.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.mil.test_quirks import near
from tests.restrictions.test_corpus import ACCEPTED

from hexane.mil import Model, Options

TABLES = frozenset({"sigmoid", "tanh", "softmax", "pow", "gelu", "silu", "scaled_dot_product_attention", "layer_norm"})
SMALL_BYTES = 1 << 18


def weights_of(record: dict[str, Any], rng: np.random.Generator) -> dict[str, bytes]:
    """Made-up weight files with records at the offsets that the text names."""
    files: dict[str, dict[int, dict]] = {}
    for weight in record["weights"]:
        files.setdefault(weight["path"], {})[weight["offset"]] = weight
    made = {}
    for path, records in files.items():
        data = bytearray(max(at + 64 + w["payload_bytes"] for at, w in records.items()) + 64)
        struct.pack_into("<II", data, 0, 1, 2)
        for at, weight in records.items():
            count = int(np.prod(weight["shape"], dtype=int))
            if weight["dtype"] == "int8":
                payload, code = rng.integers(-20, 20, count).astype(np.int8).tobytes(), 4
            else:
                rows = weight["shape"][0] if weight["shape"] and weight["shape"][0] > 1 else count
                payload, code = (rng.standard_normal(count) * (rows / count) ** 0.5).astype(np.float16).tobytes(), 1
            struct.pack_into("<IIQQQ", data, at, 0xDEADBEEF, code, len(payload), at + 64, 0)
            data[at + 64 : at + 64 + len(payload)] = payload
        made[path] = bytes(data)
    return made


def depth(graph: Any) -> int:
    """Ops on the longest way from an input to an output."""
    reach: dict[str, int] = {}
    for op in graph.ops:
        before = max((reach.get(v.name, 0) for v in op.operands()), default=0)
        for value in op.outputs:
            reach[value.name] = before + 1
    return max(reach.values(), default=1)


def size_of(record: dict[str, Any]) -> int:
    inputs = sum(2 * int(np.prod(t["shape"], dtype=int)) for t in record["inputs"] + record["outputs"])
    return inputs + sum(w["payload_bytes"] for w in record["weights"])


def agreement(facts: Path, record: dict[str, Any], level: str = "graph") -> tuple[float, float, str]:
    """Largest relative error over the outputs, its bound, and the level."""
    rng = np.random.default_rng(1)
    surfaces = record["surfaces"] if record["surfaces"] != "unknown" else None
    options = Options(record["os"], record["interface"], surfaces, level, statistics=False)
    text = (facts / "mil" / record["file"]).read_text()
    with Model(text, weights_of(record, rng), record["chip"] or "M4", options=options) as model:
        scale = 0.1 if any(type_.shape[-1] > 1024 for type_ in model.inputs.values()) else 1.0
        inputs = {
            name: (rng.standard_normal(type_.shape) * scale).astype(np.float16).astype(type_.carrier)
            for name, type_ in model.inputs.items()
        }
        got, expected = model.evaluate(inputs), model.graph.evaluate(inputs)
        worst = 0.0
        for name, array in expected.items():
            off = got[name].astype(np.float64) - array.astype(np.float64)
            assert np.isfinite(off).all(), name
            worst = max(worst, float(np.sqrt((off**2).mean() / max((array.astype(np.float64) ** 2).mean(), 1e-12))))
        tables = any(op.type in TABLES for op in model.graph.ops)
        return worst, depth(model.graph) * 2.0**-10 + (2.0**-7 if tables else 0), model.level


def accepted(facts: Path) -> list[dict[str, Any]]:
    return [r for r in json.loads((facts / "mil" / "index.json").read_text()) if r["status"] in ACCEPTED]


def test_small_accepted_programs_agree_with_float32(facts: Path) -> None:
    small = [record for record in accepted(facts) if size_of(record) <= SMALL_BYTES]
    assert len(small) > 40
    for record in small[::3]:
        error, bound, _ = agreement(facts, record)
        assert error <= bound, (record["file"], error, bound)


@pytest.mark.slow
def test_accepted_programs_run_task_by_task(facts: Path) -> None:
    """Where a program becomes one engine program for its chip, its tasks agree with float32 in the same bounds."""
    levels = []
    for record in accepted(facts):
        if size_of(record) <= 4 * SMALL_BYTES:
            error, bound, level = agreement(facts, record, "auto")
            levels.append(level)
            assert error <= bound, (record["file"], level, error, bound)
    print(levels.count("engine"), "of", len(levels), "at level engine")


@pytest.mark.slow
def test_all_accepted_programs_agree_with_float32(facts: Path) -> None:
    rows = []
    for record in accepted(facts):
        error, bound, level = agreement(facts, record)
        rows.append((error / bound, error, bound, level, record["file"]))
    for row in sorted(rows, reverse=True)[:12]:
        print("{:.2f} of the bound, {:.1e} <= {:.1e} {} {}".format(*row))
    print(len(rows), "programs")
    assert all(row[0] <= 1 for row in rows)


def test_the_measure_can_fail() -> None:
    assert not near(np.ones(3), np.zeros(3))
