"""Cost of the passes and of compilation against the number of ops: is it near-linear?

    python benchmarks/passes.py [OPS ...]

Chains of blocks as in real networks (convolution, batch norm, hard swish, pool, channel shuffle, residual sum); the
peer is ``graph.verify``, which infers every op's type once.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import hexane
from hexane import chips, passes
from hexane.graph import GraphBuilder
from hexane.lowering.compilation import Compilation

SIZES = (100, 1000, 10000)
CHANNELS = 16


def network(ops: int) -> hexane.Graph:
    """About ``ops`` ops, eleven per block."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", (1, CHANNELS, 8, 8), "fp32")
    weight = (rng.standard_normal((CHANNELS, CHANNELS, 1, 1)) / 4).astype(np.float32)
    vector = np.ones(CHANNELS, np.float32)
    for _ in range(max(1, ops // 11)):
        y = b.conv(x=x, weight=weight)
        y = b.batch_norm(x=y, mean=vector, variance=vector, gamma=vector, beta=vector)
        y = b.real_div(x=b.mul(x=y, y=b.relu6(x=b.add(x=y, y=3.0))), y=6.0)
        y = b.avg_pool(x=y, kernel_sizes=[3, 3], strides=[1, 1], pad_type="custom", pad=[1, 1, 1, 1])
        y = b.reshape(x=y, shape=[1, 4, 4, 8, 8])
        y = b.reshape(x=b.transpose(x=y, perm=[0, 2, 1, 3, 4]), shape=[1, CHANNELS, 8, 8])
        x = b.add(x=x, y=y)
    b.output(x, name="y")
    return b.graph


def seconds(run, *args):
    start = time.perf_counter()
    run(*args)
    return time.perf_counter() - start


def main() -> None:
    sizes = [int(a) for a in sys.argv[1:]] or SIZES
    hexane.compile(network(20))
    print(f"{'ops':>7} {'passes':>9} {'per op':>9} {'compile':>9} {'per op':>9} {'verify':>9} {'passes / verify':>16}")
    worst: dict[str, list[float]] = {}
    for size in sizes:
        graph = network(size)
        count = len(graph.main.ops)
        spent = {"at": time.perf_counter()}

        def note(name, _graph, _changed, spent=spent, count=count):
            now = time.perf_counter()
            worst.setdefault(name, []).append((now - spent["at"]) / count)
            spent["at"] = now

        a = seconds(passes.run, graph, Compilation(chips.get("M1")), None, note)
        b = seconds(hexane.compile, graph)
        c = seconds(graph.verify)
        print(
            f"{count:7} {a:8.3f}s {a / count * 1e6:7.0f}us {b:8.3f}s {b / count * 1e6:7.0f}us {c:8.3f}s {a / c:16.1f}"
        )
    print("\nmicroseconds per op, by pass and size")
    for name, row in worst.items():
        print(f"  {name:26}" + "".join(f"{value * 1e6:9.1f}" for value in row))


if __name__ == "__main__":
    main()
