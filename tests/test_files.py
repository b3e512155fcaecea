"""Files that commands write: whole or not at all, also when the process is killed, or two write one path."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane import files
from hexane.demo.example import make_example
from hexane.errors import UsageError
from hexane.graph import GraphBuilder
from hexane.studies.pieces.store import Store
from image.hostile import small_program

pytestmark = pytest.mark.skipif(os.name == "nt", reason="no kill there")


def test_what_a_killed_process_left_goes_in_time(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    old, fresh = tmp_path / f".p.hwx.new-{dead.pid}-abcd1234", tmp_path / f".p.hwx.new-{dead.pid}-abcd5678"
    living, other = tmp_path / f".p.hwx.new-{os.getpid()}-abcd1234", tmp_path / ".p.new-notes"
    for path in (old, fresh, living, other):
        path.write_text("half")
    for path in (old, living, other):
        os.utime(path, (0, 0))
    files._sweep.cache_clear()
    files.write_whole(tmp_path / "p.hwx", b"whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([fresh.name, living.name, other.name, "p.hwx"])


@pytest.mark.parametrize("count", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_commands_killed_at_any_moment(count: int, tmp_path: Path) -> None:
    """`hexane asm` and `hexane edit` over a file that is there: the old program or the new one."""
    old, new = small_program("default", 1), small_program("default", 2)
    from hexane.image.text import disassemble_image

    (tmp_path / "new.hxs").write_text(disassemble_image(hexane.open_image(new)))
    (tmp_path / "p.hwx").write_bytes(old)
    wanted = {old, new, hexane.open_image(new).to_bytes()}
    command = [sys.executable, "-m", "hexane", "asm", "new.hxs", "-o", "p.hwx", "--unchecked"]
    start = time.monotonic()
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    length = time.monotonic() - start
    draw = random.Random(count)
    for _ in range(count):
        (tmp_path / "p.hwx").write_bytes(old)
        process = subprocess.Popen(command, cwd=tmp_path)
        time.sleep(length * draw.uniform(0.6, 1.1))
        process.kill()
        process.wait()
        assert (tmp_path / "p.hwx").read_bytes() in wanted


WRITER = """
import sys
from hexane.files import write_whole
for _ in range(int(sys.argv[3])):
    write_whole(sys.argv[1], sys.argv[2].encode() * 50_000)
"""


def test_processes_that_write_one_path(tmp_path: Path) -> None:
    """Whoever reads meets one of the files, whole."""
    path = tmp_path / "p.bin"
    path.write_bytes(b"a" * 50_000)
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, "150"]) for name in "abcd"]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        content = path.read_bytes()
        assert len(content) == 50_000 and len(set(content)) == 1
        seen.add(content[:1])
    assert all(writer.returncode == 0 for writer in writers) and seen
    assert [entry.name for entry in tmp_path.iterdir()] == ["p.bin"]


@pytest.mark.parametrize("suffix", [".mil", ".plist", ".onnx", ".mlpackage", ".hexane", ".hwx"])
def test_a_folder_that_cannot_be_made_is_named_whatever_is_written(suffix: str, tmp_path: Path) -> None:
    """A file stands where the folder should be: for weights beside a text, too."""
    b = GraphBuilder()
    b.output(b.linear(x=b.input("x", (1, 64), "fp16"), weight=np.ones((32, 64), np.float16)))
    (tmp_path / "file").write_bytes(b"")
    thing = hexane.compile(b.graph) if suffix in (".hexane", ".hwx") else b.graph
    with pytest.raises(UsageError, match="cannot be written") as refusal:
        thing.save(tmp_path / "file" / f"n{suffix}")
    assert str(tmp_path / "file") in str(refusal.value)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_plots_and_kernels_go_where_a_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for make in (lambda: Store(tmp_path / "file" / "s"), lambda: make_example(tmp_path / "file" / "e")):
        with pytest.raises(UsageError, match="cannot be written"):
            make()
