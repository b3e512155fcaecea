"""Facts of this machine, question by question (docs/reference/devices.md 2); everything is read, nothing is changed.

No serial numbers, host names, addresses or UUIDs are read or printed.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hexane.errors import HexaneError
from hexane.graph import GraphBuilder
from hexane.runtime import probe_linux, probe_macos
from hexane.runtime.machine import Machine
from hexane.runtime.macos import trial
from hexane.runtime.warm import kernels

SCHEMA = "hexane-doctor/1"
LIBRARIES = {
    "numpy": "everything", "numba": "the emulator's fast kernels", "lark": "MIL text", "typer": "the commands",
    "rich": "tables and progress", "onnx": "ONNX files", "onnxscript": "ONNX files",
    "onnxruntime": "run --compare onnxruntime",
    "coremltools": "Core ML packages", "torch": "hexane.from_torch", "matplotlib": "plots", "jinja2": "the report",
    "pillow": "pictures as inputs",
}  # fmt: skip
NEEDED = ("numpy", "numba", "lark", "typer", "rich")


@dataclass(frozen=True)
class Advice:
    """One answer: ``state`` is "yes", "no" or "note"; ``remedy`` says what to do about a "no"."""

    area: str
    question: str
    state: str
    answer: str
    remedy: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All findings, the routes to an engine that are open, and whether hexane itself is in order."""

    findings: tuple[Advice, ...]
    engine: bool
    routes: tuple[str, ...]

    @property
    def well(self) -> bool:
        """True where hexane works here (on the emulator; an engine is not needed)."""
        return all(f.state != "no" for f in self.findings if f.area == "hexane")

    def as_dict(self) -> dict[str, Any]:
        """Plain data, schema ``hexane-doctor/1`` (docs/commands/doctor.md)."""
        return {
            "schema": SCHEMA,
            "well": self.well,
            "engine": self.engine,
            "routes": list(self.routes),
            "findings": [asdict(f) for f in self.findings],
        }


def diagnose(machine: Machine | None = None, *, attempt: bool = False) -> Diagnosis:
    """Ask every question. ``machine`` reads files and runs commands; tests give one of their own.

    ``attempt``: run one small program on the engine, the only thing here that does not just read.
    """
    here = machine or Machine()
    findings = list(_hexane(here))
    if here.system == "Linux":
        engine, routes, more = probe_linux.probe(here)
    elif here.system == "Darwin":
        engine, routes, more = probe_macos.probe(here)
    else:
        engine, routes, more = False, (), [("engine", "no", f"{here.system} has no way to an Apple engine", "")]
    findings += [Advice("engine", *row) for row in more]
    if attempt:
        findings.append(_trial(here, routes))
    return Diagnosis(tuple(findings), engine, (*routes, "emulator"))


def _hexane(machine: Machine) -> Iterator[Advice]:
    version = platform.python_version()
    good = sys.version_info >= (3, 11)
    yield Advice("hexane", "Python", "yes" if good else "no", version, "" if good else "install Python 3.11 or newer")
    for name, purpose in LIBRARIES.items():
        installed_version = _version(name)
        state = "yes" if installed_version else "no" if name in NEEDED else "note"
        remedy = (
            ""
            if installed_version
            else f"pip install {name}"
            if name in NEEDED
            else f"for {purpose}: pip install {name}"
        )
        yield Advice(
            "hexane" if name in NEEDED else "library", name, state, installed_version or "not installed", remedy
        )
    yield Advice("machine", "processor", "note", f"{machine.processor}, {os.cpu_count()} threads")
    yield Advice("machine", "vector instructions", "note", vector_features(machine) or "not known")
    yield _kernels()
    yield _self_test(emulator_self_test)


def _kernels() -> Advice:
    """Compiled code on disk, and what it costs that there is none: once, or in every process where none is kept."""
    compiled_names = kernels()
    where = (
        "nowhere to keep them: no folder can be written"
        if compiled_names.folder is None
        else f"kept in {compiled_names.folder}"
    )
    if compiled_names.files:
        answer = f"{len(compiled_names.files)} compiled, {compiled_names.bytes / 1e6:.1f} MB; new ones are {where}"
        return Advice("machine", "kernels", "yes" if compiled_names.folder else "note", answer)
    once = "in every process" if compiled_names.folder is None else "once"
    answer = (
        f"none compiled yet; {where}; where it was measured (two AVX-512 cores) a network of 12 ops had its first "
        f"results after 3 s of processor time, and compiling all kernels took 45 s of it, {once}"
    )
    return Advice("machine", "kernels", "note", answer, "hexane doctor --warm; HEXANE_CACHE=FOLDER for another place")


def _trial(machine: Machine, routes: tuple[str, ...]) -> Advice:
    """One small program on the first engine that may be used: on a Mac in a process of its own, which may end."""
    if "macos" in routes:
        good, message = trial.in_child(machine.side().again())
    elif "linux" in routes:
        good, message = _on_linux()
    else:
        return Advice("trial", "a small program", "note", "no engine here that could be tried")
    return Advice(
        "trial", "a small program", "yes" if good else "no", message, "" if good else "hexane verify says more"
    )


def _on_linux() -> tuple[bool, str]:
    try:
        good = emulator_self_test("linux", trial.TIMES)
    except HexaneError as error:
        return False, error.message
    return (
        good,
        f"a sum, {trial.TIMES} times, {'with the bits that it should have' if good else 'other bits than it should'}",
    )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def vector_features(machine: Machine) -> str:
    """The features that the fast kernels can use, from the kernel's own list."""
    text = machine.text("/proc/cpuinfo") or machine.run("sysctl", "-n", "machdep.cpu.features") or ""
    words = set(text.lower().split())
    return ", ".join(name for name in ("avx2", "fma", "f16c", "avx512f", "asimd", "asimdhp", "fphp") if name in words)


def _self_test(test: Callable[[], bool]) -> Advice:
    try:
        good = test()
    except Exception as error:  # whatever breaks here is what the user has to see
        return Advice("hexane", "emulator self-test", "no", f"fails: {error}", "reinstall hexane and its libraries")
    answer = "a compiled sum gives the bits that it should" if good else "gives other bits than it should"
    return Advice("hexane", "emulator self-test", "yes" if good else "no", answer, "" if good else "report this")


def emulator_self_test(device: str = "emulator", times: int = 1) -> bool:
    """Compile one sum of two tensors and run it: exact in fp16, so that every bit is known."""
    from hexane.codegen import compile

    b = GraphBuilder()
    x, y = b.input("x", (1, 8, 4, 4), "fp16"), b.input("y", (1, 8, 4, 4), "fp16")
    b.output(b.add(x=x, y=y, name="z"))
    a = np.arange(128, dtype=np.float16).reshape(1, 8, 4, 4)
    with compile(b.graph).on(device) as session:
        outputs = [session.run({"x": a, "y": a[:, ::-1]})["z"] for _ in range(times)]
    return all(np.array_equal(array, a + a[:, ::-1]) for array in outputs)
