"""A missing wait is an error: Apple's programs have none, and each kind of wait taken away is noticed."""

from __future__ import annotations

import pytest

from facts import fact_files
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
    "a second operand of H14 follows": ("apple/more/h14", "garms_chain_c128", 2,
                                        "L2.SourceCfg.Src2Dependent", "L2.Src2Base.Addr"),
}  # fmt: skip


def _tasks(folder: str, name: str) -> list[isa.Task]:
    (path,) = fact_files(f"{folder}/{name}.json")
    return apple.tasks(apple.load(path))


def test_programs_of_apples_compiler_have_no_hazard() -> None:
    found: dict[str, list[EmulationError]] = {}
    unread = 0
    for path in fact_files("apple/**/h1*/*.json"):
        tasks = apple.tasks(apple.load(path))
        try:
            found[f"{path.parent}/{path.stem}"] = hazards(tasks)
        except EmulationError:
            unread += 1  # most H18 programs have a format that the emulator does not know
    assert {name: errors for name, errors in found.items() if errors} == {}
    assert len(found) >= 587 and unread <= 58


@pytest.mark.parametrize("case", CLEARED)
def test_a_wait_that_is_taken_away_is_a_hazard(case: str) -> None:
    folder, name, index, cleared, register = CLEARED[case]
    tasks = _tasks(folder, name)
    assert tasks[index].get(cleared)
    tasks[index].set(cleared, 0)
    first = hazards(tasks)[0]
    assert (first.task, first.register) == (index, register)


def test_a_wait_for_too_early_a_reader_is_a_hazard() -> None:
    tasks = _tasks("apple/h13", "chain_attn_s64_dh64")
    tasks[7].set("TileDMADst.DMAConfig.DependencyInterval", 5)
    assert [(error.task, error.register) for error in hazards(tasks)] == [(7, "TileDMADst.DMAConfig.DependencyMode")]


@pytest.mark.parametrize(("name", "value"), [
    ("L2.SourceCfg.Dependent", 1), ("L2.SourceCfg.Dependent", 2),
    ("TileDMASrc.DMAConfig.DependencyMode", 1), ("TileDMADst.DMAConfig.DependencyMode", 2),
])  # fmt: skip
def test_the_first_task_has_nobody_to_follow(name: str, value: int) -> None:
    tasks = _tasks("apple/h13", "unary_relu_c64")
    assert hazards(tasks) == []
    tasks[0].set(name, value)
    assert [(error.task, error.register) for error in hazards(tasks)] == [(0, name)]


def test_strips_of_nobody_are_waited_for_by_nobody() -> None:
    """A list that begins with the task that takes strips, as one that is cut out of a program."""
    tasks = _tasks("apple/h13", "softmax_1x8x375x375")[2:]
    assert tasks[0].get("L2.SourceCfg.SourceType") == 3 and hazards(tasks) == []
