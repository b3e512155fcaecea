"""Compilation over the number of layers: time per layer of networks of 1, 2, 4 and 8 times as many.

    python benchmarks/compile.py [--rounds N]

Near-linear means that the last column stays near 1: seconds per layer over those of the shortest network. Each layer is
a bottleneck of three convolutions with a residual add and, in the second network, grows a concat as DenseNet's do (32
channels a layer, by blocks of six layers). Processor time, which other work on the machine disturbs less; how much of
it the passes over the graph take is said, the rest is code generation.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import hexane
from hexane.graph import GraphBuilder, Value

LAYERS, TIMES = 6, (1, 2, 4, 8)


def weights(cout: int, cin: int, k: int) -> np.ndarray:
    rng = np.random.default_rng(cout * k + cin)
    return (rng.standard_normal((cout, cin, k, k)) / (cin * k * k) ** 0.5).astype(np.float16)


def bottleneck(b: GraphBuilder, x: Value, inner: int, out: int) -> Value:
    """1x1, 3x3 and 1x1, a ReLU behind the first two."""
    cin = x.shape[1]
    y = b.relu(x=b.conv(x=x, weight=weights(inner, cin, 1)))
    y = b.relu(x=b.conv(x=y, weight=weights(inner, inner, 3), pad_type="same"))
    return b.conv(x=y, weight=weights(out, inner, 1))


def residual(layers: int) -> hexane.graph.Graph:
    b = GraphBuilder()
    x = b.input("x", (1, 64, 28, 28), "fp16")
    for _ in range(layers):
        x = b.relu(x=b.add(x=x, y=bottleneck(b, x, 32, 64)))
    b.output(x)
    return b.graph


def dense(layers: int) -> hexane.graph.Graph:
    b = GraphBuilder()
    x = b.input("x", (1, 64, 28, 28), "fp16")
    for layer in range(layers):
        x = b.concat(values=(x, bottleneck(b, x, 64, 32)), axis=1)
        if layer % LAYERS == LAYERS - 1:
            x = b.relu(x=b.conv(x=x, weight=weights(64, x.shape[1], 1)))
    b.output(x)
    return b.graph


def seconds(graph: hexane.graph.Graph, rounds: int) -> tuple[float, float]:
    """Shortest of some compilations, behind one that does not count, and what of it the passes took."""
    hexane.compile(graph)
    found = []
    for _ in range(rounds):
        ends: list[float] = []
        start = time.process_time()
        hexane.compile(graph, on_pass=lambda *_, ends=ends: ends.append(time.process_time()))
        found.append((time.process_time() - start, ends[-1] - start))
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    for make in (residual, dense):
        first = 0.0
        for times in TIMES:
            layers = LAYERS * times
            taken, passes = seconds(make(layers), rounds)
            each = taken / layers
            first = first or each
            print(f"{make.__name__:10} {layers:4} layers {taken:7.3f} s, passes {passes / taken:4.0%} "
                  f"{each * 1e3:7.2f} ms a layer {each / first:5.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
