"""Published measurements that the rules answer without a free parameter: ``python -m hexane.arithmetic.evidence``.

Every row states what was measured, on which chip and by whom, and computes the same number from the rules alone
(docs/reference/compressed.md 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexane.arithmetic.hypotheses import assume
from hexane.arithmetic.integer import mac_integer
from hexane.arithmetic.mac import mac

KEYS = 4096


@dataclass(frozen=True)
class EvidenceRow:
    """One published number and what the rules give for it; of a ``rival`` rule, that it gives something else."""

    what: str
    measured: str
    computed: str
    agrees: bool
    source: str
    rival: bool = False

    @property
    def verdict(self) -> str:
        return ("agrees" if self.agrees else "ruled out") if self.rival or self.agrees else "DIFFERS"


def located_dot() -> list[EvidenceRow]:
    """One dot of int8 weights whose sum, scale and result were published: which rounding rule gives it?"""
    # The sum is -2049 in units of 2^-8; any weights and activations with that sum give the same result.
    x = np.full((1, 17), 2.0**-8, np.float16)
    w = np.array([-127] * 16 + [16 * 127 - 2049], np.int8)[:, None]
    published = -0.05987548828125
    rows = []
    for rule in ("twice", "once"):
        with assume("integer-scale", rule):
            result = float(mac_integer(x, w, 0.0074768)[0, 0])
        rows.append(
            EvidenceRow(
                f"int8 dot, sum -2049/256, scale 0.0074768, rounded {rule}",
                f"{published}",
                f"{result}",
                result == published,
                "M5 Pro, cadamcat",
                rival=rule == "once",
            )
        )
    return rows


def equal_keys() -> list[EvidenceRow]:
    """P @ V over 4096 equal keys: the products are rounded to 2^-16 one by one."""
    rows = []
    for value, measured in ((0.0005, 0.67), (0.00025, 2.38)):
        v = np.full((KEYS, 1), value, np.float16)
        exact = float(v[0, 0])
        sums = float(mac(np.ones((1, KEYS), np.float16), v)[0, 0]) / KEYS
        error = abs(sums / exact - 1) * 100
        rows.append(
            EvidenceRow(
                f"P @ V, {KEYS} keys of {value}, P = 1, divided afterwards: relative error",
                f"{measured:.2f} %",
                f"{error:.3f} %",
                abs(error - measured) < 0.02,
                "M5 Pro, cadamcat",
            )
        )
        normalised = float(mac(np.full((1, KEYS), 1 / KEYS, np.float16), v)[0, 0])
        rows.append(
            EvidenceRow(
                f"P @ V, {KEYS} keys of {value}, P = 2^-12", "0", f"{normalised:g}", normalised == 0, "M5 Pro, cadamcat"
            )
        )
    return rows


def random_keys(seed: int = 0) -> list[EvidenceRow]:
    """The same with random keys at three scales of P: only the ratios can be compared, the spread was not published."""
    rng = np.random.default_rng(seed)
    v = rng.normal(0, 1, (KEYS, 256)).astype(np.float16)
    weights = (rng.uniform(0.5, 1.5, (16, KEYS)) / KEYS).astype(np.float16)
    exact = weights.astype(np.float64) @ v.astype(np.float64)
    errors = []
    for scale in (1, 16, 64):
        got = mac((weights.astype(np.float32) * scale).astype(np.float16), v).astype(np.float64) / scale
        errors.append(float(np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2))))
    measured = (3.95, 0.22, 0.060)
    ratio = [4.0 * error / errors[0] for error in errors]
    agrees = all(abs(a / b - 1) < 0.25 for a, b in zip(ratio[1:], measured[1:]))
    return [
        EvidenceRow(
            "P @ V, random keys, P about 2^-12 times 1, 16, 64: errors in proportion",
            " : ".join(f"{value:g}" for value in measured),
            " : ".join(f"{value:.3g}" for value in ratio),
            agrees,
            "M5 Pro, cadamcat",
        )
    ]


def rows() -> list[EvidenceRow]:
    """All of them."""
    return [*located_dot(), *equal_keys(), *random_keys()]


def main() -> None:
    for row in rows():
        print(f"{row.verdict:9}  {row.what}")
        print(f"           measured {row.measured}; from the rules {row.computed}  ({row.source})")


if __name__ == "__main__":
    main()
