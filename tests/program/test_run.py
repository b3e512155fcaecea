"""The loop that runs programs: devices, sessions, states."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import hexane
from hexane.errors import UsageError
from hexane.graph import GraphBuilder
from hexane.program import Segment
from hexane.program.run import Device, OnHost, Session
from hexane.runtime.devices.linux import LinuxEngine
from hexane.runtime.virtual.core import PATH
from hexane.runtime.virtual.linked import HardenedDriver
from report.networks import mixed


def _inputs(seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((1, 4, 8, 8)).astype(np.float16)}


class Counting(Device):
    """Engine segments by the float32 reference, counted."""

    name = "counting"

    def __init__(self) -> None:
        self.loads: list[str] = []
        self.closed = 0

    def load(self, segment: Segment):
        self.loads.append(segment.kind)
        device = self

        class Loaded(OnHost):
            def close(self) -> None:
                device.closed += 1

        assert segment.source is not None
        return Loaded(Segment("host", "", segment.ops, segment.inputs, segment.outputs, graph=segment.source))


def test_a_device_is_an_object_with_one_method_for_a_segment() -> None:
    program, device = hexane.compile(mixed()), Counting()
    wanted = mixed().evaluate(_inputs())["out"]
    assert np.allclose(program.run(_inputs(), device=device)["out"], wanted, atol=0.02)
    engine = [s for s in program.segments if s.kind == "engine"]
    assert device.loads == ["engine"] * len(engine) and device.closed == len(engine)


def test_a_session_keeps_the_program_loaded_and_gives_it_back() -> None:
    program, device = hexane.compile(mixed()), HardenedDriver()
    with program.on(LinuxEngine(PATH, device)) as session:
        results = [session.run(_inputs(seed))["out"] for seed in range(3)]
        assert len(device.files) == 2  # both engine segments stay loaded
    assert device.files == {} and device.submissions == 6
    for seed, found in enumerate(results):
        assert np.array_equal(found, program.run(_inputs(seed))["out"])


def test_an_error_in_a_session_leaves_nothing_behind() -> None:
    program, device = hexane.compile(mixed()), HardenedDriver()
    with pytest.raises(UsageError, match="is missing"), program.on(LinuxEngine(PATH, device)) as session:
        session.run(_inputs())
        session.run({})
    assert device.files == {}


def test_every_device_gives_outputs_as_declared() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 4, 8, 8), "fp32")
    b.output(b.relu(x=x), name="y")
    program = hexane.compile(b.graph)
    given = {"x": np.ones((1, 4, 8, 8), np.float32)}
    for found in (program.run(given), program.run(given, device="virtual"), program.run(given, level="graph")):
        assert found["y"].dtype == np.float32


def _counter():
    b = GraphBuilder()
    state = b.state("count", (1, 4), "fp16")
    step = b.input("step", (1, 4), "fp16")
    b.write_state(input=state, data=b.add(x=b.read_state(input=state), y=step))
    b.output(b.mul(x=step, y=np.float16(2)), name="twice")
    return b.graph


def test_a_state_lives_between_calls_and_is_nobody_else_s() -> None:
    program = hexane.compile(_counter())
    assert [p.name for p in program.inputs] == ["step"] and [p.name for p in program.states] == ["count"]
    step = {"step": np.ones((1, 4), np.float16)}
    first, second = program.make_state(), program.make_state()
    for _ in range(3):
        program.run(step, state=first)
    program.run(step, state=second)
    program.run(step)
    assert np.array_equal(first["count"], np.full((1, 4), 3)) and np.array_equal(second["count"], np.ones((1, 4)))


def test_a_state_that_does_not_fit_is_refused() -> None:
    program = hexane.compile(_counter())
    step = {"step": np.ones((1, 4), np.float16)}
    for wrong in ({}, {"count": np.zeros((2, 4), np.float16)}, {"count": 1.0}):
        with pytest.raises(UsageError, match="make_state"):
            program.run(step, state=wrong)
    with pytest.raises(UsageError, match="no state 'other'"):
        program.run(step, state={**program.make_state(), "other": np.zeros(1)})


def test_states_survive_a_file(tmp_path) -> None:
    hexane.compile(_counter()).save(tmp_path / "counter.hexane")
    program = hexane.load_program(tmp_path / "counter.hexane")
    state = program.make_state()
    program.run({"step": np.ones((1, 4), np.float16)}, state=state)
    assert np.array_equal(state["count"], np.ones((1, 4)))


def test_a_session_unloads_the_last_segment_first() -> None:
    order: list[str] = []

    class InOrder(Device):
        def load(self, segment: Segment):
            class Loaded(OnHost):
                def close(self) -> None:
                    order.append(f"close {segment.ops[0]}")

            order.append(f"load {segment.ops[0]}")
            return Loaded(Segment("host", "", segment.ops, segment.inputs, segment.outputs, graph=segment.source))

    b = GraphBuilder()
    y = b.input("x", (1, 4, 8, 8), "fp16")
    for _ in range(3):
        y = b.cumsum(x=b.relu(x=y), axis=3)
    b.output(b.relu(x=y), name="out")
    with Session(hexane.compile(b.graph), InOrder()) as session:
        session.run(_inputs())
    loads = [row.removeprefix("load ") for row in order if row.startswith("load")]
    assert len(loads) > 1
    assert order[len(loads) :] == [f"close {name}" for name in reversed(loads)]


def test_nan_for_an_engine_is_warned_of_and_for_the_host_is_not() -> None:
    given = _inputs()
    given["x"][0, 1, 2, 3] = np.nan
    b = GraphBuilder()
    b.output(b.relu(x=b.input("x", (1, 4, 8, 8), "fp16"), name="y"))
    program = hexane.compile(b.graph)
    with pytest.warns(RuntimeWarning, match=r"'x' has NaN at \(0, 1, 2, 3\): the engine computes with infinity"):
        program.run(given)
    for most, warned in ((65519.0, False), (70000.0, True), (-1e6, True), (np.inf, False)):  # 65519 is 65504 in fp16
        given["x"] = np.full((1, 4, 8, 8), most, np.float32)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = program.run(given)["y"]
        assert bool(said) == warned and np.isinf(found).all() == (most > 65519)
        assert all(f"numbers up to {abs(most):.6g}: beyond fp16" in str(one.message) for one in said)
    given["x"][0, 1, 2, 3] = np.nan
    b = GraphBuilder()
    x = b.input("x", (1, 4, 8, 8), "fp16")
    b.output(b.cast(x=b.not_equal(x=x, y=x), dtype="fp16", name="y"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = hexane.compile(b.graph).run(given)["y"]
    assert found.sum() == 1 and found[0, 1, 2, 3] == 1


@pytest.mark.parametrize("chip", ["M1", "M2", "M3", "M4", "M5", "A19"])
def test_constants_are_counted_wherever_a_generation_keeps_them(chip: str) -> None:
    b = GraphBuilder()
    weight = np.random.default_rng(0).normal(size=(64, 64, 1, 1)).astype(np.float16)
    b.output(b.conv(x=b.input("x", (1, 64, 8, 8), "fp16"), weight=weight, pad_type="valid"), name="y")
    assert weight.nbytes <= hexane.compile(b.graph, chip).stats()["const_bytes"] <= weight.nbytes + (1 << 15)
