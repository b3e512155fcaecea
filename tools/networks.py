"""Compile the project's networks and write docs/networks.md: placement, tasks, time, traffic, error.

python tools/networks.py [NAME ...]      print the rows of these networks only
python tools/networks.py --speed [NAME ...]   only predicted times and traffic, nothing is run
python tools/networks.py --renew [NAME ...]   what is the same on every machine, in the document
python tools/networks.py                 all of them, and the document
"""

from __future__ import annotations

import gc
import re
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hexane import chips
from hexane.lowering.compilation import Compilation

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("src", "tests", "tools", "benchmarks")]

import hexane  # noqa: E402
from _best import best_of_both  # noqa: E402
from hexane import passes  # noqa: E402
from hexane.codegen.driver import compile_for, context_of  # noqa: E402
from hexane.codegen.memory import Cause, Spill  # noqa: E402
from hexane.graph.macs import macs_of  # noqa: E402
from hexane.lowering.transformations import TRANSFORMATIONS  # noqa: E402
from hexane.session.agreement import Agreement  # noqa: E402
from hexane.session.network_run import NetworkRun  # noqa: E402
from hexane.session.run import run_network  # noqa: E402
from hexane.session.verdict import percent  # noqa: E402
from hexane.timing.traffic import Traffic, traffic  # noqa: E402
from network_list import NETWORKS, Network  # noqa: E402

ROUNDS = 4
"""Of what is compared in turn: compilation and session, both dialects' runs and the session's."""
TARGET = ROOT / "docs" / "networks.md"
MOST_RATIO = 1.5
"""Of bytes moved over the compulsory ones: above it the tensors are listed."""
MOST_NAMES = 4
BEGINS = (r"\d+ \|", r"\d+ us", r"(?:same|close|changed|broken) \|")
"""What follows a network's name in its lines: of the tables of placement, of predicted times and of verdicts."""
FOR_TIME = [row.name for row in TRANSFORMATIONS.values() if not (row.for_truth or row.error)]
"""What is switched off one by one."""


@dataclass(frozen=True)
class Speed:
    """One way to compile a network: engine time of its tasks, what they move, how many, what they rest on."""

    engine_us: float
    traffic: Traffic
    tasks: int
    inferred: float


@dataclass
class Row:
    """What was found about one network."""

    name: str
    error: str = ""
    source_ops: int = 0
    source_macs: int = 0
    passes_s: float = 0.0
    compile_s: float = 0.0
    session_s: float = 0.0
    run_s: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By dialect: seconds of a run of the emulator, and of a run of onnxruntime's session beside it."""
    stats: dict[str, Any] = field(default_factory=dict)
    cosine: float = 0.0
    largest_error: float = 0.0
    largest: float = 0.0
    same_bits: bool = False
    model_us: float = 0.0
    """Time of the graph, as the calibrated model sees it compiled by Apple, without calls."""
    bound_us: float = 0.0
    """What the engine cannot be below: all arithmetic at its peak, or all compulsory bytes at the memory's peak."""
    model_host_us: float = 0.0
    """The part of it in which Core ML computes on the processor what Apple's compiler refuses."""
    speeds: dict[str, Speed] = field(default_factory=dict)
    run: NetworkRun | None = None
    """A run with every layer examined."""
    spills: list[Spill] = field(default_factory=list)
    """What the default dialect moves beyond the least, the largest first."""


def new_session(model: bytes) -> Any:
    """onnxruntime's session of a model, with all optimisations."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def clock(row: Row, graph: Any, inputs: dict[str, np.ndarray], model: bytes) -> Any:
    """Seconds of compilation and of runs beside onnxruntime's, in turn; of either the shortest.

    Gives the program in the default dialect, whose further runs are those of a prepared machine.
    """
    row.compile_s, row.session_s = best_of_both(lambda: hexane.compile(graph), lambda: new_session(model), ROUNDS)
    session = new_session(model)
    for dialect in ("apple", "default"):
        program = hexane.compile(graph, dialect=dialect)
        for _ in range(2):  # a program that runs again makes its tables then
            program.run(inputs)
        row.run_s[dialect] = best_of_both(partial(program.run, inputs), partial(session.run, None, inputs), ROUNDS)
    return program


def ways() -> dict[str, dict[str, Any]]:
    """The ways to compile that are compared: Apple's forms alone, everything, and everything but one."""
    less = {f"without {name}": {"without": (name,)} for name in FOR_TIME}
    return {"apple": {"dialect": "apple"}, "default": {}, **less}


