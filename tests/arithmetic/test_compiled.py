"""Compiled code is remembered where that can be done; where it cannot, nothing fails."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import hexane
from hexane import code_cache
from hexane.code_cache import digest_of

SCRIPT = """
import resource, signal
import numpy as np
from hexane.arithmetic import conv2d
if {limit}:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
x, w = np.ones((1, 2, 3, 3), np.float16), np.ones((2, 1, 3, 3), np.float16)
print(conv2d(x, w, groups=2).ravel().tolist())
"""


@pytest.mark.parametrize("limit", [0, 1])
def test_a_full_disk_stops_no_computation(limit: int, tmp_path: Path) -> None:
    pytest.importorskip("resource")
    environment = {**os.environ, "HEXANE_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT.format(limit=limit)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.stdout == "[9.0, 9.0]\n", done.stderr
    assert bool(list(tmp_path.rglob("*.nbc"))) != limit


def test_code_of_older_sources_is_dropped(remembered: Path) -> None:
    """Numba looks at the file of each function alone, and at its date; here a neighbour's text counts."""
    (before,) = _entries(remembered)
    (remembered / "neighbour.py").write_text("NUMBER = 1\n")
    double = _fresh(remembered)
    assert double(4) == 8 and not double.stats.cache_hits
    (after,) = _entries(remembered)
    assert after.name != before.name
    os.utime(remembered / "double.py")  # a copy of the same sources
    double = _fresh(remembered)
    assert double(4) == 8 and double.stats.cache_hits


def test_a_folder_that_cannot_be_written_is_read(remembered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container: compiled while the image was built, run by another user."""
    own = remembered / "own"
    monkeypatch.setenv("XDG_CACHE_HOME", str(own))
    for name in code_cache.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    can_write = code_cache.can_write
    monkeypatch.setattr(code_cache, "can_write", lambda folder: folder.name != "__pycache__" and can_write(folder))
    before = _entries(remembered)
    double = _fresh(remembered)
    assert double(4) == 8 and double.stats.cache_hits
    assert double(0.5) == 1.0 and _entries(remembered) == before
    if sys.platform.startswith("linux"):
        assert len(list((own / "hexane").glob("*.double.*.nbc"))) == 1
    again = _fresh(remembered)
    assert again(0.5) == 1.0 and again.stats.cache_hits
    monkeypatch.setattr(code_cache, "can_write", lambda folder: False)
    assert _fresh(remembered)(1j) == 2j and len(list(own.rglob("*.nbc"))) == 1


def test_old_code_in_a_folder_of_others_stops_nothing(remembered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What older sources left goes from the folder that is written, and from no other."""
    own = remembered / "own"
    own.mkdir()
    monkeypatch.setattr(code_cache, "own_folder", lambda: own)
    for name in code_cache.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(code_cache, "can_write", lambda folder: folder.name != "__pycache__")
    old = f"{remembered.name}.double.double.0123456789abcdef.0.nbc"
    for folder in (remembered / "__pycache__", own):
        (folder / old).touch()
    assert _fresh(remembered)(0.5) == 1.0
    assert (remembered / "__pycache__" / old).exists() and not (own / old).exists()
    assert len(list(own.glob("*.nbc"))) == 1


class Poison:
    """What unpickles to an act: it makes a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.mark),)


def _fresh(folder: Path) -> Any:
    """The function of a module in a folder, as a new process would have it."""
    digest_of.cache_clear()
    name = f"remembered_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(name, folder / "double.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.double


_numbers = count()


@pytest.fixture
def remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a compiled function and one entry of a cache, wherever other entries go."""
    for name in code_cache.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "double.py").write_text(
        "from hexane.arithmetic.fast.compiled import compiled\n@compiled()\ndef double(x):\n    return 2 * x\n"
    )
    assert _fresh(tmp_path)(4) == 8
    assert len(_entries(tmp_path)) == 1
    return tmp_path


def _entries(folder: Path) -> list[Path]:
    return [path for path in (folder / "__pycache__").iterdir() if path.suffix != ".pyc"]


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:100]),
        lambda path: path.write_bytes(os.urandom(1000)),
        _flip,
        _folder,
    ],
    ids=["empty", "cut", "head", "noise", "bit", "folder"],
)
def test_a_damaged_entry_is_compiled_again(damage: Callable[[Path], None], remembered: Path) -> None:
    (entry,) = _entries(remembered)
    damage(entry)
    double = _fresh(remembered)
    assert double(4) == 8
    assert not double.stats.cache_hits
    if entry.is_file():
        assert _fresh(remembered)(4) == 8 and len(_entries(remembered)) == 1


def test_an_entry_serves_the_next_process(remembered: Path) -> None:
    double = _fresh(remembered)
    assert double(4) == 8
    assert double.stats.cache_hits


def test_an_entry_is_linked_without_the_tables_of_the_compiler(remembered: Path) -> None:
    """Of which SciPy is a part, and which take longer to load than the code itself."""
    code = "import sys, double; print(double.double(4), {'numba.np.arraymath', 'scipy.linalg'} & set(sys.modules))"
    path = os.pathsep.join([str(remembered), str(Path(hexane.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path}
    for _ in range(2):  # the first leaves the code under the module's own name
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout == "8 set()\n", done.stdout + done.stderr


def test_code_of_another_signature_is_not_taken(remembered: Path) -> None:
    """As two processes that write at one time could leave it."""
    double = _fresh(remembered)
    (whole,) = _entries(remembered)
    assert double(0.5) == 1.0
    (other,) = (path for path in _entries(remembered) if path != whole)
    other.write_bytes(whole.read_bytes())
    assert _fresh(remembered)(0.5) == 1.0


def test_poison_is_not_unpickled(remembered: Path, tmp_path: Path) -> None:
    (entry,) = _entries(remembered)
    content = pickle.dumps(Poison(tmp_path / "mark"))
    for poisoned in (content, bytes(32) + content):
        entry.write_bytes(poisoned)
        assert _fresh(remembered)(4) == 8
    assert not (tmp_path / "mark").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders have no owners here")
def test_a_cache_that_everybody_may_write_is_not_used(remembered: Path) -> None:
    (remembered / "__pycache__").chmod(0o777)
    before = {path: path.read_bytes() for path in _entries(remembered)}
    double = _fresh(remembered)
    assert double(4) == 8 and double(0.5) == 1.0
    assert {path: path.read_bytes() for path in _entries(remembered)} == before


def test_processes_that_share_a_cache(remembered: Path) -> None:
    """Four at one time, none of which finds anything yet."""
    for entry in _entries(remembered):
        entry.unlink()
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from double import double; "
        "print(double(4), double(0.5), double(1j), *sys.argv[2:] and [len(double.stats.cache_hits)])"
    )
    command = [sys.executable, "-c", script, str(remembered)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert {process.communicate(timeout=300)[0] for process in running} == {"8 1.0 2j\n"}
    assert len(_entries(remembered)) == 3
    later = subprocess.run([*command, "count"], capture_output=True, text=True, timeout=300)
    assert later.stdout == "8 1.0 2j 3\n"
