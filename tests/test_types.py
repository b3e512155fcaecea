"""What a type checker, an editor and a notebook see of the library."""

from __future__ import annotations

import ast
import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.errors import HexaneError, UsageError

SOURCE = Path(hexane.__file__).parents[1]

SCRIPT = """\
import numpy as np

import hexane

graph = hexane.load("model.onnx", shapes={"x": (1, 3, 8, 8)})
program = hexane.compile(graph, chip="M1")
program.save("model.hexane")
outputs = program.run({"x": np.zeros((1, 3, 8, 8), np.float32)})
names: list[str] = [port.name for port in program.outputs]
share = program.stats()
report = hexane.check(graph, "M1")
time = hexane.estimate(program, "M1").latency_us
image = hexane.open_image("relu.hwx")
for task in image.tasks:
    print(task)
again: hexane.program.Program = hexane.load_program("model.hexane")
try:
    hexane.emulate(image, {"x": np.zeros((1, 3, 8, 8), np.float16)})
except hexane.HexaneError as error:
    print(error.message, hexane.chips.get("M1").name, hexane.__version__)
"""

WRONG = """\
import hexane

hexane.nothing()
hexane.load(3)
count: int = hexane.compile(hexane.load("model.onnx"))
hexane.load("model.onnx").evalute({})
"""


def _mypy(folder: Path, name: str) -> list[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent", "--no-error-summary", name]
    environment = {**os.environ, "MYPYPATH": str(SOURCE), "MYPY_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_mypy_knows_the_public_names(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(SCRIPT)
    (tmp_path / "wrong.py").write_text(WRONG)
    assert _mypy(tmp_path, "user.py") == []
    lines = [int(line.split(":")[1]) for line in _mypy(tmp_path, "wrong.py") if "error:" in line]
    assert lines == [3, 4, 5, 6]


def test_pyright_knows_the_public_names(tmp_path: Path) -> None:
    found = shutil.which("pyright", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if found is None or subprocess.run([found, "--version"], capture_output=True, timeout=300).returncode:
        pytest.skip("pyright is not installed")
    (tmp_path / "user.py").write_text(SCRIPT)
    (tmp_path / "wrong.py").write_text(WRONG)
    settings = {"extraPaths": [str(SOURCE)], "typeCheckingMode": "standard", "include": ["user.py", "wrong.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [found, "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    errors = [row for row in json.loads(done.stdout)["generalDiagnostics"] if row["severity"] == "error"]
    places = [(Path(row["file"]).name, row["range"]["start"]["line"] + 1) for row in errors]
    assert places == [("wrong.py", line) for line in (3, 4, 5, 6)], errors


def test_checkers_and_the_interpreter_get_the_same_names() -> None:
    """Those under TYPE_CHECKING are those of the tables, each the same object."""
    tree = ast.parse((SOURCE / "hexane" / "__init__.py").read_text())
    block = next(
        node for node in tree.body if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    )
    shown = {name.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert set(shown) == set(hexane._API) | set(hexane._PACKAGES)
    for name, module in shown.items():
        if name in hexane._API:
            assert module is not None
            assert getattr(hexane, name) is getattr(
                sys.modules.get(module) or __import__(module, fromlist=[name]), name
            )
    assert set(hexane.__all__) == set(hexane._API) | {"HexaneError", "__version__"}


def test_completion_offers_every_public_name_and_no_other() -> None:
    offered = {name for name in dir(hexane) if not name.startswith("__")}
    assert offered == set(hexane._API) | set(hexane._PACKAGES) | {"HexaneError"}
    with pytest.raises(AttributeError, match="nothing"):
        hexane.nothing()  # type: ignore[attr-defined]


TEXT = """
program(1.3)
[buildInfo = dict<string, string>({})]
{
    func main<ios18>(tensor<fp32, [1, 64, 8, 8]> x) {
        tensor<fp32, [1, 64, 8, 8]> r = relu(x = x)[name = string("r")];
    } -> (r);
}
"""


@pytest.fixture(scope="module")
def graph() -> hexane.graph.Graph:
    w = np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float32) / 64
    builder = hexane.graph.GraphBuilder()
    x = builder.input("x", (1, 64, 8, 8), "fp32")
    c = builder.op("conv", x=x, weight=w)
    builder.output(builder.op("relu", x=builder.op("sin", x=c)))
    made = builder.graph
    made.metadata["author"] = {"name": "somebody"}
    return made


def test_what_a_prompt_prints_is_short(graph: hexane.graph.Graph) -> None:
    program = hexane.compile(graph)
    for thing in (program, program.segments, program.segments[0], program.images[0], graph, program.inputs):
        assert len(repr(thing)) < 1000, repr(thing)[:2000]
    assert repr(program).startswith("<Program for M1: 2 engine segments with ")
    shown = program._repr_html_()
    assert shown.count("<tr>") == 1 + len(program.segments) and len(shown) < 5000


def test_a_graph_is_copied_and_pickled(graph: hexane.graph.Graph) -> None:
    x = np.random.default_rng(1).standard_normal((1, 64, 8, 8)).astype(np.float32)
    wanted = next(iter(graph.evaluate({"x": x}).values()))
    for other in (copy.deepcopy(graph), copy.copy(graph), pickle.loads(pickle.dumps(graph))):
        assert other is not graph and other.equals(graph)
        assert np.array_equal(next(iter(other.evaluate({"x": x}).values())), wanted)
    other = copy.deepcopy(graph)
    other.metadata["author"]["name"] = "else"
    other.main.ops[0].attributes["seen"] = True
    assert graph.metadata["author"]["name"] == "somebody" and "seen" not in graph.main.ops[0].attributes


def test_long_chains_and_inner_blocks_too() -> None:
    """Ops are a linked list: copied node by node, a long one ended in a RecursionError."""
    builder = hexane.graph.GraphBuilder()
    value = builder.input("x", (4,), "fp32")
    for _ in range(5000):
        value = builder.op("relu", x=value)
    builder.output(value)
    graph = builder.graph
    for other in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert len(other.ops) == 5000 and other.equals(graph)


def test_a_program_is_copied_and_pickled(graph: hexane.graph.Graph) -> None:
    program = hexane.compile(graph)
    x = np.random.default_rng(1).standard_normal((1, 64, 8, 8)).astype(np.float32)
    wanted = next(iter(program.run({"x": x}).values()))
    for other in (copy.deepcopy(program), pickle.loads(pickle.dumps(program))):
        assert np.array_equal(next(iter(other.run({"x": x}).values())), wanted)


def test_wrong_arguments_are_named(graph: hexane.graph.Graph, tmp_path: Path) -> None:
    (tmp_path / "model.mil").write_text(TEXT)
    for path in (tmp_path / "model.mil", str(tmp_path / "model.mil")):
        assert hexane.compile(path).outputs[0].name == "r"  # type: ignore[arg-type]
    for wrong in (None, 3, b"model.mil", [graph], {}):
        with pytest.raises(UsageError, match="is no network"):
            hexane.compile(wrong)  # type: ignore[arg-type]
    program = hexane.compile(graph)
    deep: object = 1.0
    for _ in range(70):
        deep = [deep]
    for inputs in (
        None,
        3,
        [],
        "x",
        np.zeros(3),
        {"x": [[1, 2], [3]]},
        {"x": deep},
        {"x": None},
        {1: 2},
        {"x": "text"},
    ):
        with pytest.raises(HexaneError):
            program.run(inputs)  # type: ignore[arg-type]
