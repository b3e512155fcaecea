"""Numbers of 19 bits: the nearest, and of two that are as near the one with an even last bit."""

from __future__ import annotations

from fractions import Fraction

import pytest

from hexane.isa.numbers import f19_bits, f19_value


@pytest.mark.parametrize("exponent", [-20, -1, 0, 7])
@pytest.mark.parametrize("last", [0, 1, 2, 3, 1022, 1023])
def test_ties_go_to_the_even_neighbour(exponent: int, last: int) -> None:
    scale = Fraction(2) ** exponent
    low, high = (float((1 + Fraction(last + step, 1024)) * scale) for step in (0, 1))
    middle = (low + high) / 2
    wanted = low if last % 2 == 0 else high
    assert f19_value(f19_bits(middle)) == wanted
    assert f19_value(f19_bits(-middle)) == -wanted
    just = (high - low) / 1024
    assert f19_value(f19_bits(middle - just)) == low and f19_value(f19_bits(middle + just)) == high
