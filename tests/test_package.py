"""The package as a whole: cheap to import, one front door."""

from __future__ import annotations

import email
import pickle
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import hexane
from hexane.cli.line import application
from hexane.errors import EmulationError, FormatError


def test_import_loads_nothing_heavy():
    code = (
        "import sys, hexane; "
        "heavy = {'numba', 'onnx', 'coremltools', 'torch', 'matplotlib', 'rich', 'typer', 'lark', 'onnxruntime'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_nothing_is_loaded_before_an_interrupt_is_caught():
    """`main` catches it; what is imported until then is Python's own start and these few."""
    code = "import re, sys; before = set(sys.modules); import hexane.cli.main; print(*set(sys.modules) - before)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    own = {name for name in out if name.startswith("hexane")}
    assert own == {"hexane", "hexane.cli", "hexane.cli.main", "hexane.later"}
    assert {name.partition(".")[0] for name in set(out) - own} <= {"__future__", "atexit", "importlib", "warnings"}


def test_the_compiler_needs_no_parser_of_texts():
    code = "import sys, hexane.codegen, hexane.session.run, hexane.cli.run; print('lark' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "False\n"


def test_a_command_is_there_without_the_others():
    every = application().registered_commands
    names = {command.name or command.callback.__name__ for command in every if command.callback}
    assert {"run", "compile", "check", "chips"} < names
    for name in sorted(names):
        (command,) = application(name).registered_commands
        assert name in (command.name, command.callback and command.callback.__name__)
    for name in ("options", "main", "line", "no_such_command"):
        assert len(application(name).registered_commands) == len(every)


def test_the_map_of_the_private_interface_is_printed_without_the_runtime():
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom hexane.cli.main import app\n"
        "print(CliRunner().invoke(app, ['api', 'evaluateWithModel:']).stdout)\n"
        "print(sorted({'numpy', 'hexane.program', 'hexane.graph', 'hexane.runtime.devices'} & set(sys.modules)))"
    )
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    assert "_ANEClient evaluateWithModel:options:request:qos:error:" in lines and lines[-2] == "[]"


def test_errors_say_where_and_what_to_do():
    error = FormatError("the magic is 0x0", offset=0, where="a.hwx", hint="is this an engine program?")
    assert str(error) == "a.hwx at byte 0x0: the magic is 0x0; is this an engine program?"
    error = EmulationError("reads past its surface", task=3, register="TileDMASrc.BaseAddr", address=0x4000)
    assert str(error) == "task[3].TileDMASrc.BaseAddr at 0x4000: reads past its surface"


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(FormatError("bad", offset=7, hint="look")))
    assert (type(error), error.offset, str(error)) == (FormatError, 7, "byte 0x7: bad; look")


def test_unknown_name_is_an_attribute_error():
    assert not hasattr(hexane, "no_such_name")


@pytest.mark.parametrize(("name", "package"), [("torch", "torch"), ("onnx_backend", "onnx")])
def test_a_package_that_is_not_there(name: str, package: str) -> None:
    code = (
        "import importlib.util as u, importlib\n"
        f"found = u.find_spec\nu.find_spec = lambda n, *a: None if n == {package!r} else found(n, *a)\n"
        "import hexane\n"
        f"try:\n    hexane.{name}\nexcept hexane.HexaneError as error:\n    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert f"hexane.{name} needs {package}" in said and "pip install" in said


def test_a_compilation_loads_no_compiler_of_its_own():
    """Kernels are packed by plain NumPy, strided ones too, whose streams are sparse: Numba is slow to load."""
    script = """
import sys
import numpy as np
import hexane
from hexane.graph import GraphBuilder

b = GraphBuilder()
weight = np.ones((16, 16, 3, 3), np.float16)
b.output(b.relu(x=b.conv(x=b.input("x", (1, 16, 12, 12), "fp16"), weight=weight, strides=[2, 2], pad_type="same")))
program = hexane.compile(b.graph)
assert program.estimate().engine_us > 0
sparse = any(task.get('NE.KernelCfg.SparseFmt') for task in program.images[0].tasks)
print(sorted({"numba", "scipy"} & set(sys.modules)), sparse)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "True"]


ROOT = Path(__file__).parent.parent
BUILD = "from setuptools import build_meta as b\nb.build_sdist('out')\nb.build_wheel('out')"


def test_what_an_index_shows_and_what_the_archives_hold(tmp_path: Path) -> None:
    """Setuptools builds both: metadata for an index, no link that is dead there, the tests with their data."""
    pytest.importorskip("setuptools", minversion="77")
    tree = tmp_path / "tree"
    tree.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "out")
    for one in ("src", "docs", "examples", "tests", "tools", "benchmarks"):
        shutil.copytree(ROOT / one, tree / one, ignore=ignored)
    for one in ("pyproject.toml", "MANIFEST.in", "LICENSE", "README.md", "CHANGELOG.md", "Makefile"):
        shutil.copy(ROOT / one, tree)
    subprocess.run([sys.executable, "-c", BUILD], cwd=tree, check=True, capture_output=True)
    (wheel,) = (tree / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (place,) = (name for name in names if name.endswith("dist-info/METADATA"))
        said = email.message_from_bytes(archive.read(place))
    assert "hexane/py.typed" in names and {name.split("/")[0] for name in names} == {"hexane", place.split("/")[0]}
    classifiers = said.get_all("Classifier")
    assert "Typing :: Typed" in classifiers and said["Author"] and said["Requires-Python"] == ">=3.11"
    versions = [one.rsplit(" ", 1)[1] for one in classifiers if "Python :: 3." in one]
    assert versions == ["3.11", "3.12", "3.13"] and ", ".join(versions[:2]) in (ROOT / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)]*)\)", said.get_payload())
    assert all(link.startswith("https://") for link in links), links
    (source,) = (tree / "out").glob("*.tar.gz")
    with tarfile.open(source) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("docs", "examples", "tests", "tools"):
        wanted = {str(file.relative_to(tree)) for file in (tree / folder).rglob("*") if file.is_file()}
        assert wanted <= held, sorted(wanted - held)[:5]
