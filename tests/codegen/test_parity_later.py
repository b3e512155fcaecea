"""H14 and later, word for word: how many of Apple's decoded programs come out, and which do not, each with its reason.

A program that is not named in ``APART`` and differs is a failure; so is one that is named and does not differ any more.
"""

from __future__ import annotations

import pytest

from codegen.programs import converter, differences, every_program, expected_tasks, graph_of, load, made_tasks
from conftest import SHARED
from hexane.errors import HexaneError

APART: dict[str, dict[str, str]] = {
    "h14": {
        "chain_ffn_d256_s64": "first product of a pair starts behind the copy; seen once",
        "env_chain_creadout_h16_s128": "a chain of elementwise tasks stays in L2",
        "env_mm_r2rr_m16_k2048_n2048_tx0_ty1": "a transposed second operand goes through scratch",
        "gabmm_r3_m375_k128_n749_tx0_ty0_b16": "one product for all batches",
        "gabmm_r3_m375_k128_n749_tx0_ty0_b2": "one product for all batches",
        "gabmm_r3_m375_k128_n749_tx0_ty1_b8": "one product for all batches",
        "gabmm_r4_m128_k1_n128_tx1_ty1_b16": "one product for all batches",
        "gabmm_r4_m1_k128_n128_tx0_ty0_b16": "one product for all batches",
        "garms_chain_c128": "a chain of elementwise tasks stays in L2",
        "garms_chain_c2048_gamma": "a chain of elementwise tasks stays in L2",
        "gasel_rrb_1x8x375x375": "the condition is kept and read again, results interleaved by eight",
        "norm_layer_norm_ax1_1x32x4x4": "difference kept and turned: six tasks",
        "norm_layer_norm_ax1_2_3_1x8x1x64": "patch of the deviation over 8 x 64",
        "env_mm_r2rr_m16_k2048_n2048_tx0_ty0": "distance between passes of sixteen cores",
    },
}
TARGETS = {target: every_program(SHARED / "apple", target) for target in APART}


@pytest.mark.parametrize("target", APART)
def test_words_equal_apples(target):
    paths = TARGETS[target]
    if not paths:
        pytest.skip("shared data not present")
    to_mil = converter(paths[0])
    apart = []
    for path in paths:
        program = load(path)
        try:
            tasks = made_tasks(graph_of(program, to_mil), target)
        except HexaneError:
            apart.append(path.stem)
            continue
        if differences(tasks, expected_tasks(program)):
            apart.append(path.stem)
    assert apart == sorted(APART[target])
