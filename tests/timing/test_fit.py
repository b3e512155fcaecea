"""The loss that the constants are fitted with, and the widths of what they leave."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from hexane.timing import fit, scatter


def test_the_loss_has_the_derivatives_that_it_states() -> None:
    z, h = np.array([0.0, 0.3, 2.0, 40.0]), 1e-4
    loss, first, second = fit._cauchy(z)
    above, below = fit._cauchy(z + h), fit._cauchy(z - h)
    np.testing.assert_allclose(first, (above[0] - below[0]) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(second, (above[1] - below[1]) / (2 * h), rtol=1e-6)
    assert loss[0] == 0 and first[0] == 1


@pytest.mark.parametrize("hundredths", [90, 93, 100, 107, 121, 130])
def test_widths_that_are_off_by_hundredths_are_put_right(hundredths: int) -> None:
    normal = np.array([NormalDist().inv_cdf((i + 0.5) / 4000) for i in range(4000)])
    assert scatter._balance(normal * hundredths / 100) == pytest.approx(hundredths / 100, abs=1e-9)
