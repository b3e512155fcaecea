"""A compiled network: engine programs and host parts in order, and how to run, save and describe it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.counts import counted
from hexane.errors import UsageError
from hexane.graph import html
from hexane.graph.types import kinds_of, misfit
from hexane.program.attribution import share_on_engine
from hexane.program.package import save
from hexane.program.segment import ENGINE, HOST, Port, Segment
from hexane.program.state import State, new_state

if TYPE_CHECKING:
    from hexane.emulator.l2_map import L2Map
    from hexane.graph.ir import Graph
    from hexane.image import Image
    from hexane.program.run import Device, Session
    from hexane.timing import Estimate


@dataclass(frozen=True, repr=False)
class Program:
    """Result of ``hexane.compile``.

    ``state_results``: the value that each state holds behind a call, of those that engine programs write in place.
    """

    segments: tuple[Segment, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    chip: str
    dialect: str
    graph: Graph | None = None
    states: tuple[Port, ...] = ()
    state_results: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        engine, tasks = len(self.images), sum(len(image.tasks) for image in self.images)
        ports = [", ".join(f"{p.name} {list(p.shape)} {p.dtype}" for p in ps[:4]) for ps in (self.inputs, self.outputs)]
        return (
            f"<Program for {self.chip}: {counted(engine, 'engine segment')} with {counted(tasks, 'task')}, "
            f"{len(self.segments) - engine} on the host; {ports[0]} -> {ports[1]}>"
        )

    def _repr_html_(self) -> str:
        """A row per segment, for notebooks."""
        rows = [[i, s.kind, len(s.image.tasks) if s.image else "", len(s.ops), s.reason[:120]]
                for i, s in enumerate(self.segments)]  # fmt: skip
        head = ["segment", "device", "tasks", "ops", "why"]
        return html.paragraph(repr(self)[1:-1]) + html.table(rows, head, (0, 2, 3))

    @property
    def images(self) -> list[Image]:
        """The engine programs, in the order in which they run."""
        return [segment.image for segment in self.segments if segment.image is not None]

    def run(
        self,
        inputs: Mapping[str, Any],
        device: str | Device = "emulator",
        level: str = "engine",
        state: Mapping[str, np.ndarray] | None = None,
    ) -> dict[str, np.ndarray]:
        """Outputs by name, as the graph declares them.

        Parameters
        ----------
        inputs : name -> array of the declared shape.
        device : "emulator", another name of ``hexane.runtime.devices.DEVICES``, or a device object.
        level : "engine" runs the tasks, "graph" evaluates the network with the engine's arithmetic.
        state : from :meth:`make_state`, changed in place; without one every call begins with zeros.

        Raises
        ------
        UsageError : a missing input or one of another shape.
        """
        from hexane.runtime import devices

        return devices.run(self, inputs, device=device, level=level, state=state)

    def on(self, device: str | Device = "emulator", level: str = "engine") -> Session:
        """A session that keeps the program loaded: ``with program.on("linux") as session: session.run(inputs)``."""
        from hexane.runtime import devices

        return devices.session(self, device=device, level=level)

    def estimate(self, chip: str | None = None) -> Estimate:
        """Time and energy on a chip, by default the program's own (see ``hexane.timing.estimate``)."""
        from hexane import timing

        return timing.estimate(self, chip or self.chip)

    def l2_maps(self) -> list[L2Map]:
        """Contents of the engine's L2 while each engine program runs, task by task, read from its registers."""
        from hexane.emulator.l2_map import l2_map

        return [l2_map(image.tasks) for image in self.images]

    def make_state(self) -> State:
        """New states, all zero, for a sequence of calls: ``program.run(inputs, state=state)``."""
        return new_state(self.states)

    def checked(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The inputs as arrays; UsageError for one that is missing, unknown, or of another shape or kind.

        Warns of NaN in what an engine reads (it has none, and computes with infinity in its place), and of finite
        numbers beyond fp16, which are infinite there.
        """
        values = {}
        engines = {port.name for segment in self.segments if segment.image is not None for port in segment.inputs}
        names = ", ".join(port.name for port in self.inputs)
        if not isinstance(inputs, Mapping):
            raise UsageError(
                f"inputs are a mapping of names to arrays, not {type(inputs).__name__}", hint=f"the inputs are {names}"
            )
        for port in self.inputs:
            if port.name not in inputs:
                raise UsageError(f"input {port.name!r} is missing", hint=f"the inputs are {names}")
            try:
                array = np.asarray(inputs[port.name])
            except (ValueError, TypeError, OverflowError) as error:  # ragged lists, more axes than NumPy has
                raise UsageError(
                    f"input {port.name!r} is no array ({error})", hint=f"it is {port.shape} {port.dtype}"
                ) from None
            if array.shape != port.shape:
                raise UsageError(
                    f"input {port.name!r} has shape {array.shape}", hint=f"it is {port.shape} {port.dtype}"
                )
            if array.dtype.kind not in kinds_of(port.dtype):
                raise UsageError(f"input {port.name!r} is of dtype {array.dtype}", hint=f"it is {port.dtype}")
            if reason := misfit(array, port.dtype):
                raise UsageError(f"input {port.name!r} {reason}", hint=f"it is {port.dtype}")
            if port.name in engines and (text := _out_of_range(array)):
                warnings.warn(f"input {port.name!r} has {text}", RuntimeWarning, stacklevel=2)
            values[port.name] = array
        unknown = set(inputs) - set(values)
        if unknown:
            raise UsageError(f"there is no input {sorted(map(str, unknown))[0]!r}", hint=f"the inputs are {names}")
        return values

    def save(self, path: str | Path, *, anec_header: int | None = None) -> None:
        """Write ``.hwx`` or ``.anec`` (a single engine segment) or ``.hexane`` (any program).

        An ``.anec`` package has no names, so ``PATH.json`` and the C header ``PATH.h`` are written beside it.
        ``anec_header`` is the size of its header in bytes, by the library that will read it: 0x1000 (the default;
        omarchy's tools, hexane) or 0x800 (eiln's libane).
        """
        save(self, Path(path), anec_header=anec_header)

    def stats(self) -> dict[str, Any]:
        """Counts: segments, tasks, operations on either side, evidence, bytes.

        ``macs`` and ``macs_on_engine`` (a share, 0 to 1) count the network as it was given, the host's ops included.
        """
        plans = [plan for segment in self.segments for plan in segment.plans]
        macs = {kind: sum(s.macs for s in self.segments if s.kind == kind) for kind in (ENGINE, HOST)}
        total = sum(macs.values())
        host = [segment for segment in self.segments if segment.kind == HOST]
        return {
            "segments": len(self.segments),
            "engine_segments": len(self.segments) - len(host),
            "host_segments": len(host),
            "tasks": sum(len(image.tasks) for image in self.images),
            "ops": sum(len(s.ops) for s in self.segments),
            "host_ops": dict(Counter(op.partition(" ")[0] for s in host for op in s.ops)),
            "host_reasons": {op: reason for s in host for op, reason in s.reasons.items()},
            "macs": total,
            "macs_on_engine": share_on_engine(macs[ENGINE], total, sum(len(s.ops) for s in host)),
            "evidence": dict(Counter(plan.evidence.value for plan in plans)),
            "const_bytes": sum(image.constant_bytes for image in self.images),
            "scratch_bytes": sum(image.scratch_bytes for image in self.images),
            "surface_bytes": sum(2 * prod(e or 0 for e in port.shape) for port in (*self.inputs, *self.outputs)),
        }


def _out_of_range(array: np.ndarray) -> str:
    """Values of an engine's input that fp16 cannot hold: the first NaN, or the largest finite number beyond fp16."""
    if array.dtype.kind != "f" or not array.size:
        return ""
    low, high = array.min(), array.max()
    if np.isnan(low):
        first = tuple(int(i) for i in np.argwhere(np.isnan(array))[0])
        return f"NaN at {first}: the engine computes with infinity in its place"
    largest = max(abs(float(low)), abs(float(high)))
    with np.errstate(over="ignore"):
        beyond = np.isfinite(largest) and np.isinf(np.float16(largest))
    return f"numbers up to {largest:.6g}: beyond fp16's 65504 the engine computes with infinity" if beyond else ""
