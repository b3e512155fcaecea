"""How many planted faults the tests notice: one change in a file of an area, then the area's tests.

    python tools/mutation.py --area recipes --count 40 --seed 0
    python tools/mutation.py --area all --count 100 --seed 1 --jobs 1

Areas are the packages, and parts of the compiler; `all` draws over all packages.

A fault is a comparison, a sign, a number or a condition turned into another, or an assignment to an attribute left out.
Each runs in a process of its own against the tests of its area, quick ones first, until one fails. What is printed as
unnoticed is a gap in the tests, or a change that means the same; both want a look. Words of messages, notes and
evidence are left alone.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
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
    "residency": Area(
        [*CODEGEN.glob("residency/*.py")],
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
    "cli": "cli report image/test_image_cli.py emulator/test_command.py runtime/test_doctor.py studies",
    "codegen": "codegen/test_walks.py codegen/test_blocks.py codegen/test_programs.py codegen/test_parity.py "
    "codegen/test_search.py codegen/test_winograd.py codegen numerics",
    "cost": "timing/test_kernel.py timing codegen/test_search.py codegen/test_price.py codegen/test_residency.py",
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
    "program": "program runtime/test_states.py codegen/test_programs.py report",
    "report": "report runtime/test_inputs.py runtime/test_bench.py",
    "restrictions": "restrictions report/test_check.py report/test_reasons.py report",
    "runtime": "runtime/test_queue.py runtime report/test_verdict.py report/test_compare.py report/test_check.py",
    "studies": "studies",
    "timing": "timing codegen/test_price.py report/test_how_long.py report",
    "train": "train/test_parts.py train",
}
"""The tests of every package, quick and near ones first: files and folders below `tests`."""

PACKAGES = {name: Area(sorted((SOURCE / name).rglob("*.py")), tuple(tests.split())) for name, tests in TESTS.items()}
PRELOADED = ("numpy", "pytest", "hypothesis", "numba", "lark", "onnx", "typer")
LIMIT_S = 600

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


class Loader(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module its changed text."""

    def __init__(self, fault: Fault) -> None:
        parts = fault.path.relative_to(ROOT / "src").with_suffix("").parts
        self.name = ".".join(parts)
        self.code = compile(planted(fault), str(fault.path), "exec")

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        return importlib.util.spec_from_loader(name, self) if name == self.name else None

    def exec_module(self, module: Any) -> None:
        exec(self.code, vars(module))


class Failure:
    """A plugin of pytest that writes the first test that fails to a file."""

    def __init__(self, note: Path) -> None:
        self.note = note

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.note.write_text(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.note.write_text(f"{report.nodeid} (at import)")


def start(area: Area, fault: Fault | None, note: Path) -> int:
    """A child process that runs the tests with the fault, or without one; its exit status is 0 where none notices.

    The test that noticed is written to ``note``.
    """
    child = os.fork()
    if child:
        return child
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)  # a hang is noticed, too
        signal.alarm(6 * LIMIT_S)
        if fault is not None:
            sys.meta_path.insert(0, Loader(fault))
            if "arithmetic" in fault.path.parts:  # compiled code of the file as it stands must not be taken for it
                os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(prefix="mutation-")
        import pytest

        os.chdir(ROOT)
        options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        code = pytest.main([*options, *(f"tests/{name}" for name in area.tests)], [Failure(note)])
        os._exit(int(code != 0))
    except BaseException:
        os._exit(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--area", choices=[*PARTS, *PACKAGES, "all"], default="recipes")
    parser.add_argument("--count", type=int, default=40, help="faults to plant, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests without a fault first")
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
    areas = {fault: area_of(fault) if options.area == "all" else area for fault in waiting}
    notes = Path(tempfile.mkdtemp(prefix="mutation-"))
    note_of = {fault: notes / str(number) for number, fault in enumerate(waiting)}
    for checked in {one.tests: one for one in areas.values()}.values() if not options.unchecked else ():
        start(checked, None, notes / "none")
        if os.wait()[1]:
            sys.exit(f"the tests fail without a fault, mend them first: {' '.join(checked.tests)}")
    running: dict[int, tuple[Fault, float]] = {}
    survivors: list[Fault] = []
    total = len(waiting)
    while waiting or running:
        while waiting and len(running) < options.jobs:
            fault = waiting.pop()
            running[start(areas[fault], fault, note_of[fault])] = fault, time.monotonic()
        child, status = os.wait()
        fault, begun = running.pop(child)
        if not status:
            survivors.append(fault)
        by = (
            note_of[fault].read_text()
            if note_of[fault].exists()
            else "a signal"
            if os.WIFSIGNALED(status)
            else "no test"
        )
        print(f"{'noticed  ' if status else 'UNNOTICED'} {time.monotonic() - begun:5.0f} s  {fault}", end="")
        print(f"  by {by}" if status else "", flush=True)
    noticed = total - len(survivors)
    print(f"noticed {noticed} of {total}: {noticed / total:.1%}")


if __name__ == "__main__":
    main()
