"""How many planted faults the tests notice: one change in a file of an area, then the area's tests.

    python tools/mutation.py --area recipes --count 40 --seed 0
    TOUCHED=/tmp/map PYTHONPATH=tools python -m pytest -n 2 -p touched
    python tools/mutation.py --area all --count 100 --seed 1 --jobs 1 --map /tmp/map
    python tools/mutation.py --area formats --count 400 --only blob.py --tests formats/test_blob.py formats/mil

Areas are the packages, and parts of the compiler; `all` draws over all packages.

A fault is a comparison, a sign, a number or a condition turned into another, or an assignment to an attribute left out.
Each runs in a process of its own against the tests of its area, quick ones first, until one fails. What is printed as
unnoticed is a gap in the tests, or a change that means the same; both want a look. Words of messages, notes and
evidence, and what only type checkers read, are left alone. Python processes that a test starts have the fault, too, but
for those without `site`.

With a map (`tools/touched.py`, Python 3.12 or newer; both commands by one interpreter on one commit) the tests that
run the fault's statement come first, the quickest before all, then those of its area, until the time is up.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/hexane"
CODEGEN = SOURCE / "codegen"
PASSES = SOURCE / "passes"
BELOW_CODEGEN = ("hexane.emulator", "hexane.numerics", "hexane.formats.mil")


@dataclass(frozen=True)
class Area:
    """Files that get faults, the tests that shall notice, and what a process may load before the fault is planted."""

    files: list[Path]
    tests: tuple[str, ...]
    preloaded: tuple[str, ...] = ()


PARTS = {
    "recipes": Area(
        [*CODEGEN.glob("recipes/*.py"), CODEGEN / "encode.py", CODEGEN / "tasks.py", CODEGEN / "targets/h13.py"],
        (
            "codegen/test_parity.py",
            "codegen/test_blocks.py",
            "codegen/test_moves.py",
            "codegen/test_random_ops.py",
            "codegen/test_programs.py",
            "codegen/test_parity_later.py",
        ),
        ("hexane.passes", *BELOW_CODEGEN),
    ),
    "memory": Area(
        [*CODEGEN.glob("memory/*.py")],
        (
            "codegen/test_walks.py",
            "codegen/test_search.py",
            "codegen/test_locked_pairs.py",
            "codegen/test_residency.py",
            "codegen/test_waits.py",
        ),
        ("hexane.passes", *BELOW_CODEGEN),
    ),
    "layouts": Area(
        [*PASSES.glob("layouts/*.py")], ("passes/test_layouts.py", "passes/test_columns.py"), BELOW_CODEGEN
    ),
}
"""Parts of packages, with the tests that are nearest to them."""

TESTS = {
    "arithmetic": "arithmetic/test_rules.py arithmetic numerics emulator/test_random_tasks.py",
    "chips": "chips restrictions timing codegen/test_parity.py codegen/test_residency.py",
    "cli": "cli report session image/test_image_cli.py emulator/test_command.py runtime/test_doctor.py studies",
    "codegen": "codegen/test_walks.py codegen/test_blocks.py codegen/test_programs.py codegen/test_parity.py "
    "codegen/test_search.py codegen/test_winograd.py codegen numerics",
    "cost": "timing/test_kernel.py timing codegen/test_search.py codegen/test_price.py codegen/test_residency.py",
    "demo": "demo report/test_examples.py",
    "emulator": "emulator/test_l2.py emulator numerics timing",
    "formats": "formats frontends fuzz integrations/test_coreml.py integrations/test_onnx_backend.py",
    "frontends": "frontends integrations/test_torch.py fuzz formats/test_whole.py",
    "graph": "graph formats/test_onnx_nodes.py passes/test_rules.py formats/mil timing codegen/test_random_ops.py",
    "image": "image runtime/test_linux_programs.py runtime/test_apple_files.py codegen/test_programs.py",
    "integrations": "integrations formats/test_onnx_nodes.py",
    "isa": "isa kernels/test_registers.py image codegen/test_parity.py codegen/test_parity_later.py emulator",
    "kernels": "kernels emulator/test_compressed_kernels.py codegen/test_winograd.py codegen/test_compressed.py "
    "arithmetic formats/test_edit_kernels.py",
    "language": "language",
    "lowering": "numerics codegen/test_heads.py codegen/test_parity.py codegen/test_random_ops.py "
    "codegen/test_rows_first.py codegen/test_large_maps.py codegen timing",
    "mil": "mil formats/mil",
    "numerics": "numerics codegen/test_comparisons.py codegen/test_random_ops.py codegen passes arithmetic",
    "passes": "passes codegen/test_random_ops.py codegen/test_heads.py codegen numerics",
    "private_api": "private_api runtime/macos",
    "program": "program runtime/test_states.py codegen/test_programs.py session report",
    "report": "report",
    "restrictions": "restrictions session/test_check.py session/test_reasons.py session report",
    "runtime": "runtime/test_queue.py runtime session/test_check.py",
    "session": "session/test_lists.py session report",
    "studies": "studies",
    "timing": "timing codegen/test_price.py session/test_how_long.py session report",
    "train": "train/test_parts.py train",
}
"""The tests of every package, quick and near ones first: files and folders below `tests`."""

PACKAGES = {name: Area(sorted((SOURCE / name).rglob("*.py")), tuple(tests.split())) for name, tests in TESTS.items()}
PRELOADED = ("numpy", "pytest", "hypothesis", "numba", "lark", "onnx", "typer")
FIRST = 60
"""So many tests near a fault are collected by themselves: most faults are noticed by a few, and files take time."""

COMPARISONS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One change: the file, the line, the number of the change in the file's order, and what it says."""

    path: Path
    line: int
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT / 'src/hexane')}:{self.line}: {self.text}"


