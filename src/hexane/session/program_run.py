"""A compiled program through a device: it holds no float32 network, so that nothing is compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

from hexane.program import Program
from hexane.program.run import Device
from hexane.session.execute import Execution, execute
from hexane.session.inputs import GatheredInputs
from hexane.session.network_run import array_facts, output_facts
from hexane.session.seconds import kernel_seconds, without_kernels
from hexane.session.verdict import NOT_COMPARED, Verdict, unseen


@dataclass(frozen=True)
class ProgramRun:
    """One run of a compiled program; ``seconds`` by stage."""

    name: str
    program: Program
    device: str
    inputs: GatheredInputs
    execution: Execution
    seconds: dict[str, float]

    @cached_property
    def verdict(self) -> Verdict | None:
        """That an output is infinite or no number, else none."""
        return unseen(self.execution.outputs)

    @cached_property
    def stats(self) -> dict[str, Any]:
        """Counts of the program, without the reasons of its host ops."""
        return {name: count for name, count in self.program.stats().items() if name != "host_reasons"}

    def summary(self) -> dict[str, Any]:
        """The run in numbers, schema ``hexane-run/1`` (docs/commands/run.md)."""
        return {
            "schema": "hexane-run/1",
            "model": self.name,
            "chip": self.program.chip,
            "device": self.device,
            "level": "engine",
            "inputs": {name: array_facts(array) for name, array in self.inputs.arrays.items()},
            "outputs": {name: output_facts(array) for name, array in self.execution.outputs.items()},
            "verdict": self.verdict.word if self.verdict else None,
            "verdict_text": self.verdict.far if self.verdict else NOT_COMPARED,
            "notes": list(self.inputs.notes),
            "program": self.stats,
            "macs_on_engine": self.stats["macs_on_engine"],
            "tasks": len(self.execution.tasks),
            "seconds": {name: round(value, 4) for name, value in self.seconds.items()},
        }


def run_program(
    name: str, program: Program, inputs: GatheredInputs, device: Device, on_task: Callable[[Any], None], loaded: float
) -> ProgramRun:
    """Run a program once; ``on_task`` is called after every task, ``loaded`` are the seconds that loading took."""
    with kernel_seconds() as compiled:
        start = perf_counter()
        execution = execute(program, inputs.arrays, on_task=on_task, device=device)
        seconds = {"load": loaded, "run": perf_counter() - start}
    return ProgramRun(name, program, device.title, inputs, execution, without_kernels(seconds, compiled()))