def speed_of(program: Any) -> Speed:
    stats = program.stats()
    total = sum(stats["evidence"].values()) or 1
    return Speed(
        hexane.estimate(program).parts.work_us,
        traffic(program),
        stats["tasks"],
        stats["evidence"].get("INFERRED", 0) / total,
    )


def predict(row: Row, graph: Any, *, every: bool = True) -> None:
    """Times and traffic of the network, compiled in both dialects; ``every``: and without each transformation."""
    estimated = hexane.estimate(graph)
    row.model_us, row.model_host_us = estimated.parts.work_us, estimated.parts.host_us
    row.bound_us = estimated.bound_us
    for name, options in ways().items():
        if name not in row.speeds and (name in ("apple", "default") or every):
            found: list[Spill] = []
            context = replace(context_of(**options), on_spills=found.extend)
            row.speeds[name] = speed_of(compile_for(graph, context, options.get("dialect", "default")))
            if name == "default":
                row.spills = sorted(found, key=lambda d: -d.bytes)


def model_text(row: Row) -> str:
    """The model's time, and how much of it is the processor's."""
    return f"{row.model_us:.0f} us" + (f", {row.model_host_us:.0f} on the host" if row.model_host_us >= 1 else "")


def speed_line(row: Row) -> str:
    parts = [
        f"{name} {s.engine_us:.0f} us ({s.engine_us / row.model_us:.2f}), {s.tasks} tasks, moved {s.traffic.ratio:.2f},"
        f" inferred {s.inferred:.0%}"
        for name, s in row.speeds.items()
    ]
    return f"{row.name}: model {model_text(row)}; " + "; ".join(parts)


def counted(network: Network, graph: Any) -> Row:
    """A row that knows what the network has."""
    ops = graph.main.ops
    return Row(network.name, source_ops=len(ops), source_macs=sum(macs_of(op) for op in ops))


def placement_line(row: Row) -> str:
    """The line of the first table."""
    s = row.stats
    total = sum(s["evidence"].values()) or 1
    shares = ", ".join(f"{k} {100 * v / total:.0f} %" for k, v in sorted(s["evidence"].items()))
    return (
        f"| {row.name} | {row.source_ops} | {s['engine_segments']} | {s['host_segments']} | {s['tasks']} "
        f"| {row.source_macs / 1e6:.0f} M | {100 * s['macs_on_engine']:.2f} % | {shares} |"
    )


def times_line(row: Row) -> str:
    """The line of the table of predicted times."""
    before, after = row.speeds["apple"], row.speeds["default"]
    l2_bytes = chips.get("M1").generation.l2_bytes
    return (
        f"| {row.name} | {model_text(row)} | {row.bound_us:.0f} us | {before.engine_us:.0f} us, {before.tasks} tasks "
        f"| {after.engine_us:.0f} us, {after.tasks} tasks | {before.engine_us / row.model_us:.2f} to "
        f"**{after.engine_us / row.model_us:.2f}** | {before.traffic.ratio:.2f} | {after.traffic.ratio:.2f} "
        f"| {100 * after.traffic.l2_end / l2_bytes:.0f} % | {before.inferred:.0%} | {after.inferred:.0%} |"
    )


def verdict_line(row: Row) -> str:
    """The line of the table of verdicts: what ``hexane run`` says, beside fp16 storage, and where the error is made."""
    run = row.run
    assert run is not None and run.verdict is not None and run.insight is not None
    worst = max(run.agreements, key=lambda output: output.relative or 0.0)
    made = sorted(run.insight.layers, key=lambda layer: -(layer.made or 0.0))[:MOST_NAMES]
    layers = ", ".join(f"`{layer.name}` ({layer.op}) {percent(layer.made or 0.0)}" for layer in made)
    errors = f"{relative(worst.relative)} | {relative(worst.fp16_storage)}"
    return f"| {row.name} | {run.verdict.word} | {worst.name} | {errors} | {decisions(run.agreements)} | {layers} |"


