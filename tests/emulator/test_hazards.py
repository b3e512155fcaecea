"""A missing wait is an error: Apple's programs have none, and each kind of wait taken away is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import shared_params
from hexane import isa
from hexane.emulator.hazards import hazards
from hexane.errors import EmulationError
from kernels import apple

CLEARED = {
    "a resident source waits for the other unit": ("apple/h13", "norm_layer_norm_ax3_1x128x16x16", 1,
                                                   "L2.SourceCfg.AliasConvRslt", "L2.SourceBase.Addr"),
    "a resident source waits for its own unit": ("apple/h13", "binary_pow_1x64x8x8", 2,
                                                 "L2.SourceCfg.AliasConvRslt", "L2.SourceBase.Addr"),
    "a second operand waits": ("apple/h13", "binary_real_div_1x64x1x1", 1,
                               "L2.SourceCfg.AliasConvRslt", "L2.Src2Base.Addr"),
    "a locked task follows": ("apple/h13", "chain_lnproj_d256_s64", 3,
                              "L2.SourceCfg.Dependent", "L2.SourceBase.Addr"),
    "a result waits for the other unit's source": ("apple/h13", "candidate_select_rrb_1x1024x375_bcast_cond", 2,
                                                   "L2.ResultCfg.AliasPlanarSrc", "L2.ResultBase.Addr"),
    "scratch is read behind its writer": ("apple/h13", "softmax_1x8x375x375", 3,
                                          "TileDMASrc.DMAConfig.DependencyMode",
                                          "TileDMASrc.DMAConfig.DependencyMode"),
    "scratch is written behind its reader": ("apple/h13", "chain_attn_s64_dh64", 7,
                                             "TileDMADst.DMAConfig.DependencyMode",
                                             "TileDMADst.DMAConfig.DependencyMode"),
    "a second operand of H14 follows": ("apple/*h14", "garms_chain_c128", 2,
                                        "L2.SourceCfg.Src2Dependent", "L2.Src2Base.Addr"),
}  # fmt: skip


def _tasks(shared: Path, name: str) -> list[isa.Task]:
    return apple.tasks(apple.load(next(shared.glob(f"apple/**/{name}.json"))))


@pytest.mark.parametrize("path", shared_params("apple/**/h1*/*.json"))
def test_programs_of_apples_compiler_have_no_hazard(path: Path) -> None:
    try:
        tasks = apple.tasks(apple.load(path))
        found = hazards(tasks)
    except EmulationError as error:
        pytest.skip(f"the emulator does not read it: {error}")
    assert found == []


@pytest.mark.parametrize("case", CLEARED)
def test_a_wait_that_is_taken_away_is_a_hazard(case: str, shared: Path) -> None:
    _, name, index, cleared, register = CLEARED[case]
    tasks = _tasks(shared, name)
    assert tasks[index].get(cleared)
    tasks[index].set(cleared, 0)
    first = hazards(tasks)[0]
    assert (first.task, first.register) == (index, register)


def test_a_wait_for_too_early_a_reader_is_a_hazard(shared: Path) -> None:
    tasks = _tasks(shared, "chain_attn_s64_dh64")
    tasks[7].set("TileDMADst.DMAConfig.DependencyInterval", 5)
    assert [(error.task, error.register) for error in hazards(tasks)] == [(7, "TileDMADst.DMAConfig.DependencyMode")]