class Planter(ast.NodeTransformer):
    """Walks a file's changes in order; carries out the one of a given number, or lists them all."""

    def __init__(self, path: Path, wanted: int | None = None) -> None:
        self.path = path
        self.wanted = wanted
        self.found: list[Fault] = []

    def _change(self, node: ast.AST, text: str) -> bool:
        number = len(self.found)
        self.found.append(Fault(self.path, node.lineno, number, text))  # type: ignore[attr-defined]
        return number == self.wanted

    def _alone(self, node: Any) -> Any:
        return node

    visit_Raise = visit_JoinedStr = visit_AnnAssign = visit_Assert = visit_Import = visit_ImportFrom = _alone

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                self.visit(statement)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        kind = type(node.ops[0])
        if kind in COMPARISONS and self._change(node, f"{ast.unparse(node)}: {kind.__name__} turned"):
            node.ops[0] = COMPARISONS[kind]()
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        kind = type(node.op)
        if kind in OPERATORS and self._change(node, f"{ast.unparse(node)}: {kind.__name__} turned"):
            node.op = OPERATORS[kind]()
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is int and self._change(node, f"{node.value} is {node.value + 1}"):
            return ast.copy_location(ast.Constant(node.value + 1), node)
        if type(node.value) is bool and self._change(node, f"{node.value} is {not node.value}"):
            return ast.copy_location(ast.Constant(not node.value), node)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return node
        self.generic_visit(node)
        if self._change(node, f"if {ast.unparse(node.test)}: condition turned"):
            node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        noted = isinstance(target, ast.Attribute) and target.attr in ("evidence", "note", "op", "macs")
        noted |= isinstance(target, ast.Tuple) and "evidence" in ast.unparse(target)
        if noted:
            return node
        self.generic_visit(node)
        if isinstance(target, ast.Attribute) and self._change(node, f"{ast.unparse(node)}: left out"):
            return ast.copy_location(ast.Pass(), node)
        return node


def faults(area: Area) -> Iterator[Fault]:
    """Every change that can be planted."""
    for path in sorted(area.files):
        planter = Planter(path)
        planter.visit(ast.parse(path.read_text("utf-8")))
        yield from planter.found


def area_of(fault: Fault) -> Area:
    """The package that a fault stands in."""
    return PACKAGES[fault.path.relative_to(SOURCE).parts[0]]


def planted(fault: Fault) -> str:
    """The file's text with the fault in it."""
    tree = Planter(fault.path, fault.number).visit(ast.parse(fault.path.read_text("utf-8")))
    return ast.unparse(ast.fix_missing_locations(tree))


HOOK = """
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location

class Fault(SourceFileLoader):
    def get_code(self, name):
        return compile(open({text!r}, encoding="utf-8").read(), {path!r}, "exec")

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return spec_from_file_location(name, {path!r}, loader=cls(name, {path!r})) if name == {name!r} else None

sys.meta_path.insert(0, Fault)
"""
"""What gives one module its changed text, in this process and, as ``sitecustomize``, in those that it starts."""


