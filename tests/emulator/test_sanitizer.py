"""For each check one real program mutated so that it must trip: caught, with task, register and byte address."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import hexane
from emulator import apple_programs
from hexane import isa
from hexane.emulator import EmulatedProgram, emulate, run
from hexane.errors import EmulationError, HexaneError, UsageError

Change = Callable[[list[isa.Task]], None]


def _set(index: int, **values: int) -> Change:
    def change(tasks: list[isa.Task]) -> None:
        for name, value in values.items():
            tasks[index].set(name.replace("__", "."), value)

    return change


@dataclass(frozen=True)
class Mutation:
    """What is changed in which program, and what the error must name."""

    program: str
    change: Change
    task: int | None
    register: str
    address: bool = False


def _relink(index: int, target: int) -> Change:
    return _set(index, **{"Header[7]__NextPointer": target})


MUTATIONS = {
    "DMA reads beyond its buffer": Mutation(
        "unary_relu_c64", _set(0, TileDMASrc__PlaneStride__PlaneStride=2), 0, "TileDMASrc.BaseAddr.Addr", True
    ),
    "second DMA reads beyond its buffer": Mutation(
        "binary_add_1x64x1x1", _set(0, TileDMASrc__Src2BaseAddr__Addr=9), 0, "TileDMASrc.Src2BaseAddr.Addr", True
    ),
    "DMA writes beyond its buffer": Mutation(
        "unary_relu_c64", _set(0, TileDMADst__BaseAddr__Addr=1), 0, "TileDMADst.BaseAddr.Addr", True
    ),
    "DMA writes over itself": Mutation(
        "unary_relu_c64", _set(0, TileDMADst__PlaneStride__PlaneStride=0), 0, "TileDMADst.PlaneStride.PlaneStride", True
    ),
    "DMA writes over constants": Mutation("unary_relu_c64", _set(0, **{"Header[8]__WBase": 1}), 0, "Header[8].WBase"),
    "channel without a buffer": Mutation("unary_relu_c64", _set(0, **{"Header[8]__RBase0": 9}), 0, "Header[8].RBase0"),
    "scratch read before it is written": Mutation(
        "rrmm_r2rr_m64_k64_n64_tx0_ty0",
        _set(0, TileDMADst__BaseAddr__Addr=1),
        1,
        "KernelDMASrc.CoeffBaseAddr[0].Addr",
        True,
    ),
    "kernel from scratch that nobody wrote": Mutation(
        "rrmm_r2rr_m64_k64_n64_tx0_ty0", _set(1, **{"Header[10]__DTID": 1}), 1, "Header[10].DTID"
    ),
    "L2 read of what no task wrote": Mutation(
        "softmax_1x64x8x8", _set(1, L2__SourceBase__Addr=0x18000), 1, "L2.SourceBase.Addr", True
    ),
    "L2 read of second operand that no task wrote": Mutation(
        "softmax_1x64x8x8", _set(2, L2__Src2Base__Addr=0x18000), 2, "L2.Src2Base.Addr", True
    ),
    "L2 read of what only streamed through": Mutation(
        "softmax_1x64x8x8", _set(1, L2__SourceBase__Addr=0x210), 1, "L2.SourceBase.Addr", True
    ),
    "L2 source beyond capacity": Mutation(
        "unary_relu_c64", _set(0, L2__SourceBase__Addr=0x1FFF0), 0, "L2.SourceBase.Addr", True
    ),
    "L2 result beyond capacity": Mutation(
        "softmax_1x64x8x8", _set(0, L2__ResultBase__Addr=0x1FFFF), 0, "L2.ResultBase.Addr", True
    ),
    "L2 result over itself": Mutation(
        "softmax_1x64x8x8", _set(0, L2__ConvResultChannelStride__Stride=0), 0, "L2.ResultBase.Addr", True
    ),
    "kernel larger than the cores consume": Mutation(
        "conv_probe_k1_c64_n64_s1_st1_g1_bias0_same",
        _set(0, **{"KernelDMASrc__CoeffBfrSize[3]__MemBfrSize": 9}),
        0,
        "KernelDMASrc.CoeffBfrSize[3].MemBfrSize",
        True,
    ),
    "kernel smaller than the cores consume": Mutation(
        "conv_probe_k1_c64_n64_s1_st1_g1_bias0_same",
        _set(0, **{"KernelDMASrc__CoeffBfrSize[3]__MemBfrSize": 7}),
        0,
        "KernelDMASrc.CoeffBfrSize[0].MemBfrSize",
    ),
    "table larger than the cores consume": Mutation(
        "unary_sigmoid_c64",
        _set(0, **{"KernelDMASrc__CoeffBfrSize[0]__MemBfrSize": 3}),
        0,
        "KernelDMASrc.CoeffBfrSize[0].MemBfrSize",
        True,
    ),
    "kernel beyond the constants": Mutation(
        "conv_probe_k1_c64_n64_s1_st1_g1_bias0_same",
        _set(0, **{"KernelDMASrc__CoeffBaseAddr[15]__Addr": 0x1000}),
        0,
        "KernelDMASrc.CoeffBaseAddr[15].Addr",
        True,
    ),
    "core without a stream": Mutation(
        "unary_sigmoid_c64",
        _set(0, **{"KernelDMASrc__CoeffDMAConfig[5]__En": 0}),
        0,
        "KernelDMASrc.CoeffDMAConfig[5].En",
    ),
    "link outside the text": Mutation("softmax_1x64x8x8", _relink(0, 0x10000), 0, "Header[7].NextPointer", True),
    "link between two tasks": Mutation("softmax_1x64x8x8", _relink(0, 0x240), 0, "Header[7].NextPointer", True),
    "link back to an earlier task": Mutation("softmax_1x64x8x8", _relink(3, 0x200), 4, "Header[0].TID"),
    "size that is not the next task's": Mutation(
        "softmax_1x64x8x8", _set(0, **{"Header[1]__NextSize": 0x7E}), 1, "Header[1].NextSize", True
    ),
    "wrong task number": Mutation("softmax_1x64x8x8", _set(2, **{"Header[0]__TID": 5}), 2, "Header[0].TID"),
    "second task marked first": Mutation("softmax_1x64x8x8", _set(1, **{"Header[0]__LNID": 0}), 1, "Header[0].LNID"),
    "end of chain too early": Mutation("softmax_1x64x8x8", _set(2, **{"Header[0]__EON": 1}), 2, "Header[8].TBE"),
    "rows cut although L2 has room for them": Mutation(
        "conv_probe_k1_c64_n64_s32_st1_g1_bias0_same",
        _set(0, L2__SourceChannelStride__Stride=2),
        0,
        "L2.SourceChannelStride.Stride",
        True,
    ),
    "window of no column": Mutation(
        "unary_relu_c64", _set(0, L2__SourceChannelStride__Stride=0), 0, "L2.SourceChannelStride.Stride", True
    ),
    "window narrower than any of Apple's": Mutation(
        "reduce_probe_max_ax3_1x1x1x512",
        _set(0, L2__SourceChannelStride__Stride=1),
        0,
        "L2.SourceChannelStride.Stride",
        True,
    ),
    "size 0": Mutation("unary_relu_c64", _set(0, Common__InDepth__Din=0), 0, "Common.InDepth.Din"),
    "tile height 0": Mutation("unary_relu_c64", _set(0, Common__TileCfg__TileHeight=0), 0, "Common.TileCfg.TileHeight"),
    "kernel window 0": Mutation("unary_relu_c64", _set(0, Common__ConvCfg__Kw=0), 0, "Common.ConvCfg.Kw"),
    "fp16 data in 8-bit format": Mutation(
        "unary_relu_c64", _set(0, TileDMASrc__Fmt__MemFmt=0), 0, "TileDMASrc.Fmt.MemFmt"
    ),
    "MACCfg without bit 20": Mutation("unary_relu_c64", _set(0, NE__MACCfg__Bit20=0), 0, "NE.MACCfg.Bit20"),
    "two sources on a neural core": Mutation(
        "unary_relu_c64", _set(0, Common__Cfg__Src2Dma=1), 0, "Common.Cfg.Src2Dma"
    ),
    "unknown mode": Mutation("unary_relu_c64", _set(0, NE__MACCfg__OpMode=5), 0, "NE.MACCfg.OpMode"),
    "unknown condition": Mutation("unary_abs_c64", _set(0, PE__Cfg__Cond=3), 0, "PE.Cfg.Cond"),
}


def _mutant(program: apple_programs.AppleProgram, change: Change) -> EmulatedProgram:
    """The program's bytes with some fields changed; the container's own numbers are left out."""
    normal = EmulatedProgram.of(program.image())
    tasks = isa.decode_stream(normal.text, "h13")
    change(tasks)
    text = bytearray(normal.text)
    for task in tasks:
        text[task.offset : task.offset + task.size] = task.to_bytes()
    return replace(normal, text=bytes(text), first_words=None, task_count=None)


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_check_trips(name: str, facts: Path) -> None:
    mutation = MUTATIONS[name]
    program = apple_programs.load(facts / "apple" / "h13" / f"{mutation.program}.json")
    assert run(program.image(), program.inputs).report.tasks, "no alarm on the program itself"
    with pytest.raises(EmulationError) as caught:
        emulate(_mutant(program, mutation.change), program.inputs)
    assert (caught.value.task, caught.value.register) == (mutation.task, mutation.register), caught.value
    assert (caught.value.address is not None) == mutation.address, caught.value


@pytest.mark.parametrize("name", ["TileDMASrc.Spare0.Unk31_0", "TileDMASrc.Unk1384c.Unk31_0"])
def test_the_lowest_bit_of_what_no_program_sets(name: str, facts: Path) -> None:
    program = apple_programs.load(facts / "apple" / "h13" / "unary_relu_c64.json")
    with pytest.raises(EmulationError, match="0x1 has no known effect") as caught:
        emulate(_mutant(program, lambda tasks: tasks[0].set(name, 1)), program.inputs)
    assert caught.value.register == name


@pytest.mark.parametrize("stride", [0, 1, 5])
def test_part_of_the_only_channels_row(stride: int, facts: Path) -> None:
    image = hexane.open_image(facts / "hwx" / "relu_w77.hwx")
    inputs = {s.name: np.ones(s.shape, np.float16) for s in image.inputs}
    assert emulate(image, inputs)
    image.tasks[0].set("L2.SourceChannelStride.Stride", stride)
    with pytest.raises(EmulationError, match="hold no row of 77 columns"):
        emulate(image, inputs)


def test_output_that_no_task_writes(facts: Path) -> None:
    program = apple_programs.load(facts / "apple" / "h13" / "binary_add_1x64x1x1.json")
    bytes_ = EmulatedProgram.of(program.image())
    surfaces = tuple(
        replace(s, shape=(1, 65, 1, 1), strides=(65 * 64, 64, 64, 2)) if s.role == "output" else s
        for s in bytes_.surfaces
    )
    with pytest.raises(EmulationError, match=r"\(0, 64, 0, 0\) of output 'y'") as caught:
        emulate(replace(bytes_, surfaces=surfaces), program.inputs)
    assert caught.value.address == 64 * 64


def test_scratch_that_is_too_small(facts: Path) -> None:
    program = apple_programs.load(facts / "apple" / "h13" / "rrmm_r2rr_m64_k64_n64_tx0_ty0.json")
    small = replace(EmulatedProgram.of(program.image()), scratch_bytes=0x1000)
    with pytest.raises(EmulationError, match="scratch") as caught:
        emulate(small, program.inputs)
    assert caught.value.register == "TileDMADst.BaseAddr.Addr"


def test_scratch_that_no_task_wrote(facts: Path) -> None:
    """The staged kernel is read beyond what the copy put there."""
    program = apple_programs.load(facts / "apple" / "h13" / "rrmm_r2rr_m64_k64_n64_tx0_ty0.json")
    beyond = _mutant(program, _set(1, **{"KernelDMASrc__CoeffBaseAddr[0]__Addr": 0x80}))
    with pytest.raises(EmulationError, match="scratch where no task has written") as caught:
        emulate(beyond, program.inputs)
    assert (caught.value.task, caught.value.address) == (1, 0x2000)


def test_count_that_the_program_states(facts: Path) -> None:
    program = apple_programs.load(facts / "apple" / "h13" / "softmax_1x64x8x8.json")
    with pytest.raises(EmulationError, match="states 5"):
        emulate(replace(EmulatedProgram.of(program.image()), task_count=5), program.inputs)
    with pytest.raises(EmulationError, match="first task"):
        emulate(replace(EmulatedProgram.of(program.image()), first_words=128), program.inputs)


def test_switched_off_it_lets_undefined_bytes_pass(facts: Path) -> None:
    program = apple_programs.load(facts / "apple" / "h13" / "softmax_1x64x8x8.json")
    mutant = _mutant(program, _set(1, L2__SourceBase__Addr=0x18000))
    assert emulate(mutant, program.inputs, sanitize=False)["y"].shape == (1, 64, 8, 8)


@pytest.mark.parametrize("size", [0, 1, 39, 40, 41, 200, 503])
def test_truncated_text(size: int, facts: Path) -> None:
    program = apple_programs.load(facts / "apple" / "h13" / "unary_relu_c64.json")
    normal = EmulatedProgram.of(program.image())
    with pytest.raises(EmulationError):
        emulate(replace(normal, text=normal.text[:size]), program.inputs)


def test_inputs_that_do_not_fit(facts: Path) -> None:
    program = apple_programs.load(facts / "apple" / "h13" / "unary_relu_c64.json")
    image, x = program.image(), program.inputs["x"]
    for inputs, message in (
        ({}, "'x' is missing"),
        ({"x": x, "q": x}, "no input 'q'"),
        ({"x": x.astype(np.float32)}, "dtype float32"),
        ({"x": x[:, :63]}, "shape"),
    ):
        with pytest.raises(UsageError, match=message):
            emulate(image, inputs)
    assert emulate(image, {"x": x.reshape(64)})["y"].shape == (1, 64, 1, 1)


def test_other_generations_are_refused_by_name(facts: Path) -> None:
    program = apple_programs.load(facts / "apple" / "h13" / "unary_relu_c64.json")
    with pytest.raises(HexaneError, match="no h19 engine"):
        emulate(replace(EmulatedProgram.of(program.image()), generation="h19"), program.inputs)
