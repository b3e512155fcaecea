"""Load a network, compile it, run it on the emulated engine, and see how near it is to float32.

hexane example . && python first.py
"""

from __future__ import annotations

import numpy as np

import hexane

graph = hexane.load("model.onnx")  # the open batch is taken as 1
x = np.random.default_rng(0).random((1, 3, 320, 320), np.float32)

program = hexane.compile(graph, chip="M1")
engine = program.run({"x": x})["probabilities"]
float32 = graph.evaluate({"x": x})["probabilities"]
print("tasks:", program.stats()["tasks"], "on the engine:", program.stats()["macs_on_engine"])
print("class:", engine.argmax(), "in float32:", float32.argmax(), "largest error:", np.abs(engine - float32).max())
print("M4:", "every op fits" if hexane.check(graph, chip="M4").fits else "something stays on the host")
print(hexane.estimate(program))
