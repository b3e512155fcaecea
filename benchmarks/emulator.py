"""Whole emulated convolutions and matrix products against onnxruntime's float32 on the same threads.

    python benchmarks/emulator.py [--threads N] [--repeat R]

Each row is one program of one or more tasks, from arrays to arrays: building the program is not counted.
The ratio is onnxruntime's time divided by the emulator's; 1.0 would be as fast as float32. The second ratio is of
processor time, which other work on the machine disturbs less. Memory is the peak of one run of a fresh program, without
the engine's L2, over the bytes of input, weights and output.
"""

from __future__ import annotations

import argparse
import os
import time
import tracemalloc
from collections.abc import Callable

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
parser.add_argument("--repeat", type=int, default=7)
arguments = parser.parse_args()
os.environ["HEXANE_THREADS"] = str(arguments.threads)
os.environ["OMP_NUM_THREADS"] = str(arguments.threads)

import numpy as np  # noqa: E402
from onnx import helper  # noqa: E402

import hexane  # noqa: E402
from _peer import session  # noqa: E402
from hexane.emulator import EmulatedProgram  # noqa: E402
from hexane.graph import GraphBuilder  # noqa: E402

CONVOLUTIONS = [  # channels in, out, kernel, size
    (64, 64, 3, 64),
    (128, 128, 3, 32),
    (256, 256, 3, 32),
    (256, 256, 3, 14),
    (512, 512, 3, 7),
    (256, 256, 1, 64),
    (512, 512, 1, 32),
    (64, 64, 1, 16),
]
PRODUCTS = [(256, 1024, 1024), (512, 512, 2048), (64, 256, 512)]  # M, K, N with a constant second operand


def best(call: Callable[[], object]) -> tuple[float, float]:
    """Shortest of some runs, in seconds of wall and of processor time (all threads)."""
    call()
    wall, processor = [], []
    for _ in range(arguments.repeat):
        start, busy = time.perf_counter(), time.process_time()
        call()
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - busy)
    return min(wall), min(processor)


def memory(data: bytes, name: str, x: np.ndarray) -> float:
    """Peak of a first run over the bytes of the tensors."""
    program = EmulatedProgram.of(data)
    tracemalloc.start()
    hexane.emulate(program, {name: x})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    tensors = x.nbytes + len(program.const) + sum(2 * int(np.prod(s.shape)) for s in program.outputs)
    return (peak - program.l2_bytes) / tensors


def emulated(graph: hexane.graph.Graph, x: np.ndarray) -> tuple[Callable[[], object], int, float]:
    """The compiled program as a call, its number of tasks, and its memory."""
    images = hexane.compile(graph, chip="M1").images
    assert len(images) == 1, "the benchmark wants one engine program"
    data = images[0].to_bytes()
    program = EmulatedProgram.of(data)
    (name,) = (surface.label for surface in program.inputs)
    hexane.emulate(program, {name: x})  # so that compiled kernels are loaded
    return lambda: hexane.emulate(program, {name: x}), len(images[0].tasks), memory(data, name, x)


def row(
    name: str, products: int, ours: Callable[[], object], tasks: int, memory: float, peer: Callable[[], object]
) -> None:
    """Measure the two in turn and print the ratio."""
    (a, busy_a), (b, busy_b) = best(ours), best(peer)
    times = f"{a * 1e3:9.2f} {b * 1e3:9.2f} {b / a:7.2f} {busy_b / busy_a:10.2f} {memory:7.1f}"
    print(f"{name:<28} {products / 1e6:9.1f} {tasks:5d} {times}", flush=True)


def main() -> None:
    """All rows."""
    rng = np.random.default_rng(0)
    print(f"{arguments.threads} threads")
    print(
        f"{'':<28} {'MMAC':>9} {'tasks':>5} {'ours ms':>9} {'ort ms':>9} {'ratio':>7} {'processor':>10} {'memory':>7}"
    )
    for cin, cout, k, size in CONVOLUTIONS:
        x = rng.standard_normal((1, cin, size, size)).astype(np.float16)
        w = (rng.standard_normal((cout, cin, k, k)) / (cin * k * k) ** 0.5).astype(np.float16)
        b = GraphBuilder()
        b.output(b.conv(x=b.input("x", x.shape, "fp16"), weight=w, pad_type="same"))
        ours, tasks, peak = emulated(b.graph, x)
        pads = [k // 2] * 4
        node = helper.make_node("Conv", ["x", "w"], ["y"], pads=pads, kernel_shape=[k, k])
        row(
            f"conv {k}x{k} {cin}->{cout} {size}x{size}",
            cin * cout * k * k * size * size,
            ours,
            tasks,
            peak,
            session(node, x, w, arguments.threads),
        )
    for m, inner, n in PRODUCTS:
        x = rng.standard_normal((m, inner)).astype(np.float16)
        w = (rng.standard_normal((inner, n)) / inner**0.5).astype(np.float16)
        b = GraphBuilder()
        b.output(b.matmul(x=b.input("x", (1, m, inner), "fp16"), y=w))
        ours, tasks, peak = emulated(b.graph, x)
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        row(f"matmul {m}x{inner}x{n}", m * inner * n, ours, tasks, peak, session(node, x, w, arguments.threads))


if __name__ == "__main__":
    main()
