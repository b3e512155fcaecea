"""MobileNetV3 small with random weights against published relations: hard swish with four axes is exact to rounding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import hexane
from hexane import numerics
from hexane.codegen.driver import canonical
from hexane.graph import Graph, GraphBuilder
from hexane.graph.evaluate import Evaluation
from hexane.graph.ir import Value
from hexane.graph.rewrite import remove_dead
from hexane.lowering.compilation import Compilation
from hexane.lowering.transformations import active
from hexane.numerics.insight import every_value, examine
from hexane.numerics.stored import stored_in_fp16

BLOCKS = (
    (3, 16, 16, True, "relu", 2), (3, 72, 24, False, "relu", 2), (3, 88, 24, False, "relu", 1),
    (5, 96, 40, True, "hard", 2), (5, 240, 40, True, "hard", 1), (5, 240, 40, True, "hard", 1),
    (5, 120, 48, True, "hard", 1), (5, 144, 48, True, "hard", 1), (5, 288, 96, True, "hard", 2),
    (5, 576, 96, True, "hard", 1), (5, 576, 96, True, "hard", 1),
)  # fmt: skip
"""Kernel, expanded and output channels, squeeze-and-excitation, activation, stride (Howard et al. 2019, table 2)."""


class Small:
    """The network layer by layer: batch norms take the statistics that they meet, and are folded."""

    def __init__(self, seed: int, size: int) -> None:
        self.random, self.b, self.float32 = np.random.default_rng(seed), GraphBuilder(), Evaluation()
        self.x = self.b.input("x", (1, 3, size, size), "fp16")
        self.image = self.random.standard_normal((1, 3, size, size)).astype(np.float16)
        self.float32.environment[self.x] = self.image.astype(np.float32)

    def seen(self, value: Value) -> np.ndarray:
        known = self.float32.environment
        if value not in known:
            for operand in value.op.operands():
                if not operand.is_constant:
                    self.seen(operand)
            known.update({v: np.asarray(a) for v, a in zip(value.op.outputs, self.float32.op(value.op))})
        return known[value]

    def weights(self, *shape: int) -> np.ndarray:
        return self.random.standard_normal(shape).astype(np.float32) * np.sqrt(2 / np.prod(shape[1:]))

    def conv(self, x: Value, out: int, kernel: int, stride: int = 1, groups: int = 1, act: str = "") -> Value:
        w, pad = self.weights(out, x.shape[1] // groups, kernel, kernel), [kernel // 2] * 4
        how = dict(strides=(stride,) * 2, dilations=(1, 1), pad_type="custom", pad=pad, groups=groups)
        raw = self.seen(self.b.conv(x=x, weight=w.astype(np.float16), **how))
        scale = (1 + 0.1 * self.random.standard_normal(out)) / (raw.std((0, 2, 3)) + 1e-5)
        shift = (0.1 * self.random.standard_normal(out) - raw.mean((0, 2, 3)) * scale).astype(np.float16)
        y = self.b.conv(x=x, weight=(w * scale[:, None, None, None]).astype(np.float16), bias=shift, **how)
        return self.b.relu(x=y) if act == "relu" else self.hard_swish(y) if act else y

    def hard_sigmoid(self, x: Value) -> Value:
        return self.b.sigmoid_hard(x=x, alpha=np.float16(1 / 6), beta=np.float16(0.5))

    def hard_swish(self, x: Value) -> Value:
        return self.b.mul(x=x, y=self.hard_sigmoid(x))

    def excite(self, x: Value, squeezed: int) -> Value:
        p = self.b.reduce_mean(x=x, axes=[2, 3], keep_dims=True)
        for out in (squeezed, x.shape[1]):
            w = self.weights(out, p.shape[1], 1, 1).astype(np.float16)
            p = self.b.conv(x=p, weight=w, bias=np.zeros(out, np.float16), pad_type="valid")
            p = self.b.relu(x=p) if out == squeezed else self.hard_sigmoid(p)
        return self.b.mul(x=x, y=p)

    def graph(self) -> Graph:
        x = self.conv(self.x, 16, 3, 2, act="hard")
        for kernel, wide, out, excited, act, stride in BLOCKS:
            y = x if wide == x.shape[1] else self.conv(x, wide, 1, act=act)
            y = self.conv(y, wide, kernel, stride, wide, act)
            y = self.excite(y, max(8, (wide // 4 + 4) // 8 * 8)) if excited else y
            y = self.conv(y, out, 1)
            x = self.b.add(x=x, y=y) if y.shape == x.shape else y
        x = self.b.reduce_mean(x=self.conv(x, 576, 1, act="hard"), axes=[2, 3], keep_dims=True)
        x = self.hard_swish(self.b.conv(x=x, weight=self.weights(1024, 576, 1, 1).astype(np.float16), pad_type="valid"))
        self.b.output(self.b.conv(x=x, weight=self.weights(1000, 1024, 1, 1).astype(np.float16), pad_type="valid"))
        remove_dead(self.b.graph.main)
        return self.b.graph


def errors(seed: int) -> Iterator[float]:
    """Of fp16 storage, of dialect apple and of the default on an M4, relative to float32."""
    net = Small(seed, 64)
    graph, given = net.graph(), {"x": net.image}
    (right,) = graph.evaluate(given).values()
    chip = hexane.chips.get("M4")
    form = canonical(graph, Compilation(chip, active("apple", generation="h16"), as_apple=True))
    layers = examine([("engine", form)], given, every_value(graph, given), chip).layers
    gates = [layer.made for layer in layers if layer.op in ("sigmoid_hard", "mul")]
    assert len(gates) > 40 and max(gate for gate in gates if gate is not None) < 3e-4
    default = canonical(graph, Compilation(chip, active(generation="h16")))
    answers = (stored_in_fp16(graph, given), *(numerics.evaluate(each, given, chip) for each in (form, default)))
    for answer in answers:
        (found,) = answer.values()
        yield float(np.linalg.norm(found.astype(np.float64) - right) / np.linalg.norm(right))


@pytest.mark.parametrize("seed", [0, 1])
def test_with_four_axes_the_network_is_within_fp16(seed: int) -> None:
    """coreai-torch 51: within standard fp16 once the product before hard swish has four axes; 3.9 % with two.

    The default errs no more than Apple's form by a tenth.
    """
    stored, apple, default = errors(seed)
    assert apple < 2 * stored and default < 1.1 * apple