def relative(error: float | None) -> str:
    """A relative error, nothing where none is known."""
    return "" if error is None else percent(error)


def decisions(outputs: list[Agreement]) -> str:
    """How many of the network's decisions differ."""
    answers = [output.answer for output in outputs if output.answer is not None]
    return f"{sum(a.changed for a in answers)} of {sum(a.decisions for a in answers)}" if answers else ""


def lines_of(network: Network) -> tuple[str, str, str]:
    """The lines of a network that are the same on every machine: placement, predicted times, verdict."""
    graph, inputs, _ = network.load()
    row = counted(network, graph)
    row.stats = hexane.compile(graph).stats()
    predict(row, graph, every=False)
    row.run = run_network(graph, inputs, name=network.name, compare="reference", insight=True)
    return placement_line(row), times_line(row), verdict_line(row)


def renew(networks: list[Network]) -> None:
    """The lines of the networks that are here, in the document."""
    text = TARGET.read_text()
    for network in networks:
        try:
            lines = lines_of(network)
        except (FileNotFoundError, ImportError) as error:
            print(f"{network.name}: not here: {error}", flush=True)
            continue
        for line, begin in zip(lines, BEGINS):
            text = re.sub(rf"^\| {re.escape(network.name)} \| {begin}.*$", lambda _, new=line: new, text, flags=re.M)
        print(*lines, sep="\n", flush=True)
    TARGET.write_text(text)


def measure(network: Network) -> Row:
    graph, inputs, model = network.load()
    row = counted(network, graph)
    start = time.perf_counter()
    passes.run(graph, Compilation(chips.get("M1")))
    row.passes_s = time.perf_counter() - start
    program = clock(row, graph, inputs, model)
    del model
    row.stats = program.stats()
    wanted = graph.evaluate(inputs)
    made = program.run(inputs)
    a, b = (np.concatenate([d[k].astype(np.float64).ravel() for k in wanted]) for d in (wanted, made))
    row.cosine = float(a @ b / np.sqrt(max((a @ a) * (b @ b), 1e-300)))
    bits = program.run(inputs, level="graph")
    row.same_bits = all(np.array_equal(made[k], bits[k], equal_nan=True) for k in made)
    row.largest_error, row.largest = float(np.abs(a - b).max()), float(np.abs(a).max())
    row.run = run_network(graph, inputs, name=network.name, compare="reference", insight=True)
    return row


def warm_up() -> None:
    """Compile the emulator's kernels and read the tables before anything is timed."""
    builder = hexane.graph.GraphBuilder()
    x = builder.input("x", (1, 16, 8, 8), "fp16")
    builder.output(builder.relu(x=builder.conv(x=x, weight=np.ones((16, 16, 3, 3), np.float16), pad_type="same")))
    hexane.compile(builder.graph).run({"x": np.zeros((1, 16, 8, 8), np.float16)})


HEAD = """# Networks

Written by `python tools/networks.py`; times are of the machine that ran it.

The zoo's weights are random, scaled so that every layer's result has variance 1; the others are the real networks.
*Compile* is `hexane.compile`, from a loaded graph to images in memory, passes and packing of weights included;
*session* is onnxruntime creating a session with all optimisations on the same machine, in float32 (networks that come
from PyTorch are written as ONNX by hexane first). *Emulated* is a run of the emulator, `program.run`, of a program that
ran before, in both dialects; *session's run* is onnxruntime's. What is compared runs in turn, in blocks with rests
between them, on all cores, and the shortest time of each counts. *Error* compares the program on the emulated engine
with the float32 reference of the network: cosine over all outputs, and the largest difference against the largest
output. No engine took part.

"""


