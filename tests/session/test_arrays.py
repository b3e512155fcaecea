"""Arrays, texts and sounds as inputs: the header first, its size against the input, then the data."""

from __future__ import annotations

import io
import struct
import tracemalloc
import wave
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexane.errors import FormatError, HexaneError, UsageError
from hexane.program import Port
from hexane.session.inputs import gather
from program.test_manifest import mutants

PORT = Port("x", (1, 3, 4, 6), "fp32")


def _read(path: Path, port: Port = PORT) -> np.ndarray:
    return gather([port], [f"x={path}"]).arrays["x"]


def _npy(header: str) -> bytes:
    body = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(body)) + body


def _zip(member: bytes, name: str = "x.npy", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr(name, member)
    return stream.getvalue()


def _array() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.arange(72, dtype=np.float32).reshape(1, 3, 4, 6))
    return stream.getvalue()


def _png(width: int, height: int) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"no zlib") + chunk(b"IEND", b"")


GIANT = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
WRONG = {
    "giant.npy": _npy(GIANT),
    "more.npy": _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 4, 6), }"),
    "negative.npy": _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 3, 4, 6), }"),
    "bracket.npy": _npy("{'descr': ("),
    "nested.npy": _npy("(" * 9000),
    "fields.npy": _npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1, 3, 4, 6), }"),
    "object.npy": _npy("{'descr': '|O', 'fortran_order': False, 'shape': (1, 3, 4, 6), }"),
    "text.npy": b"1 2 3\n",
    "empty.npy": b"",
    "zip.npy": _zip(_array()),
    "giant.npz": _zip(_npy(GIANT)),
    "text.npz": _zip(b"1 2 3", "x.txt"),
    "bytes.npz": _zip(b"1 2 3"),
    "cut.npz": _zip(_array())[:-10],
    "damage.npz": _zip(_array()).replace(b"PK\x01\x02", b"PK\x01\x03"),
    "lzma.npz": _zip(_array(), method=zipfile.ZIP_LZMA)[:60] + bytes(200),
    "no.wav": b"RIFF",
    "text.wav": b"hello",
    "words.txt": b"one two",
    "short.txt": b"1 2 3",
    "binary.txt": bytes(range(256)),
    "header.png": _png(0, 0),
    "data.png": _png(6, 4),
    "giant.png": _png(1 << 20, 1 << 20),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_none(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(WRONG[name])
    with pytest.raises(HexaneError):
        _read(tmp_path / name)


def test_a_small_file_that_unpacks_to_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as f:
        f.write(_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (67108864,), }"))
        for _ in range(256):
            f.write(bytes(1 << 20))
    tracemalloc.start()
    with pytest.raises(UsageError, match="67108864"):
        _read(tmp_path / "bomb.npz")
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f2", "<i8", "|u1", "|b1"])
def test_arrays_as_numpy_wrote_them(order: Any, kind: str, tmp_path: Path) -> None:
    array = np.array(np.arange(72).reshape(3, 4, 6) % 2, kind, order=order)
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "a.npz", x=array)
    for name in ("a.npy", "a.npz"):
        got = _read(tmp_path / name)
        assert np.array_equal(got, array.reshape(1, 3, 4, 6)) and got.dtype == array.dtype.newbyteorder("=")


def test_numbers_in_text(tmp_path: Path) -> None:
    path = tmp_path / "numbers.txt"
    path.write_text("# a remark\n1, 2 3.5;-4e-1\n\n5 6  # the end\n")
    got = _read(path, Port("x", (2, 3), "fp16"))
    assert np.array_equal(got, np.array([[1, 2, 3.5], [-0.4, 5, 6]], np.float32))
    path.write_text("1 2 3 4 5 6")
    assert _read(path, Port("x", (6,), "int32")).dtype == np.int64
    with pytest.raises(UsageError, match="holds 6 numbers"):
        _read(path, Port("x", (7,), "fp32"))
    path.write_text("1.5 2 3 4 5 6")
    with pytest.raises(UsageError, match="fractions"):
        _read(path, Port("x", (6,), "int32"))
    path.write_text("0 " * 100_000)
    with pytest.raises(UsageError, match="more text"):
        _read(path, Port("x", (6,), "fp32"))


