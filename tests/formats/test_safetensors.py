"""The reader of safetensors: what the format says, and headers that lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexane.errors import FormatError, HexaneError, UnsupportedError, UsageError
from hexane.formats.safetensors import read_safetensors
from language.reference import safetensors

TENSORS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.float32([1.5, -2.0])}


def written(path: Path, header: Any, data: bytes = bytes(24), length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_values_are_read_back(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(TENSORS, dtype))
    tensors = read_safetensors(tmp_path)
    assert sorted(tensors) == ["a", "b"]
    for name, array in TENSORS.items():
        assert np.array_equal(tensors.array(name, array.shape), array)
    with pytest.raises(FormatError, match="has shape"):
        tensors.array("a", (3, 2))
    with pytest.raises(FormatError, match="no tensor"):
        tensors.array("c", (2,))


ENTRY = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
LIES: list[Any] = [
    {"a": {**ENTRY, "shape": [2, 4]}},
    {"a": {**ENTRY, "data_offsets": [0, 28], "shape": [7]}},
    {"a": {**ENTRY, "data_offsets": [24, 0]}},
    {"a": {**ENTRY, "shape": [2**40, 2**40, 0]}},
    {"a": {**ENTRY, "shape": [-2, -3]}},
    {"a": {**ENTRY, "shape": [2.0, 3]}},
    {"a": {**ENTRY, "shape": [True, 6]}},
    {"a": {**ENTRY, "shape": [1] * 40}},
    {"a": {**ENTRY, "data_offsets": [0]}},
    {"a": {"dtype": "F32"}},
    {"a": 3},
    [1, 2],
    b"{",
    b"\xff{}",
    b'{"a": 1, "a": 2}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("header", LIES, ids=range(len(LIES)))
def test_a_header_that_lies_is_refused(header: Any, tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        read_safetensors(written(tmp_path / "x.safetensors", header))


def test_lengths_types_and_files(tmp_path: Path) -> None:
    for length in (2**63, 10**9, 10_000):
        with pytest.raises(FormatError, match="header of"):
            read_safetensors(written(tmp_path / "x.safetensors", {"a": ENTRY}, length=length))
    (tmp_path / "x.safetensors").write_bytes(b"abc")
    with pytest.raises(FormatError):
        read_safetensors(tmp_path / "x.safetensors")
    with pytest.raises(UnsupportedError, match="F8_E4M3"):
        read_safetensors(written(tmp_path / "x.safetensors", {"a": {**ENTRY, "dtype": "F8_E4M3"}}))
    integers = read_safetensors(written(tmp_path / "x.safetensors", {"a": {**ENTRY, "dtype": "I32"}}))
    with pytest.raises(UnsupportedError, match="I32"):
        integers.array("a", (2, 3))
    with pytest.raises(UsageError):
        read_safetensors(tmp_path)


@pytest.mark.parametrize("target", ["../x.safetensors", "/etc/passwd", "", ".."])
def test_an_index_stays_in_its_folder(target: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": target}}))
    with pytest.raises(FormatError, match="outside"):
        read_safetensors(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": 1}}))
    with pytest.raises(HexaneError):
        read_safetensors(tmp_path)