SPEED_HEAD = """
## Predicted time, traffic and evidence

*Model* is the time that the calibrated model predicts of the network as Apple compiles it (`hexane.estimate` of the
graph, M1), without calls, and with what Core ML computes on the processor where Apple's compiler refuses an op; *bound*
is what no program can be below on the engine: all arithmetic at the array's peak, or all compulsory bytes at the
memory's; *apple* and *default* are the two dialects of hexane's compiler, timed task by task, with their segments on
the host ([transformations](transformations.md)). *Moved / least* is the bytes that tasks move to and from memory over
the compulsory ones: inputs and outputs of the engine's segments, constants and weights once. *Peak L2* is the end of
the highest region that a task names.
"""


VERDICT_HEAD = f"""
## Verdicts beside fp16 storage

What `hexane run` says of each network on M1 ([verdicts](commands/run.md#the-verdict)): the relative error (root mean
square) of the output that is furthest off, on the emulated engine; the same of the network in float32 with every
tensor stored in fp16, which any machine of 16 bits loses before its own arithmetic counts; how many of the network's
decisions (classes, thresholds) differ; and the {MOST_NAMES} layers that add most themselves, held against float32 on
the inputs that reach them. Errors are held against float32, whose last bits differ between processors: elsewhere they
may be a tenth higher or lower.
"""


def verdict_table(rows: list[Row]) -> list[str]:
    """The verdict on every network, and where its error comes from."""
    lines = [
        VERDICT_HEAD,
        "| network | verdict | output | engine | fp16 storage | decisions that differ | made most in |",
    ]
    return [*lines, "|---" * 7 + "|", *(verdict_line(r) for r in rows)]


def document(rows: list[Row]) -> str:
    lines = [HEAD]
    lines.append(
        "| network | ops | engine segments | host segments | tasks | MACs | on the engine | tasks by evidence |"
    )
    lines.append("|---|---|---|---|---|---|---|---|")
    for r in rows:
        s = r.stats
        if not s:
            lines.append(f"| {r.name} | {r.error} |" + " |" * 6)
            continue
        lines.append(placement_line(r))
    lines += verdict_table([r for r in rows if r.run])
    lines += speed_tables([r for r in rows if r.speeds])
    lines.append("\n## Compilation, emulation and error\n")
    lines.append(
        "| network | passes | compile | session | ratio | emulated, apple | default | session's run | ratio, apple"
    )
    lines[-1] += " | default | constants | scratch | cosine | largest error | bits of graph level |"
    lines.append("|---" * 15 + "|")
    for r in rows:
        if not r.stats:
            continue
        bits = "the same" if r.same_bits else "DIFFERENT"
        before, after = r.run_s["apple"], r.run_s["default"]
        lines.append(
            f"| {r.name} | {r.passes_s:.2f} s | {r.compile_s:.2f} s | {r.session_s:.2f} s "
            f"| {r.compile_s / r.session_s:.1f} | {before[0] * 1e3:.1f} ms | {after[0] * 1e3:.1f} ms "
            f"| {min(before[1], after[1]) * 1e3:.1f} ms | {before[0] / before[1]:.1f} | **{after[0] / after[1]:.1f}** "
            f"| {r.stats['const_bytes'] / 1e6:.1f} MB | {r.stats['scratch_bytes'] / 1e6:.1f} MB "
            f"| {r.cosine:.6f} | {r.largest_error:.2g} of {r.largest:.2g} | {bits} |"
        )
    lines.append("\n## Ops on the host\n")
    for r in rows:
        if not r.stats:
            continue
        reasons = Counter(
            (op.partition(" ")[0], reason) for op, reason in r.stats["host_reasons"].items()
        )  # one line per kind of op and reason
        if not reasons:
            lines.append(f"* **{r.name}**: none.")
            continue
        lines.append(f"* **{r.name}**:")
        lines += [f"  * {count} x `{kind}`: {reason}" for (kind, reason), count in reasons.most_common()]
    return "\n".join(lines) + "\n"


SPILLS_HEAD = f"""
## Bytes beyond the least

What the default dialect moves beyond the compulsory bytes, by cause, in MB: tensors *larger than L2* beside the other
operands of their tasks; tensors for which there is *no room beside others* that save more, or *no address free*; those
whose *form cannot stay* (a task reads them as its kernel, or walks through them in steps that are no region of L2);
*kernels* and *constants* that bands fetch again. The compiler says so itself (`hexane.codegen.memory.spills`). Of
networks that move more than {MOST_RATIO} times the least, the tensors that move most are listed.
"""


