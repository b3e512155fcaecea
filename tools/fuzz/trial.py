"""One network through the whole chain, and what counts as a failure on the way.

A failure is an exception that is no HexaneError, a program that the emulator refuses, other bits than those of the
graph level, a file that does not read back as what was written, a result far from onnxruntime's, or more than a minute.
"""

from __future__ import annotations

import re
import signal
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import hexane
from fuzz.sketch import Sketch
from hexane import chips
from hexane.chips import Chip
from hexane.codegen.defects import DefectWarning
from hexane.errors import EmulationError, HexaneError, UnsupportedError
from hexane.graph.ir import Graph

LIMIT_S = 60.0
DIALECTS = ("default", "apple")
BITS, REFUSED, BARE, LATE, FILE, FLOAT = "bits", "refused", "bare", "late", "file", "float32"


class Failure(Exception):
    """What is wrong with a network: its kind, the stage, and what was said, for which program."""

    def __init__(self, kind: str, stage: str, text: str, chip: str = "M1", dialect: str = "default") -> None:
        super().__init__(f"{kind} in {stage}: {text}")
        self.kind, self.stage, self.text, self.chip, self.dialect = kind, stage, text, chip, dialect

    @property
    def signature(self) -> tuple[str, str, str]:
        """Kind, stage and the words of the message without names and numbers."""
        line = self.text.strip().splitlines()[-1] if self.text.strip() else ""
        return self.kind, self.stage, re.sub(r"'[^']*'|[\d.x]+", "#", line)[:90]


class _Late(BaseException):
    """The time is over; not to be caught on the way."""


@dataclass(frozen=True)
class Plan:
    """What is done with a network: programs for these chips, and which of the slower stages."""

    chips: tuple[str, ...]
    dialects: tuple[str, ...] = DIALECTS
    files: bool = True
    onnx: bool = False
    report: bool = False
    near: float = 0.0


