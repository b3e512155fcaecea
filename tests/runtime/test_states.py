"""States of networks: what torch modules with buffers give, through coremltools, over several calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.graph import Graph, GraphBuilder
from hexane.graph.effects import order
from hexane.session.run import run_network

torch = pytest.importorskip("torch")
ct = pytest.importorskip("coremltools")


class Counter(torch.nn.Module):
    """Counts calls: 1, 2, 3."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(1, 8, 1, 4))

    def forward(self, x: Any) -> Any:
        self.n.add_(x)
        return self.n * 1.0


class Twice(torch.nn.Module):
    """Reads, writes, reads, writes and reads one buffer in one call, with arithmetic of the engine between."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("s", torch.zeros(1, 8, 1, 4))

    def forward(self, x: Any) -> Any:
        before = self.s + 0.5
        self.s.add_(x)
        between = torch.relu(self.s) * 2
        self.s.mul_(0.5)
        return before, between, torch.relu(self.s + before)


class Cache(torch.nn.Module):
    """Attention over a cache of keys and values that grows by one row in every call."""

    def __init__(self, rows: int = 8, width: int = 16) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, rows, width))
        self.register_buffer("values", torch.zeros(1, rows, width))
        self.q, self.k, self.v = (torch.nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Any, place: Any, mask: Any) -> Any:
        self.keys.mul_(1 - place)
        self.keys.add_(self.k(x) * place)
        self.values[:] = self.values * (1 - place) + self.v(x) * place
        scores = self.q(x) @ self.keys.transpose(1, 2) / 4 + mask
        return torch.softmax(scores, -1) @ self.values


def _ones(call: int) -> tuple[Any, ...]:
    return (torch.ones(1, 8, 1, 4),)


def _random(call: int) -> tuple[Any, ...]:
    return (torch.randn(1, 8, 1, 4, generator=torch.Generator().manual_seed(call)),)


def _step(call: int) -> tuple[Any, ...]:
    x = torch.randn(1, 1, 16, generator=torch.Generator().manual_seed(call))
    place = torch.eye(8)[call].reshape(1, 8, 1)
    mask = torch.where(torch.arange(8) <= call, 0.0, -1e4).reshape(1, 1, 8)
    return x, place, mask


CASES: dict[str, tuple[Callable[[], Any], Callable[[int], tuple[Any, ...]]]] = {
    "counter": (Counter, _ones),
    "twice": (Twice, _random),
    "cache": (Cache, _step),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Graph, Any]:
    """(torch module, the graph of its Core ML model, inputs by call)."""
    make, inputs = CASES[request.param]
    torch.manual_seed(0)
    module = make().eval()
    traced = torch.jit.trace(module, inputs(0), check_trace=False)
    buffers = dict(module.named_buffers())
    for buffer in (*buffers.values(), *traced.buffers()):
        buffer.zero_()
    model = ct.convert(
        traced,
        inputs=[ct.TensorType(name=f"x{i}", shape=tuple(a.shape)) for i, a in enumerate(inputs(0))],
        states=[ct.StateType(wrapped_type=ct.TensorType(shape=tuple(b.shape)), name=n) for n, b in buffers.items()],
        minimum_deployment_target=ct.target.iOS18,
        skip_model_load=True,
    )
    path = tmp_path_factory.mktemp("states") / "model.mlpackage"
    model.save(str(path))
    return module, hexane.load(path), inputs


def _wanted(module: Any, inputs: Any, calls: int) -> list[list[np.ndarray]]:
    for buffer in module.buffers():
        buffer.zero_()
    found = []
    with torch.no_grad():
        for call in range(calls):
            outputs = module(*inputs(call))
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            found.append([output.numpy().copy() for output in outputs])
    return found


def _named(inputs: Any, call: int) -> dict[str, np.ndarray]:
    return {f"x{i}": array.numpy() for i, array in enumerate(inputs(call))}


def _close(found: dict[str, np.ndarray], wanted: list[np.ndarray]) -> None:
    for got, expected in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(got.astype(np.float32), expected, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("level", ["engine", "graph"])
def test_a_program_keeps_what_torch_keeps(case: tuple[Any, Graph, Any], level: str) -> None:
    module, graph, inputs = case
    program = hexane.compile(graph)
    assert program.stats()["engine_segments"] >= 1 and program.states
    state = program.make_state()
    for call, wanted in enumerate(_wanted(module, inputs, 5)):
        _close(program.run(_named(inputs, call), level=level, state=state), wanted)
    for name, buffer in module.named_buffers():
        np.testing.assert_allclose(state[name].astype(np.float32), buffer.detach().numpy(), atol=2e-2, rtol=2e-2)


def test_the_reference_keeps_what_torch_keeps(case: tuple[Any, Graph, Any]) -> None:
    module, graph, inputs = case
    state = graph.make_state()
    kept = []
    for call, wanted in enumerate(_wanted(module, inputs, 5)):
        kept.append((graph.evaluate(_named(inputs, call), state=state), wanted))
    for found, wanted in kept:  # results of earlier calls stay what they were
        _close(found, wanted)


def test_a_session_and_a_file_keep_it(case: tuple[Any, Graph, Any], tmp_path: Path) -> None:
    module, graph, inputs = case
    hexane.compile(graph).save(tmp_path / "p.hexane")
    program = hexane.load_program(tmp_path / "p.hexane")
    state = program.make_state()
    with program.on("emulator") as session:
        for call, wanted in enumerate(_wanted(module, inputs, 3)):
            _close(session.run(_named(inputs, call), state=state), wanted)


def test_without_a_state_every_call_begins_anew(case: tuple[Any, Graph, Any]) -> None:
    module, graph, inputs = case
    program = hexane.compile(graph)
    ((wanted),) = _wanted(module, inputs, 1)
    for _ in range(2):
        _close(program.run(_named(inputs, 0)), wanted)


def test_a_report_of_a_network_with_states(case: tuple[Any, Graph, Any]) -> None:
    _, graph, inputs = case
    done = run_network(graph, _named(inputs, 0), name="state", insight=True)
    assert done.verdict is not None and done.verdict.word in ("same", "close")
    assert done.insight is not None and done.placement is not None


def test_the_counter_counts() -> None:
    b = GraphBuilder()
    x, n = b.input("x", (1, 4), "fp16"), b.state("n", (1, 4))
    b.op("write_state", data=b.add(x=b.read_state(input=n), y=x), input=n)
    b.output(b.mul(x=b.read_state(input=n), y=np.float16(1), name="y"))
    program, graph = hexane.compile(b.graph), b.graph
    for run, state in ((program.run, program.make_state()), (graph.evaluate, graph.make_state())):
        counts = [int(run({"x": np.ones((1, 4), np.float16)}, state=state)["y"][0, 0]) for _ in range(3)]
        assert counts == [1, 2, 3]


def test_a_state_of_fp32_is_kept_in_fp32() -> None:
    b = GraphBuilder()
    x, n = b.input("x", (1, 4), "fp32"), b.state("n", (1, 4), "fp32")
    b.op("write_state", data=b.add(x=b.read_state(input=n), y=x), input=n)
    b.output(b.relu(x=b.read_state(input=n), name="y"))
    program = hexane.compile(b.graph)
    state = program.make_state()
    for _ in range(3):
        program.run({"x": np.full((1, 4), 0.25, np.float32)}, state=state)
    assert state["n"].dtype == np.float32 and np.all(state["n"] == 0.75)


def test_two_reads_around_a_write_are_two_values() -> None:
    """What common-subexpression elimination must not merge, and dead code elimination must not drop."""
    b = GraphBuilder()
    x, n = b.input("x", (1, 4), "fp16"), b.state("n", (1, 4))
    first = b.read_state(input=n)
    b.op("write_state", data=x, input=n)
    second = b.read_state(input=n)
    b.output(b.sub(x=second, y=first, name="y"))
    program = hexane.compile(b.graph)
    state = program.make_state()
    rng = np.random.default_rng(0)
    before = np.zeros((1, 4), np.float16)
    for _ in range(3):
        now = rng.integers(-8, 8, (1, 4)).astype(np.float16)
        assert np.array_equal(program.run({"x": now}, state=state)["y"], now - before)
        before = now


def test_a_loop_that_writes_is_an_effect() -> None:
    """A write inside of a loop's body, with reads before and behind the loop."""
    b = GraphBuilder()
    x, n = b.input("x", (1,), "fp16"), b.state("n", (1,))
    before = b.read_state(input=n)
    with b.subblock({"left": x.type}) as condition:
        condition.set_outputs([b.greater(x=condition.inputs[0], y=np.float16(0))])
    with b.subblock({"turns": x.type}) as body:
        b.op("write_state", data=b.add(x=b.read_state(input=n), y=np.float16(1)), input=n)
        body.set_outputs([b.sub(x=body.inputs[0], y=np.float16(1))])
    left = b.op("while_loop", loop_vars=(x,), blocks=(condition, body))
    b.output(b.sub(x=b.read_state(input=n), y=before, name="y"), left)
    program = hexane.compile(b.graph)
    state = program.make_state()
    for total in (3, 6):
        assert float(program.run({"x": np.array([3], np.float16)}, state=state)["y"][0]) == 3
        assert float(state["n"][0]) == total


def test_the_order_of_effects() -> None:
    b = GraphBuilder()
    x, n, m = b.input("x", (1,), "fp16"), b.state("n", (1,)), b.state("m", (1,))
    b.read_state(input=n)
    b.read_state(input=n)
    b.op("write_state", data=x, input=n)
    b.op("write_state", data=x, input=m)
    b.op("coreml_update_state", state=n, value=x)
    b.read_state(input=n)
    assert sorted(order([[op] for op in b.graph.ops])) == [(0, 2), (1, 2), (2, 4), (4, 5)]
