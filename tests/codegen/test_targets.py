"""Every recipe for every generation: on the engine alone, and with the bits of the graph's arithmetic of that chip."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.errors import UnsupportedError
from hexane.graph import GraphBuilder
from hexane.program import ENGINE

from .levels import agreed

rng = np.random.default_rng(0)


def weights(*shape):
    return (rng.standard_normal(shape) * 0.1).astype(np.float16)


def graph_of(make, *shapes):
    builder = GraphBuilder()
    inputs = [builder.input(f"x{i}", shape, "fp16") for i, shape in enumerate(shapes)]
    builder.output(make(builder, *inputs))
    return builder.graph


MAP, PIXEL = (1, 64, 8, 8), (1, 64, 1, 1)
CASES = {
    "relu": (lambda b, x: b.relu(x=x, name="y"), MAP),
    "sigmoid": (lambda b, x: b.sigmoid(x=x, name="y"), MAP),
    "gelu": (lambda b, x: b.gelu(x=x, name="y", mode="EXACT"), PIXEL),
    "abs": (lambda b, x: b.abs(x=x, name="y"), MAP),
    "add": (lambda b, x, y: b.add(x=x, y=y, name="y"), MAP, MAP),
    "sub_bc": (lambda b, x, y: b.sub(x=x, y=y, name="y"), MAP, PIXEL),
    "sub_bcf": (lambda b, x, y: b.sub(x=x, y=y, name="y"), PIXEL, MAP),
    "mul_bcw": (lambda b, x, y: b.mul(x=x, y=y, name="y"), (2, 16, 8, 40), (1, 1, 8, 1)),
    "both": (lambda b, x, y: b.add(x=x, y=y, name="y"), (1, 16, 8, 1), (1, 1, 8, 33)),
    "addc": (lambda b, x: b.add(x=x, y=weights(*PIXEL), name="y"), MAP),
    "subc": (lambda b, x: b.sub(x=weights(*PIXEL), y=x, name="y"), MAP),
    "maxc": (lambda b, x: b.maximum(x=x, y=weights(*PIXEL), name="y"), MAP),
    "mulh": (lambda b, x: b.mul(x=x, y=weights(1, 1, 8, 1), name="y"), MAP),
    "adds": (lambda b, x: b.add(x=x, y=np.float16(0.5), name="y"), MAP),
    "muls": (lambda b, x: b.mul(x=x, y=np.float16(0.3), name="y"), MAP),
    "maxs": (lambda b, x: b.maximum(x=x, y=np.float16(0.3), name="y"), MAP),
    "div": (lambda b, x, y: b.real_div(x=x, y=y, name="y"), MAP, MAP),
    "div1": (lambda b, x, y: b.real_div(x=x, y=y, name="y"), (1, 256, 1, 1), (1, 256, 1, 1)),
    "divbc": (lambda b, x, y: b.real_div(x=x, y=y, name="y"), MAP, PIXEL),
    "pow": (lambda b, x, y: b.pow(x=b.abs(x=x), y=y, name="y"), MAP, MAP),
    "conv3": (
        lambda b, x: b.conv(x=x, weight=weights(32, 16, 3, 3), bias=weights(32), pad_type="same", name="y"),
        (1, 16, 20, 20),
    ),
    "conv_s2": (
        lambda b, x: b.relu(x=b.conv(x=x, weight=weights(32, 16, 3, 3), strides=(2, 2), pad_type="same"), name="y"),
        (1, 16, 20, 20),
    ),
    "conv_dw": (
        lambda b, x: b.conv(x=x, weight=weights(32, 1, 3, 3), groups=32, pad_type="same", name="y"),
        (1, 32, 20, 20),
    ),
    "conv_g": (
        lambda b, x: b.conv(x=x, weight=weights(64, 16, 1, 1), groups=4, pad_type="valid", name="y"),
        (1, 64, 16, 16),
    ),
    "conv_big": (
        lambda b, x: b.silu(x=b.conv(x=x, weight=weights(300, 256, 3, 3), pad_type="same"), name="y"),
        (1, 256, 14, 14),
    ),
    "linear": (lambda b, x: b.linear(x=x, weight=weights(96, 64), bias=weights(96), name="y"), (24, 64)),
    "linear_relu": (lambda b, x: b.relu(x=b.linear(x=x, weight=weights(512, 256)), name="y"), (64, 256)),
    "ffn": (
        lambda b, x: b.linear(
            x=b.gelu(x=b.linear(x=x, weight=weights(512, 128)), mode="EXACT"), weight=weights(128, 512), name="y"
        ),
        (64, 128),
    ),
    "matmul": (lambda b, x, y: b.matmul(x=x, y=y, name="y"), (1, 1, 32, 64), (1, 1, 64, 48)),
    "matmul_ty": (lambda b, x, y: b.matmul(x=x, y=y, transpose_y=True, name="y"), (1, 4, 64, 32), (1, 4, 64, 32)),
    "matmul_odd": (lambda b, x, y: b.matmul(x=x, y=y, name="y"), (1, 2, 7, 33), (1, 2, 33, 20)),
    "softmax_w": (lambda b, x: b.softmax(x=x, axis=-1, name="y"), (1, 8, 16, 64)),
    "softmax_c": (lambda b, x: b.softmax(x=x, axis=1, name="y"), MAP),
    "softmax_1": (lambda b, x: b.softmax(x=x, axis=-1, name="y"), (1, 8, 1, 128)),
    "ln": (
        lambda b, x: b.layer_norm(x=x, axes=[-1], gamma=weights(64), beta=weights(64), epsilon=1e-5, name="y"),
        (1, 1, 32, 64),
    ),
    "ln_c": (lambda b, x: b.layer_norm(x=x, axes=[1], epsilon=1e-5, name="y"), (1, 32, 4, 4)),
    "ln_all": (lambda b, x: b.layer_norm(x=x, axes=[1, 2, 3], epsilon=1e-5, name="y"), (1, 32, 8, 8)),
    "rmean": (lambda b, x: b.reduce_mean(x=x, axes=[2, 3], keep_dims=True, name="y"), MAP),
    "rsum_c": (lambda b, x: b.reduce_sum(x=x, axes=[1], keep_dims=True, name="y"), MAP),
    "rmax_c": (lambda b, x: b.reduce_max(x=x, axes=[1], keep_dims=True, name="y"), MAP),
    "rmax": (lambda b, x: b.reduce_max(x=x, axes=[3], keep_dims=True, name="y"), (1, 16, 8, 40)),
    "rmin": (lambda b, x: b.reduce_min(x=x, axes=[2], keep_dims=True, name="y"), (1, 16, 8, 40)),
    "transpose": (lambda b, x: b.transpose(x=x, perm=[0, 2, 3, 1], name="y"), (1, 16, 8, 40)),
    "slice": (lambda b, x: b.slice_by_index(x=x, begin=[0, 2, 1, 3], end=[1, 10, 7, 33], name="y"), (1, 16, 8, 40)),
    "concat": (lambda b, x, y: b.concat(values=(x, y), axis=1, name="y"), (1, 16, 8, 8), (1, 8, 8, 8)),
    "concatw": (lambda b, x, y: b.concat(values=(x, y), axis=3, name="y"), (1, 16, 8, 7), (1, 16, 8, 9)),
    "maxpool": (
        lambda b, x: b.max_pool(x=x, kernel_sizes=(3, 3), strides=(2, 2), pad_type="same", name="y"),
        (1, 16, 16, 16),
    ),
    "avgpool": (
        lambda b, x: b.avg_pool(x=x, kernel_sizes=(3, 3), strides=(1, 1), pad_type="same", name="y"),
        (1, 16, 16, 16),
    ),
    "ps": (lambda b, x: b.pixel_shuffle(x=x, upscale_factor=2, name="y"), (1, 16, 8, 8)),
    "up": (
        lambda b, x: b.upsample_nearest_neighbor(x=x, scale_factor_height=2, scale_factor_width=2, name="y"),
        (1, 16, 8, 8),
    ),
    "pad": (
        lambda b, x: b.pad(x=x, pad=[0, 0, 0, 0, 1, 1, 2, 2], mode="constant", constant_val=0.0, name="y"),
        (1, 16, 8, 8),
    ),
    "reshape": (lambda b, x: b.reshape(x=x, shape=(1, 64, 4, 4), name="y"), (1, 16, 8, 8)),
    "less": (lambda b, x, y: b.cast(x=b.less(x=x, y=y), dtype="fp16", name="y"), (1, 16, 8, 8), (1, 16, 8, 8)),
    "select": (lambda b, x, y: b.select(cond=b.greater(x=x, y=y), a=x, b=y, name="y"), (1, 16, 8, 8), (1, 16, 8, 8)),
    "floor": (lambda b, x: b.floor(x=x, name="y"), (1, 16, 8, 8)),
    "log": (lambda b, x: b.log(x=b.abs(x=x), name="y"), (1, 16, 8, 8)),
    "tile": (lambda b, x: b.tile(x=x, reps=(1, 1, 4, 4), name="y"), (1, 16, 1, 1)),
    "attn": (
        lambda b, q, k, v: b.matmul(
            x=b.softmax(x=b.mul(x=b.matmul(x=q, y=k, transpose_y=True), y=np.float16(0.125)), axis=-1), y=v, name="y"
        ),
        (64, 64),
        (64, 64),
        (64, 64),
    ),
}
POSITIVE = ("pow", "div", "div1", "divbc")
CHIPS = ("M2", "M4")
OTHERS = ("M1", "M3", "A17 Pro", "M5", "A19")


def check(name, chip):
    make, *shapes = CASES[name]
    graph = graph_of(make, *shapes)
    program = hexane.compile(graph, chip)
    assert [segment.kind for segment in program.segments] == [ENGINE]
    draw = np.random.default_rng(1)
    inputs = {key: (draw.standard_normal(t.shape) * 0.7).astype(np.float16) for key, t in graph.inputs.items()}
    if name in POSITIVE:
        inputs = {key: np.abs(value) + np.float16(0.5) for key, value in inputs.items()}
    agreed(program, inputs)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chip", CHIPS)
def test_bits_of_the_graph(name, chip):
    check(name, chip)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chip", OTHERS)
def test_bits_of_the_graph_on_other_chips(name, chip):
    check(name, chip)


@pytest.mark.parametrize(("chip", "refused"), [("M2", "concat"), ("M4", "softmax_w"), ("M5", "relu"), ("M3", "conv3")])
def test_strict_refuses_what_no_program_shows(chip, refused):
    make, *shapes = CASES[refused]
    with pytest.raises(UnsupportedError, match="no program of"):
        hexane.compile(graph_of(make, *shapes), chip, strict=True)


@pytest.mark.parametrize(("chip", "taken"), [("M2", "conv3"), ("M4", "sub_bc"), ("A17 Pro", "linear"), ("M3", "addc")])
def test_strict_takes_what_programs_show(chip, taken):
    make, *shapes = CASES[taken]
    program = hexane.compile(graph_of(make, *shapes), chip, strict=True)
    assert "INFERRED" not in program.stats()["evidence"]


def test_a_tag_bounds_the_tasks_of_a_program():
    def deep(b, x):
        for _ in range(300):
            x = b.sigmoid(x=x)
        return b.relu(x=x, name="y")

    graph = graph_of(deep, PIXEL)
    assert [len(image.tasks) for image in hexane.compile(graph, "M1").images] == [301]
    counts = [len(image.tasks) for image in hexane.compile(graph, "M2").images]
    assert sum(counts) == 301
    assert max(counts) <= 255
