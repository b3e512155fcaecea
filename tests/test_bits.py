"""float32 to fp16, held against NumPy's own cast."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.bits import in_dtype

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
with np.errstate(all="ignore"):
    EDGES = np.concatenate([
        HALVES,
        (HALVES[1:] + HALVES[:-1]) / 2,  # ties
        np.nextafter(HALVES, np.float32(np.inf)),
        np.nextafter(HALVES, np.float32(-np.inf)),
        np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, dtype=np.uint32).view(np.float32),
    ])  # fmt: skip


@pytest.mark.parametrize("share", [0, 1, 64], ids=["few", "all", "among-ones"])
def test_fp16_is_numpys(share: int) -> None:
    """Where most numbers fit and where few do; the bits of zeros and NaN too."""
    numbers = EDGES if share < 2 else np.concatenate([np.ones(share * EDGES.size // 4, np.float32), EDGES])
    numbers = numbers if share else np.concatenate([numbers[np.abs(numbers) < 1e-5], -(2.0 ** np.arange(-40, 0))])
    numbers = numbers.astype(np.float32)
    with np.errstate(all="ignore"):
        expected = numbers.astype(np.float16)
    np.testing.assert_array_equal(in_dtype(numbers, np.dtype(np.float16)).view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("number", [1e-6, 1e6, -0.0, np.inf])
def test_a_single_number_stays_an_array(number: float) -> None:
    single = in_dtype(np.array(number, np.float32), np.dtype(np.float16))
    assert (
        isinstance(single, np.ndarray)
        and single.shape == ()
        and single == np.float16(np.inf if number > 65504 else number)
    )


def test_no_numbers() -> None:
    assert in_dtype(np.zeros((0, 3), np.float32), np.dtype(np.float16)).shape == (0, 3)