def spill_tables(rows: list[Row]) -> list[str]:
    """Bytes beyond the compulsory ones by cause, and the tensors behind them."""
    causes = list(Cause)
    lines = [SPILLS_HEAD, f"| network | least | moved | {' | '.join(causes)} |", "|---" * (len(causes) + 3) + "|"]
    for r in rows:
        moved = r.speeds["default"].traffic
        by_cause = {cause: sum(d.bytes for d in r.spills if d.cause is cause) for cause in causes}
        cells = [f"{by_cause[cause] / 1e6:.2f}" if by_cause[cause] else "" for cause in causes]
        lines.append(f"| {r.name} | {moved.compulsory / 1e6:.2f} | {moved.moved / 1e6:.2f} | {' | '.join(cells)} |")
    lines.append("")
    for r in rows:
        if r.speeds["default"].traffic.ratio <= MOST_RATIO:
            continue
        lines.append(f"* **{r.name}**:")
        kinds: dict[tuple[str, str], list[Spill]] = {}
        for d in r.spills:
            kinds.setdefault((d.cause.value, d.why), []).append(d)
        for (cause, why), these in sorted(kinds.items(), key=lambda row: -sum(d.bytes for d in row[1])):
            size = sum(d.bytes for d in these) / 1e6
            names = ", ".join(f"`{d.name}` {d.bytes / 1e6:.2f}" for d in these[:MOST_NAMES])
            more = f" and {len(these) - MOST_NAMES} more" if len(these) > MOST_NAMES else ""
            lines.append(f"  * {size:.2f} MB, {cause}{f' ({why})' if why else ''}: {names}{more}")
    return lines


def speed_tables(rows: list[Row]) -> list[str]:
    """Predicted times, traffic, L2 and evidence; then each transformation's part."""
    lines = [SPEED_HEAD]
    lines.append(
        "| network | model | bound | apple | default | ratio | moved / least, apple | default | peak L2 "
        "| INFERRED, apple | default |"
    )
    lines.append("|---" * 11 + "|")
    lines += [times_line(r) for r in rows]
    lines.append("\nEngine time without one transformation over that with all, where it is another:\n")
    lines += ["| transformation | networks |", "|---|---|"]
    for name in FOR_TIME:
        found = []
        for r in rows:
            if (less := r.speeds.get(f"without {name}")) is not None:
                ratio = f"{less.engine_us / r.speeds['default'].engine_us:.2f}"
                found += [f"{r.name} {ratio}"] if ratio != "1.00" else []
        lines.append(f"| `{name}` | {', '.join(found) or 'none by 0.5 %'} |")
    return lines + spill_tables(rows)


def main() -> None:
    warnings.filterwarnings("ignore")
    given = [a for a in sys.argv[1:] if not a.startswith("-")]
    chosen = [n for n in NETWORKS if not given or n.name in given]
    if "--speed" in sys.argv:
        for network in chosen:
            row = Row(network.name)
            predict(row, network.load()[0])
            print(speed_line(row), flush=True)
        return
    if "--renew" in sys.argv:
        renew(chosen)
        return
    warm_up()
    rows = []
    for network in chosen:
        try:
            row = measure(network)
        except (FileNotFoundError, ImportError) as error:
            row = Row(network.name, error=f"not here: {error}")
        rows.append(row)
        s = row.stats
        print(
            f"{row.name}: {row.error or ''} tasks {s.get('tasks')} engine {s.get('macs_on_engine')} "
            f"compile {row.compile_s:.2f} s session {row.session_s:.2f} s run {row.run_s} cosine {row.cosine:.6f} "
            f"error {row.largest_error:.3g} of {row.largest:.3g}, bits of graph level {row.same_bits}",
            flush=True,
        )
        if not given:
            TARGET.write_text(document(rows))
        gc.collect()
    for network, row in zip(chosen, rows):
        if not row.error:
            predict(row, network.load()[0])
            print("  " + speed_line(row), flush=True)
        if not given:
            TARGET.write_text(document(rows))


if __name__ == "__main__":
    main()
