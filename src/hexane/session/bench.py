"""Time of a program on a device, beside the prediction of the timing model; and the row that others can fit.

Times of the emulator and of virtual devices say how fast this machine computes: they are marked, and no row of them is
to be fitted.
"""

from __future__ import annotations

import csv
import hashlib
import io
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane import chips
from hexane.counts import counted
from hexane.errors import HexaneError, UsageError
from hexane.files import write_whole
from hexane.runtime.linux import uapi
from hexane.timing import estimate
from hexane.timing.row_of import COLUMNS, columns_of

if TYPE_CHECKING:
    from hexane.graph import Graph
    from hexane.program import Program
    from hexane.program.run import Device, Session
    from hexane.timing import Estimate

SCHEMA = "hexane-bench/1"
SOURCE = "hexane bench"
MOST_CALLS = 1_000_000
INCLUDES = {"linux": "call_driver", "evaluate": "call_eval", "coreml": "call_coreml"}
"""The column ``includes``, by interface."""
APIS = {"linux": "Linux driver", "evaluate": "_ANEInMemoryModel evaluate", "coreml": "Core ML predict"}
"""The column ``api``, by interface."""
SETTLE_US = 1000.0
"""What the driver of ABI 2 waits after the firmware's word, at its default (docs/reference/devices.md 5)."""
NO_ENGINE = "no engine ran: this is how fast this machine computes, not a measurement"


@dataclass(frozen=True)
class Calls:
    """Times of equal calls, in microseconds, after the first one and the warm-up.

    ``us`` are whole calls; ``engine_us`` the calls of the device within them (host ops left out; conversions and
    copies too, where the device tells them apart). ``first_us`` contains loading; ``busy_us`` is what the driver
    counted of the engine, per call, None where it counts nothing.
    """

    first_us: float
    us: tuple[float, ...]
    engine_us: tuple[float, ...]
    busy_us: float | None = None

    @property
    def median_us(self) -> float:
        """The middle call."""
        return median(self.us)

    @property
    def device_us(self) -> float:
        """The middle of the device's part."""
        return median(self.engine_us)

    @property
    def p10_us(self) -> float:
        """A tenth of the device's parts is shorter."""
        return float(np.percentile(self.engine_us, 10))

    @property
    def mean_us(self) -> float:
        """All calls together."""
        return mean(self.us)


@dataclass(frozen=True)
class Bench:
    """Measured beside predicted. ``predicted`` is None where the model has no time, ``missing`` says why."""

    model: str
    device: str
    engine: bool
    interface: str
    chip: str
    calls: Calls
    predicted: Estimate | None
    columns: Mapping[str, Any] | None
    missing: str = ""
    host_ops: int = 0
    launches: int = 1

    @property
    def ratio(self) -> float | None:
        """Measured over predicted, of the part that ran on the device; None without a prediction."""
        if self.predicted is None:
            return None
        parts = self.predicted.parts
        return self.calls.device_us / max(parts.total_us - parts.host_us + self.settle_us, 1e-9)

    @property
    def settle_us(self) -> float:
        """Wait of the driver at the end of every call, which the timing model leaves out."""
        waits = self.interface == "linux" and chips.get(self.chip).generation_name == uapi.GENERATIONS[2]
        return SETTLE_US * self.launches if waits else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain data, schema ``hexane-bench/1`` (docs/commands/bench.md)."""
        calls, predicted = self.calls, self.predicted
        return {
            "schema": SCHEMA,
            "model": self.model,
            "device": self.device,
            "engine": self.engine,
            "note": "" if self.engine else NO_ENGINE,
            "chip": self.chip,
            "interface": self.interface,
            "calls": len(calls.us),
            "measured_us": {
                "first": round(calls.first_us, 1),
                "median": round(calls.median_us, 2),
                "mean": round(calls.mean_us, 2),
                "device": round(calls.device_us, 2),
                "device_p10": round(calls.p10_us, 2),
                "engine_busy": None if calls.busy_us is None else round(calls.busy_us, 2),
            },
            "predicted_us": None
            if predicted is None
            else {
                "call": round(predicted.latency_us, 2),
                "low": round(predicted.latency_range_us[0], 2),
                "high": round(predicted.latency_range_us[1], 2),
                "engine": round(predicted.engine_us, 2),
                "settle": self.settle_us,
            },
            "missing": self.missing,
            "ratio": None if self.ratio is None else round(self.ratio, 4),
            "row": self.row(),
        }

    def row(self) -> dict[str, str]:
        """One row in the format of the timing data (docs/commands/bench.md): every column a text."""
        chip = chips.get(self.chip)
        calls, columns = self.calls, dict(self.columns or {"kind": "model", "op": self.model})
        notes = [] if self.engine else [NO_ENGINE]
        if self.columns is None:
            notes.append("a network that the columns cannot say")
        decided = self.interface == "coreml"
        if decided:
            notes.append("Core ML decides what runs on the engine")
        if self.host_ops:
            notes.append(f"{counted(self.host_ops, 'op')} on the host within the call")
        values: dict[str, Any] = {
            "n": 1, "stride": 1, "dilation": 1, "groups": 1, "layers": 1, "dtype": "fp16", "wfmt": "fp16",
            **columns,
            "id": f"hexane-{_key(chip.name)}-{_key(self.model)}-{self._digest()}",
            "chip": chip.name,
            "arch": chip.target,
            "machine": chip.soc,
            "os": _system(),
            "source": SOURCE,
            "series": f"hexane_{_key(self.device)}",
            "workload": f"{self.model}, {counted(len(calls.us), 'call')} on {self.device}",
            "engines": 1,
            "concurrency": 1,
            "api": APIS.get(self.interface, self.interface),
            "value": _us(calls.device_us),
            "unit": "us",
            "value_us": _us(calls.device_us),
            "stat": "median",
            "alt_value": _us(calls.p10_us),
            "alt_stat": "p10",
            "fit_us": _us(calls.device_us),
            "includes": "call_and_host" if self.host_ops else INCLUDES.get(self.interface, "call_eval"),
            "trust": "B" if self.engine else "C",
            "use": int(self.engine and self.columns is not None and not self.host_ops and not decided),
            "note": "; ".join(notes),
        }  # fmt: skip
        return {column: str(values.get(column, "")) for column in COLUMNS}

    def _digest(self) -> str:
        text = f"{self.model} {self.device} {self.calls.us}"
        return hashlib.sha256(text.encode()).hexdigest()[:8]


def _us(value: float) -> str:
    return f"{value:.1f}"


def _key(text: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def _system() -> str:
    """The system's name and version; no host name."""
    mac = platform.mac_ver()[0]
    return mac or f"{platform.system()} {platform.release()}"


