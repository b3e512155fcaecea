"""A folder of results is there whole or not at all, and what others put into it stays."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hexane import files
from hexane.errors import UsageError
from hexane.files import write_whole
from hexane.report.folders import require_replaceable, whole_folder

SCHEMA = "hexane-report/1"


def _write(target: Path, version: str, names: tuple[str, ...] = ("index.html", "plot.png")) -> None:
    with whole_folder(target) as made:
        for name in names:
            (made / name).write_text(version)
        (made / "report.json").write_text(json.dumps({"schema": SCHEMA, "files": list(names)}))


@pytest.fixture(params=["exchanged", "renamed"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to put one folder in place of another."""
    if request.param == "renamed":
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    return request.param


def test_what_others_put_into_an_old_report_stays(tmp_path: Path) -> None:
    target = tmp_path / "report"
    _write(target, "old")
    (target / "notes.md").write_text("mine")
    (target / "data").mkdir()
    (target / "data" / "a.bin").write_bytes(b"1")
    (target / "link").symlink_to("nowhere")
    target.chmod(0o750)
    _write(target, "new", ("index.html",))
    assert (target / "notes.md").read_text() == "mine" and (target / "data" / "a.bin").read_bytes() == b"1"
    assert (target / "link").is_symlink()
    assert (target / "index.html").read_text() == "new" and not (target / "plot.png").exists()
    assert target.stat().st_mode & 0o777 == 0o750
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_an_error_leaves_everything_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "report"
    _write(target, "old")
    (target / "notes.md").write_text("mine")
    with pytest.raises(ZeroDivisionError), whole_folder(target) as made:
        (made / "index.html").write_text("new")
        raise ZeroDivisionError
    assert (target / "index.html").read_text() == "old" and (target / "notes.md").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_a_file_that_no_report_wrote_is_not_written_over(tmp_path: Path) -> None:
    target = tmp_path / "report"
    _write(target, "old", ("index.html",))
    (target / "plot.png").write_text("mine")
    with pytest.raises(UsageError, match=r"plot\.png"):
        _write(target, "new")
    assert (target / "plot.png").read_text() == "mine" and (target / "index.html").read_text() == "old"


@pytest.mark.parametrize("index", [None, "", "{}", "[]", '{"schema": 3}', '{"schema": "pytest"}', "[" * 100_000])
def test_other_folders_are_refused(index: str | None, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.mkdir()
    (target / "thesis.tex").write_text("years of work")
    if index is not None:
        (target / "report.json").write_text(index)
    with pytest.raises(UsageError, match="other things"):
        require_replaceable(target)
    with pytest.raises(UsageError, match="other things"):
        _write(target, "new")
    assert (target / "thesis.tex").read_text() == "years of work"


def test_a_list_of_files_that_lies_removes_nothing_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    target = tmp_path / "report"
    _write(target, "old")
    (target / "report.json").write_text(
        json.dumps({"schema": SCHEMA, "files": ["../precious", "..", 3, "/etc/passwd"]})
    )
    (target / "plot.png").unlink()
    _write(target, "new")
    assert (tmp_path / "precious").read_text() == "mine"


def test_what_killed_processes_left_goes(tmp_path: Path) -> None:
    """A half folder goes; an old report whose place is empty comes back; those of a living process stay."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    target = tmp_path / "report"
    _write(target, "old")
    os.replace(target, tmp_path / f".report.old-{dead.pid}-abc")
    (tmp_path / f".report.new-{dead.pid}-def").mkdir()
    living = tmp_path / f".report.new-{os.getppid()}-ghi"
    living.mkdir()
    with pytest.raises(ZeroDivisionError), whole_folder(target):
        assert (target / "index.html").read_text() == "old"
        raise ZeroDivisionError
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([living.name, "report"])


KILLED = """
import json, sys
from pathlib import Path
from hexane import files
from hexane.report import folders
if sys.argv[2] == "renamed":
    files._exchange = lambda one, other: False
print("ready", flush=True)
for version in range(10**9):
    with folders.whole_folder(Path(sys.argv[1])) as made:
        for name in "abcdefgh":
            (made / name).write_text(str(version))
        (made / "report.json").write_text(json.dumps({"schema": "hexane-report/1", "files": list("abcdefgh")}))
"""


@pytest.mark.skipif(os.name == "nt", reason="no kill there")
@pytest.mark.parametrize("count", [2, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_at_any_moment(count: int, way: str, tmp_path: Path) -> None:
    target = tmp_path / "report"
    _write(target, "0", tuple("abcdefgh"))
    (target / "notes.md").write_text("mine")
    draw = random.Random(count)
    for _ in range(count):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(target), way], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(draw.random() * 0.05)
        process.kill()
        process.wait()
        process.stdout.close()
        if way == "exchanged" and sys.platform == "linux":
            assert target.is_dir()
        files.take_back(target)
        assert [path.name for path in tmp_path.iterdir()] == ["report"]
        assert len({(target / name).read_text() for name in "abcdefgh"}) == 1
        assert (target / "notes.md").read_text() == "mine"


def test_a_full_disk_is_said_of_the_file_that_was_asked_for(tmp_path: Path) -> None:
    """Not of the one in the folder that is filled first."""

    def pieces():
        yield b"first"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UsageError) as caught, whole_folder(tmp_path / "out") as folder:
        write_whole(folder / "inputs.npz", pieces())
    assert caught.value.where == str(tmp_path / "out" / "inputs.npz")
    assert caught.value.hint and "free some space" in caught.value.hint
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError) as caught, whole_folder(tmp_path / "out"):
        write_whole(tmp_path / "other.bin", pieces())
    assert caught.value.where == str(tmp_path / "other.bin")