def plant(fault: Fault) -> None:
    """Let this process and those that it starts load the file with the fault."""
    folder = Path(tempfile.mkdtemp(prefix="mutation-"))
    parts = fault.path.relative_to(ROOT / "src").with_suffix("").parts
    name = ".".join(parts).removesuffix(".__init__")
    (folder / "changed.py").write_text(planted(fault), "utf-8")
    hook = HOOK.format(text=str(folder / "changed.py"), path=str(fault.path), name=name)
    (folder / "sitecustomize.py").write_text(hook, "utf-8")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    if "arithmetic" in fault.path.parts or "@compiled" in planted(fault):
        # compiled code of the file as it stands must not be taken for it
        os.environ["NUMBA_CACHE_DIR"] = str(folder)
    exec(hook, {"__name__": "hook"})


@dataclass(eq=False)
class Watch:
    """A plugin of pytest: which tests run, in which order, how many did; the first that fails goes to a file."""

    note: Path
    limit: float
    seconds: dict[str, float]
    wanted: list[str] | None = None  # None: all
    done: set[str] = field(default_factory=set)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        left = {item.nodeid for item in items} - self.done
        left &= left if self.wanted is None else set(self.wanted)
        items[:] = [item for item in items if item.nodeid in left]
        items.sort(key=lambda item: self.seconds.get(item.nodeid, 0.0))

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.done.add(report.nodeid)
        if report.failed:
            self.note.write_text(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.note.write_text(f"{report.nodeid} (at import)")

    def pytest_runtest_teardown(self, item: Any) -> None:
        if time.process_time() > self.limit:
            item.session.shouldstop = "the time is up"


def statement(fault: Fault) -> range:
    """The lines of the innermost statement that a fault stands in; of one with a body those before it."""
    lines = range(0)
    for node in ast.walk(ast.parse(fault.path.read_text("utf-8"))):  # inner ones come later
        if isinstance(node, ast.stmt) and node.end_lineno is not None:
            body = getattr(node, "body", None)
            end = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
            lines = range(node.lineno, end + 1) if node.lineno <= fault.line <= end else lines
    return lines


@dataclass
class Map:
    """What ``tools/touched.py`` wrote: the tests' seconds, and of each fault the tests that come first."""

    seconds: dict[str, float]
    near: dict[Fault | None, list[str]]

    @staticmethod
    def read(folder: Path, drawn: list[Fault]) -> Map:
        """Near a fault are the tests that run its statement; its file, if none does. The quickest come first."""
        seconds: dict[str, float] = {}
        near: dict[Fault, set[str]] = {fault: set() for fault in drawn}
        far: dict[Fault, set[str]] = {fault: set() for fault in drawn}
        places = [(fault, fault.path.relative_to(SOURCE).as_posix(), set(statement(fault))) for fault in drawn]
        for row in (json.loads(line) for path in folder.glob("*.jsonl") for line in path.open(encoding="utf-8")):
            test = row["test"]
            seconds[test] = max(row["seconds"], seconds.get(test, 0.0))
            for fault, name, lines in places:
                touched = row["lines"].get(name)
                if touched is not None:
                    far[fault].add(test)
                    if not lines.isdisjoint(touched):
                        near[fault].add(test)
        for fault in (fault for fault in drawn if not near[fault]):
            print(f"no test runs {fault}")
        return Map(seconds, {fault: sorted(near[fault] or far[fault], key=seconds.__getitem__) for fault in drawn})

    def rounds(self, area: Area, fault: Fault | None) -> Iterator[tuple[list[str], list[str] | None]]:
        """Files and folders to collect, and the tests to run of them (None: all)."""
        names = self.near.get(fault, [])
        for part in (names[:FIRST], names[FIRST:]):
            if part:
                yield sorted({name.partition("::")[0] for name in part}), part
        if area.tests:
            yield [f"tests/{name}" for name in area.tests], None


def start(area: Area, fault: Fault | None, note: Path, near: Map, limit: float) -> int:
    """A child process that runs the tests with the fault, or without one; its exit status is 0 where none notices.

    The test that noticed is written to ``note``, beside it (``.ran``) how many ran.
    """
    child = os.fork()
    if child:
        return child
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        signal.setitimer(signal.ITIMER_PROF, 2 * limit)  # a hang is noticed, too
        signal.alarm(int(6 * limit) + 1200)  # for one that waits, with patience where the machine is shared
        if fault is not None:
            plant(fault)
        import pytest

        os.chdir(ROOT)
        watch = Watch(note, limit, near.seconds)
        home = tempfile.gettempdir()
        for paths, watch.wanted in near.rounds(area, fault):
            os.environ["TMPDIR"] = tempfile.tempdir = home  # every run of pytest here takes a folder and removes it
            options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
            code = pytest.main([*options, *(["-m", ""] if watch.wanted else []), *paths], [watch])
            stopped = time.process_time() > limit
            note.with_suffix(".ran").write_text(f"{len(watch.done)} tests{', then the time was up' * stopped}")
            if code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
                note.write_text(f"pytest itself, {code!r}")
            if note.exists():
                os._exit(1)
            if stopped:
                break
        os._exit(0)
    except BaseException:
        os._exit(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--area", choices=[*PARTS, *PACKAGES, "all"], default="recipes")
    parser.add_argument("--count", type=int, default=40, help="faults to plant, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests without a fault first")
    parser.add_argument("--map", type=Path, help="folder that tools/touched.py wrote: choose the tests by it")
    parser.add_argument("--limit", type=float, default=600, help="seconds of processor time for a fault")
    parser.add_argument("--only", default="", help="of the drawn faults those whose place has this pattern")
    parser.add_argument("--tests", nargs="+", default=[], help="files and folders below tests, in place of the area's")
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "src")]
    whole = [path for part in PACKAGES.values() for path in part.files]
    area = Area(whole, ()) if options.area == "all" else (PARTS | PACKAGES)[options.area]
    for name in (*PRELOADED, *area.preloaded):
        importlib.import_module(name)
    loaded = {getattr(module, "__file__", None) for module in sys.modules.values()}
    assert not loaded & {str(path) for path in area.files}, "children have to load the files with faults"
    every = list(faults(area))
    waiting = random.Random(options.seed).sample(every, min(options.count, len(every)))
    print(f"{len(every)} faults can be planted in {len(area.files)} files, {len(waiting)} are")
    waiting = [fault for fault in waiting if re.search(options.only, str(fault))]
    areas = {fault: area_of(fault) if options.area == "all" else area for fault in waiting}
    if options.tests:
        areas = {fault: replace(area, tests=tuple(options.tests)) for fault, area in areas.items()}
    near = Map.read(options.map, waiting) if options.map else Map({}, {})
    notes = Path(tempfile.mkdtemp(prefix="mutation-"))
    note_of = {fault: notes / str(number) for number, fault in enumerate(waiting)}
    checked = {} if options.unchecked or options.map else {one.tests: one for one in areas.values()}
    for tests in checked:
        start(checked[tests], None, notes / "none", near, 10 * options.limit)
        if os.wait()[1]:
            sys.exit(f"the tests fail without a fault, mend them first: {' '.join(tests)}")
    running: dict[int, tuple[Fault, float]] = {}
    survivors: list[Fault] = []
    by: dict[Fault, str] = {}
    total = len(waiting)
    while waiting or running:
        while waiting and len(running) < options.jobs:
            fault = waiting.pop()
            running[start(areas[fault], fault, note_of[fault], near, options.limit)] = fault, time.monotonic()
        child, status = os.wait()
        fault, begun = running.pop(child)
        if not status:
            survivors.append(fault)
        note = note_of[fault] if note_of[fault].exists() else note_of[fault].with_suffix(".ran")
        ended = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else ""
        by[fault] = ended or (note.read_text() if note.exists() else "an import")
        seconds = time.monotonic() - begun
        print(f"{'noticed  ' if status else 'UNNOTICED'} {seconds:5.0f} s  {fault}  by {by[fault]}", flush=True)
    near.near[None] = sorted({test for test in by.values() if options.map and test.count("::")})
    start(Area([], ()), None, notes / "none", near, 10 * options.limit)
    if os.wait()[1]:
        print(f"fails without a fault, too: {(notes / 'none').read_text()}")
    noticed = total - len(survivors)
    print(f"noticed {noticed} of {total}: {noticed / total:.1%}")


if __name__ == "__main__":
    main()
