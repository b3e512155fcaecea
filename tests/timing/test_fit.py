"""The loss that the constants are fitted with."""

from __future__ import annotations

import numpy as np

from hexane.timing import fit


def test_the_loss_has_the_derivatives_that_it_states() -> None:
    z, h = np.array([0.0, 0.3, 2.0, 40.0]), 1e-4
    loss, first, second = fit._cauchy(z)
    above, below = fit._cauchy(z + h), fit._cauchy(z - h)
    np.testing.assert_allclose(first, (above[0] - below[0]) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(second, (above[1] - below[1]) / (2 * h), rtol=1e-6)
    assert loss[0] == 0 and first[0] == 1
