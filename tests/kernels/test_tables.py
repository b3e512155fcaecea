"""Look-up tables: bytes both ways, Apple's nine, and the ones that are exact."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.kernels import (
    LookupMode,
    LookupTable,
    clip_table,
    fraction_table,
    integer_table,
    is_zero_table,
    known_table,
    leaky_relu_table,
    less_than_zero_table,
    not_zero_table,
    sign_table,
    two_line_table,
)

EVERY = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = EVERY[np.isfinite(EVERY)]


@given(st.binary(min_size=128, max_size=128))
def test_any_128_bytes_are_a_table(data):
    table = LookupTable.from_bytes(data)
    assert table.to_bytes() == bytes(table) == data
    assert np.asarray(table).astype("<u2").tobytes() == data
    assert str(table)


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=82, max_size=82), st.sampled_from(LookupMode), st.integers(0, 64))
def test_parts_come_back(data, mode, m):
    numbers = np.nan_to_num(np.frombuffer(data, "<f2"), nan=0.0, posinf=np.inf, neginf=-np.inf).tolist()
    nodes, (a, b, c, d) = numbers[:33], numbers[33:37]
    parts = {"lower": a, "upper": b, "below": c, "above": d}
    lines = {"low_line": tuple(numbers[37:39]), "high_line": tuple(numbers[39:])}
    table = LookupTable.build(mode, nodes=nodes, spacing_log2=m, **parts, **lines)
    again = LookupTable.from_bytes(table.to_bytes())
    assert again == table
    assert again.nodes.tolist() == nodes
    assert again.mode is mode
    assert again.spacing_log2 == m
    assert all(getattr(again, name) == value for name, value in (parts | lines).items())


def test_apples_tables(facts):
    record = json.loads((facts / "numerics" / "luts.json").read_text())
    assert len(record["tables"]) == 9
    for name, row in record["tables"].items():
        table = known_table(name)
        assert hashlib.sha256(table.to_bytes()).hexdigest() == row["sha256"]
        assert table.mode == int(row["mode"], 16)
        assert table.nodes.astype(float).tolist() == row["nodes"]
        assert table.low_line == tuple(row["low_line"])
        assert table.high_line == tuple(row["high_line"])
        assert -table.spacing_log2 == row["spacing_log2"]


def test_tables_that_nobody_published():
    with pytest.raises(UnsupportedError):
        known_table("erf")
    for length in (0, 127, 129):
        with pytest.raises(FormatError):
            LookupTable.from_bytes(bytes(length))
    with pytest.raises(UsageError):
        LookupTable.build(LookupMode.CENTRED, nodes=[0.0] * 32)


def check(table: LookupTable, expected: np.ndarray, x: np.ndarray = FINITE) -> None:
    """The engine's result equals the exact value rounded once (half away); the sign of zero does not count."""
    from hexane.arithmetic.formats import round_half_away

    assert np.array_equal(table(x), round_half_away(expected))


@pytest.mark.parametrize(
    "limits", [(0.5, np.inf), (-0.5, np.inf), (-np.inf, 3.0), (-np.inf, -3.0), (-1.0, 6.0), (0, 6)]
)
def test_clip_is_exact(limits):
    check(clip_table(*limits), np.clip(FINITE.astype(float), *limits))


def test_steps_are_exact():
    x = FINITE.astype(float)
    check(less_than_zero_table(), x < 0)
    check(not_zero_table(), x != 0)
    check(is_zero_table(), x == 0)
    check(sign_table(), np.sign(x))


def test_straight_pieces_are_exact():
    x = FINITE.astype(float)
    alpha = float(np.float16(0.1))
    check(leaky_relu_table(alpha), np.where(x < 0, alpha * x, x))
    slope = float(np.float16(0.2))
    hard_sigmoid = two_line_table((slope, 0.5), (slope, 0.5), lower=-2.5, below=0.0, upper=2.5, above=1.0)
    check(hard_sigmoid, np.where(np.abs(x) < 2.5, slope * x + 0.5, x > 0))


def test_parts_of_a_number_are_exact():
    x = FINITE.astype(float)
    check(integer_table(), np.trunc(x))
    check(fraction_table(), x - np.trunc(x))
