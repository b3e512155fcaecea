"""No side door: every bit of a program's text changes the output, is refused, or stands on the ignore-list."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from emulator import apple_programs, flips
from hexane.emulator import EmulatedProgram, emulate

PROGRAMS = {
    "h13/unary_sigmoid_c64": [(1.0, 0.0)],
    "h13/binary_add_1x64x1x1": [(1.0, 0.0)],
    "h13/binary_real_div_1x64x1x1": [(1.0, 0.0)],
    "h13/conv_probe_k1_c64_n64_s1_st1_g1_bias0_same": [(1.0, 0.0)],
    "h13/rrmm_r2rr_m16_k64_n64_tx0_ty1": [(1.0, 0.0)],
    "h13/softmax_1x64x8x8": [(8.0, 0.0), (1.0, -4.0)],
    "h13/layer_norm_1x64x8x8": [(0.003, 0.004), (1.0, 0.7), (0.3, 0.0), (2.5, 0.7)],
    "more/h14/softmax_1x64x8x8": [(8.0, 0.0), (1.0, -4.0)],
    "more/h14/norm_layer_norm_ax1_2_3_1x64x8x8": [(0.003, 0.004), (1.0, 0.7)],
    "more/h14/gabmm_r4_m1_k128_n128_tx0_ty0_b16": [(1.0, 0.0)],
    "more/h14/conv_probe_k3_c64_n64_s1_st1_g1_bias0_same": [(1.0, 0.0)],
    "more/h15/binary_real_div_1x64x1x1": [(1.0, 0.0)],
    "more/h15/env_bcast_add_1x64x16x16_blob_1x64x1x1": [(1.0, 0.0)],
    "more/h15/matmul_m2_k256_n256_ty1": [(1.0, 0.0)],
    "more/h16/binary_pow_1x64x1x1": [(1.0, 0.0)],
    "more/h16/env_bcast_add_1x64x16x16_scalar": [(1.0, 0.0)],
    "more/h16/matmul_m1_k256_n256_ty1": [(1.0, 0.0)],
    "more/h16g/conv_probe_k3_c64_n64_s64_st1_g64_bias0_same": [(1.0, 0.0)],
}
"""Programs, and size and offset of the inputs to try in turn: so that small addends (bias, epsilon) can be seen, and
the last bits of factors."""

NEVER_NEGATIVE = {(5, "L2.L2Cfg.Src2ReLU"), (5, "PE.Cfg.ReluEn"), (5, "PE.Cfg.Cond")}
"""ReLU and abs in the last task of a softmax, exp(x) * (1 / sum): no input makes a negative number there."""

Cases = list[tuple[flips.Arrays, flips.Arrays]]


def _load(facts: Path, name: str) -> tuple[EmulatedProgram, Cases]:
    path = facts / "apple" / f"{name}.json"
    program = apple_programs.load(path).program()
    cases = []
    for seed, (size, offset) in enumerate(PROGRAMS[name]):
        inputs = {}
        for index, (key, values) in enumerate(apple_programs.load(path, seed).inputs.items()):
            flat = (values.astype(np.float64) * size).ravel()
            flat[index :: 2 + index] *= -1
            if key != "z":  # a divisor stays
                flat[::7] = 0
            flat[3::11] *= 2.0**-12
            inputs[key] = (flat + offset).astype(np.float16).reshape(values.shape)
        cases.append((inputs, emulate(program, inputs)))
    return program, cases


def _outcomes(program: EmulatedProgram, cases: Cases, chosen: list[flips.Flip]) -> Counter:
    counts: Counter = Counter()
    for flip in chosen:
        outcome = flips.outcome(program, cases, flip)
        if outcome == flips.SILENT and (flip.task, flip.name) in NEVER_NEGATIVE:
            continue
        assert outcome != flips.SILENT, f"task[{flip.task}].{flip.name}, bit {flip.bit}: no effect, and no reason why"
        counts[outcome] += 1
    return counts


@pytest.mark.parametrize("name", PROGRAMS)
def test_sampled_bits(name: str, facts: Path) -> None:
    program, cases = _load(facts, name)
    every = list(flips.flips(program))
    chosen = np.random.default_rng(0).choice(len(every), 120, replace=False)
    counts = _outcomes(program, cases, [every[i] for i in chosen])
    assert counts[flips.REFUSED] > 24
    assert counts[flips.IGNORED] < (96 if name.startswith("h13") else 108)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_bit(name: str, facts: Path) -> None:
    program, cases = _load(facts, name)
    counts = _outcomes(program, cases, list(flips.flips(program)))
    assert counts[flips.CHANGED] > 0