@cache
def compiled_chips() -> tuple[Chip, ...]:
    """Every chip that hexane compiles for."""
    from hexane.codegen.targets import target_of

    found = []
    for chip in chips.parse_list("all"):
        try:
            target_of(chip, "default")
        except UnsupportedError:
            continue
        found.append(chip)
    return tuple(found)


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    """_Late after so many seconds of the processor: a busy machine is no fault of a network."""

    def late(*_: Any) -> None:
        raise _Late

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Trial:
    """The stages of one network, in order; ``counts`` gathers what happened over many."""

    def __init__(self, sketch: Sketch, plan: Plan, counts: Counter[str]) -> None:
        self.sketch = sketch
        self.plan = plan
        self.counts = counts
        self.stage = "graph"
        self.unevaluated = False
        self.chip, self.dialect = plan.chips[0], plan.dialects[0] if plan.dialects else DIALECTS[0]

    def run(self) -> None:
        """Failure at the first thing that is wrong."""
        try:
            with in_time(LIMIT_S), np.errstate(all="ignore"):
                self._stages()
        except _Late:
            raise self._failure(LATE, f"more than {LIMIT_S:.0f} s") from None
        except (Failure, KeyboardInterrupt):
            raise
        except EmulationError as error:
            raise self._failure(REFUSED, str(error)) from error
        except HexaneError as error:
            raise self._failure(REFUSED, f"{type(error).__name__}: {error}") from error
        except MemoryError as error:
            raise self._failure(BARE, "MemoryError") from error
        except Exception as error:
            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            raise self._failure(BARE, f"{where}{type(error).__name__}: {error}") from error

    def _failure(self, kind: str, text: str) -> Failure:
        return Failure(kind, self.stage, text, self.chip, self.dialect)

    def _stages(self) -> None:
        plan, graph = self.plan, self.sketch.graph()
        graph.verify()
        given = self.sketch.numbers()
        self.stage = "evaluate"
        try:
            reference = graph.evaluate(given)
        except HexaneError as error:
            reference, self.unevaluated = None, True
            self.counts[f"not evaluated: {type(error).__name__}"] += 1
        if plan.files:
            self._mil(graph)
        if plan.onnx and reference is not None:
            self._onnx(graph, given, reference)
        for self.chip in plan.chips:
            for self.dialect in plan.dialects:
                self._program(graph, given, reference)
        self.stage, self.dialect = "check", DIALECTS[0]
        for self.chip in plan.chips:
            hexane.check(graph, self.chip)
        self.stage = "estimate"
        for self.chip in plan.chips:
            estimate = hexane.estimate(graph, self.chip)
            if not (np.isfinite(estimate.latency_us) and estimate.latency_us >= 0):
                raise self._failure(BARE, f"a time of {estimate.latency_us}")
        if plan.report:
            self._report(graph, given)

    def _mil(self, graph: Graph) -> None:
        """Written as MIL text and read again."""
        self.stage = "write MIL"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "net.mil"
            try:
                graph.save(path)
            except UnsupportedError:
                self.counts["not written as MIL"] += 1
                return
            self.stage = "read MIL"
            again = hexane.load(path)
            for value in again.main.values():
                _ = value.constant and value.constant.array
        from hexane.graph.compare import difference

        said = difference(graph, again)
        if said is not None:
            raise self._failure(FILE, str(said))

    def _onnx(self, graph: Graph, given: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> None:
        """Written as ONNX: onnxruntime gives what the reference gives, and so does the file read again."""
        import onnxruntime

        from hexane.formats.onnx.writer import to_model

        self.stage = "write ONNX"
        try:
            data = to_model(graph)[0].SerializeToString()
        except UnsupportedError:
            self.counts["not written as ONNX"] += 1
            return
        self.stage = "onnxruntime"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            names = [node.name for node in session.get_inputs()]
            theirs = session.run(None, dict(zip(names, given.values(), strict=True)))
        except Exception as error:  # its own family, without a common base
            word = str(error).split(" : ")[2] if str(error).count(" : ") > 2 else type(error).__name__
            self.counts[f"onnxruntime: {word}"] += 1
            theirs = None
        if theirs is not None:
            self.counts["compared with onnxruntime"] += 1
            self._compare(dict(zip(reference, theirs)), reference, spread(graph, given, reference))
        self.stage = "read ONNX"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "net.onnx"
            path.write_bytes(data)
            again = hexane.load(path)
            self.stage = "evaluate ONNX"
            renamed = dict(zip(again.inputs, given.values(), strict=True))
            ours = again.evaluate(renamed)
        self._compare(dict(zip(reference, ours.values())), reference, spread(graph, given, reference))

    def _compare(self, got: dict[str, Any], wanted: dict[str, Any], spreads: dict[str, Any]) -> None:
        for name, theirs in wanted.items():
            ours = np.asarray(got[name])
            if ours.shape != theirs.shape:
                raise self._failure(FLOAT, f"{name} has shape {ours.shape} for {theirs.shape}")
            far = off(ours, theirs, spreads[name], 1e-3)
            if far:
                raise self._failure(FLOAT, f"{name}: {far}")

    def _program(self, graph: Graph, given: dict[str, np.ndarray], reference: dict[str, np.ndarray] | None) -> None:
        """Compiled; the tasks give the bits of the graph level, or both levels refuse the numbers."""
        self.stage = "compile"
        with warnings.catch_warnings():
            warnings.simplefilter("error", DefectWarning)  # what was handed out instead may be right; this is not
            program = hexane.compile(graph, self.chip, dialect=self.dialect)
        self.counts["programs"] += 1
        self.counts["tasks"] += sum(len(image.tasks) for image in program.images)
        self.counts["on the engine only"] += all(segment.kind == "engine" for segment in program.segments)
        self.stage = "graph level"
        bits: dict[str, np.ndarray] | None = None
        try:
            bits = program.run(given, level="graph")
        except EmulationError:
            raise
        except HexaneError:
            if reference is not None:
                raise
        self.stage = "emulate"
        try:
            tasks = program.run(given)
        except EmulationError:
            raise
        except HexaneError:
            if bits is not None:
                raise
            return
        if bits is None:
            raise self._failure(BITS, "the graph level refuses what the tasks compute")
        self.stage = "bits"
        for name, wanted in bits.items():
            if not same(tasks[name], wanted):
                if has_nan(program, given):
                    self.counts["other bits after a NaN"] += 1
                    return
                where = np.flatnonzero(differs(tasks[name], wanted).ravel())
                first = int(where[0]) if where.size else -1
                raise self._failure(
                    BITS,
                    f"{name}: {where.size} of {wanted.size} differ"
                    + (
                        f", the first at {first}: {tasks[name].ravel()[first]} for {wanted.ravel()[first]}"
                        if where.size
                        else ""
                    ),
                )
        if self.plan.near and reference is not None:
            for name, wanted in reference.items():
                far = off(tasks[name], wanted, 0.0, self.plan.near)
                if far:
                    self.stage = "near float32"
                    raise self._failure(FLOAT, f"{name}: {far}")

    def _report(self, graph: Graph, given: dict[str, np.ndarray]) -> None:
        """The whole session with every figure, written as a page."""
        self.stage = "report"
        from hexane.report.page import write_report
        from hexane.session.run import run_network

        try:
            with tempfile.TemporaryDirectory() as folder:
                write_report(
                    run_network(graph, given, name="net", chip=self.chip, insight=True), Path(folder) / "report"
                )
        except HexaneError:
            if not self.unevaluated:
                raise


def differs(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Where the bits are others; a NaN is a NaN."""
    kind = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[ours.dtype.itemsize]
    found = np.ascontiguousarray(ours).view(kind) != np.ascontiguousarray(theirs).view(kind)
    return found & ~(np.isnan(ours) & np.isnan(theirs)) if ours.dtype.kind == "f" else found


def same(ours: Any, theirs: Any) -> bool:
    """Whether two results are the same bits, in shape and dtype too."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    if ours.ndim == 0:
        ours, theirs = ours.reshape(1), theirs.reshape(1)
    if ours.dtype.kind not in "biuf":
        return bool(np.all(ours == theirs))
    return not differs(ours, theirs).any()


def has_nan(program: Any, given: dict[str, np.ndarray]) -> bool:
    """Whether a NaN appears anywhere in the network's own arithmetic: the levels need not agree then."""
    from hexane import numerics

    graph = program.graph.clone()
    names = [
        value.name for op in graph.ops for value in op.outputs if getattr(value.type, "dtype", "").startswith("fp")
    ]
    try:
        values = numerics.evaluate(graph.cut(names), given, chip=program.chip)
    except HexaneError:
        return False
    return any(np.isnan(array).any() for array in values.values() if np.asarray(array).dtype.kind == "f")


def spread(graph: Graph, given: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> dict[str, Any]:
    """How far each result moves when the inputs move by a rounding of float16: what no comparison can blame."""
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {name: np.zeros(array.shape) for name, array in reference.items()}
    for _ in range(2):
        moved = {
            name: (array * (1 + rng.uniform(-1e-3, 1e-3, array.shape))).astype(array.dtype)
            if array.dtype.kind == "f"
            else array
            for name, array in given.items()
        }
        for name, array in graph.evaluate(moved).items():
            if array.shape != reference[name].shape or array.dtype.kind not in "biuf":
                found[name] = np.inf
                continue
            found[name] = np.maximum(found[name], np.abs(array.astype(np.float64) - reference[name].astype(np.float64)))
    return found


def off(ours: np.ndarray, theirs: np.ndarray, spread: Any, tolerance: float) -> str:
    """How far a result is from another beyond a tolerance, in words; huge elements and NaN are left out."""
    if ours.dtype.kind not in "biuf" or ours.size == 0:
        return ""
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    counted = np.isfinite(a) & np.isfinite(b) & (np.abs(b) < 3e4)
    if not counted.any():
        return ""
    scale = max(1.0, float(np.abs(b[counted]).max()))
    error = np.where(counted, np.abs(a - b), 0)
    bad = error > tolerance * scale + 30 * np.where(np.isnan(spread), np.inf, spread)
    return f"{int(bad.sum())} of {bad.size} off by up to {error[bad].max():.3g} of {scale:.3g}" if bad.any() else ""


def narrowed(plan: Plan, failure: Failure) -> Plan:
    """Only what showed the failure."""
    files = failure.stage in ("write MIL", "read MIL")
    onnx = "ONNX" in failure.stage or failure.stage == "onnxruntime"
    return replace(
        plan,
        chips=(failure.chip,),
        dialects=() if files or onnx or failure.stage in ("check", "estimate", "evaluate") else (failure.dialect,),
        files=files,
        onnx=onnx,
        report=failure.stage == "report",
    )
