"""coremltools' own converter tests, run against ``hexane.coreml``: counts and reasons into docs/coreml-tests.md.

coremltools compares what its converter made with torch by calling ``predict``, which runs on macOS only. Here
``MLModel.predict`` and ``make_state`` of coremltools go to the drop-in, and everything else is theirs: the tests stand
in the installed package. Each test counts as

* pass: every prediction was made and every comparison held;
* refused: hexane said what it does not do (its reason is listed);
* range: predictions differ only where torch's own number is beyond 65504 or none (NaN), which halves do not hold;
* wrong: a prediction differed; crash: something else than a HexaneError left hexane, or the time ran out;
* no prediction: the test predicts nothing, or coremltools' converter failed or was skipped before it came to that.

    python tools/converter_tests.py --every 20          every 20th test, and the page
    python tools/converter_tests.py --only test_torch_ops.py::TestBatchNorm
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "coreml-tests.md"
FILES = (
    "test_torch_ops.py",
    "test_torch_conversion_api.py",
    "test_torch_stateful_model.py",
    "test_torch_quantization_ops.py",
)
KINDS = ("pass", "refused", "range", "wrong", "crash", "no prediction")
SECONDS = 120
LARGEST = 65504.0
ATOL, RTOL = 1e-2, 1e-2
"""Floors of the tolerances of fp16 (coremltools' own are 0.5 and 0.05); a test's own, a hundredfold, may be wider."""


class BeyondHalf(AssertionError):
    """Numbers that half precision does not hold, and no others, differ."""


# -- inside pytest -----------------------------------------------------------------------------------------------------

_events: list[tuple[str, str]] = []
_rows: dict[str, tuple[str, str]] = {}


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--every", type=int, default=1)
    parser.addoption("--rows", default="")


def pytest_configure(config: Any) -> None:
    _patch()


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    every = config.getoption("--every")
    items[:] = items[:: max(every, 1)]


def _patch() -> None:
    """Predictions go to the drop-in; the rest of coremltools believes that it is on macOS 15."""
    import coremltools as ct
    from coremltools.converters.mil import testing_utils as mil_utils
    from coremltools.models import utils as model_utils
    from coremltools.models.model import MLModel

    from hexane import coreml

    def drop_in(model: Any) -> coreml.MLModel:
        made = model.__dict__.get("_drop_in")
        if made is None:
            given = model.package_path if model.is_package else model.get_spec()
            made = coreml.MLModel(given, compute_units=model.compute_unit, function_name=model.function_name)
            model.__dict__["_drop_in"] = made
        return made

    def observed(call: Any) -> Any:
        from hexane.errors import HexaneError

        try:
            found = call()
        except HexaneError as error:
            _events.append(("refused", str(error)))
            raise
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            _events.append(("crash", f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"))
            raise
        _events.append(("pass", ""))
        return found

    plain = np.testing.assert_allclose

    def close(actual: Any, desired: Any, *args: Any, **more: Any) -> None:
        try:
            plain(actual, desired, *args, **more)
        except AssertionError:
            wanted = np.asarray(desired)
            if wanted.dtype.kind != "f" or np.shape(actual) != wanted.shape:
                raise
            held = np.isfinite(wanted) & (np.abs(wanted) <= LARGEST)
            if held.all():
                raise
            plain(np.asarray(actual)[held], wanted[held], *args, **more)
            raise BeyondHalf("the rest is right") from None

    np.testing.assert_allclose = close
    MLModel.predict = lambda self, data, state=None: observed(lambda: drop_in(self).predict(data, state))
    MLModel.make_state = lambda self: observed(lambda: drop_in(self).make_state())
    for module in (ct.utils, model_utils, mil_utils.coremltoolsutils):
        module._is_macos, module._macos_version = (lambda: True), (lambda: (15, 0))
    mil_utils._IS_MACOS = True
    from coremltools.converters.mil.frontend.torch.test import testing_utils

    testing_utils._IS_MACOS = True
    for module in (mil_utils, testing_utils):
        module.max = lambda own, floor: max(own, {0.5: ATOL, 0.05: RTOL}.get(floor, floor))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    _events.clear()

    def late(*_: Any) -> None:
        _events.append(("crash", f"more than {SECONDS} s"))
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    if call.when == "setup" and not report.passed:
        _rows[item.nodeid] = ("no prediction", "skipped" if report.skipped else "set-up")
    if call.when != "call":
        return
    kinds = {kind for kind, _ in _events}
    for kind in ("crash", "refused"):
        if kind in kinds and not report.passed:
            _rows[item.nodeid] = next(event for event in _events if event[0] == kind)
            return
    if not kinds:
        _rows[item.nodeid] = ("no prediction", "" if report.passed else "skipped" if report.skipped else "converter")
    elif report.passed:
        _rows[item.nodeid] = ("pass", "")
    else:
        error = call.excinfo.value if call.excinfo else ""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        kind = "wrong" if isinstance(error, AssertionError) else "no prediction"
        kind = "range" if isinstance(error, BeyondHalf) else kind
        _rows[item.nodeid] = (kind, f"{type(error).__name__}: {' '.join(lines[:6])}"[:300])


def pytest_sessionfinish(session: Any) -> None:
    where = session.config.getoption("--rows")
    if where:
        Path(where).write_text(json.dumps(_rows))


# -- outside -----------------------------------------------------------------------------------------------------------


def run(targets: list[str], every: int, units: str, frontends: str = "") -> dict[str, tuple[str, str]]:
    """Test id -> (kind, reason). ``targets``: files or node ids below the package's folder of tests."""
    import importlib.util

    spec = importlib.util.find_spec("coremltools")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "converters/mil/frontend/torch/test"
    with tempfile.TemporaryDirectory() as scratch:
        rows = Path(scratch) / "rows.json"
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tools"), os.environ.get("PYTHONPATH", "")])
        more = {"TORCH_FRONTENDS": frontends} if frontends else {}
        environment = {**os.environ, "PYTHONPATH": path, "COMPUTE_UNITS": units, **more}
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "converter_tests", "-p", "no:cacheprovider", "-p", "no:xdist",
            "--rootdir", str(folder), "-c", os.devnull, "--tb", "no", "--continue-on-collection-errors",
            f"--every={every}", f"--rows={rows}",
            *(str(folder / target) for target in targets),
        ]  # fmt: skip
        done = subprocess.run(command, env=environment, cwd=scratch, capture_output=True, text=True)
        if not rows.is_file():
            raise SystemExit(f"pytest gave no rows:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return {name: (kind, why) for name, (kind, why) in json.loads(rows.read_text()).items()}


def counts(rows: dict[str, tuple[str, str]]) -> Counter[str]:
    """How many tests of each kind."""
    return Counter(kind for kind, _ in rows.values())


def page(rows: dict[str, tuple[str, str]], every: int, units: str) -> str:
    """The page: totals, a row for each class of tests, reasons of refusals, what is wrong."""
    import coremltools
    import torch

    total = counts(rows)
    lines = [
        "# coremltools' converter tests on `hexane.coreml`",
        "",
        "Generated by `tools/converter_tests.py`; do not edit.",
        "",
        f"coremltools {coremltools.__version__} compares the models that its converter makes of torch modules with"
        f" torch itself, by `predict`, which needs macOS. Here `predict` goes to `hexane.coreml.MLModel` with"
        f" `compute_units={units}`: engine programs for M1 on the emulator. torch is"
        f" {torch.__version__.partition('+')[0]}, newer than coremltools was made for, so that some conversions fail.",
        "",
        f"Tolerances of fp16: absolute {ATOL} and relative {RTOL}, or a hundred times the test's own where that is more"
        f" (coremltools' own floors are 0.5 and 0.05).",
        "",
        f"Tests run: {len(rows)}, "
        + (f"one in {every} of those that pytest collects." if every > 1 else "all that pytest collects."),
        "",
        "| kind | tests |",
        "|---|---|",
        *(f"| {kind} | {total[kind]} |" for kind in KINDS),
        "",
        "Tests without a prediction are those that only look at the converter's work, that coremltools skips, or where"
        " the conversion itself fails.",
        "",
        "## By class",
        "",
        "| class | " + " | ".join(KINDS) + " |",
        "|---|" + "---|" * len(KINDS),
    ]
    classes: dict[str, Counter[str]] = {}
    for name, (kind, _) in rows.items():
        parts = name.split("::")
        classes.setdefault(parts[1].partition("[")[0], Counter())[kind] += 1
    for name, found in sorted(classes.items()):
        lines.append(f"| {name} | " + " | ".join(str(found[k]) for k in KINDS) + " |")
    for kind in ("refused", "wrong", "crash"):
        reasons = Counter(_reason(why) for found, why in rows.values() if found == kind)
        if reasons:
            lines += ["", f"## {kind.capitalize()}", "", "| tests | reason |", "|---|---|"]
            lines += [f"| {count} | {why} |" for why, count in reasons.most_common()]
    return "\n".join(lines) + "\n"


def _reason(why: str) -> str:
    """A reason without the temporary path that stands in front of it."""
    parts = [part for part in why.split(": ") if not part.startswith("/")]
    return ": ".join(parts).replace("|", "\\|")[:200]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--units", default="CPU_AND_NE")
    parser.add_argument("--frontends", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = run(options.only or list(FILES), options.every, options.units, options.frontends)
    print(dict(counts(rows)))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if not options.only:
        PAGE.write_text(page(rows, options.every, options.units))
    for name, (kind, why) in rows.items():
        if kind in ("wrong", "crash"):
            print(kind, name.partition("::")[2], why[:200])


if __name__ == "__main__":
    main()
