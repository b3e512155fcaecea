"""How fast the float32 reference computes and MIL text is read, as multiples of a peer's time in the same run.

    python benchmarks/graph.py

Layers against onnxruntime on one core each way that it likes; MIL text against ``json.loads`` of a text of that size.
"""

from __future__ import annotations

import json

import numpy as np

import hexane
from _best import best
from _peer import one_node
from hexane.graph import Graph, GraphBuilder

CONVOLUTIONS = [
    # channels in, channels out, extent, kernel, stride, groups
    (3, 64, 224, 7, 2, 1),
    (64, 64, 56, 3, 1, 1),
    (512, 512, 7, 3, 1, 1),
    (128, 512, 28, 1, 1, 1),
    (64, 64, 56, 3, 1, 4),
    (32, 32, 112, 3, 1, 32),
    (256, 256, 14, 3, 1, 256),
]


def conv_pair(case: tuple[int, ...]) -> tuple[Graph, bytes]:
    """One convolution as a graph and as an ONNX model."""
    from onnx import helper

    cin, cout, extent, kernel, stride, groups = case
    weight = np.random.default_rng(0).standard_normal((cout, cin // groups, kernel, kernel)).astype(np.float32)
    b = GraphBuilder()
    x = b.input("x", (1, cin, extent, extent))
    pads = [kernel // 2] * 4
    y = b.conv(x=x, weight=weight, strides=[stride, stride], pad_type="custom", pad=pads, groups=groups, name="y")
    b.output(y)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=pads, strides=[stride, stride], group=groups)
    return b.graph, one_node(node, x.shape, weight)


def main() -> None:
    import onnxruntime

    for case in CONVOLUTIONS:
        graph, model = conv_pair(case)
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        x = np.random.default_rng(1).standard_normal(graph.inputs["x"].shape).astype(np.float32)
        ours = best(lambda: graph.evaluate({"x": x}))  # noqa: B023
        peer = best(lambda: session.run(None, {"x": x}))  # noqa: B023
        print(f"conv {case!s:32} {ours * 1e3:8.2f} ms, {ours / peer:6.1f} times onnxruntime")
    b = GraphBuilder()
    y = b.input("x", (1, 8, 4, 4), "fp16")
    for index in range(10_000):
        y = b.relu(x=y, name=f"value_number_{index}")
    b.output(y)
    text = b.graph.to_mil()
    other = json.dumps([list(range(40))] * (len(text) // 150))
    ours = best(lambda: hexane.parse_mil(text), 3)
    peer = best(lambda: json.loads(other), 3) * len(text) / len(other)
    print(f"MIL text {len(text) / 1e6:.2f} MB in {ours:.2f} s, {ours / peer:.0f} times json.loads of that size")
    ours = best(b.graph.to_mil, 3)
    print(f"MIL text written in {ours:.2f} s, {ours / peer:.0f} times json.loads of that size")


if __name__ == "__main__":
    main()
