"""Run tinygrad's own test_ops.py through hexane.from_tinygrad and write docs/tinygrad-ops.md.

    python tools/tinygrad_ops.py [path of test_ops.py [docs/tinygrad-ops.md]]

The file is tinygrad's `test/backend/test_ops.py` of the release (models/tinygrad/test_ops.py unless a path is given);
it is read, never copied. Its `helper_test_op` compares torch with tinygrad; here torch is compared with the network
that hexane makes of the tinygrad function: with its float32 reference, then compiled, on the emulated engine. Forward
only: gradients are tinygrad's own affair.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import unittest
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from outcomes import ABSOLUTE, RELATIVE, Outcome, difference, table_error

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "models" / "tinygrad" / "test_ops.py"
TARGET = ROOT / "docs" / "tinygrad-ops.md"
WORST = ("crash", "wrong", "special", "refused", "pass")
SECONDS = 60
"""Longest test; tinygrad's device in plain Python is slow where a test computes with it."""
EXACT = 1e-4


class Comparisons:
    """What stands in for the file's `helper_test_op`."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.found: list[Outcome] = []
        self.name = ""

    def helper_test_op(
        self, shps: Any, torch_fxn: Any, tinygrad_fxn: Any = None, atol: float = 1e-6, rtol: float = 1e-3,
        grad_atol: float = 0, grad_rtol: float = 0, forward_only: bool = False, vals: Any = None, low: float = -2,
        high: float = 2,
    ) -> None:  # fmt: skip
        """One comparison: the same arguments as tinygrad's own."""
        given, tensors = self.module.prepare_test_op(low, high, shps, vals, forward_only)
        wanted = torch_fxn(*given).detach().cpu().numpy()
        arrays = [tensor.detach().cpu().numpy() for tensor in given]
        function = torch_fxn if tinygrad_fxn is None else tinygrad_fxn
        self.found.append(compare(self.name, function, tensors, arrays, wanted, (atol, rtol)))


def compare(
    name: str, function: Any, tensors: list[Any], arrays: list[np.ndarray], wanted: np.ndarray, own: tuple[float, float]
) -> Outcome:
    """torch's answer beside that of the reference and that of the compiled program."""
    import hexane
    from hexane.errors import HexaneError

    try:
        graph = hexane.from_tinygrad(function, *tensors)
        given = dict(zip(graph.inputs, arrays))
        with np.errstate(all="ignore"):
            made = graph.evaluate(given)["result"]
        if why := difference(made, wanted, max(EXACT, own[1]), max(EXACT, own[0])):
            return Outcome(name, "wrong", f"float32 reference: {why}")
        program = hexane.compile(graph)
        made = program.run(given)["result"]
        stats = program.stats()
        share = 1 - sum(stats["host_ops"].values()) / max(stats["ops"], 1)
        more = table_error(program, apples=True)
        kinds = {op.partition(" ")[0] for segment in program.segments for op in segment.ops}
        most = 16384.0 if "real_div" in kinds else 32768.0
        if why := difference(made, wanted, RELATIVE, ABSOLUTE, more, narrow=most):
            if not all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f"):
                return Outcome(name, "special", why, share)
            assert program.graph is not None
            with np.errstate(all="ignore"):
                fp16 = program.graph.evaluate(given, typed=True)["result"].astype(wanted.dtype)
            if wanted.dtype.kind == "b" and not np.array_equal(fp16, wanted):
                return Outcome(name, "special", "truth values that hang on less than fp16 resolves", share)
            if difference(made, fp16, RELATIVE, ABSOLUTE, more, narrow=most):
                return Outcome(name, "wrong", f"compiled: {why}", share)
            return Outcome(name, "pass", "fp16", share)
    except HexaneError as problem:
        return Outcome(name, "refused", problem.message)
    except _Late:
        raise
    except Exception as problem:
        return Outcome(name, "crash", f"{type(problem).__name__}: {problem}")
    return Outcome(name, "pass", engine=share)