def _save(path: Path, samples: np.ndarray, width: int, rate: int = 8000) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        whole = np.round(samples * (1 << 8 * width - 1)).astype(np.int64) + (128 if width == 1 else 0)
        file.writeframes(whole.astype("<i8").view(np.uint8).reshape(*samples.shape, 8)[..., :width].tobytes())


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_sound_of_every_width(width: int, tmp_path: Path) -> None:
    """Written by the standard library's module."""
    samples = np.array([[-1.0], [-0.5], [0.0], [0.25], [0.5]])
    _save(tmp_path / "a.wav", samples, width)
    given = gather([Port("x", (1, 5), "fp32")], [f"x={tmp_path / 'a.wav'}"])
    assert np.array_equal(given.arrays["x"], samples.T.astype(np.float32))
    assert given.notes == ("x: a.wav at 8000 Hz, 5 samples from -1 to 1",)


def test_sound_is_fitted_and_says_so(tmp_path: Path) -> None:
    stereo = np.stack([np.full(6, 0.5), np.full(6, -0.25)], 1)
    _save(tmp_path / "a.wav", stereo, 2)
    path = f"x={tmp_path / 'a.wav'}"
    for shape, wanted, said in (
        ((1, 4), [0.125] * 4, "cut"),
        ((8,), [0.125] * 6 + [0, 0], "2 of silence"),
        ((1, 8, 1), [0.125] * 6 + [0, 0], "2 channels averaged"),
        ((1, 2, 6), [0.5] * 6 + [-0.25] * 6, "6 samples"),
        ((6, 2), [0.5, -0.25] * 6, "6 samples"),
    ):
        given = gather([Port("x", shape, "fp32")], [path])
        assert given.arrays["x"].shape == shape and given.arrays["x"].ravel().tolist() == wanted
        assert said in given.notes[0]
    for port in (Port("x", (3, 6), "fp32"), Port("x", (6,), "int32"), PORT, Port("x", (1,), "fp32")):
        with pytest.raises(UsageError, match=r"sound"):
            gather([port], [path])


def test_sound_in_floats_as_scipy_writes_it(tmp_path: Path) -> None:
    wavfile = pytest.importorskip("scipy.io.wavfile")
    samples = np.linspace(-0.9, 0.9, 10).astype(np.float32)
    wavfile.write(tmp_path / "a.wav", 16000, samples)
    assert np.array_equal(_read(tmp_path / "a.wav", Port("x", (10,), "fp32")), samples)


def test_damaged_files(tmp_path: Path) -> None:
    """Every kind, damaged in many ways: one line or an array that fits."""
    Image = pytest.importorskip("PIL.Image")
    _save(tmp_path / "a.wav", np.linspace(-0.5, 0.5, 72)[:, None], 2)
    for suffix in ("png", "jpg", "gif", "bmp"):
        Image.fromarray(np.arange(72, dtype=np.uint8).reshape(4, 6, 3)).save(tmp_path / f"a.{suffix}")
    (tmp_path / "a.npy").write_bytes(_array())
    (tmp_path / "a.npz").write_bytes(_zip(_array()))
    (tmp_path / "a.txt").write_text(" ".join(map(str, range(72))))
    sound = Port("x", (1, 72), "fp32")
    for source in sorted(tmp_path.glob("a.*")):
        port = sound if source.suffix == ".wav" else PORT
        damaged = tmp_path / f"damaged{source.suffix}"
        for content in mutants(source.read_bytes(), 60, 5):
            damaged.write_bytes(content)
            try:
                assert _read(damaged, port).shape == port.shape
            except HexaneError:
                continue


def test_files_that_are_no_files(tmp_path: Path) -> None:
    for suffix in ("npy", "npz", "txt", "wav", "png"):
        port = Port("x", (1, 72), "fp32") if suffix == "wav" else PORT
        (tmp_path / f"folder.{suffix}").mkdir()
        for name in ("none", "folder"):
            with pytest.raises(UsageError, match="cannot"):
                _read(tmp_path / f"{name}.{suffix}", port)
    (tmp_path / "a.mp3").write_bytes(b"ID3")
    with pytest.raises(FormatError, match=r"\.wav"):
        _read(tmp_path / "a.mp3")
