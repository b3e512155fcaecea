"""Compilation over the number of layers: time per layer of networks of 1, 2, 4 and 8 times as many.

    python benchmarks/compile.py [--rounds N] [--large]

Near-linear means that the last column stays near 1: seconds per layer over those of the shortest network. Each layer is
a bottleneck of three convolutions with a residual add and, in the second network, grows a concat as DenseNet's do (32
channels a layer, by blocks of six layers); in the third it is a transformer block of 23 ops. ``--large`` compiles 50
and 450 of these (1,150 and 10,350 ops) once each, and gives the exponent: with equal weights in all blocks, and with
weights of their own, as trained networks have them. Processor time, which other work on the machine disturbs less; how
much of it the passes over the graph take is said, the rest is code generation.
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


def transformer(layers: int, own: bool = False) -> hexane.graph.Graph:
    """Blocks of 64 positions, 128 features and 4 heads, all with the same weights, or each with its ``own``."""
    b = GraphBuilder()
    x = b.input("x", (1, 64, 128), "fp16")
    ones, zeros = np.ones(128, np.float16), np.zeros(256, np.float16)
    rows = {"q": (128, 128), "k": (128, 128), "v": (128, 128), "o": (128, 128), "up": (256, 128), "down": (128, 256)}
    w = {name: weights(*shape, 1)[:, :, 0, 0] for name, shape in rows.items()}
    rng = np.random.default_rng(0)

    def linear(x: Value, name: str) -> Value:
        return b.linear(x=x, weight=w[name], bias=zeros[: rows[name][0]])

    for _ in range(layers):
        if own:
            w = {name: rng.permutation(weight) for name, weight in w.items()}
            ones, zeros = rng.uniform(0.5, 2, 128).astype(np.float16), rng.uniform(-1, 1, 256).astype(np.float16)
        n = b.layer_norm(x=x, axes=[-1], gamma=ones, beta=zeros[:128], epsilon=1e-5)
        heads = (b.reshape(x=linear(n, name), shape=(1, 64, 4, 32)) for name in "qkv")
        q, k, v = (b.transpose(x=y, perm=(0, 2, 1, 3)) for y in heads)
        s = b.softmax(x=b.mul(x=b.matmul(x=q, y=k, transpose_y=True), y=np.float16(32**-0.5)), axis=-1)
        y = b.reshape(x=b.transpose(x=b.matmul(x=s, y=v), perm=(0, 2, 1, 3)), shape=(1, 64, 128))
        x = b.add(x=x, y=linear(y, "o"))
        n = b.layer_norm(x=x, axes=[-1], gamma=ones, beta=zeros[:128], epsilon=1e-5)
        x = b.add(x=x, y=linear(b.gelu(x=linear(n, "up"), mode="EXACT"), "down"))
    b.output(x)
    return b.graph


def large() -> None:
    hexane.compile(transformer(1))
    for own, words in ((False, "equal weights"), (True, "weights of their own")):
        took = []
        for layers in (50, 450):
            graph = transformer(layers, own)
            start = time.process_time()
            hexane.compile(graph)
            took.append(time.process_time() - start)
            print(f"{len(graph.main.ops):6} ops of transformer blocks with {words} {took[-1]:7.2f} s", flush=True)
        print(f"exponent {np.log(took[1] / took[0]) / np.log(9):.2f}")


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
    parser.add_argument("--large", action="store_true")
    given = parser.parse_args()
    if given.large:
        large()
        return
    rounds = given.rounds
    for make in (residual, dense, transformer):
        first = 0.0
        for times in TIMES:
            layers = LAYERS * times
            taken, passes = seconds(make(layers), rounds)
            each = taken / layers
            first = first or each
            print(f"{make.__name__:11} {layers:4} layers {taken:7.3f} s, passes {passes / taken:4.0%} "
                  f"{each * 1e3:7.2f} ms a layer {each / first:5.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
