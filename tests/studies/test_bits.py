"""Whose bits a device's output has: the emulator's, or those of float32 rounded (hexane.studies.verify)."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.studies.verify import AGAINST, FOR, NEUTRAL, _bits

OURS = np.arange(20, dtype=np.float16)
HOST = OURS.astype(np.float32)
HOST[:10] += 1
"""Ten of twenty values tell the one from the other."""


def device(ours: int, host: int) -> np.ndarray:
    """The first telling values are the emulator's, the next float32's, the rest neither's."""
    array = OURS.copy()
    array[ours:10] = 99
    array[ours : ours + host] = HOST[ours : ours + host]
    return array


@pytest.mark.parametrize(
    ("ours", "host", "speaks", "strong"),
    [
        (10, 0, FOR, True), (9, 0, FOR, False), (9, 1, FOR, False), (8, 1, NEUTRAL, False), (0, 0, NEUTRAL, False),
        (1, 8, NEUTRAL, False), (1, 9, AGAINST, False), (0, 10, AGAINST, True),
    ],
)  # fmt: skip
def test_nine_of_ten_telling_values_decide(ours, host, speaks, strong) -> None:
    check = _bits({"y": device(ours, host)}, {"y": OURS}, {"y": HOST})
    assert (check.speaks, check.strong) == (speaks, strong)
    assert f"{10 + ours} of 20 values have the emulator's bits; of 10 where" in check.text
    assert f"{ours} are the emulator's and {host} float32's" in check.text


def test_equal_emulations_tell_nothing() -> None:
    check = _bits({"y": device(3, 0), "z": OURS}, {"y": OURS, "z": OURS}, {"y": OURS, "z": OURS})
    assert check.speaks == NEUTRAL and not check.strong
    assert check.text == "33 of 40 values have the emulator's bits; " + check.text.partition("; ")[2]
    assert "tell nothing" in check.text
