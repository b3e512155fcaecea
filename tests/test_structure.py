"""The structure of the package: no circle of files, imports inside functions counted.

``lint-imports`` holds the order of the packages (pyproject.toml); this holds the files within them. Imports for type
checkers only do not count. Three facade methods point up on purpose and are named here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tool import tool_named

ROOT = Path(__file__).parent.parent / "src"
FACADES = {
    ("hexane.graph.ir", "hexane.frontends.networks"),  # graph.save, graph.to_mil
    ("hexane.program.program", "hexane.runtime.devices"),  # program.run, program.on
    ("hexane.program.program", "hexane.timing"),  # program.estimate
}


def module_name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def import_graph(root: Path) -> dict[str, set[str]]:
    """Module -> modules that it imports anywhere in its text."""
    paths = {module_name(path, root): path for path in root.rglob("*.py")}
    return {
        name: {found for found in imported(ast.parse(path.read_text("utf-8")), paths) if found != name}
        for name, path in paths.items()
    }


def imported(tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                name = inner if inner in known else node.module or ""
                if name in known:
                    yield name
        else:
            yield from imported(node, known)


def circle_of(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one circle in order, nothing where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_circle_of_files() -> None:
    graph = import_graph(ROOT)
    assert len(graph) > 300
    for above, below in FACADES:
        assert below in graph[above], f"{above} does not import {below}: take it from the list"
        graph[above].discard(below)
    circle = circle_of(graph)
    assert not circle, " <- ".join(circle)


def test_the_facades_are_the_only_exceptions_of_the_layer_contract() -> None:
    tomllib = pytest.importorskip("tomllib")
    settings = tomllib.loads((ROOT.parent / "pyproject.toml").read_text("utf-8"))
    ignored = [line for c in settings["tool"]["importlinter"]["contracts"] for line in c.get("ignore_imports", ())]
    assert {tuple(line.split(" -> ")) for line in ignored} == FACADES


def test_a_circle_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    import b\n")
    (tmp_path / "b.py").write_text("from c import g\n")
    (tmp_path / "c.py").write_text("class C:\n    def g(self):\n        from a import f\n")
    assert set(circle_of(import_graph(tmp_path))) == {"a", "b", "c"}
    (tmp_path / "c.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\n")
    assert circle_of(import_graph(tmp_path)) == []


MOST = {
    "comparisons with generation names": 0,
    "generation names outside tables": 44,
    "unread fields of chips and families": 0,
    "ContextVars": 2,
    "hand-kept lists of ops": 23,
    "public class names in several modules": 5,
    "names that are participles": 250,
    "docstrings that are questions": 0,
    "constants of one name and value in several files": 22,
    "divisions that round up, written out": 14,
    "numbers of the hardware outside chips and isa": 94,
    "functions of more than 6 parameters": 122,
}
"""What ``tools/house.py`` may count at most: lower a number where a change lets you, never raise one."""


def test_what_repeats_only_falls() -> None:
    house = tool_named("house")
    tree = house.parsed(house.working_tree())
    for name, most in MOST.items():
        places = list(house.COUNTS[name](tree))
        assert len(places) <= most, f"{len(places)} {name}, {most} at most; see tools/house.py --places '{name}'"


def test_a_comparison_with_a_generation_is_counted() -> None:
    house = tool_named("house")
    tree = house.parsed({"cost/a.py": "x = chip.generation_name in ('h18', 'h19')\n", "isa/b.py": "x = g == 'h13'\n"})
    assert [place[0] for place in house.compared_generations(tree)] == ["cost/a.py"]
