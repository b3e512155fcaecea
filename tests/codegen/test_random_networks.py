"""Random small networks: the tasks on the emulator give the bits of the graph's own arithmetic, near float32."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hexane
from hexane.graph import GraphBuilder

from .levels import agreed


class Grower:
    """Adds ops that hypothesis draws to a graph; ``maps`` are the 4-D values so far."""

    def __init__(self, data):
        self.draw = data.draw
        self.rng = np.random.default_rng(self.draw(st.integers(0, 2**16)))
        self.b = GraphBuilder()
        shape = (1, self.draw(st.integers(1, 24)), self.draw(st.integers(3, 14)), self.draw(st.integers(3, 20)))
        self.maps = [self.b.input("x", shape, self.draw(st.sampled_from(["fp16", "fp32"])))]

    def weights(self, *shape):
        scale = 1 / np.sqrt(max(1, int(np.prod(shape[1:]))))
        kind = np.float16 if self.maps[0].dtype == "fp16" else np.float32
        return (self.rng.standard_normal(shape) * scale).astype(kind)

    def some(self):
        return self.draw(st.sampled_from(self.maps[-3:]))

    def grow(self):
        x = self.some()
        made = getattr(self, self.draw(st.sampled_from(KINDS)))(x)
        if made is not None and 0 < int(np.prod(made.shape)) <= 60_000:
            self.maps.append(made)

    def conv(self, x):
        c, h, w = x.shape[1:]
        groups = self.draw(st.sampled_from([1, 1, 1, c]))
        cout = c if groups == c else self.draw(st.integers(1, 40))
        k = [self.draw(st.integers(1, min(5, extent + 2))) for extent in (h, w)]
        step = self.draw(st.integers(1, 4))
        bias = {"bias": self.weights(cout)} if self.draw(st.booleans()) else {}
        pad = [self.draw(st.integers(0, n - 1)) for n in k for _ in range(2)]
        if any(extent + a + z < n for extent, n, a, z in zip((h, w), k, pad[::2], pad[1::2])):
            return None
        weight = self.weights(cout, c // groups, *k)
        return self.b.conv(x=x, weight=weight, **bias, strides=[step, step], pad_type="custom", pad=pad, groups=groups)

    def activation(self, x):
        kind = self.draw(st.sampled_from(["relu", "sigmoid", "tanh", "silu", "gelu", "relu6", "softplus", "abs"]))
        return self.b.op(kind, x=x)

    def hard_swish(self, x):
        return self.b.mul(x=x, y=self.b.sigmoid_hard(x=x, alpha=1 / 6, beta=0.5))

    def scale(self, x):
        return self.b.add(x=self.b.mul(x=x, y=self.weights(1, x.shape[1], 1, 1)), y=0.5)

    def norm(self, x):
        c = x.shape[1]
        variance = np.abs(self.weights(c)) + self.weights(c).dtype.type(0.5)
        return self.b.batch_norm(x=x, mean=self.weights(c), variance=variance, gamma=self.weights(c))

    def residual(self, x):
        y = next((v for v in self.maps if v is not x and v.shape == x.shape), None)
        return None if y is None else self.b.op(self.draw(st.sampled_from(["add", "maximum", "sub"])), x=x, y=y)

    def join(self, x):
        parts = [v for v in self.maps if v.shape[2:] == x.shape[2:]][:3]
        return self.b.concat(values=tuple(parts), axis=1) if len(parts) > 1 else None

    def cut(self, x):
        begin = [0, *(self.draw(st.integers(0, extent - 1)) for extent in x.shape[1:])]
        size = [1, *(self.draw(st.integers(1, extent - b)) for extent, b in zip(x.shape[1:], begin[1:]))]
        return self.b.slice_by_size(x=x, begin=begin, size=size)

    def pool(self, x):
        if min(x.shape[2:]) < 3:
            return None
        kind, k = self.draw(st.sampled_from(["max_pool", "avg_pool"])), self.draw(st.integers(2, 3))
        pad = [self.draw(st.integers(0, 1)) for _ in range(4)]
        return self.b.op(kind, x=x, kernel_sizes=[k, k], strides=[self.draw(st.integers(1, 2))] * 2,
                         pad_type="custom", pad=pad)  # fmt: skip

    def squeeze_excite(self, x):
        mean = self.b.reduce_mean(x=x, axes=[2, 3], keep_dims=True)
        gate = self.b.sigmoid(x=self.b.conv(x=mean, weight=self.weights(x.shape[1], x.shape[1], 1, 1)))
        return self.b.mul(x=x, y=gate)

    def turn(self, x):
        order = self.draw(st.permutations([1, 2, 3]))
        return self.b.transpose(x=x, perm=[0, *order])

    def softmax(self, x):
        return self.b.softmax(x=x, axis=self.draw(st.sampled_from([1, 3])))

    def pixels(self, x):
        return self.b.pixel_shuffle(x=x, upscale_factor=2) if x.shape[1] % 4 == 0 else None

    def resize(self, x):
        return self.b.upsample_nearest_neighbor(x=x, scale_factor_height=2.0, scale_factor_width=2.0)


KINDS = [name for name in vars(Grower) if not name.startswith("_") and name not in ("weights", "some", "grow")]


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_random_networks(data):
    check(data, data.draw(st.integers(1, 6)))


@pytest.mark.slow
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_many_random_networks(data):
    check(data, data.draw(st.integers(1, 14)))


def check(data, count):
    grower = Grower(data)
    for _ in range(count):
        grower.grow()
    result = grower.b.identity(x=grower.maps[-1], name="y")
    grower.b.output(result)
    graph = grower.b.graph
    x = (grower.rng.standard_normal(grower.maps[0].shape) * 0.7).astype(np.float16)
    program = hexane.compile(graph)
    host = [segment.reasons for segment in program.segments if segment.kind == "host"]
    assert not host, host
    tasks = agreed(program, {"x": x})["y"]
    wanted = graph.evaluate({"x": x})["y"]
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    assert float(np.abs(tasks.astype(np.float64) - wanted).max(initial=0)) <= 0.05 * scale
