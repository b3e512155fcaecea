"""Numbers in blobs of weights: bits of types that NumPy lacks, as ml_dtypes has them; packed integers by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.errors import FormatError
from hexane.formats.blob import BlobFile, BlobWriter, decode, encode
from hexane.graph.types import TensorType

ml_dtypes = pytest.importorskip("ml_dtypes")
FP8 = {"fp8e4m3fn": ml_dtypes.float8_e4m3fn, "fp8e5m2": ml_dtypes.float8_e5m2}


def test_errors_call_a_file_by_its_name():
    two = TensorType("fp16", (2,))
    writer = BlobWriter()
    first = writer.add(np.ones(2, np.float16), two)
    whole = writer.to_bytes()
    record = whole[first:]
    for content, offset, type_ in (
        (whole[:10], first, two),
        (bytes(len(whole)), first, two),
        (whole, len(whole), two),
        (whole, first + 1, two),
        (whole[:first] + record[:8] + bytes([255] * 8) + record[16:], first, two),
        (whole, first, TensorType("fp16", (3,))),
    ):
        with pytest.raises(FormatError) as caught:
            BlobFile(content, name="layer.bin").read(offset, type_)
        assert caught.value.where.startswith("layer.bin")


def test_bf16_is_rounded_to_nearest_and_ties_to_even():
    """Every bf16 with every kind of rest behind it, infinities and numbers that round up to them, too."""
    high = np.arange(1 << 16, dtype=np.uint32)[:, None] << 16
    values = (high | np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)).view(np.float32).ravel()
    bits = np.frombuffer(encode(values, "bf16"), "<u2")
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(bits[numbers], values[numbers].astype(ml_dtypes.bfloat16).view(np.uint16))
    assert np.isnan(bits[~numbers].view(ml_dtypes.bfloat16).astype(np.float32)).all()


@pytest.mark.parametrize("name", FP8)
def test_fp8_is_rounded_to_nearest_and_ties_to_even(name):
    """Every number, the middle between each two, and what lies beside the middle, with both signs."""
    known = np.arange(256, dtype=np.uint8).view(FP8[name]).astype(np.float32)
    finite = np.sort(known[np.isfinite(known) & ~np.signbit(known)])
    middle = (finite[:-1] + finite[1:]) / 2
    values = np.concatenate([finite, middle, np.nextafter(middle, 0), np.nextafter(middle, 1e9, dtype=np.float32)])
    values = np.concatenate([values, -values]).astype(np.float32)
    np.testing.assert_array_equal(
        np.frombuffer(encode(values, name), np.uint8), values.astype(FP8[name]).view(np.uint8)
    )
    largest = encode(np.float32([1e9, -1e9, np.nan]), name)
    assert decode(np.frombuffer(largest, np.uint8), TensorType(name, (3,))).tolist()[:2] == [finite[-1], -finite[-1]]
    assert np.isnan(decode(np.frombuffer(largest, np.uint8), TensorType(name, (3,)))[2])
    decoded = decode(np.arange(256, dtype=np.uint8), TensorType(name, (256,)))
    np.testing.assert_array_equal(decoded, known)


@pytest.mark.parametrize(
    ("name", "numbers", "content"),
    [
        ("uint4", [1, 2, 15], "210f"), ("int4", [1, -1, -8], "f108"), ("uint2", [1, 2, 3, 0, 3], "3903"),
        ("uint1", [1, 0, 1, 1, 0, 0, 0, 0, 1], "0d01"), ("uint3", [1, 2, 7], "d101"), ("uint6", [1, 63], "c10f"),
        ("int8", [1, -1], "01ff"), ("uint16", [1, 0x1234], "01003412"), ("fp16", [1.0, -2.0], "003c00c0"),
        ("fp32", [1.0], "0000803f"), ("int32", [-2], "feffffff"), ("bf16", [1.0, -2.0], "803f00c0"),
    ],
)  # fmt: skip
def test_packed_from_the_lowest_bit_on(name, numbers, content):
    array = np.array(numbers)
    assert encode(array, name).hex() == content
    type_ = TensorType(name, array.shape)
    np.testing.assert_array_equal(decode(np.frombuffer(bytes.fromhex(content), np.uint8), type_), array)
