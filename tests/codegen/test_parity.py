"""Today's compiler, word for word: every decoded H13 program that the specification does not name as a misfit."""

from __future__ import annotations

import hashlib

import pytest

import hexane
from codegen.programs import converter, differences, expected_tasks, graph_of, load
from conftest import shared_files, shared_params

MISFITS = {
    "conv_probe_k3_c256_n256_s16_st1_g1_bias0_same": "§4.3.1: work-unit shape of a block of c256 3x3 at 16x16",
    "conv_probe_k3_c256_n256_s32_st1_g1_bias0_same": "§7.2: row pad of the kept source of c256 3x3 at 32x32",
    "conv_probe_k3_c256_n256_s64_st1_g1_bias0_same": "§7.5: width ring and half a map of c256 3x3 at 64x64",
    "encoder_conv_pad_c8_n8_k1x1_s1_g8_bias0_p0010_f4": "§4.3.1: work-unit shape of a one-hot padding task",
    "encoder_slice_lastdim": "§4.3.1: work-unit shape of the crop of 749 to 375 columns",
    "env_mm_r2rr_m128_k2048_n2048_tx0_ty1": "§4.3: DPE category 7 of two long tasks",
    "reduce_max_axes_2_3": "§16: duration of a maximum over 8x8",
    "reduce_probe_max_ax3_1x1x1x512": "§4.3.2, §7.1: patch and channel stride of a maximum over 1x512",
}
"""Programs whose words differ only where the specification names a misfit; they are compiled and run all the same."""


@pytest.mark.parametrize("path", shared_params("apple/h13/*.json"))
def test_words_equal_apples(path):
    program = load(path)
    compiled = hexane.compile(graph_of(program, converter(path)))
    assert [segment.kind for segment in compiled.segments] == ["engine"]
    image = compiled.images[0]
    found = differences(image.tasks, expected_tasks(program))
    if path.stem in MISFITS:
        assert found, f"no misfit any more: {MISFITS[path.stem]}"
        return
    assert not found
    section = program["constant_section"]
    if section["sha256"]:
        assert hashlib.sha256(image.section("__TEXT", "__const")).hexdigest() == section["sha256"]
    assert surfaces_of(image) == {t["name"]: recorded(t) for t in program["tensors"]}


def surfaces_of(image):
    return {s.label: (s.role, s.channel, s.strides[2], s.bytes_per_batch) for s in image.surfaces}


def recorded(tensor):
    return (tensor["role"], tensor["channel"], tensor["strides"]["row"], tensor["bytes"])


def test_enough_programs():
    files = shared_files("apple/h13/*.json")
    if not files:
        pytest.skip("shared data not present")
    assert len(files) - len(MISFITS) >= 130
