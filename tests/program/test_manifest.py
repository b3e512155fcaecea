"""Damaged ``.hexane`` packages end in one line that names the place; whole ones are files as any other."""

from __future__ import annotations

import copy
import json
import os
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import FormatError, HexaneError, UsageError
from hexane.program.manifest import MANIFEST

TEXT = """
program(1.3)
[buildInfo = dict<string, string>({})]
{
    func main<ios18>(tensor<fp16, [1, 4, 1, 8]> x) {
        tensor<fp16, [1, 4, 1, 8]> r = relu(x = x)[name = string("r")];
        tensor<fp16, [1, 4, 1, 8]> e = sin(x = r)[name = string("e")];
        tensor<fp16, [1, 4, 1, 8]> s = tanh(x = e)[name = string("s")];
    } -> (s);
}
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("package") / "whole.hexane"
    hexane.compile(hexane.parse_mil(TEXT)).save(path)
    kinds = {segment.kind for segment in hexane.load_program(path).segments}
    assert kinds == {"engine", "host"}
    return path


def _with_manifest(package: Path, path: Path, content: bytes) -> Path:
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, content if name == MANIFEST else old.read(name))
    return path


def _manifest(package: Path) -> Any:
    with zipfile.ZipFile(package) as archive:
        return json.loads(archive.read(MANIFEST))


def _changed(place: str, value: Any) -> Any:
    def change(manifest: Any) -> None:
        target = manifest
        *path, last = [int(part) if part.isdigit() else part for part in place.split(".")]
        for part in path:
            target = target[part]
        target[last] = value

    return change


CHANGES = {
    "chip": ("chip", 7, "chip"),
    "other chip": ("chip", "M99", "chip"),
    "dialect": ("dialect", ["x"], "dialect"),
    "inputs": ("inputs", {}, "inputs"),
    "port": ("inputs.0", [1, 2], r"inputs\[0\]"),
    "port's name": ("inputs.0.name", None, r"inputs\[0\].name"),
    "other name": ("inputs.0.name", "zz", "which nothing before it makes"),
    "dtype": ("inputs.0.dtype", "fp17", r"inputs\[0\].dtype"),
    "infinite extent": ("inputs.0.shape.0", float("inf"), r"inputs\[0\].shape\[0\]"),
    "negative extent": ("inputs.0.shape.0", -1, r"inputs\[0\].shape\[0\]"),
    "true extent": ("inputs.0.shape.0", True, r"inputs\[0\].shape\[0\]"),
    "vast extent": ("inputs.0.shape.0", 1 << 62, "which no tensor has"),
    "other shape": ("inputs.0.shape.0", 2, "another shape"),
    "two of a name": ("inputs", [{"name": "x", "shape": [1], "dtype": "fp16"}] * 2, "twice"),
    "segments": ("segments", 3, "segments"),
    "kind": ("segments.0.kind", "cloud", r"segments\[0\].kind"),
    "file": ("segments.0.file", "../other", "has no '../other'"),
    "no file": ("segments.0.file", "", r"segments\[0\].file"),
    "macs": ("segments.0.macs", 1e300, r"segments\[0\].macs"),
    "reasons": ("segments.0.reasons", [], r"segments\[0\].reasons"),
    "reason of an op": ("segments.0.reasons", {"a": 1}, r"reasons"),
    "outputs": ("outputs.0.name", "nothing", "nothing makes"),
    "states": ("states", [{"name": "s", "shape": [1 << 40], "dtype": "fp16"}], "which no tensor has"),
    "format": ("format", "hexane-program/9", "format"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_wrong_field_is_named(case: str, package: Path, tmp_path: Path) -> None:
    place, value, named = CHANGES[case]
    manifest = _manifest(package)
    _changed(place, value)(manifest)
    path = _with_manifest(package, tmp_path / "wrong.hexane", json.dumps(manifest).encode())
    with pytest.raises(FormatError, match=named):
        hexane.load_program(path)


def test_every_field_is_needed(package: Path, tmp_path: Path) -> None:
    manifest = _manifest(package)
    for place in (manifest, manifest["segments"][0], manifest["inputs"][0]):
        for name in list(place):
            value = place.pop(name)
            path = _with_manifest(package, tmp_path / "less.hexane", json.dumps(manifest).encode())
            if name in ("states", "evidence", "codes", "weights"):
                hexane.load_program(path)
            else:
                with pytest.raises(FormatError, match=name):
                    hexane.load_program(path)
            place[name] = value


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b"null", b"[]", b'"x"', b"{}", b"{" * 10])
def test_what_is_no_manifest(content: bytes, package: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        hexane.load_program(_with_manifest(package, tmp_path / "wrong.hexane", content))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.hexane", tmp_path, tmp_path / ("x" * 300 + ".hexane"), Path("a\0.hexane")):
        with pytest.raises(UsageError, match="cannot read the file"):
            hexane.load_program(path)


def test_compressed_parts_are_refused(package: Path, tmp_path: Path) -> None:
    """Hexane stores them as they are; what is compressed may unpack to any size."""
    path = tmp_path / "packed.hexane"
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(FormatError, match="compressed"):
        hexane.load_program(path)


def mutants(content: bytes, count: int, seed: int) -> Any:
    """Damaged copies: bytes changed, cut out, repeated, or the end missing."""
    draw = random.Random(seed)
    for _ in range(count):
        data = bytearray(content)
        for _ in range(draw.choice((1, 1, 2, 5))):
            at, kind = draw.randrange(max(1, len(data))), draw.randrange(5)
            if kind == 0:
                data[at : at + 1] = bytes([draw.randrange(256)])
            elif kind == 1:
                data[at : at + 1] = bytes([(data[at] if at < len(data) else 0) ^ 1 << draw.randrange(8)])
            elif kind == 2:
                del data[at : at + draw.randrange(1, 40)]
            elif kind == 3:
                data[at:at] = data[at : at + draw.randrange(1, 40)]
            else:
                del data[at:]
        yield bytes(data)


def test_damaged_packages(package: Path, tmp_path: Path) -> None:
    """Damage anywhere in the archive, and, in an archive that is whole, in the manifest alone."""
    path = tmp_path / "damaged.hexane"
    outer = mutants(package.read_bytes(), 150, 1)
    text = json.dumps(_manifest(package), indent=1).encode()
    for content in outer:
        path.write_bytes(content)
        _load(path)
    for content in mutants(text, 300, 2):
        _load(_with_manifest(package, path, content))


def _load(path: Path) -> None:
    try:
        program = hexane.load_program(path)
    except HexaneError:
        return
    for port in (*program.inputs, *program.outputs):
        assert all(isinstance(extent, int) and extent >= 0 for extent in port.shape)


@pytest.mark.skipif(os.name == "nt", reason="modes and links are others there")
def test_a_saved_package_is_a_file_as_any_other(package: Path, tmp_path: Path) -> None:
    """Mode 0666 less the mask, a link is followed, an old file keeps its mode."""
    program = hexane.load_program(package)
    mask = os.umask(0o022)
    try:
        program.save(tmp_path / "new.hexane")
        assert (tmp_path / "new.hexane").stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(mask)
    (tmp_path / "link.hexane").symlink_to(tmp_path / "new.hexane")
    (tmp_path / "new.hexane").chmod(0o600)
    program.save(tmp_path / "link.hexane")
    assert (tmp_path / "link.hexane").is_symlink()
    assert (tmp_path / "new.hexane").stat().st_mode & 0o777 == 0o600
    x = np.linspace(-1, 1, 32, dtype=np.float16).reshape(1, 4, 1, 8)
    again = hexane.load_program(tmp_path / "link.hexane")
    assert np.array_equal(again.run({"x": x})["s"], program.run({"x": x})["s"])
    assert copy.copy(again).inputs == program.inputs
