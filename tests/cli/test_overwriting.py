"""An output that is an input is refused before anything is written, and written where it is meant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.errors import UsageError
from report.networks import command, saved, small

WORDS = "the output is a file that is read"


def _network(folder: Path) -> Path:
    return saved(small(), folder, "net.mil")


def _program(folder: Path) -> Path:
    hexane.compile(small()).save(folder / "net.hwx")
    return folder / "net.hwx"


def _assembly(folder: Path) -> Path:
    command("disasm", _program(folder), "-o", folder / "net.hxs")
    return folder / "net.hxs"


CASES = {
    "run": (_network, lambda f: ["run", f, "--random", 1, "-o", f]),
    "compress": (_network, lambda f: ["compress", f, "-o", f]),
    "convert": (_network, lambda f: ["convert", f, f]),
    "trace": (_network, lambda f: ["estimate", f, "--trace", f]),
    "edit": (_program, lambda f: ["edit", f, "--set", "scratch_bytes=0x4000", "-o", f]),
    "asm": (_assembly, lambda f: ["asm", f, "-o", f]),
    "disasm": (_program, lambda f: ["disasm", f, "-o", f]),
    "emulate": (_program, lambda f: ["emulate", f, "--random", 1, "-o", f]),
    "dump": (_program, lambda f: ["emulate", f, "--random", 1, "--until", 0, "--dump", f]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_file_that_is_read_is_not_replaced(case: str, tmp_path: Path) -> None:
    make, arguments = CASES[case]
    file = make(tmp_path)
    before, names = file.read_bytes(), sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=WORDS):
        command(*arguments(file), status=None)
    assert file.read_bytes() == before and sorted(tmp_path.rglob("*")) == names


def test_links_and_named_inputs_are_seen_through(tmp_path: Path) -> None:
    file = _network(tmp_path)
    np.save(tmp_path / "x.npy", np.zeros(next(iter(small().inputs.values())).shape, np.float32))
    (tmp_path / "other.npz").symlink_to(tmp_path / "x.npy")
    name = next(iter(small().inputs))
    with pytest.raises(UsageError, match=WORDS):
        command("run", file, "--input", f"{name}={tmp_path / 'x.npy'}", "-o", tmp_path / "other.npz", status=None)
    before = file.read_bytes()
    command("convert", file, tmp_path / "copy.mil")
    assert file.read_bytes() == before


def test_whoever_means_it_says_so(tmp_path: Path) -> None:
    file = _program(tmp_path)
    command("edit", file, "--set", "scratch_bytes=0x8000", "-o", file, "--overwrite")
    assert hexane.open_image(file).scratch_bytes == 0x8000