def bench(
    program: Program,
    inputs: Mapping[str, Any],
    device: Device,
    *,
    model: str,
    graph: Graph | None = None,
    calls: int = 50,
    warmup: int = 3,
    on_call: Callable[[], None] = lambda: None,
) -> Bench:
    """Run a program ``calls`` times on a device that keeps it loaded, after ``warmup`` calls that do not count.

    Parameters
    ----------
    graph : the network that the program was compiled from, for the columns of the row.
    on_call : called after every call.

    Raises UsageError for a number of calls that is none; what the device raises.
    """
    from hexane.runtime.devices import session

    require_counts(calls, warmup)
    with session(program, device) as engine:
        measured = _measure(engine, inputs, calls, warmup, on_call)
        on_host = sum(len(segment.ops) for segment in engine.program.segments if segment.graph is not None)
    predicted, missing = _predicted(program, device)
    source = graph if graph is not None else program.graph
    return Bench(
        model=model,
        device=device.title,
        engine=device.engine,
        interface=device.interface,
        chip=program.chip,
        calls=measured,
        predicted=predicted,
        columns=columns_of(source) if source is not None else None,
        missing=missing,
        launches=len(program.images),
        host_ops=on_host,
    )


def require_counts(calls: int, warmup: int) -> None:
    """UsageError for a number of calls that is none."""
    if not 1 <= calls <= MOST_CALLS or not 0 <= warmup <= MOST_CALLS:
        raise UsageError(
            f"{calls} calls after {warmup} to warm up", hint=f"1 to {MOST_CALLS:,} calls, 0 or more to warm up"
        )


def _measure(engine: Session, inputs: Mapping[str, Any], calls: int, warmup: int, on_call: Callable[[], None]) -> Calls:
    start = time.perf_counter_ns()
    engine.record(inputs)
    first = (time.perf_counter_ns() - start) / 1e3
    for _ in range(warmup):
        engine.record(inputs)
    on_device = [segment.graph is None for segment in engine.program.segments]
    before = engine.counters()
    total, parts = [], []
    for _ in range(calls):
        start = time.perf_counter_ns()
        run = engine.record(inputs)
        total.append((time.perf_counter_ns() - start) / 1e3)
        parts.append(1e6 * sum(seconds for seconds, here in zip(run.call_seconds, on_device) if here))
        on_call()
    after = engine.counters()
    busy = None
    if "busy_ns" in before and "busy_ns" in after:
        busy = (after["busy_ns"] - before["busy_ns"]) / calls / 1e3
    return Calls(first, tuple(total), tuple(parts), busy)


def _predicted(program: Program, device: Device) -> tuple[Estimate | None, str]:
    try:
        return estimate(program, program.chip, interface=device.interface), ""
    except HexaneError as error:
        return None, error.message


def append_row(measurement: Bench, path: Path) -> None:
    """Add the row to a file in the format of the timing data; a new file gets the head line.

    Raises UsageError for a file with other columns, or one that cannot be written.
    """
    head = ",".join(COLUMNS)
    try:
        text = path.read_text("utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path} ({error})") from None
    if text and text.splitlines()[0] != head:
        raise UsageError(f"{path} has other columns than rows of measurements", hint="name a new file")
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    if not text:
        writer.writeheader()
    writer.writerow({column: _no_formula(value) for column, value in measurement.row().items()})
    write_whole(path, (text + out.getvalue()).encode())


def _no_formula(value: Any) -> Any:
    """A cell that a spreadsheet does not compute: text that begins as a formula has a quote before it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value
