"""Files appear whole or not at all, and what is no plain file stays what it is."""

from __future__ import annotations

import os
import stat
import threading

import pytest

from hexane import HexaneError
from hexane.files import whole_file, write_whole


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), whole_file(path) as file:
        file.write(b"new")
        _ = 1 / 0
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_is_followed_and_permissions_stay(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(link, [b"ne", b"w"])
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_pipe_is_written_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_whole(pipe, b"through")
    reader.join(10)
    assert got == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["", "a\0b", "missing/a", ".", "x" * 300])
def test_places_that_cannot_be_written(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HexaneError):
        write_whole(name, b"")
    assert not os.listdir(tmp_path)


def test_a_name_that_is_no_path():
    with pytest.raises(HexaneError, match="NoneType"):
        write_whole(None, b"")  # type: ignore[arg-type]
