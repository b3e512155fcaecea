"""Mechanisms that rows of other people's networks speak for (docs/timing.md), each by its own effect."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from facts import fact_folder
from hexane.chips import get
from hexane.chips.measured import values
from hexane.cost.model import time_work
from hexane.formats.mil.reader import parse_mil
from hexane.graph import Graph, GraphBuilder
from hexane.timing import estimate
from hexane.timing.from_graph import work_of
from hexane.timing.measured import predict, predict_range
from hexane.timing.others import timed_others, width_of_others
from hexane.timing.ranges import shipped
from hexane.timing.rows import blank


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


def layer_norm(*shape: int) -> Graph:
    b = GraphBuilder(opset="ios17")
    b.output(b.layer_norm(x=b.input("x", shape, "fp16"), axes=(-1,), epsilon=1e-5))
    return b.graph


def test_a_layer_norm_over_a_map_is_two_sums_and_two_passes():
    """24 layers with two of them take 14.8 ms in all on an A17 Pro, of which the weights' stream is 14.2."""
    on_map, rows = (engine_us(layer_norm(*shape), "A17 Pro") for shape in ((1, 64, 2048), (64, 2048)))
    c, clock = values("A17 Pro"), 2160 / 2580 * 1e3
    passes = 2 * (1 / c["reduce_rate"] + 1 / c["unary_rate"]) / clock
    assert on_map == pytest.approx(64 * 2048 * passes + 4 * c["unary_task_us"], rel=0.01)
    assert on_map < rows / 2


def behind_a_product(size: int) -> tuple[float, float]:
    """Engine time of a product alone, and with means over its maps of ``size`` behind it."""
    times = []
    for mean in (False, True):
        b = GraphBuilder(opset="ios17")
        y = b.conv(x=b.input("x", (1, 128, size, size), "fp16"), weight=blank(b, "fp16", (64, 128, 3, 3)),
                   pad_type="same")  # fmt: skip
        b.output(b.conv(x=b.reduce_mean(x=y, axes=(2, 3), keep_dims=True) if mean else y,
                        weight=blank(b, "fp16", (8, 64, 1, 1)), pad_type="same"))  # fmt: skip
        times.append(sum(item.us for item in time_work(work_of(b.graph), get("M5 Pro"), values("M5 Pro"))[:-1]))
    return times[0], times[1]


def test_the_planar_engine_works_in_step_with_the_cores_on_maps_that_l2_holds():
    """The mean of convstack6 shows nowhere in its times (M5 Pro)."""
    alone, both = behind_a_product(32)
    assert both == pytest.approx(alone, abs=0.05)
    for size in (256, 8):  # too large for L2, a single tile
        alone, both = behind_a_product(size)
        assert both > alone + 0.2


@pytest.mark.parametrize("phone, computer", [("A14", "M1"), ("A15", "M2")])
def test_a_call_on_a_phone_takes_longer(phone, computer):
    """mobileone_s1, fastvit_t8, efficientformerv2_s0, repvit_m0_9, starnet_s1: 0.7 to 0.9 ms, of which 0.3 to 0.5 are
    the engine's."""
    row = {"kind": "conv", "op": "conv", "cin": 64, "cout": 64, "h": 32, "w": 32, "includes": "call_coreml"}
    assert predict({**row, "chip": phone}) - predict({**row, "chip": computer}) == pytest.approx(190, abs=5)


def linear(fmt: str, chip: str, rows: int = 64) -> float:
    b = GraphBuilder(opset="ios17")
    b.output(b.linear(x=b.input("x", (rows, 2048), "fp16"), weight=blank(b, "fp16", (2048, 2048))))
    return estimate(b.graph, chip, weights=fmt).engine_us


def test_a_table_for_each_output_costs_more_than_the_stream():
    one, four, each = (linear(fmt, "A17 Pro") for fmt in ("palette4", "palette4:4", "palette4:1"))
    assert each == pytest.approx(2048 / 16 * 1.95, rel=0.1)
    assert one < four < each


def test_activations_of_a_byte_double_the_array_behind_palettes():
    row = {"chip": "M5 Pro", "kind": "conv_chain", "op": "conv", "cin": 512, "cout": 512, "h": 64, "w": 64, "kh": 1,
           "kw": 1, "layers": 128, "weights": "distinct", "wfmt": "p4", "includes": "call_eval"}  # fmt: skip
    wide, narrow = predict({**row, "dtype": "fp16"}), predict({**row, "dtype": "int8"})
    assert narrow < 0.6 * wide  # measured: 14.65 and 7.84 ms


def test_the_linux_driver_moves_little_on_an_m1_max():
    row = {"kind": "linear", "op": "linear", "m": 375, "k": 1024, "nn": 1024, "layers": 1, "includes": "call_driver"}
    assert predict({**row, "chip": "M1 Max"}) == pytest.approx(459, rel=0.1)
    assert predict({**row, "chip": "M1"}) < 200


def test_a_source_that_nobody_fitted_has_a_wider_range():
    row = {"chip": "M4", "kind": "conv", "op": "conv", "cin": 256, "cout": 256, "h": 32, "w": 32, "kh": 3, "kw": 3,
           "includes": "call_eval", "wfmt": "fp16"}  # fmt: skip
    (known, *_), folder = sorted(shipped().sources), fact_folder() / "perf"
    us, low, high = predict_range({**row, "source": "somebody/else"})
    _, narrow, _ = predict_range({**row, "source": known})
    assert low < narrow < us < high
    found = timed_others(folder)
    inside = sum(abs(item.log_ratio) <= item.sigma for item in found) / len(found)
    assert 0.6 < inside < 0.8
    width, covered = width_of_others(timed_others(folder, replace(shipped(), others=0.0)))
    assert width == pytest.approx(shipped().others, abs=0.003) and 0.6 < covered < 0.8
    assert math.exp(sum(abs(item.log_ratio) for item in found) / len(found)) < 1.15  # 1.336, then 1.157


@pytest.mark.parametrize("chip, all_moved", [("M4", True), ("A17 Pro", False)])
def test_a_residual_sum_leaves_in_l2_what_fits_on_chips_with_a_large_system_cache(chip, all_moved):
    b = GraphBuilder(opset="ios17")
    x = b.input("x", (1, 256, 56, 56), "fp16")
    y, z = (b.conv(x=x, weight=blank(b, "fp16", (256, 256, 1, 1)), pad_type="same") for _ in range(2))
    w = b.conv(x=b.add(x=y, y=z), weight=blank(b, "fp16", (16, 256, 1, 1)), pad_type="same")
    b.output(w)
    (sum_,) = [item for item in time_work(work_of(b.graph), get(chip), values(chip)) if item.layer.op == "add"]
    maps = 3 * 2 * 256 * 56 * 56
    assert sum_.cost.dma_bytes == (maps if all_moved else maps - 2**21)


def test_muls_is_a_product_with_a_scalar():
    row = {"chip": "M5 Pro", "kind": "eltwise", "m": 512, "k": 512, "includes": "call_copies"}
    assert predict({**row, "op": "muls"}) == predict({**row, "op": "mul_const"}) < predict({**row, "op": "mul"})
