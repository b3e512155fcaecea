"""Weight formats in time: the compiled stream's bytes, and the published order of formats on four chips."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.errors import UnsupportedError, UsageError
from hexane.graph import GraphBuilder
from hexane.timing import estimate
from hexane.timing.language import lm_head_us


def layers(channels=4096, pixels=16, count=4, seed=None, kernel=1, **more):
    """Convolutions in a row; weights of zeros, or drawn."""
    rng = np.random.default_rng(seed)
    b = GraphBuilder()
    x = b.input("x", (1, channels, 1, pixels), "fp16")
    for _ in range(count):
        shape = (channels, channels, 1, kernel)
        weight = np.zeros(shape, np.float16) if seed is None else rng.normal(0, 0.02, shape).astype(np.float16)
        x = b.conv(x=x, weight=weight, pad_type="same", **more)
    b.output(x)
    return b.graph


def inner(graph, chip, form=None):
    """The time of a layer that touches no memory but for its weights, microseconds."""
    return estimate(graph, chip, weights=form).ops[2].us


MEASURED = {
    ("M5 Max", "fp16"): 211, ("M5 Max", "int8"): 109, ("M5 Max", "palette4"): 108,
    ("M6", "fp16"): 218, ("M6", "int8"): 103, ("M6", "palette4"): 45, ("M6", "palette3"): 50, ("M6", "palette2"): 28,
    ("M6", "palette1"): 26,
}  # fmt: skip
"""Microseconds of 4096 x 4096, 1x1, 16 pixels (docs/reference/compressed.md 6)."""


@pytest.mark.parametrize("chip, form", MEASURED)
def test_published_layers(chip, form):
    assert inner(layers(), chip, form) == pytest.approx(MEASURED[chip, form], rel=0.3)


def test_the_order_of_formats():
    """M6: each halving of the bits shows, 3 costs what 4 does. M5 Max: nothing below int8 is faster than int8."""
    graph = layers()
    m6 = {form: inner(graph, "M6", form) for form in ("fp16", "int8", "palette4", "palette3", "palette2", "palette1")}
    assert m6["fp16"] > 1.8 * m6["int8"] > 3.2 * m6["palette4"]
    assert m6["palette3"] == pytest.approx(m6["palette4"], rel=0.12)
    assert inner(graph, "M6", "palette6") == pytest.approx(inner(graph, "M6", "palette8"), rel=0.12)
    assert m6["palette4"] > 1.4 * m6["palette2"] >= m6["palette1"]
    m5 = {form: inner(graph, "M5 Max", form) for form in ("fp16", "int8", "palette4", "palette2")}
    assert m5["fp16"] > 1.8 * m5["int8"]
    assert m5["palette4"] == pytest.approx(m5["int8"], rel=0.05)
    assert m5["palette2"] == pytest.approx(m5["int8"], rel=0.05)
    # One row of weights through a head: 2.30 times faster in 6 bits on an M1, 2.54 times on an M4.
    for chip, gain in (("M1", 2.30), ("M4", 2.54)):
        assert lm_head_us(chip, "fp16") / lm_head_us(chip, "palette6") == pytest.approx(gain, rel=0.1)
        few = {form: inner(layers(pixels=1), chip, form) for form in ("fp16", "palette6", "palette4")}
        assert few["fp16"] > 2 * few["palette6"] > 2 * few["palette4"]


@pytest.mark.parametrize("chip", ["M1", "M4", "M6"])
@pytest.mark.parametrize("form", ["palette8", "palette4", "palette4:scales", "palette2", "int8", "int4"])
def test_what_if_is_what_compression_gives(form, chip):
    graph = layers(256, count=3, seed=1)
    found = [op.weights_us for op in estimate(hexane.compress(graph, form), chip).ops]
    assert found == pytest.approx([op.weights_us for op in estimate(graph, chip, weights=form).ops], rel=1e-9)


@pytest.mark.parametrize("form", ["palette8", "palette4", "palette4:scales", "palette2", "palette1", "int8", "int4"])
@pytest.mark.parametrize("shape", [(256, 3), (96, 1)])
def test_bytes_are_those_of_the_compiled_kernel(form, shape):
    """What the what-if counts is what a program for an M4 holds."""
    from hexane.kernels import windows_of
    from hexane.lowering.formats import WeightFormat
    from hexane.timing.job import job_of
    from hexane.timing.whatif import changed

    channels, kernel = shape
    graph = layers(channels, count=1, seed=2, kernel=kernel)
    job = job_of(graph, hexane.chips.get("M4"))
    (layer,) = changed(job, weights=form).launches[0].layers
    program = hexane.compile(hexane.compress(graph, form), "M4")
    assert WeightFormat.of(form).bytes_of((channels, channels, 1, kernel)) <= layer.weight_bytes
    assert layer.weight_bytes == sum(w.size for task in program.images[0].tasks for w in windows_of(task))


def test_what_stays_fp16_and_what_stays_on_the_host():
    strided = layers(256, count=3, seed=3, strides=[1, 2])
    assert estimate(strided, "M1", weights="palette4").ops[1].weights_us == estimate(strided, "M1").ops[1].weights_us
    with pytest.raises(UnsupportedError, match="blocks of inputs"):
        estimate(strided, "M1", weights="int4:32")
    with pytest.raises(UsageError, match="no weight format"):
        estimate(strided, "M1", weights="int3")
    grouped = estimate(hexane.compress(layers(256, count=3, seed=3), "int4:32"), "M6")
    assert grouped.parts.launches == 0
    assert any("host for their weights" in note for note in grouped.notes)
    outputs = estimate(hexane.compress(layers(256, count=3, seed=3), "palette4:16"), "M6")
    assert outputs.parts.host_us == 0


def test_a_program_is_timed_with_what_it_streams():
    """An M2's program expands scales of outputs, an M4's streams them: the estimate of each says so."""
    graph = hexane.compress(layers(256, count=3, seed=3), "palette4:scales")
    full = 2 * 256 * 256
    for chip, share in (("M2", 1.0), ("M4", 0.27)):
        ops = hexane.compile(graph, chip).estimate().ops
        assert [op.dma_bytes for op in ops][1] == pytest.approx(share * full, rel=0.02)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("groups", [1, 4])
def test_bytes_of_palettes_are_those_of_their_constants(bits, groups):
    """Indices and tables as files hold them: bits packed by NumPy, tables of fp16, a mask of one bit an element."""
    from hexane.timing.weights import stored_weights

    rng = np.random.default_rng(bits)
    indices = rng.integers(0, 1 << bits, (16, 24, 1, 1)).astype(np.uint8)
    mask = rng.random(indices.shape) < 0.4
    lut = rng.standard_normal((groups, 1, 1, 1, 1 << bits, 1)).astype(np.float16)

    def packed(data):
        return np.packbits(np.unpackbits(data.reshape(-1, 1), axis=1)[:, 8 - bits :]).nbytes

    b = GraphBuilder()
    dense = b.constexpr_lut_to_dense(indices=b.const(indices, f"uint{bits}"), lut=lut)
    stored = stored_weights(dense)
    assert (stored.format, stored.bytes, stored.bits) == ("palette", packed(indices) + lut.nbytes, bits)
    assert stored.tables == groups
    kept, values = b.constexpr_lut_to_sparse(
        indices_mask=b.const(mask, "uint1"), indices_nonzero_data=b.const(indices[mask], f"uint{bits}"), lut=lut[:1]
    )
    stored = stored_weights(b.constexpr_sparse_to_dense(nonzero_data=values, mask=kept))
    wanted = packed(indices[mask]) + lut[:1].nbytes + np.packbits(mask).nbytes
    assert (stored.format, stored.bits) == ("sparse", bits)
    assert stored.bytes == pytest.approx(wanted, abs=1)  # files fill each up to a byte
    assert stored.density == pytest.approx(mask.mean())


@pytest.mark.parametrize("dtype", [np.float16, np.int8])
def test_bytes_of_sparse_weights_are_those_of_their_constants(dtype):
    from hexane.timing.weights import stored_weights

    mask = np.random.default_rng(0).random((16, 24, 1, 1)) < 0.4
    values = np.ones(int(mask.sum()), dtype)
    b = GraphBuilder()
    stored = stored_weights(b.constexpr_sparse_to_dense(nonzero_data=values, mask=b.const(mask, "uint1")))
    assert stored.bytes == values.nbytes + np.packbits(mask).nbytes and stored.bits == 8 * values.itemsize
