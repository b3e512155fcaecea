"""Mechanisms that rows of other people's networks speak for (docs/timing.md), each by its own effect."""

from __future__ import annotations

import pytest

from hexane.chips import get
from hexane.chips.measured import values
from hexane.cost.model import time_work
from hexane.formats.mil.reader import parse_mil
from hexane.graph import Graph, GraphBuilder
from hexane.timing.from_graph import work_of


def engine_us(graph: Graph, chip: str = "M5 Pro") -> float:
    return sum(item.us for item in time_work(work_of(graph), get(chip), values(chip)))


def rms_norm(shape: tuple[int, ...], axis: int) -> Graph:
    b = GraphBuilder(opset="ios17")
    x = b.input("x", shape, "fp16")
    root = b.rsqrt(x=b.reduce_mean(x=b.mul(x=x, y=x), axes=(axis,), keep_dims=True), epsilon=1e-6)
    b.output(b.mul(x=x, y=root))
    return b.graph


def test_an_rms_norm_costs_by_its_rows_only_where_they_are_items_of_a_batch():
    one = engine_us(rms_norm((1, 4096), -1))
    assert engine_us(rms_norm((256, 4096), -1)) > 50 * one
    channels = engine_us(rms_norm((1, 4096, 1, 1), 1))
    assert channels == pytest.approx(one, rel=1) and channels < 10  # 7,987 us before: one row for every channel
    heads = engine_us(rms_norm((16, 64, 128), -1))
    assert heads < 50  # 28 layers with two such norms take 6.7 ms in all on an M5 Pro


@pytest.mark.parametrize("order", ["shape = s, x = y", "x = y, shape = s"])
def test_a_reshaped_run_time_operand_is_no_kernel(order):
    text = f"""program(1.0)
    {{
        func main<ios17>(tensor<fp16, [1, 64, 256]> x, tensor<fp16, [1, 256, 1, 64]> y) {{
            tensor<int32, [3]> s = const()[name = string("s"), val = tensor<int32, [3]>([1, 256, 64])];
            bool no = const()[name = string("no"), val = bool(false)];
            tensor<fp16, [1, 256, 64]> z = reshape({order})[name = string("z")];
            tensor<fp16, [1, 64, 64]> p = matmul(transpose_x = no, transpose_y = no, x = x, y = z)[name = string("p")];
        }} -> (p);
    }}"""
    assert [layer.unit for layer in work_of(parse_mil(text)).layers] == ["runtime"]


@pytest.mark.parametrize("axis, length", [(1, 320), (2, 4), (-1, 64)])
def test_a_layer_norm_is_as_long_as_the_axis_that_it_reduces(axis, length):
    b = GraphBuilder(opset="ios17")
    b.output(b.layer_norm(x=b.input("x", (1, 320, 4, 64), "fp16"), axes=(axis,), epsilon=1e-5))
    (layer,) = work_of(b.graph).layers
    assert layer.axis == length
