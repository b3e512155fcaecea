"""Damaged programs give a result or an error of hexane's own, never anything else."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emulator import apple_programs
from hexane.emulator import EmulatedProgram, emulate
from hexane.emulator.program import _elements
from hexane.errors import HexaneError, UsageError
from hexane.image import Surface

PROGRAMS = [
    "binary_pow_1x64x8x8",
    "chain_attn_s64_dh64",
    "conv_probe_k1_c64_n64_s16_st2_g1_bias0_same",
    "conv_probe_k3_c64_n64_s8_st1_g1_bias0_same",
    "encoder_conv_idx_c8_n8_k1x1_s1_g8_bias0_valid_tiny",
    "env_bcast_add_2x64x8x8_runtime_1x64x1x1",
    "layer_norm_1x64x8x8",
    "reduce_mean_axes_1",
    "rrmm_r2rr_m64_k64_n64_tx0_ty0",
    "softmax_1x64x8x8",
    "unary_relu_c64",
]


def _damage(text: bytes, rng: np.random.Generator) -> bytes:
    """One to three words with a bit flipped or another value."""
    damaged = bytearray(text)
    for _ in range(rng.integers(1, 4)):
        place = 4 * int(rng.integers(len(damaged) // 4))
        (word,) = struct.unpack_from("<I", damaged, place)
        extremes = (0, 1, 0x40, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, int(rng.integers(2**32)))
        value = word ^ 1 << int(rng.integers(32)) if rng.random() < 0.6 else extremes[rng.integers(len(extremes))]
        struct.pack_into("<I", damaged, place, value)
    return bytes(damaged)


def _fuzz(facts: Path, name: str, count: int) -> int:
    program = apple_programs.load(facts / "apple" / "h13" / f"{name}.json")
    normal = replace(EmulatedProgram.of(program.image()), first_words=None, task_count=None)
    rng = np.random.default_rng(len(name))
    refused = 0
    for _ in range(count):
        try:
            emulate(replace(normal, text=_damage(normal.text, rng)), program.inputs, sanitize=bool(rng.random() < 0.7))
        except HexaneError:
            refused += 1
    return refused


@pytest.mark.parametrize("name", PROGRAMS)
def test_damaged_text(name: str, facts: Path) -> None:
    assert _fuzz(facts, name, 25) > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_much_damaged_text(name: str, facts: Path) -> None:
    assert _fuzz(facts, name, 1000) > 300


def test_the_step_of_a_single_element_may_be_any_number() -> None:
    """An axis of one element has no step; a damaged one was an error of NumPy's."""
    surface = Surface("x", "input", (1, 3, 1, 1), strides=(192, 64, 64, (1 << 64) - 2))
    elements = _elements(surface, np.arange(192, dtype=np.uint8))
    assert elements.shape == (1, 3, 1, 1) and elements.view(np.uint16).ravel().tolist() == [0x100, 0x4140, 0x8180]
    with pytest.raises(UsageError, match="elements in"):
        _elements(Surface("x", "input", (1, 1 << 40, 1, 1), strides=(0, 0, 0, 0)), np.zeros(64, np.uint8))
