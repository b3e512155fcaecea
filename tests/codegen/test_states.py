"""States in engine programs: in place, in order, with the bits of the graph; what stays with the host, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import FormatError
from hexane.graph import Graph, GraphBuilder, Value
from hexane.program import Program

CHIPS = ("M1", "M2", "M4", "M5")
SHAPE = (1, 8, 4, 64)


class Network:
    """A builder with a state and what is read of it."""

    def __init__(self, shape: tuple[int, ...] = SHAPE) -> None:
        self.b = GraphBuilder()
        self.state = self.b.state("cache", shape)
        self.old: Value = self.b.read_state(input=self.state)

    def input(self, name: str, *shape: int, dtype: str = "fp16") -> Value:
        return self.b.input(name, shape, dtype)

    def ends(self, written: Value, result: Value | None = None) -> Graph:
        self.b.write_state(data=written, input=self.state)
        latest = self.b.read_state(input=self.state) if result is None else result
        self.b.output(self.b.relu(x=latest), name="y")
        return self.b.graph


def by_mask() -> Graph:
    n = Network()
    keep, new, here = n.input("keep", 1, 1, 1, 64), n.input("new", 1, 8, 4, 1), n.input("here", 1, 1, 1, 64)
    return n.ends(n.b.add(x=n.b.mul(x=n.old, y=keep), y=n.b.mul(x=new, y=here)))


def at_a_place() -> Graph:
    n = Network()
    row = n.input("row", 1, 4, 1, 64)
    return n.ends(n.b.slice_update(x=n.old, update=row, begin=[0, 2, 1, 0], end=[1, 6, 2, 64]))


def at_columns() -> Graph:
    n = Network((1, 8, 4, 96))
    part = n.input("part", 1, 8, 4, 32)
    return n.ends(n.b.slice_update(x=n.old, update=part, begin=[0, 0, 0, 32], end=[1, 8, 4, 64]))


def part_by_part() -> Graph:
    """As decoders are shipped: each layer reads the state, writes its part, and reads again."""
    n = Network((1, 8, 16, 32))
    x = n.input("x", 1, 4, 16, 32)
    for at in (0, 4):
        own = n.b.slice_by_size(x=n.b.read_state(input=n.state), begin=[0, at, 0, 0], size=[1, 4, 16, 32])
        x = n.b.relu(x=n.b.add(x=x, y=own))
        whole = n.b.slice_update(x=n.old, update=x, begin=[0, at, 0, 0], end=[1, at + 4, 16, 32])
        n.b.write_state(data=whole, input=n.state)
        n.old = n.b.read_state(input=n.state)
    n.b.output(n.b.mul(x=x, y=np.float16(0.5)), name="y")
    return n.b.graph


def shifted() -> Graph:
    n = Network()
    kept = n.b.slice_by_size(x=n.old, begin=[0, 1, 0, 0], size=[1, 7, 4, 64])
    return n.ends(n.b.concat(values=[kept, n.input("last", 1, 1, 4, 64)], axis=1))


def old_and_new() -> Graph:
    n = Network()
    new = n.b.mul(x=n.input("x", *SHAPE), y=np.float16(3))
    return n.ends(new, n.b.add(x=new, y=n.old))


def in_the_dialect_of_coremltools() -> Graph:
    n = Network()
    total = n.b.add(x=n.old, y=n.input("x", *SHAPE))
    n.b.output(n.b.relu(x=n.b.coreml_update_state(state=n.state, value=total)), name="y")
    return n.b.graph


ON_THE_ENGINE = (by_mask, at_a_place, at_columns, part_by_part, shifted, old_and_new, in_the_dialect_of_coremltools)


def numbers(program: Program, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = {port.name: rng.standard_normal(port.shape).astype(np.float16) for port in program.inputs}
    if "here" in drawn:
        drawn["here"] = (np.arange(64) == seed).astype(np.float16).reshape(1, 1, 1, 64)
        drawn["keep"] = np.float16(1) - drawn["here"]
    return drawn


def follows_the_reference(graph: Graph, program: Program, given: Callable[[int], dict[str, np.ndarray]]) -> None:
    """Four calls: results and contents of tasks are the graph's bits, and near float32's."""
    here, there, reference = program.make_state(), program.make_state(), graph.make_state()
    for call in range(4):
        inputs = given(call)
        results = program.run(inputs, state=here)
        bits = program.run(inputs, level="graph", state=there)
        wanted: dict[str, Any] = graph.evaluate({**inputs, **reference})
        for name, array in results.items():
            assert np.array_equal(array, bits[name])
            assert np.allclose(array, wanted[name], rtol=4e-3, atol=4e-3)
        for name, array in here.items():
            assert np.array_equal(array, there[name])
            assert np.allclose(array, reference[name], rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("make", ON_THE_ENGINE)
def test_states_are_read_and_written_by_tasks(make: Callable[[], Graph], chip: str) -> None:
    graph = make()
    program = hexane.compile(graph, chip=chip)
    assert [segment.kind for segment in program.segments] == ["engine"]
    follows_the_reference(graph, program, lambda call: numbers(program, call))


def test_what_a_write_leaves_costs_no_task_and_no_second_buffer() -> None:
    program = hexane.compile(at_a_place(), chip="M4")
    (image,) = program.images
    assert len(image.tasks) == 2  # the row to its place, and the result
    state, result = (
        next(s for s in image.surfaces if s.label == name) for name in ("cache", program.state_results["cache"])
    )
    assert (state.role, result.role) == ("input", "output")
    assert (state.channel, state.address) == (result.channel, result.address)


def test_a_place_of_run_time_is_the_hosts() -> None:
    n = Network()
    row, begin, end = n.input("row", 1, 8, 1, 64), n.input("begin", 4, dtype="int32"), n.input("end", 4, dtype="int32")
    graph = n.ends(n.b.slice_update(x=n.old, update=row, begin=begin, end=end))
    program = hexane.compile(graph, chip="M4")
    assert [segment.kind for segment in program.segments] == ["host", "engine"]

    def given(call: int) -> dict[str, np.ndarray]:
        row = np.random.default_rng(call).standard_normal((1, 8, 1, 64)).astype(np.float16)
        places = {"begin": [0, 0, call, 0], "end": [1, 8, call + 1, 64]}
        return {"row": row, **{name: np.array(place, np.int32) for name, place in places.items()}}

    follows_the_reference(graph, program, given)


def test_a_part_between_the_granules_of_memory_is_the_hosts() -> None:
    n = Network()
    graph = n.ends(n.b.slice_update(x=n.old, update=n.input("z", 1, 8, 4, 1), begin=[0, 0, 0, 5], end=[1, 8, 4, 6]))
    program = hexane.compile(graph, chip="M1")
    reasons = [reason for segment in program.segments if segment.kind == "host" for reason in segment.reasons.values()]
    assert reasons == ["an update of columns between multiples of 32"]
    follows_the_reference(graph, program, lambda call: numbers(program, call))


def test_contents_that_are_needed_before_and_behind_their_write_are_the_hosts() -> None:
    n = Network()
    new = n.b.slice_update(x=n.old, update=n.input("x", 1, 4, 4, 64), begin=[0, 0, 0, 0], end=[1, 4, 4, 64])
    n.b.write_state(data=new, input=n.state)
    n.b.output(n.b.add(x=n.b.read_state(input=n.state), y=n.old), name="y")
    program = hexane.compile(n.b.graph, chip="M4")
    assert not program.state_results and "host" in [segment.kind for segment in program.segments]
    follows_the_reference(n.b.graph, program, lambda call: numbers(program, call))


@pytest.mark.parametrize("chip", ["M1", "M5"])
def test_an_update_of_what_is_no_state_is_a_copy_and_a_part(chip: str) -> None:
    b = GraphBuilder()
    x, part = b.input("x", (1, 8, 4, 64), "fp16"), b.input("part", (1, 2, 4, 64), "fp16")
    b.output(b.slice_update(x=x, update=part, begin=[0, 3, 0, 0], end=[1, 5, 4, 64]), name="y")
    program = hexane.compile(b.graph, chip=chip)
    assert [segment.kind for segment in program.segments] == ["engine"]
    follows_the_reference(b.graph, program, lambda call: numbers(program, call))


def test_a_saved_program_keeps_its_states(tmp_path: Path) -> None:
    program = hexane.compile(part_by_part(), chip="M4")
    program.save(tmp_path / "p.hexane")
    loaded = hexane.load_program(tmp_path / "p.hexane")
    states = [each.make_state() for each in (program, loaded)]
    for call in range(3):
        inputs = numbers(program, call)
        results = [each.run(inputs, state=state)["y"] for each, state in zip((program, loaded), states)]
        assert np.array_equal(*results) and np.array_equal(*(state["cache"] for state in states))


def test_a_manifest_that_names_another_value_for_a_state_is_refused(tmp_path: Path) -> None:
    import zipfile

    from hexane.program.manifest import read_manifest
    from hexane.program.package import MANIFEST

    program = hexane.compile(at_a_place(), chip="M4")
    program.save(tmp_path / "p.hexane")
    data = zipfile.ZipFile(tmp_path / "p.hexane").read(MANIFEST)
    assert read_manifest(data, "p").state_results == program.state_results
    with pytest.raises(FormatError, match="state_results"):
        read_manifest(data.replace(b'"state_results": {\n  "cache": "', b'"state_results": {\n  "cache": "no_'), "p")
