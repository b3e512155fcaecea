"""Run ONNX's own back-end tests through hexane.onnx_backend and write docs/onnx-backend.md.

    python tools/onnx_backend.py [docs/onnx-backend.md]

`onnx.backend.test`'s runner makes the tests; every model is compiled for M1 and run on the emulated engine, first as it
is (what the engine does not do runs on the host), then with ``strict=True``.
"""

from __future__ import annotations

import os
import sys
import unittest
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

TARGET = Path(__file__).resolve().parents[1] / "docs" / "onnx-backend.md"
KINDS = ("pass", "refused", "wrong", "crash")
RELATIVE = 2e-2
"""A compiled network computes in fp16, on the host too: a result may differ by so much of itself,"""
ABSOLUTE = 4e-3
"""and by so much of the largest result (at least 1): sums and tables of fp16 round by 2^-11 of what they add."""
QUANTISED = 1
"""Steps by which the result of a quantisation may differ: what it rounds has been fp16 before."""
POLE = 16384
"""From here on a number counts as large where the reference is infinite."""
ALLOWANCES = {
    "table": "a table of 33 nodes that has a larger error (docs/lookup-tables.md), which it kept",
    "rounded": "right for its inputs as fp16 has them, which is another question (10001 among 10000s)",
    "range": "infinite where the result is beyond fp16's 65504",
    "nan": "the reference is not a number somewhere (the root of a negative); the engine has a number there",
    "pole": "the reference is infinite (the logarithm of 0); the engine's table ends at a large number",
    "step": "a quantised result that is off by one step",
}
"""Why a result passes that is further away; each is counted."""


@dataclass(frozen=True)
class Outcome:
    """What became of one test; ``engine`` says whether any task of the engine took part."""

    category: str
    name: str
    kind: str
    reason: str = ""
    engine: bool = False


class _Recorder:
    """hexane's back end, and what the last test asked of it."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.clear()

    def clear(self) -> None:
        self.model: Any = None
        self.program: Any = None
        self.inputs: list[Any] = []
        self.refused: str | None = None
        self.allowed: set[str] = set()

    def supports_device(self, device: str) -> bool:
        return device == "CPU"

    def prepare(self, model: Any, device: str = "CPU", **kwargs: Any) -> Any:
        from hexane import onnx_backend

        self.model = model
        try:
            made = onnx_backend.prepare(model, device, **kwargs, **self.options)
        except onnx_backend.Refused as error:
            problems = {f"{p.op}: {p.reason}" for p in getattr(error, "problems", [])}
            self.refused = "; ".join(sorted(problems)) or error.message
            raise
        self.program = made.program
        self.run_inner = made.run
        return self

    def run(self, inputs: list[Any]) -> Any:
        self.inputs = inputs
        return self.run_inner(inputs)

    def engine(self) -> bool:
        return self.program is not None and bool(self.program.images)

    def check(self, wanted: list[np.ndarray], got: list[np.ndarray], rtol: float, atol: float) -> None:
        """AssertionError beyond the test's own tolerance and that of fp16.

        Inputs that fp16 does not hold (10001 among 10000s) change the question: then the answer has to be that of the
        float32 reference to the rounded inputs, which is counted.
        """
        try:
            self.close(wanted, got, rtol, atol)
        except AssertionError:
            asked = self.reference()
            if asked is None:
                raise
            self.allowed = {"rounded"}
            self.close(asked, got, rtol, atol)

    def close(self, wanted: list[np.ndarray], got: list[np.ndarray], rtol: float, atol: float) -> None:
        """AssertionError where a result is further away than its test, or fp16, allows."""
        assert len(wanted) == len(got), f"{len(got)} results for {len(wanted)}"
        for ours, theirs in zip(got, wanted):
            np.testing.assert_array_equal(ours.shape, theirs.shape)
            np.testing.assert_equal(ours.dtype, theirs.dtype)
            if theirs.dtype.kind in "OU":
                np.testing.assert_array_equal(ours, theirs)
            elif theirs.dtype.kind == "f":
                self.close_floats(ours, theirs, rtol, atol)
            elif theirs.dtype.name == "bfloat16":
                self.close_floats(_plain(ours), _plain(theirs), max(rtol, 2**-6), atol)
            elif theirs.dtype.kind in "iu" and self.quantises() and not np.array_equal(ours, theirs):
                np.testing.assert_allclose(ours.astype(np.int64), theirs.astype(np.int64), rtol=0, atol=QUANTISED)
                self.allowed.add("step")
            else:
                np.testing.assert_allclose(_plain(ours), _plain(theirs), rtol=rtol, atol=atol)

    def close_floats(self, got: np.ndarray, wanted: np.ndarray, rtol: float, atol: float) -> None:
        with np.errstate(over="ignore"):
            narrow = wanted.astype(np.float16).astype(wanted.dtype)
        beyond = np.isinf(narrow) & ~np.isinf(wanted) & np.isinf(got)
        if beyond.any():
            self.allowed.add("range")
        pole = np.isinf(wanted) & np.isfinite(got) & (np.abs(got) >= POLE) & (np.sign(got) == np.sign(wanted))
        if pole.any():
            self.allowed.add("pole")
            got = np.where(pole, wanted, got)
        if np.isnan(wanted).any() and not np.isnan(got[np.isnan(wanted)]).all():
            self.allowed.add("nan")
            got = np.where(np.isnan(wanted), wanted, got)
        wanted = np.where(beyond, narrow, wanted)
        finite = np.abs(wanted[np.isfinite(wanted)])
        rtol, atol = max(rtol, RELATIVE), max(atol, ABSOLUTE * max(1.0, float(finite.max(initial=0))))
        try:
            np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol)
        except AssertionError:
            error = self.table_error()
            if not error:
                raise
            self.allowed.add("table")
            np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol + error)

    def kinds(self) -> set[str]:
        """The kinds of the program's ops."""
        return {op.partition(" ")[0] for segment in self.program.segments for op in segment.ops}

    def quantises(self) -> bool:
        return any(
            "Quantize" in node.op_type or node.op_type == "QuantizeLinear" for node in self.model.graph.node
        ) or ({"Round", "Clip", "Cast"} <= {node.op_type for node in self.model.graph.node})

    def table_error(self) -> float:
        """The largest errors of the fitted tables that the program reads, added up."""
        from hexane.kernels import fitted_table
        from hexane.kernels.functions import RECIPES

        return sum(fitted_table(name).max_error for name in self.kinds() & set(RECIPES))

    def reference(self) -> list[np.ndarray] | None:
        """float32's answer to the inputs as fp16 has them; None where that changes nothing."""
        from hexane.formats.onnx import load

        with np.errstate(over="ignore"):
            narrow = [
                x.astype(np.float16).astype(x.dtype) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x
                for x in self.inputs
            ]
        if all(np.array_equal(a, b, equal_nan=True) for a, b in zip(narrow, self.inputs) if isinstance(a, np.ndarray)):
            return None
        graph = load(self.model)
        made = graph.evaluate(dict(zip([port.name for port in self.program.inputs], narrow)))
        return [np.asarray(made[port.name]) for port in self.program.outputs]


