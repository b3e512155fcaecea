"""One answer to "how long": launches, host, copies and engine add up, and what the engine refuses is on the host."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane import chips
from hexane.errors import HexaneError
from hexane.graph import GraphBuilder
from hexane.timing import estimate
from hexane.timing.job import job_of


def cut_by_the_host(cuts: int):
    """Convolutions with a running sum (which every engine refuses) between them."""
    b = GraphBuilder()
    x = b.input("x", (1, 64, 16, 16), "fp16")
    weight = np.ones((64, 64, 1, 1), np.float16)
    for _ in range(cuts):
        x = b.cumsum(x=b.conv(x=x, weight=weight), axis=1)
    b.output(b.conv(x=x, weight=weight))
    return b.graph


def lstm():
    b = GraphBuilder()
    x = b.input("x", (10, 1, 32), "fp32")
    zeros = np.zeros((1, 32), np.float32)
    outputs = b.lstm(x=x, initial_h=zeros, initial_c=zeros, weight_ih=np.zeros((128, 32), np.float32),
                     weight_hh=np.zeros((128, 32), np.float32), bias=np.zeros(128, np.float32))  # fmt: skip
    b.output(outputs[0] if isinstance(outputs, (tuple, list)) else outputs)
    return b.graph


@pytest.mark.parametrize("interface", ["evaluate", "copies", "coreml", "linux", "task"])
@pytest.mark.parametrize("cuts", [0, 1, 3])
def test_the_parts_are_the_latency(cuts, interface):
    result = estimate(cut_by_the_host(cuts), "M4", interface=interface)
    parts = result.parts
    assert parts.launches == cuts + 1
    assert parts.launch_us + parts.host_us + parts.copies_us + parts.engine_us == pytest.approx(result.latency_us)
    assert (parts.host_us > 0) == (cuts > 0)
    assert parts.engine_us == result.engine_us


def test_every_launch_pays_its_floor():
    one, four = (estimate(cut_by_the_host(cuts), "M4").parts for cuts in (0, 3))
    assert four.launch_us == pytest.approx(4 * one.launch_us, rel=0.2)


def test_an_lstm_is_timed_on_the_host():
    result = estimate(lstm(), "M1")
    assert result.parts.launches == 0
    assert result.ops == ()
    assert result.bottleneck == "host"
    assert result.parts.host_us == result.latency_us > 0
    assert result.energy_mj == 0


def test_what_one_generation_refuses_another_may_take():
    b = GraphBuilder()
    b.output(b.sin(x=b.conv(x=b.input("x", (1, 16, 8, 8), "fp16"), weight=np.ones((16, 16, 1, 1), np.float16))))
    assert [op.op for op in job_of(b.graph, chips.get("M1")).host] == ["sin"]
    assert job_of(b.graph, chips.get("M4")).host == ()


def test_values_that_cross_to_the_host_leave_the_chip():
    first, second = job_of(cut_by_the_host(1), chips.get("M1")).launches
    assert first.layers[0].writes_output and second.layers[0].reads_input
    assert first.host_out_bytes == second.host_in_bytes == 64 * 256 * 2


def test_branches_without_the_host_share_a_launch():
    b = GraphBuilder()
    x = b.input("x", (1, 16, 8, 8), "fp16")
    weight = np.ones((16, 16, 1, 1), np.float16)
    left = b.cumsum(x=b.conv(x=x, weight=weight), axis=1)
    right = b.conv(x=b.conv(x=x, weight=weight), weight=weight)
    b.output(b.add(x=b.conv(x=left, weight=weight), y=right))
    launches = job_of(b.graph, chips.get("M1")).launches
    assert [len(work.layers) for work in launches] == [3, 2]
    assert launches[1].layers[1].reads_input


def test_a_compiled_program_counts_its_own_launches_and_host_ops():
    program = hexane.compile(cut_by_the_host(2), chip="M1")
    result = estimate(program, "M1")
    assert result.basis == "program"
    assert result.parts.launches == len(program.images) == 3
    assert result.parts.host_us > 0
    assert "3 launches" in result.notes[0] and "2 cumsum" in result.notes[0]


def test_a_program_is_timed_on_its_own_chip_unless_told():
    program = hexane.compile(cut_by_the_host(1), chip="M4")
    assert hexane.estimate(program) == program.estimate() == hexane.estimate(program, "M4")
    with pytest.raises(HexaneError):
        hexane.estimate(program, "M1")


def test_the_array_and_the_planar_engine_are_told_apart():
    b = GraphBuilder()
    x = b.input("x", (1, 512, 32, 32), "fp16")
    y = b.conv(x=x, weight=np.ones((512, 512, 3, 3), np.float16), pad_type="same")
    b.output(b.softmax(x=b.add(x=y, y=x), axis=-1))
    limits = {op.op: op.bottleneck for op in estimate(b.graph, "M4").ops}
    assert limits["conv"] == "array"
    assert limits["softmax"] == "planar engine"


def test_notes_are_grouped_by_kind():
    b = GraphBuilder()
    x = b.input("x", (1, 16, 8, 8), "fp16")
    for _ in range(12):
        x = b.conv(x=x, weight=np.ones((16, 1, 3, 3), np.float16), groups=16, pad_type="same")
    b.output(x)
    notes = estimate(b.graph, "M1").notes
    assert sum("conv" in note and "published" in note for note in notes) == 1
    assert any(note.startswith("12 conv layers") for note in notes)


def test_a_program_of_another_generation_is_timed_by_its_tasks():
    program = hexane.compile(cut_by_the_host(2), chip="M4")
    result = program.estimate()
    assert (result.chip, result.basis) == ("M4", "program")
    assert result.parts.launches == len(program.images)
    assert [task.op for task in result.tasks] == ["NE conv"] * 3
    assert result.ops == result.tasks
    with pytest.raises(HexaneError, match="compiled for H16"):
        program.estimate("M1")


def test_depthwise_tasks_are_no_copies():
    """Small unicast kernels multiply; a copy is a task that bypasses the array."""
    b = GraphBuilder()
    x = b.input("x", (1, 64, 28, 28), "fp16")
    b.output(b.conv(x=x, weight=np.ones((64, 1, 3, 3), np.float16), groups=64, pad_type="same"))
    (op,) = hexane.compile(b.graph, chip="M1").estimate().ops
    assert (op.op, op.macs, op.extrapolated) == ("NE conv", 64 * 9 * 28 * 28, True)


@pytest.mark.parametrize(
    "build",
    [
        lambda b, x: b.identity(x=x),
        lambda b, x: b.reshape(x=x, shape=[1, 4, 32]),
        lambda b, x: b.concat(values=(x, b.input("z", (1, 8, 4, 4), "fp16")), axis=1),
        lambda b, x: b.squeeze(x=b.expand_dims(x=b.relu(x=x), axes=[0]), axes=[0]),
    ],
)
def test_a_network_on_the_engine_is_one_launch_at_every_door(build):
    b = GraphBuilder()
    b.output(build(b, b.input("x", (1, 8, 4, 4), "fp16")))
    program = hexane.compile(b.graph, "M1")
    assert hexane.check(b.graph, "M1").fits and hexane.check(b.graph, "M1", as_="apple").fits
    ours, apples = estimate(program), estimate(b.graph, "M1")
    assert program.stats()["engine_segments"] == ours.parts.launches == apples.parts.launches == 1
    assert apples.latency_us == pytest.approx(ours.latency_us, rel=0.05)


def test_no_launch_for_results_that_layers_have_made():
    b = GraphBuilder()
    b.output(b.reshape(x=b.relu(x=b.input("x", (1, 8, 4, 4), "fp16"), name="r"), shape=[1, 128]))
    assert [row.name for row in estimate(b.graph, "M1").ops] == ["r"]
