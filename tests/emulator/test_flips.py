"""No side door: every bit of a program's text changes the output, is refused, or stands on the ignore-list."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from emulator import apple_programs, flips
from hexane.emulator import Program, emulate

PROGRAMS = {
    "unary_sigmoid_c64": 1.0,
    "binary_add_1x64x1x1": 1.0,
    "binary_real_div_1x64x1x1": 1.0,
    "conv_probe_k1_c64_n64_s1_st1_g1_bias0_same": 1.0,
    "rrmm_r2rr_m16_k64_n64_tx0_ty1": 1.0,
    "softmax_1x64x8x8": 8.0,
    "layer_norm_1x64x8x8": 0.02,
}
"""Programs, and the size of their inputs: so that small addends (bias, epsilon) can be seen in the result."""


def _load(shared: Path, name: str) -> tuple[Program, dict[str, np.ndarray]]:
    program = apple_programs.load(shared / "apple" / "h13" / f"{name}.json")
    inputs = {}
    for index, (key, values) in enumerate(program.inputs.items()):
        flat = (values.astype(np.float64) * PROGRAMS[name]).ravel()
        flat[index :: 2 + index] *= -1
        if key != "z":  # a divisor stays
            flat[::7] = 0
        flat[3::11] *= 2.0**-12
        inputs[key] = flat.astype(np.float16).reshape(values.shape)
    return Program.of(program.image()), inputs


def _outcomes(program: Program, inputs: dict[str, np.ndarray], chosen: list[flips.Flip]) -> Counter:
    normal = emulate(program, inputs)
    counts: Counter = Counter()
    for flip in chosen:
        outcome = flips.outcome(program, inputs, flip, normal)
        assert outcome != flips.SILENT, f"task[{flip.task}].{flip.name}, bit {flip.bit}: no effect, and no reason why"
        counts[outcome] += 1
    return counts


@pytest.mark.parametrize("name", PROGRAMS)
def test_sampled_bits(name: str, shared: Path) -> None:
    program, inputs = _load(shared, name)
    every = list(flips.flips(program))
    chosen = np.random.default_rng(0).choice(len(every), 250, replace=False)
    counts = _outcomes(program, inputs, [every[i] for i in chosen])
    assert counts[flips.REFUSED] > 50
    assert counts[flips.IGNORED] < 200


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_bit(name: str, shared: Path) -> None:
    program, inputs = _load(shared, name)
    counts = _outcomes(program, inputs, list(flips.flips(program)))
    assert counts[flips.CHANGED] > 0