class _Late(Exception):
    """A test took too long."""


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise _Late

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def tests(path: Path = TESTS) -> tuple[Comparisons, type[unittest.TestCase], list[str]]:
    """The file's class of tests with its comparisons replaced, and their names."""
    os.environ.setdefault("DEV", "PYTHON")  # tinygrad's device that needs no compiler; nothing is computed on it here
    spec = importlib.util.spec_from_file_location("tinygrad_test_ops", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec.loader.exec_module(module)
    comparisons = Comparisons(module)
    module.helper_test_op = comparisons.helper_test_op  # type: ignore[attr-defined]
    case = module.TestOps
    return comparisons, case, sorted(name for name in dir(case) if name.startswith("test_"))


def run(comparisons: Comparisons, case: type[unittest.TestCase], name: str) -> Outcome:
    """One test: the worst of its comparisons; "native" where it makes none (exceptions, tinygrad's own behaviour)."""
    comparisons.found, comparisons.name = [], name
    try:
        with warnings.catch_warnings(), _limit(SECONDS):
            warnings.simplefilter("ignore")
            getattr(case(name), name)()
    except _Late:
        return Outcome(name, "refused", f"not within {SECONDS} s of the processor")
    except unittest.SkipTest as error:
        return Outcome(name, "native", f"skipped by itself: {error}")
    except Exception as error:
        if not comparisons.found or "clang" in str(error):
            return Outcome(name, "native", f"{type(error).__name__} in tinygrad itself")
        return Outcome(name, "crash", f"{type(error).__name__}: {error}")
    if not comparisons.found:
        return Outcome(name, "native", "compares nothing with torch")
    worst = min(comparisons.found, key=lambda outcome: WORST.index(outcome.kind))
    share = float(np.mean([outcome.engine for outcome in comparisons.found]))
    lost = any(outcome.reason == "fp16" for outcome in comparisons.found)
    return Outcome(name, worst.kind, worst.reason or ("fp16" if lost else ""), share)


def outcomes(path: Path = TESTS, only: str = "") -> Iterator[Outcome]:
    """Every test of the file whose name has ``only`` in it."""
    comparisons, case, names = tests(path)
    for name in names:
        if only in name:
            yield run(comparisons, case, name)


def render(found: list[Outcome]) -> str:
    """The document."""
    from importlib.metadata import version

    counts = Counter(outcome.kind for outcome in found)
    asked = len(found) - counts["native"]
    alone = sum(outcome.kind == "pass" and outcome.engine == 1 for outcome in found)
    lost = sum(outcome.kind == "pass" and outcome.reason == "fp16" for outcome in found)
    lines = [
        "# tinygrad's own tests, measured",
        "",
        "Written by `tools/tinygrad_ops.py`. How to use `hexane.from_tinygrad`: [frameworks](frameworks.md).",
        "",
        f"tinygrad {version('tinygrad')}; the tests are its `test/backend/test_ops.py`, forward, read from a checkout.",
        "Compiled for M1, emulated engine. torch says what is right.",
        f"The float32 reference has to agree to {EXACT:g} of a result and of the largest one, or as its test allows;",
        f"the compiled program, in fp16, to {RELATIVE:g} of a result and {ABSOLUTE:g} of the largest (at least of 1),",
        "or to the stated error of a fitted table where one is read ([tables](lookup-tables.md)). Where torch has no",
        "number, or one beyond 32768, where the engine's sums become infinite (16384 for a quotient, whose reciprocal",
        "has a table up to there), the compiled program may be infinite. Whole numbers have to be equal.",
        f"In {lost} of the tests that pass fp16 itself is further away than that (large arguments of a sine, squares",
        "beyond 65504): there the program has to agree with NumPy's evaluation of the network that rounds every value.",
        "",
        "| tests | compare with torch | pass | of these on the engine alone | special | refused | wrong | crash |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
        f"| {len(found)} | {asked} | {counts['pass']} | {alone} | {counts['special']} | {counts['refused']} | "
        f"{counts['wrong']} | {counts['crash']} |",
        "",
        "*Special*: arguments that are infinite or no number, for which the compiled program differs (the engine",
        "reads NaN as infinity), or truth values that hang on differences which fp16 does not resolve; the float32",
        "reference agrees.",
        "",
        "`tan` is sin(x) / sin(pi/2 - x) in tinygrad. Near a pole its slope is 1 + tan(x)^2: the rounding of x to",
        "fp16, up to 2^-9, moves the answer further than the test allows, and at 1.5704, which is pi/2 in fp16, the",
        "divisor is 0.",
        "",
        "## Pass",
        "",
        "On the engine alone: " + _names(o for o in found if o.kind == "pass" and o.engine == 1) + ".",
        "",
        "With ops on the host: " + _names(o for o in found if o.kind == "pass" and o.engine < 1) + ".",
    ]
    for kind, title in (
        ("special", "Special"),
        ("refused", "Refused"),
        ("wrong", "Wrong"),
        ("crash", "Crash"),
        ("native", "No comparison"),
    ):
        groups: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in found:
            if outcome.kind == kind:
                groups[" ".join(outcome.reason.split())[:240]].append(outcome)
        if groups:
            lines += ["", f"## {title}", ""]
            lines += [f"* {reason}: {_names(rows)}" for reason, rows in sorted(groups.items())]
    return "\n".join(lines) + "\n"


def _names(rows: Any) -> str:
    return ", ".join(f"`{outcome.name.removeprefix('test_')}`" for outcome in rows)


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else TESTS
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else TARGET
    found = []
    for outcome in outcomes(path):
        found.append(outcome)
        print(outcome.kind, outcome.name, outcome.reason[:200], flush=True)
    target.write_text(render(found))
    print(dict(Counter(outcome.kind for outcome in found)))


if __name__ == "__main__":
    main()
