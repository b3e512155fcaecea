"""Verdicts on devices that are an engine, a host, wrong, or silent: each made from the emulator and float32."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import hexane
from hexane.program.run import Device
from hexane.runtime import power
from hexane.runtime.devices import device_named
from hexane.runtime.devices.coreml import CoreMLDevice
from hexane.runtime.machine import Machine
from hexane.studies import verify as study
from hexane.studies.verify import AGAINST, EMULATED, ENGINE, FOR, HOST, UNCLEAR, WRONG, verify
from report.networks import command, small
from runtime import fake_coremltools as library


class Pretends(Device):
    """A device that says it is an engine, and computes as it is told."""

    name = "linux"
    engine = True
    interface = "linux"

    def __init__(self, compute, jobs: int | None = None) -> None:
        self.compute, self.per_call, self.counted = compute, jobs, 0

    def load(self, segment):
        def run(values):
            self.counted += self.per_call or 0
            return self.compute(segment, values)

        count = (
            {"counters": lambda: {"jobs": self.counted, "busy_ns": 1000 * self.counted}}
            if self.per_call is not None
            else {}
        )
        return SimpleNamespace(run=run, close=lambda: None, **count)


def as_engine(segment, values):
    return segment.declared(hexane.emulate(segment.image, segment.surfaces(values)))


def as_host(segment, values):
    found = segment.source.evaluate({port.name: values[port.name] for port in segment.inputs})
    return {name: array.astype(np.float16) for name, array in found.items()}


def as_noise(segment, values):
    return {name: np.flip(array) * np.float16(3) for name, array in as_engine(segment, values).items()}


def in_between(segment, values):
    ours, host = as_engine(segment, values), as_host(segment, values)
    return {name: np.where(np.arange(a.size).reshape(a.shape) % 2, a, host[name]) for name, a in ours.items()}


def nearly(compute, other):
    """All but the first of the values in which two devices differ."""

    def run(segment, values):
        most, rest = compute(segment, values), other(segment, values)
        first = {name: np.argmax(a != rest[name]) for name, a in most.items()}
        return {n: np.where(np.arange(a.size).reshape(a.shape) == first[n], rest[n], a) for n, a in most.items()}

    return run


@pytest.fixture(scope="module")
def network():
    graph = small()
    return (
        hexane.compile(graph),
        graph,
        {"x": np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float16)},
    )


@pytest.fixture(autouse=True)
def _no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "_time", lambda *_: study.Check("time", "-", "not looked at"))


@pytest.mark.parametrize(
    ("compute", "jobs", "word"),
    [
        (as_engine, 1, ENGINE),
        (as_engine, None, ENGINE),
        (as_host, None, HOST),
        (as_host, 0, HOST),
        (as_engine, 0, UNCLEAR),  # the engine's bits, and no job: a program that emulates
        (nearly(as_engine, as_host), None, ENGINE),
        (nearly(as_host, as_engine), None, HOST),
        (in_between, None, UNCLEAR),
        (as_noise, 1, WRONG),
    ],
)
def test_a_verdict_with_reasons(network, compute, jobs, word) -> None:
    found = verify(*network, Pretends(compute, jobs), calls=1)
    assert found.word == word, found.reasons
    assert found.status == {ENGINE: 0, UNCLEAR: 3}.get(word, 1)
    assert word == UNCLEAR or found.reasons
    assert found.as_dict()["checks"][0]["name"] == "repeatable"


@pytest.mark.parametrize(("jobs", "nanoseconds", "speaks"), [(1, 0, FOR), (2, 10**6, FOR), (0, 10**6, AGAINST)])
def test_the_driver_s_counters_speak_by_jobs(network, jobs: int, nanoseconds: int, speaks: str) -> None:
    """One job at least for each of two calls; how long they took says nothing."""

    class Counts(Pretends):
        def load(self, segment):
            loaded = super().load(segment)
            loaded.counters = lambda: {"jobs": jobs * self.counted, "busy_ns": nanoseconds * self.counted}
            return loaded

    check = next(c for c in verify(*network, Counts(as_engine, 1), calls=1).checks if c.name == "counters")
    assert check.speaks == speaks
    assert f"{2 * jobs} jobs" in check.text and f"{2 * nanoseconds / 1000:.0f} us" in check.text


def test_time_against_the_prediction(network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = verify(*network, Pretends(as_engine), calls=2)
    times = [check for check in found.checks if check.name == "time"]
    assert times[0].speaks in (FOR, AGAINST) and "predicted" in times[0].text  # which one is this machine's affair
    emulated = verify(*network, device_named("virtual:omarchy"), calls=1)
    assert emulated.word == EMULATED and "no measurement" in next(c.text for c in emulated.checks if c.name == "time")


@pytest.mark.parametrize("device", ["emulator", "virtual:eiln", "virtual:macos"])
def test_the_command_on_devices_without_an_engine(device: str, tmp_path: Path) -> None:
    file = tmp_path / "net.mil"
    small().save(file)
    found = command("verify", file, "--device", device, "--calls", 1, "--json")
    assert found["verdict"] == EMULATED and found["device"] == device
    assert "no engine" in command("verify", file, "--device", device, "--calls", 1)


def test_core_ml_s_plan_speaks(network) -> None:
    device = CoreMLDevice(library=library)
    device.engine = True
    found = verify(*network, device, calls=1)
    plan = next(check for check in found.checks if check.name == "plan")
    assert plan.speaks == FOR and "prefers the engine" in plan.text
    assert found.word == UNCLEAR  # the fake library computes float32: bits and plan contradict each other


def test_the_power_rail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Mac(Machine):
        said = "ANE Power: 812 mW\nCombined Power (CPU + GPU + ANE): 4000 mW"

        def run(self, *command: str) -> str | None:
            return self.said

    mac = Mac(tmp_path, "Darwin", "arm64")
    monkeypatch.setattr(power.os, "geteuid", lambda: 501, raising=False)
    assert power.engine_power_mw(mac, lambda: None) == (None, "powermetrics needs root; as root, verify reads the rail")
    monkeypatch.setattr(power.os, "geteuid", lambda: 0, raising=False)
    assert power.engine_power_mw(mac, lambda: None) == (812.0, "")
    mac.said = ""
    assert power.engine_power_mw(mac, lambda: None)[0] is None
    assert power.engine_power_mw(Machine(tmp_path, "Linux", "aarch64"), lambda: None)[0] is None
