"""Networks of tokens with features as channels: the same numbers, fewer copies, and where it is not done."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane import chips, passes
from hexane.graph import GraphBuilder
from hexane.lowering.compilation import Compilation
from hexane.lowering.transformations import active
from hexane.passes.feature_sums import inverse_root, mean_squares, ranges

M1 = Compilation(chips.get("M1"), active(generation="h13"))

NAME = "features-as-channels"


class Block:
    """Builds transformer blocks with random weights."""

    def __init__(self, dtype="fp32", seed=0):
        self.b, self.rng, self.dtype = GraphBuilder(), np.random.default_rng(seed), dtype
        self.kind = np.float32 if dtype == "fp32" else np.float16

    def array(self, *shape, scale=1.0, about=0.0):
        return (about + scale * self.rng.normal(size=shape)).astype(self.kind)

    def linear(self, x, n, bias=True):
        k = x.shape[-1]
        operands = {"bias": self.array(n, scale=0.3)} if bias else {}
        return self.b.linear(x=x, weight=self.array(n, k, scale=k**-0.5), **operands)

    def norm(self, x):
        c = x.shape[-1]
        gamma, beta = self.array(c, scale=0.1, about=1), self.array(c, scale=0.1)
        return self.b.layer_norm(x=x, axes=[-1], gamma=gamma, beta=beta, epsilon=self.kind(1e-5))

    def rms_norm(self, x):
        b, c = self.b, x.shape[-1]
        mean = b.reduce_mean(x=b.mul(x=x, y=x), axes=[-1], keep_dims=True)
        root = b.rsqrt(x=b.add(x=mean, y=self.kind(1e-5)), epsilon=self.kind(1e-12))
        return b.mul(x=b.mul(x=x, y=root), y=self.array(c, scale=0.1, about=1))

    def split(self, x, heads):
        *lead, tokens, features = x.shape
        batch = int(np.prod(lead))
        cut = self.b.reshape(x=x, shape=[batch, tokens, heads, features // heads])
        return self.b.transpose(x=cut, perm=[0, 2, 1, 3])

    def attention(self, x, heads, *, memory=None, kv_heads=None, causal=False, rope=False):
        b, memory, kv_heads = self.b, x if memory is None else memory, kv_heads or heads
        dims = x.shape[-1] // heads
        q, k, v = (self.linear(t, n * dims) for t, n in ((x, heads), (memory, kv_heads), (memory, kv_heads)))
        q, k, v = self.split(q, heads), self.split(k, kv_heads), self.split(v, kv_heads)
        if rope:
            q, k = self.rotated(q), self.rotated(k)
        if kv_heads != heads:
            k, v = (self.repeated(t, heads) for t in (k, v))
        scores = b.mul(x=b.matmul(x=q, y=k, transpose_y=True), y=self.kind(dims**-0.5))
        if causal:
            hidden = np.triu(np.full((1, 1, *scores.shape[2:]), -1e4, self.kind), 1)
            scores = b.add(x=scores, y=hidden)
        made = b.matmul(x=b.softmax(x=scores, axis=-1), y=v)
        joined = b.reshape(x=b.transpose(x=made, perm=[0, 2, 1, 3]), shape=[*x.shape[:-1], heads * dims])
        return self.linear(joined, x.shape[-1])

    def rotated(self, x):
        b, half = self.b, x.shape[-1] // 2
        low = b.slice_by_size(x=x, begin=[0, 0, 0, 0], size=[*x.shape[:3], half])
        high = b.slice_by_size(x=x, begin=[0, 0, 0, half], size=[*x.shape[:3], half])
        turned = b.concat(values=(b.mul(x=high, y=self.kind(-1)), low), axis=-1)
        angle = np.arange(x.shape[2])[:, None] * 0.1 ** (np.arange(x.shape[3]) % half)
        cos, sin = np.cos(angle).astype(self.kind), np.sin(angle).astype(self.kind)
        return b.add(x=b.mul(x=x, y=cos[None, None]), y=b.mul(x=turned, y=sin[None, None]))

    def repeated(self, x, heads):
        b, (batch, few, tokens, dims) = self.b, x.shape
        wide = b.tile(x=b.expand_dims(x=x, axes=[2]), reps=[1, 1, heads // few, 1, 1])
        return b.reshape(x=wide, shape=[batch, heads, tokens, dims])

    def input(self, name, *shape):
        return self.b.input(name, shape, self.dtype)

    def output(self, *values):
        self.b.output(*values)
        return self.b.graph


def encoder(dtype="fp32", *, batch=(1,), tokens=96, features=192, heads=6, layers=1, pre=True):
    m = Block(dtype)
    x = m.input("x", *batch, tokens, features)
    for _ in range(layers):
        y = m.attention(m.norm(x) if pre else x, heads)
        x = m.b.add(x=x, y=y) if pre else m.norm(m.b.add(x=x, y=y))
        y = m.linear(m.b.gelu(x=m.linear(m.norm(x) if pre else x, 2 * features)), features)
        x = m.b.add(x=x, y=y) if pre else m.norm(m.b.add(x=x, y=y))
    return m.output(m.b.identity(x=x, name="y"))


def decoder(dtype="fp32"):
    m = Block(dtype)
    x, memory = m.input("x", 1, 128, 256), m.input("memory", 1, 192, 256)
    x = m.b.add(x=x, y=m.attention(m.rms_norm(x), 4, kv_heads=2, causal=True, rope=True))
    x = m.b.add(x=x, y=m.attention(m.rms_norm(x), 4, memory=memory))
    h = m.rms_norm(x)
    gate = m.b.mul(x=m.b.silu(x=m.linear(h, 192, bias=False)), y=m.linear(h, 192, bias=False))
    x = m.b.add(x=x, y=m.linear(gate, 256, bias=False))
    return m.output(m.b.identity(x=x, name="y"))


def fused_projection(dtype="fp32"):
    """q, k and v by one layer, cut apart along the features; a mean over tokens behind."""
    m = Block(dtype)
    x = m.input("x", 1, 128, 160)
    q, k, v = m.b.split(x=m.linear(m.norm(x), 480), num_splits=3, axis=-1)
    made = m.b.add(x=m.b.mul(x=q, y=m.b.sigmoid(x=k)), y=v)
    made = m.b.add(x=x, y=m.linear(made, 160))
    return m.output(m.b.reduce_mean(x=made, axes=[1], keep_dims=False, name="y"))


def one_piece_outside(dtype="fp32"):
    """Of three pieces of a projection one is wanted by rows."""
    m = Block(dtype)
    x = m.input("x", 1, 128, 160)
    q, k, v = m.b.split(x=m.linear(m.norm(x), 480), num_splits=3, axis=-1)
    made = m.b.add(x=m.linear(m.b.mul(x=q, y=v), 160), y=x)
    made = m.b.add(x=made, y=m.linear(m.b.gelu(x=m.linear(m.norm(made), 512)), 160))
    rows = m.b.softmax(x=k, axis=-1)
    return m.output(m.b.concat(values=(m.linear(m.norm(made), 160), rows), axis=1, name="y"))


def inputs_of(graph):
    rng = np.random.default_rng(1)
    return {v.name: rng.normal(size=v.shape).astype(np.float16) for v in graph.main.inputs}


NETWORKS = {
    "before the norm": lambda dtype: encoder(dtype),
    "behind the norm": lambda dtype: encoder(dtype, pre=False, layers=2),
    "rows of two axes": lambda dtype: encoder(dtype, batch=()),
    "odd tokens": lambda dtype: encoder(dtype, tokens=101),
    "head size 80": lambda dtype: encoder(dtype, features=320, heads=4, tokens=66),
    "two images": lambda dtype: encoder(dtype, batch=(2,), tokens=64),
    "decoder": decoder,
    "one projection": fused_projection,
    "one piece outside": one_piece_outside,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_numbers(name):
    """The passes up to this one leave the float32 network what it was."""
    graph = NETWORKS[name]("fp32")
    names = list(passes.available())
    upto = names[: names.index("features_as_channels") + 1]
    made, plain = (passes.run(graph, M1, n) for n in (upto, upto[:-1]))
    assert any(op.type == "conv" for op in made.main.ops) and not any(op.type == "conv" for op in plain.main.ops)
    inputs = inputs_of(graph)
    # inverse roots are smaller by what the table gives too much
    np.testing.assert_allclose(made.evaluate(inputs)["y"], graph.evaluate(inputs)["y"], atol=5e-3)


@pytest.mark.parametrize("chip", ["M1", "M2", "M5"])
@pytest.mark.parametrize("name", NETWORKS)
def test_bits_of_graph_level(name, chip):
    graph = NETWORKS[name]("fp16")
    program, plain = hexane.compile(graph, chip), hexane.compile(graph, chip, without=NAME)
    assert [s.kind for s in program.segments] == ["engine"]
    inputs = inputs_of(graph)
    wanted = graph.evaluate(inputs)["y"].astype(np.float64)
    errors = []
    for each in (program, plain):
        tasks, bits = each.run(inputs)["y"], each.run(inputs, level="graph")["y"]
        np.testing.assert_array_equal(tasks, bits)
        errors.append(np.sqrt(np.mean((tasks - wanted) ** 2)))
    assert errors[0] < 1.3 * errors[1] + 1e-4
    if name != "two images":  # whose attention is one of batches, with rows
        assert program.estimate().engine_us < plain.estimate().engine_us


def test_rows_of_one_feature_and_a_number():
    """A number is no row of features, also where a row is one number."""
    m = Block("fp16")
    x = m.b.mul(x=m.linear(m.input("x", 1, 33, 64), 1, bias=False), y=np.float16(0.125))
    y = m.b.add(x=x, y=m.linear(m.b.relu(x=m.linear(x, 16)), 1))
    graph = m.output(m.b.identity(x=m.linear(m.norm(y), 8), name="y"))
    program, inputs = hexane.compile(graph), inputs_of(graph)
    tasks, bits = program.run(inputs)["y"], program.run(inputs, level="graph")["y"]
    np.testing.assert_array_equal(tasks, bits)
    np.testing.assert_allclose(tasks, graph.evaluate(inputs)["y"], atol=0.02)


def test_nothing_is_turned_inside():
    """Of a chain of encoder layers only the input, the result, and k as attention wants it are turned."""
    program = hexane.compile(encoder("fp16", layers=3))
    turned = [plan for s in program.segments for plan in s.plans if plan.out_trans and plan.unicast]
    assert len(turned) == 2
    apple = hexane.compile(encoder("fp16", layers=3), dialect="apple")
    assert not any(op.type == "conv" for op in apple.graph.main.ops)


def test_rows_of_many_channels():
    """2048 features of 512 tokens: no row of all channels fits L2, so planar tasks see them as rows of fewer."""
    m = Block("fp16")
    x = m.input("x", 1, 512, 2048)
    graph = m.output(m.b.identity(x=m.linear(m.b.relu(x=m.linear(m.rms_norm(x), 64)), 64), name="y"))
    program = hexane.compile(graph)
    assert any(op.type == "conv" for op in program.graph.main.ops)
    assert [s.kind for s in program.segments] == ["engine"]
    inputs = inputs_of(graph)
    tasks, bits = program.run(inputs)["y"], program.run(inputs, level="graph")["y"]
    np.testing.assert_array_equal(tasks, bits)
    np.testing.assert_allclose(tasks, graph.evaluate(inputs)["y"], atol=0.05)


@pytest.mark.parametrize("chip", ["M1", "M2", "M4"])
@pytest.mark.parametrize("tokens", [8, 24, 64])
def test_the_price_decides(chip, tokens):
    """Few tokens cost changes of unit, which later chips have not: the form that is chosen is never the slower one."""
    graph = encoder("fp16", tokens=tokens, features=192, heads=6)
    forms = [hexane.compile(graph, chip, without=off) for off in ((), ("features-as-channels",))]
    given, plain = (hexane.estimate(program).engine_us for program in forms)
    assert given <= 1.01 * plain
    if (chip, tokens) in (("M1", 8), ("M1", 64), ("M4", 64)):
        assert any(op.type == "conv" for op in forms[0].graph.main.ops) == (tokens == 64)


def test_not_where_it_costs_more():
    """One layer between an input and a result would be turned twice."""
    b = GraphBuilder()
    x = b.input("x", (1, 64, 64), "fp16")
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float16)
    b.output(b.softmax(x=b.linear(x=x, weight=weight), axis=-1, name="y"))
    program = hexane.compile(b.graph)
    assert not any(op.type == "conv" for op in program.graph.main.ops)


def root_of(values, extra):
    b = GraphBuilder()
    x = b.input("x", (1, values.shape[1], 1, values.shape[0]), "fp16")
    b.output(b.identity(x=inverse_root(b.square(x=x), extra, b), name="y"))
    data = np.ascontiguousarray(values.T[None, :, None])
    return hexane.numerics.evaluate(b.graph, {"x": data})["y"].reshape(-1).astype(np.float64)


@pytest.mark.parametrize("channels", [16, 100, 384, 512, 768, 2048])
def test_inverse_roots_of_all_sizes(channels):
    """From deviations of 0.01 to the largest that a square holds, and one feature far above the rest."""
    rng = np.random.default_rng(channels)
    rows = [rng.normal(size=channels) * s for s in (0.01, 0.05, 0.2, 1, 2, 4, 8, 15, 30, 60) for _ in range(4)]
    rows += [np.where(np.arange(channels) == 3, top, row) for top in (30, 100, 185, 255) for row in rows[::4]]
    values = np.clip(rows, -255, 255).astype(np.float16)
    made = root_of(values, 1e-5)
    wanted = 1 / np.sqrt(np.mean(values.astype(np.float64) ** 2, axis=1) + 1e-5)
    np.testing.assert_allclose(made, wanted, rtol=3e-3)
    assert abs(np.mean(made / wanted) - 1) < 4e-4


def test_ranges_reach_the_largest_square():
    for channels in (2, 64, 1000, 8480):
        assert 2.0 ** (15 + ranges(channels)[-1]) > channels * 65504
        assert ranges(channels) == sorted(set(ranges(channels)))


def test_rows_of_zeros_and_of_one_number():
    """No deviation at all: the norm of such a row is its shift, as in float32."""
    m = Block("fp16")
    x = m.input("x", 1, 128, 160)
    graph = m.output(m.b.identity(x=m.linear(m.b.gelu(x=m.linear(m.norm(x), 320)), 160), name="y"))
    data = np.zeros((1, 128, 160), np.float16)
    data[0, 1], data[0, 2], data[0, 3, 5] = 3, 1000, 200
    program = hexane.compile(graph)
    assert any(op.type == "conv" for op in program.graph.main.ops)
    made = program.run({"x": data})["y"]
    assert np.isfinite(made).all()
    np.testing.assert_allclose(made, graph.evaluate({"x": data})["y"], atol=0.02)


def test_means_of_squares_alone():
    """A mean of squares without a root behind it is the smaller of its ranges."""
    b = GraphBuilder()
    x = b.input("x", (1, 384, 1, 32), "fp16")
    found, *others = mean_squares(b.square(x=x), 0.0, b)
    for other in others:
        found = b.minimum(x=found, y=other)
    b.output(b.identity(x=found, name="y"))
    data = (np.random.default_rng(0).normal(size=x.shape) * np.geomspace(0.02, 60, 32)).astype(np.float16)
    made = hexane.numerics.evaluate(b.graph, {"x": data})["y"]
    wanted = np.mean(data.astype(np.float64) ** 2, axis=1, keepdims=True)
    np.testing.assert_allclose(made, wanted, rtol=4e-3)


@pytest.mark.parametrize("rank", [3, 2])
def test_biases_of_keys_and_values(rank):
    graph = encoder("fp32", batch=(1,) * (rank - 2))
    made = passes.run(graph, M1, ["attention_biases"])
    biases = [op.inputs.get("bias") is not None for op in made.main.ops if op.type == "linear"]
    assert biases == [True, False, False, True, True, True]
    inputs = inputs_of(graph)
    np.testing.assert_allclose(made.evaluate(inputs)["y"], graph.evaluate(inputs)["y"], atol=1e-4)


def test_heads_that_are_split_behind_attention():
    """An op of several results behind the heads: v keeps its bias."""
    m = Block("fp16")
    x = m.input("x", 1, 33, 64)
    q, k, v = (m.b.reshape(x=m.linear(x, 64), shape=[1, 33, 2, 32]) for _ in range(3))
    q, k, v = (m.b.transpose(x=each, perm=[0, 2, 1, 3]) for each in (q, k, v))
    weights = m.b.softmax(x=m.b.matmul(x=q, y=m.b.transpose(x=k, perm=[0, 1, 3, 2])), axis=-1)
    first, second = m.b.split(x=m.b.matmul(x=weights, y=v), num_splits=2, axis=1)
    graph = m.output(m.b.add(x=first, y=m.b.relu(x=second), name="y"))
    program, inputs = hexane.compile(graph), inputs_of(graph)
    tasks, bits = program.run(inputs)["y"], program.run(inputs, level="graph")["y"]
    np.testing.assert_array_equal(tasks, bits)
    np.testing.assert_allclose(tasks, graph.evaluate(inputs)["y"], atol=0.05)


def test_biases_stay_where_rows_are_not_moved_alone():
    """Rotated keys keep their bias; so do values that something else reads."""
    graph = decoder("fp32")
    made = passes.run(graph, M1, ["attention_biases"])
    count = [sum(op.inputs.get("bias") is not None for op in g.main.ops if op.type == "linear") for g in (graph, made)]
    assert count[0] == 8 and count[1] == 6  # those of the second attention's k and v
    inputs = inputs_of(graph)
    np.testing.assert_allclose(made.evaluate(inputs)["y"], graph.evaluate(inputs)["y"], atol=1e-4)


def test_biases_of_queries_that_take_the_place_of_keys_stay():
    """Scores with x transposed: what stands first is not the queries' rows, and nothing is left out."""
    m = Block("fp16")
    x = m.input("x", 1, 32, 64)
    q, k, v = (m.linear(x, 64) for _ in range(3))
    scores = m.b.matmul(x=q, y=k, transpose_x=True)
    graph = m.output(m.linear(m.b.matmul(x=m.b.softmax(x=scores, axis=-1), y=m.b.transpose(x=v, perm=[0, 2, 1])), 64))
    made = passes.run(graph, M1, ["attention_biases"])
    inputs = inputs_of(graph)
    (wanted,), (given,) = graph.evaluate(inputs).values(), made.evaluate(inputs).values()
    np.testing.assert_allclose(given, wanted, atol=2e-3)
