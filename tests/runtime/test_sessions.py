"""Sessions that threads share, sessions that cross a fork, warm sessions."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.emulator.program import EmulatedProgram as Loaded
from hexane.emulator.ready import KEPT_BYTES, ReadyMachine
from hexane.errors import UsageError
from hexane.program.run import Session
from hexane.runtime.devices.virtual import open_device
from report.networks import small

THREADS = 4

needs_fork = pytest.mark.skipif(sys.platform == "win32", reason="the system has no fork")


def _inputs(seed: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((1, 16, 8, 8)).astype(np.float16)}


def _answers_of_forked(session: Session, seeds: range) -> list[list[bytes] | str]:
    """What children of a fork get from the session, all at once: bytes of each answer, or the error's text."""
    context = multiprocessing.get_context("fork")
    pipes, children = [], []
    for child in range(THREADS):
        receive, send = context.Pipe(duplex=False)

        def work(send=send, child=child) -> None:
            try:
                send.send([session.run(_inputs(seed + child))["out"].tobytes() for seed in seeds])
            except UsageError as error:
                send.send(str(error))

        children.append(context.Process(target=work))
        pipes.append(receive)
    for process in children:
        process.start()
    answers = [pipe.recv() for pipe in pipes]
    for process in children:
        process.join(60)
    return answers


@needs_fork
@pytest.mark.parametrize("device", ["emulator", "virtual:eiln", "virtual:omarchy"])
def test_forked_processes_get_their_own_answers(device: str) -> None:
    program = hexane.compile(small(), chip="M1")
    expected = [program.run(_inputs(seed))["out"].tobytes() for seed in range(THREADS + 10)]
    with program.on(device) as session:
        session.run(_inputs(0))
        answers = _answers_of_forked(session, range(10))
        assert answers == [expected[child : child + 10] for child in range(THREADS)]
        assert session.run(_inputs(1))["out"].tobytes() == expected[1]


@needs_fork
def test_a_device_object_is_refused_after_a_fork() -> None:
    program = hexane.compile(small(), chip="M1")
    device = open_device("eiln")
    with program.on(device) as session:
        session.run(_inputs(0))
        for answer in _answers_of_forked(session, range(1)):
            assert isinstance(answer, str) and "opened in another process" in answer


def test_threads_keep_a_machine_each_and_get_their_own_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    program = hexane.compile(small(), chip="M1")
    expected = [program.run(_inputs(seed))["out"] for seed in range(THREADS)]
    started: list[ReadyMachine] = []
    all_inside = threading.Barrier(THREADS)
    first = ReadyMachine.run

    def meet(machine: ReadyMachine, *arguments):
        if machine not in started:
            started.append(machine)
            all_inside.wait(30)
        return first(machine, *arguments)

    monkeypatch.setattr(ReadyMachine, "run", meet)
    Loaded.of(program.images[0]).idle.clear()
    with program.on() as session, ThreadPoolExecutor(THREADS) as pool:
        for _ in range(5):
            answers = list(pool.map(lambda seed: session.run(_inputs(seed))["out"], range(THREADS)))
            assert all(np.array_equal(a, b) for a, b in zip(answers, expected))
    idle = Loaded.of(program.images[0]).idle
    assert len(started) == THREADS == len(idle)
    assert 0 < sum(machine.bytes for machine in idle) <= KEPT_BYTES


def test_idle_machines_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    program = hexane.compile(small(), chip="M1")
    program.run(_inputs(0))
    loaded = Loaded.of(program.images[0])
    (machine,) = loaded.idle
    monkeypatch.setattr("hexane.emulator.ready.KEPT_BYTES", machine.bytes * 2 - 1)
    barrier = threading.Barrier(2)
    first = ReadyMachine.run

    def meet(machine: ReadyMachine, *arguments):
        barrier.wait(30)
        return first(machine, *arguments)

    monkeypatch.setattr(ReadyMachine, "run", meet)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda seed: program.run(_inputs(seed)), range(2)))
    assert len(loaded.idle) == 1


def test_a_warm_session_has_its_plan() -> None:
    program = hexane.compile(small(), chip="M1")
    with program.on() as session:
        session.warm()
        (machine,) = Loaded.of(program.images[0]).idle
        assert machine.chain is not None and machine.chain.plan is not None
        assert np.array_equal(session.run(_inputs(3))["out"], program.run(_inputs(3))["out"])


@pytest.mark.parametrize("again", [copy.deepcopy, lambda session: pickle.loads(pickle.dumps(session))])
def test_a_copied_session_loads_the_program_anew(again) -> None:
    program = hexane.compile(small(), chip="M1")
    with program.on() as session:
        session.run(_inputs(0))
        with again(session) as other:
            assert np.array_equal(other.run(_inputs(1))["out"], session.run(_inputs(1))["out"])


def test_the_service_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    small("fp32").save(tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(code, names)
    right = names["answer"]({"x": np.zeros((1, 16, 8, 8)).tolist()})
    assert np.shape(right["out"]) == (1, 16, 8, 8)
    wrong = names["answer"]({"x": [1.0, 2.0]})
    assert "shape" in wrong["error"]["message"] and wrong["error"]["code"]
    assert names["answer"]({"x": np.zeros((1, 16, 8, 8)).tolist()}) == right
    names["session"].close()


def test_a_process_ends_beside_calls_of_daemon_threads() -> None:
    """Their calls end with the process: nothing on stderr, status 0."""
    text = """
import threading
import numpy as np
import hexane
from hexane.graph import GraphBuilder
b = GraphBuilder()
b.output(b.relu(x=b.input("x", (1, 4, 8, 8), "fp16")), name="y")
session = hexane.compile(b.graph, chip="M1").on("virtual:macos")
x = {"x": np.ones((1, 4, 8, 8), np.float16)}
calls = threading.Semaphore(0)
def repeat():
    while True:
        session.run(x)
        calls.release()
for _ in range(3):
    threading.Thread(target=repeat, daemon=True).start()
for _ in range(200):
    calls.acquire()
"""
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
