"""What the commands cost beside the work in them: reports, networks that overflow, a fresh process.

    python benchmarks/commands.py [--layers N ...] [--rounds N]

1. A report of networks of 7, 70 and 252 ops (``hexane run --report`` without writing the page) over a run of the
   same network with its float32 reference, and seconds an op over those of the shortest: 1 means linear.
2. A network whose sums meet the accumulator's limit over the same network with weights for which none does.
3. ``hexane run`` of ShuffleNet and MobileNetV2 in a second process, over one that does the same with onnxruntime alone;
   the interpreter finds the bytecode of all modules, as it does in an installation.

Processor time of all threads, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command does

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

import hexane  # noqa: E402
from compile import residual, weights  # noqa: E402
from hexane.graph import GraphBuilder  # noqa: E402
from hexane.session.run import run_network  # noqa: E402

PEER = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
given = session.get_inputs()[0]
print(session.run(None, {given.name: numpy.random.default_rng(0).standard_normal(given.shape).astype("f4")})[0].max())
"""


def busy(work: Callable[[], Any], rounds: int) -> float:
    """Processor seconds of the shortest of some rounds, after one that does not count."""
    work()
    found = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def report(layers: list[int], rounds: int) -> None:
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 64, 28, 28)).astype(np.float16)}
    first = 0.0
    for number in layers:
        graph = residual(number)
        ops = len(graph.main.ops)
        run = partial(run_network, graph, inputs, name="x", compare="reference")
        plain, whole = busy(run, rounds), busy(partial(run, insight=True), rounds)
        first = first or whole / ops
        print(f"report {ops:6} ops {whole:8.3f} s, {whole / plain:5.2f} x a run, {whole / ops / first:5.2f} an op",
              flush=True)  # fmt: skip


def overflow(rounds: int) -> None:
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 128, 28, 28)).astype(np.float16)}
    found = {}
    for name, scale in (("finite", 1.0), ("overflowing", 40.0)):
        b = GraphBuilder()
        y = b.input("x", (1, 128, 28, 28), "fp16")
        for k in (3, 1, 3, 1):
            y = b.relu(x=b.conv(x=y, weight=(weights(128, 128, k) * np.float16(scale)), pad_type="same"))
        b.output(y, name="y")
        program = hexane.compile(b.graph)
        infinite = np.isinf(program.run(inputs)["y"]).mean()
        found[name] = busy(lambda program=program: program.run(inputs), 3 * rounds)
        print(f"{name:12} {found[name] * 1e3:8.2f} ms, {infinite:4.0%} infinite", flush=True)
    print(f"overflowing over finite: {found['overflowing'] / found['finite']:.2f}")


def fresh(rounds: int) -> None:
    import onnx

    from formats.zoo import mobilenet_v2, settled_model

    with tempfile.TemporaryDirectory() as folder:
        for name, model in (("ShuffleNet", settled_model("shufflenet")), ("MobileNetV2", mobilenet_v2())):
            path = Path(folder, f"{name}.onnx")
            onnx.save(model, path)
            ours = [sys.executable, "-m", "hexane", "run", str(path), "--random", "0", "--json"]
            peer = [sys.executable, "-c", PEER, str(path)]
            one, other = (process_seconds(command, rounds, folder) for command in (ours, peer))
            print(f"hexane run of {name} {one:6.2f} s, onnxruntime {other:6.2f} s, {one / other:5.2f} times")


def process_seconds(command: list[str], rounds: int, bytecode: str) -> float:
    """Processor seconds of a whole process, the shortest of some, after one that does not count."""
    found = []
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for _ in range(rounds + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 10, 36])
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    report(options.layers, options.rounds)
    overflow(options.rounds)
    fresh(options.rounds)


if __name__ == "__main__":
    main()
