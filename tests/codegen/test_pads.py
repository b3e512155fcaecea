"""Padding: the map in its frame, exact, and the frame alone is filled."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

from .levels import agreed

FRAMES = {
    "rows": ([0, 0, 0, 0, 3, 5, 0, 0], 0.0),
    "one side": ([0, 0, 0, 0, 0, 9, 0, 0], -1.5),
    "channels": ([0, 0, 2, 1, 0, 0, 0, 0], 0.25),
    "batch": ([1, 1, 0, 0, 0, 0, 0, 0], 0.0),
    "all outer axes": ([0, 2, 1, 0, 4, 1, 0, 0], 2.0),
    "columns": ([0, 0, 0, 0, 0, 0, 7, 2], 0.5),
    "rows and columns": ([0, 0, 0, 0, 2, 3, 1, 40], 0.0),
    "everything": ([1, 0, 0, 2, 3, 0, 0, 5], -3.0),
}


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_a_frame(name, chip):
    widths, number = FRAMES[name]
    b = GraphBuilder()
    x = b.relu(x=b.input("x", (2, 3, 12, 40), "fp16"))
    b.output(b.pad(x=x, pad=widths, mode="constant", constant_val=number))
    program = hexane.compile(b.graph, chip)
    assert [segment.kind for segment in program.segments] == ["engine"]
    data = np.random.default_rng(1).normal(size=(2, 3, 12, 40)).astype(np.float16)
    pairs = [(widths[i], widths[i + 1]) for i in range(0, 8, 2)]
    wanted = np.pad(np.maximum(data, 0), pairs, constant_values=np.float16(number))
    for made in (program, hexane.compile(b.graph, chip, without=("border-fills",))):
        (result,) = made.run({"x": data}).values()
        assert np.array_equal(result, wanted)


def test_a_large_map_in_a_thin_frame_costs_no_fill():
    b = GraphBuilder()
    x = b.relu(x=b.input("x", (1, 16, 100, 120), "fp16"))
    b.output(b.pad(x=x, pad=[0, 0, 0, 0, 1, 1, 0, 0], mode="constant", constant_val=0.0))
    now, before = (hexane.estimate(hexane.compile(b.graph, without=off)).engine_us for off in ((), ("border-fills",)))
    assert now < 0.7 * before


def test_parts_of_a_long_kernel_are_cut_out_of_the_map():
    """A kernel of 64 rows: its parts see the map through windows with their own zeros; no frame around all of it."""
    rng = np.random.default_rng(2)
    b = GraphBuilder()
    x = b.input("x", (1, 4, 90, 20), "fp16")
    weight = (rng.normal(size=(4, 4, 64, 3)) / 30).astype(np.float16)
    b.output(b.conv(x=x, weight=weight, pad_type="custom", pad=[31, 32, 1, 1]))
    data = {"x": rng.normal(size=(1, 4, 90, 20)).astype(np.float16)}
    program = hexane.compile(b.graph)
    (made,), (wanted,) = agreed(program, data).values(), b.graph.evaluate(data).values()
    assert np.abs(made - wanted).max() < 2e-2 * np.abs(wanted).max()
    pads = [op for op in program.graph.main.ops if op.type == "pad"]
    assert all(op.inputs["x"].shape[2] <= 90 and op.output.shape[2] == 111 for op in pads)


CONTINUED = {
    "a signal": ((1, 1, 1, 500), [0, 0, 0, 0, 0, 0, 128, 128], "reflect"),
    "not a power of two": ((1, 1, 1, 300), [0, 0, 0, 0, 0, 0, 100, 37], "reflect"),
    "nearly as long as the map": ((1, 3, 1, 90), [0, 0, 0, 0, 0, 0, 89, 70], "reflect"),
    "rows and columns": ((1, 2, 40, 48), [0, 0, 0, 0, 17, 9, 12, 33], "reflect"),
    "few rows": ((1, 5, 12, 40), [0, 0, 0, 0, 2, 1, 0, 0], "reflect"),
    "all of the smallest signal": ((1, 1, 1, 2), [0, 0, 0, 0, 0, 0, 1, 1], "reflect"),
    "all of a signal": ((1, 2, 1, 5), [0, 0, 0, 0, 0, 0, 4, 4], "reflect"),
    "a batch": ((2, 3, 12, 20), [0, 0, 0, 0, 3, 3, 2, 2], "reflect"),
    "edges": ((1, 2, 20, 30), [0, 0, 0, 0, 40, 3, 5, 70], "replicate"),
    "edges of a batch": ((3, 2, 9, 10), [0, 0, 0, 0, 4, 1, 2, 3], "replicate"),
}


@pytest.mark.parametrize("name", CONTINUED)
@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_continued_beyond_the_edge(name, chip):
    shape, widths, mode = CONTINUED[name]
    b = GraphBuilder()
    b.output(b.pad(x=b.input("x", shape, "fp16"), pad=widths, mode=mode, constant_val=0.0))
    program = hexane.compile(b.graph, chip)
    assert [segment.kind for segment in program.segments] == ["engine"]
    data = np.random.default_rng(1).normal(size=shape).astype(np.float16)
    data.reshape(-1)[1] = -0.0
    pairs = [(widths[i], widths[i + 1]) for i in range(0, 8, 2)]
    wanted = np.pad(data, pairs, mode={"replicate": "edge"}.get(mode, mode))
    (result,) = program.run({"x": data}).values()
    assert np.array_equal(result.view(np.uint16), wanted.view(np.uint16))


def test_a_long_mirror_takes_a_copy_for_each_bit():
    b = GraphBuilder()
    b.output(b.pad(x=b.input("x", (1, 1, 1, 5000), "fp16"), pad=[0] * 6 + [1024, 1024], mode="reflect"))
    assert sum(len(image.tasks) for image in hexane.compile(b.graph).images) <= 2 * 2 * 10 + 4


@pytest.mark.parametrize("left", [1, 4, 8, 12, 20])
def test_taps_that_meet_only_padding(left):
    """Of a kernel that is cut into parts over a short map: some parts see nothing of it, at last all of the first."""
    ort, helper = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx.helper")
    rng = np.random.default_rng(3)
    x, weight = rng.normal(size=(1, 8, 5, 1)).astype(np.float16), rng.normal(size=(3, 8, 9, 4)).astype(np.float16)
    b = GraphBuilder()
    b.output(
        b.conv(
            x=b.input("x", x.shape, "fp16"),
            weight=weight,
            pad_type="custom",
            pad=[8, 3, left, 9],
            strides=[1, 2],
            dilations=[1, 3],
        )
    )
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[8, left, 3, 9], strides=[1, 2], dilations=[1, 3])
    infos = [helper.make_tensor_value_info(name, 1, None) for name in "xwy"]
    graph = helper.make_graph([node], "conv", infos[:2], infos[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x.astype(np.float32), "w": weight.astype(np.float32)})
    program = hexane.compile(b.graph)
    assert [segment.kind for segment in program.segments] == ["engine"]
    (made,), (bits,) = program.run({"x": x}).values(), program.run({"x": x}, level="graph").values()
    assert np.array_equal(made, bits)
    np.testing.assert_allclose(made, wanted, atol=0.05, rtol=0.01)
