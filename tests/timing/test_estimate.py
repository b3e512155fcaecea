"""Estimates: the worked examples of the specification, monotony, uncertainty, speed-independent structure."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hexane import chips
from hexane.cost.kernel import kernel_of
from hexane.errors import HexaneError, UnsupportedError
from hexane.graph import GraphBuilder
from hexane.timing import estimate, place
from hexane.timing.from_graph import work_of
from hexane.timing.trace import chrome_trace


def chain(depth=4, channels=64, size=32, kernel=3):
    b = GraphBuilder()
    x = b.input("x", (1, channels, size, size), "fp16")
    weight = np.ones((channels, channels, kernel, kernel), np.float16)
    for _ in range(depth):
        x = b.relu(x=b.conv(x=x, weight=weight, pad_type="same"))
    b.output(x)
    return b.graph


def residual():
    b = GraphBuilder()
    x = b.input("x", (1, 32, 16, 16), "fp16")
    y = b.conv(x=x, weight=np.ones((32, 32, 3, 3), np.float16), pad_type="same", bias=np.zeros(32, np.float16))
    y = b.add(x=y, y=x)
    b.output(b.softmax(x=y, axis=-1))
    return b.graph


def test_activation_and_bias_ride_along():
    assert [layer.op for layer in work_of(chain()).layers] == ["conv"] * 4
    assert [layer.op for layer in work_of(residual()).layers] == ["conv", "add", "softmax"]


def test_a_chain_keeps_its_tensors_on_chip():
    work = work_of(chain())
    assert work.chain
    assert [layer.reads_input for layer in work.layers] == [True, False, False, False]
    assert [layer.writes_output for layer in work.layers] == [False, False, False, True]
    assert not work_of(residual()).chain


def test_work_counts_macs_and_bytes():
    (layer,) = work_of(chain(1)).layers
    assert layer.macs == 64 * 64 * 9 * 32 * 32
    assert (layer.in_bytes, layer.weight_bytes) == (64 * 1024 * 2, 64 * 64 * 9 * 2)


@pytest.mark.parametrize(("m", "n", "passes"), [(512, 512, 2), (4096, 4096, 32), (8192, 8192, 128)])
def test_passes_over_kernel_memory(m, n, passes):
    """8192 x 8192 takes 128 passes of four channels a core."""
    b = GraphBuilder()
    x = b.input("x", (64, m), "fp16")
    from hexane.timing.rows import blank

    b.output(b.linear(x=x, weight=blank(b, "fp16", (n, m))))
    assert kernel_of(work_of(b.graph).layers[0], chips.get("M1")).passes == passes


@pytest.mark.parametrize("chip", [chip.name for chip in chips.CHIPS if chip.generation_name not in ("h11", "h12")])
def test_every_chip_gives_a_sane_estimate(chip):
    result = estimate(residual(), chip)
    low, high = result.latency_range_us
    assert 0 < low < result.latency_us < high
    assert result.engine_us < result.latency_us
    assert result.energy_mj > 0
    assert len(result.ops) == 3
    json.dumps(result.as_dict())


def test_a_chip_without_measurements_says_whose_it_borrows():
    assert any("A14" in note for note in estimate(chain(), "A14").notes)
    assert not any("no measurements" in note for note in estimate(chain(), "M4 Max").notes)


def test_more_work_never_takes_less_time():
    times = [estimate(chain(depth), "M4").latency_us for depth in (1, 2, 8, 32)]
    assert times == sorted(times)
    assert estimate(chain(), "M4", batch=8).engine_us > estimate(chain(), "M4").engine_us
    assert estimate(chain(), "M4", resolution=2.0).engine_us > estimate(chain(), "M4").engine_us


def test_small_weights_stream_faster():
    def linear():
        b = GraphBuilder()
        b.output(b.linear(x=b.input("x", (1, 4096), "fp16"), weight=np.zeros((4096, 4096), np.float16)))
        return b.graph

    full = estimate(linear(), "M5 Pro")
    assert full.bottleneck == "weights"
    assert estimate(linear(), "M5 Pro", weights="int4").latency_us < 0.8 * full.latency_us


def test_wrong_use_is_refused_by_name():
    with pytest.raises(HexaneError, match="interface"):
        estimate(chain(), "M1", interface="telepathy")
    with pytest.raises(HexaneError, match="weight format"):
        estimate(chain(), "M1", weights="int3")
    with pytest.raises(HexaneError, match="nothing to time"):
        estimate(42, "M1")


def test_a_real_program_is_timed_by_its_tasks(facts):
    import hexane

    image = hexane.open_image(facts / "hwx" / "gemm_512.hwx")
    result = estimate(image, "M1")
    assert len(result.tasks) == len(image.tasks) == 1
    assert result.tasks[0].macs == 512 * 512
    assert result.tasks[0].dma_bytes >= 512 * 512 * 2
    with pytest.raises(UnsupportedError, match="compiled for H13"):
        estimate(image, "M4")


def test_tasks_and_graph_agree_on_a_convolution(facts):
    """One 1x1 convolution 512 to 512, from its network and from its compiled task: same arithmetic, same stream."""
    import hexane

    by_task = estimate(hexane.open_image(facts / "hwx" / "gemm_512.hwx"), "M1").ops[0]
    by_graph = estimate(hexane.load(facts / "hwx" / "gemm_512.plist"), "M1").ops[0]
    assert by_task.macs == by_graph.macs
    assert by_task.weights_us == pytest.approx(by_graph.weights_us, rel=0.05)


def test_a_timeline_covers_the_call():
    result = estimate(residual(), "M1")
    events = chrome_trace(result)["traceEvents"]
    assert len(events) == 2 + len(result.ops)
    assert all(event["ts"] >= 0 and event["ts"] + event["dur"] <= result.latency_us + 1e-6 for event in events)


def test_core_ml_keeps_a_lonely_op_on_the_cpu():
    b = GraphBuilder()
    b.output(b.relu(x=b.input("x", (1, 64, 32, 32), "fp16")))
    assert place(b.graph, "M4").engine_ops == 0


def test_core_ml_takes_a_deep_chain_to_the_engine():
    placement = place(chain(12, 256, 32), "M4")
    assert placement.engine_ops >= 20
    assert placement.total_us < placement.cpu_only_us


def test_core_ml_leaves_what_the_engine_lacks():
    b = GraphBuilder()
    b.output(b.cumsum(x=b.input("x", (1, 64), "fp16"), axis=-1))
    (op,) = place(b.graph, "M4").ops
    assert op.place == "cpu" and "has no cumsum" in op.reason


@pytest.mark.parametrize("constant", [True, False])
def test_an_einsum_is_the_product_that_it_amounts_to(constant):
    def network(einsum):
        b = GraphBuilder()
        x = b.input("x", (1, 8, 32, 64), "fp16")
        y = np.ones((1, 8, 64, 48), np.float16) if constant else b.input("y", (1, 8, 64, 48), "fp16")
        if einsum:
            b.output(b.einsum(values=[x, y], equation="nchw,ncwu->nchu"))
        else:
            b.output(b.matmul(x=x, y=y))
        (layer,) = work_of(b.graph).layers
        return layer

    found, wanted = network(True), network(False)
    assert (found.unit, found.macs, found.batches) == (wanted.unit, wanted.macs, wanted.batches)
    assert (found.pixels, found.cin, found.cout) == (wanted.pixels, wanted.cin, wanted.cout)
    assert not found.extrapolated