def _plain(array: np.ndarray) -> np.ndarray:
    """bfloat16, float8 and the like as float32."""
    return array if array.dtype.kind in "biufUO" and array.dtype.isbuiltin == 1 else array.astype(np.float32)


@lru_cache(maxsize=1)
def all_tests() -> list[Any]:
    """Every node test of the installed onnx; making them takes seconds."""
    sys.path.insert(0, str(Path(__file__).parent))
    import onnx_coverage

    return onnx_coverage.all_tests()


@lru_cache(maxsize=1)
def suite() -> tuple[_Recorder, dict[str, Any]]:
    """The runner's test cases by category, and the recorder behind them."""
    os.environ.setdefault("ONNX_HOME", str(Path(__file__).resolve().parents[1] / "out" / "onnx-home"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test import runner

        recorder = _Recorder()
        collect = runner.load_model_tests

        class Tolerant(runner.Runner):
            @classmethod
            def assert_similar_outputs(
                cls, ref_outputs: Any, outputs: Any, rtol: float, atol: float, model_dir: str | None = None
            ) -> None:
                recorder.check(list(ref_outputs), list(outputs), rtol, atol)

        runner.load_model_tests = lambda kind: all_tests() if kind == "node" else collect(kind=kind)
        try:
            return recorder, Tolerant(recorder, __name__).test_cases  # type: ignore[arg-type]
        finally:
            runner.load_model_tests = collect


@lru_cache(maxsize=1)
def in_scope() -> dict[str, bool]:
    """Whether a node test is in the scope of docs/onnx-coverage.md: tensors of numbers, no training."""
    tests = all_tests()
    import onnx_coverage

    return {test.name: onnx_coverage.in_scope(test) for test in tests}


def run(recorder: _Recorder, category: str, case: Any, name: str) -> Outcome:
    """One of the runner's tests."""
    from hexane.errors import HexaneError

    recorder.clear()
    short = name.removesuffix("_cpu")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(case(name), name)()
    except unittest.SkipTest as error:
        return Outcome(category, short, "refused", recorder.refused or str(error))
    except AssertionError as error:
        text = " ".join(str(error).split())
        return Outcome(category, short, "wrong", text[:300], recorder.engine())
    except HexaneError as error:
        return Outcome(category, short, "refused", error.message, recorder.engine())
    except Exception as error:
        return Outcome(category, short, "crash", f"{type(error).__name__}: {error}", recorder.engine())
    if recorder.refused is not None:
        return Outcome(category, short, "refused", recorder.refused)
    return Outcome(category, short, "pass", ", ".join(sorted(recorder.allowed)), recorder.engine())


def outcomes(only: str = "", step: int = 1, **options: Any) -> Iterator[Outcome]:
    """The outcome of every test on the CPU device whose name has ``only`` in it, or of every ``step``-th."""
    recorder, cases = suite()
    recorder.options = options
    number = 0
    for category, case in sorted(cases.items()):
        for name in sorted(n for n in dir(case) if n.startswith("test_") and n.endswith("_cpu")):
            number += 1
            if only in name and number % step == 0:
                yield run(recorder, category, case, name)


def _table(found: dict[str, list[Outcome]]) -> list[str]:
    lines = ["| | tests | pass | on the engine | refused | wrong | crash |", "|---|---:|---:|---:|---:|---:|---:|"]
    for mode, results in found.items():
        for category in [None, *dict.fromkeys(outcome.category for outcome in results)]:
            rows = [outcome for outcome in results if category in (None, outcome.category)]
            counts = Counter(outcome.kind for outcome in rows)
            engine = sum(outcome.kind == "pass" and outcome.engine for outcome in rows)
            name = f"**{mode}**" if category is None else _category(category)
            lines.append(
                f"| {name} | {len(rows)} | {counts['pass']} | {engine} | {counts['refused']} | {counts['wrong']} | "
                f"{counts['crash']} |"
            )
    return lines


def _category(name: str) -> str:
    return name.removeprefix("OnnxBackend").removesuffix("ModelTest").lower()


def render(found: dict[str, list[Outcome]]) -> str:
    """The document: counts, allowances, and every refused test under its reason."""
    import onnx

    scope = in_scope()
    node = [o for o in found["default"] if o.category == "OnnxBackendNodeModelTest" and scope.get(o.name, False)]
    counts = Counter(outcome.kind for outcome in node)
    lines = [
        "# The ONNX back end, measured",
        "",
        "Written by `tools/onnx_backend.py`. How to use the back end: [frameworks](frameworks.md).",
        "",
        f"`onnx.backend.test`'s runner of onnx {'.'.join(onnx.__version__.split('.')[:2])} through",
        "`hexane.onnx_backend`, compiled for M1 and run on the emulated engine.",
        "*default*: what the engine does not do runs on the host. *strict*: a model is refused if anything would.",
        "*On the engine* counts the tests that pass and of which the engine did a part (in strict, all).",
        "",
        *_table(found),
        "",
        f"Of the {len(node)} node tests of tensors of numbers without training (the scope of",
        f"[ONNX coverage](onnx-coverage.md)) {counts['pass']} pass, {counts['refused']} are refused, "
        f"{counts['wrong']} are wrong, {counts['crash']} crash.",
        "",
        "## Tolerance",
        "",
        f"A compiled network computes in fp16, on the host too. A float result may differ by {RELATIVE:g} of itself",
        f"and {ABSOLUTE:g} of the largest result (at least of 1), or by what its test allows, if that is more.",
        "Shapes and dtypes must agree.",
        "What is further away passes for these reasons only, each counted:",
        "",
        "| | default | strict |",
        "|---|---:|---:|",
    ]
    for word, meaning in ALLOWANCES.items():
        each = [sum(word in o.reason.split(", ") for o in rows if o.kind == "pass") for rows in found.values()]
        lines.append(f"| {meaning} | {each[0]} | {each[1]} |")
    for mode, results in found.items():
        lines += ["", f"## Refused, {mode}", ""]
        groups: dict[str, list[str]] = defaultdict(list)
        for outcome in results:
            if outcome.kind != "pass":
                reason = " ".join(outcome.reason.split())
                if mode == "strict" and reason.startswith("strict: "):
                    reason = reason.partition("on the host: ")[2]
                kind = "" if outcome.kind == "refused" else f"{outcome.kind}: "
                groups[kind + (reason[:200] or "no reason given")].append(outcome.name)
        for reason, names in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
            shown = " ".join(f"`{name}`" for name in names[: 6 if mode == "strict" else 400])
            more = f" and {len(names) - 6} more" if mode == "strict" and len(names) > 6 else ""
            lines.append(f"* {reason} ({len(names)}): {shown}{more}")
    return "\n".join(lines) + "\n"


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    found = {"default": list(outcomes()), "strict": list(outcomes(strict=True))}
    target.write_text(render(found))
    for mode, results in found.items():
        print(mode, dict(Counter(outcome.kind for outcome in results)))


if __name__ == "__main__":
    main()
