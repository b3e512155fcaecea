"""The compiled kernel: bytes of its stream, masks and bias included, and passes over the kernel memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hexane import chips
from hexane.chips.measured import values
from hexane.cost.kernel import kernel_of, passes
from hexane.cost.units import _weights_us
from hexane.cost.work import Layer

KERNEL_BYTES_PER_CORE = 64 << 10

M6, M1 = chips.get("M6"), chips.get("M1")


def layer(channels=256, kh=1, kw=1, **more):
    count = channels * channels * kh * kw
    return Layer("", "conv", "mac", pixels=128, cin=channels, cout=channels, kh=kh, kw=kw, weight_bytes=2.0 * count,
                 dense_bytes=2.0 * count, **more)  # fmt: skip


def test_a_bias_makes_a_full_kernel_stream():
    """256 x 256 x 8 taps fill the memory of every core exactly; the bias no longer fits."""
    kernel = kernel_of(layer(kw=8), M6)
    assert kernel.per_core_bytes == KERNEL_BYTES_PER_CORE + 32
    assert not kernel.resident
    assert kernel_of(layer(kw=7), M6).resident


def test_wide_kernels_are_two_copies_with_masks():
    """2.54 MB were compiled for 1x9, 256 channels (measured on M6, the row's stored size)."""
    kernel = kernel_of(layer(kw=9), M6)
    assert kernel.stored_bytes == pytest.approx(2.54e6, rel=0.01)
    assert kernel.taps == 10
    plain = kernel_of(layer(kw=9), M1)
    assert (plain.stored_bytes, plain.taps) == (256 * 256 * 9 * 2 + 512, 9)


def test_integers_do_not_shorten_wide_kernels():
    narrow = replace(layer(kw=9), weight_bytes=256 * 256 * 9.0, weight_format="int8")
    assert kernel_of(narrow, M6).stored_bytes == kernel_of(layer(kw=9), M6).stored_bytes


def test_dilated_kernels_are_sparse_over_their_window():
    kernel = kernel_of(layer(kh=3, kw=3, dilation=2), M6)
    assert kernel.taps == 25
    assert kernel.density == pytest.approx(9 / 25)
    assert kernel.stored_bytes == 256 * 256 * (9 * 2 + 25 / 8) + 512


@pytest.mark.parametrize(
    ("bytes_per_output", "outputs", "count"), [(1024, 512, 2), (8192, 4096, 32), (16384, 8192, 128)]
)
def test_passes_are_powers_of_two_of_outputs(bytes_per_output, outputs, count):
    assert passes(bytes_per_output, outputs, chips.generation("h13")) == count


def test_depthwise_layers_do_not_reach_the_peak_that_dense_ones_do():
    """Nobody has timed one: the store's port bounds it, and the range says that it is a guess."""
    import numpy as np

    from hexane.graph import GraphBuilder
    from hexane.timing import estimate

    def network(groups):
        b = GraphBuilder()
        x = b.input("x", (1, 512, 64, 64), "fp16")
        weight = np.ones((512, 512 // groups, 3, 3), np.float16)
        b.output(
            b.conv(
                x=b.conv(x=x, weight=weight, groups=groups, pad_type="same"),
                weight=weight,
                groups=groups,
                pad_type="same",
            )
        )
        return b.graph

    dense, depthwise = (estimate(network(groups), "M4", interface="task") for groups in (1, 512))
    assert dense.utilisation > 0.5
    assert depthwise.utilisation < 0.1
    assert all(op.extrapolated for op in depthwise.ops)
    width = [np.log(e.latency_range_us[1] / e.latency_us) for e in (dense, depthwise)]
    assert width[1] > np.log(1.5) > width[0]


def test_kernel_memory_holds_what_the_stream_leaves_in_it():
    """Dense integers fill kernel memory as fp16 does, palettes and sparse weights with what is stored."""
    dense, stored = 256 * 256 * 2 + 512, 256 * 256 + 512
    for form, density, bytes_ in (("int8", 1.0, dense), ("palette", 1.0, stored), ("sparse", 0.5, stored)):
        narrow = replace(layer(), weight_bytes=256 * 256.0, weight_format=form, density=density)
        kernel = kernel_of(narrow, M6)
        assert (kernel.stored_bytes, kernel.per_core_bytes) == (stored, bytes_ / 16), form


@pytest.mark.parametrize(("kh", "copies", "halo"), [(1, 2, False), (3, 2, True)])
def test_two_engines_read_weights_twice_unless_channels_are_cut(kh, copies, halo):
    """M6: a kernel of an even number of memories is cut by channels and read once."""
    c = {"halo_us": 3.0, "weights_gbs": 100.0, **values(M6)}
    odd, even = layer(kh=kh), layer(512, kh=2)
    assert kernel_of(odd, M6).blocks % 2 and not kernel_of(even, M6).blocks % 2
    one, two = (_weights_us(odd, kernel_of(odd, M6), M6, c, engines) for engines in (1, 2))
    assert (two[1], two[0]) == (copies * one[1], pytest.approx(copies * one[0]))
    assert one[2] == 0.0 and two[2] == (c["halo_us"] if halo else 0.0)
    assert _weights_us(even, kernel_of(even, M6), M6, c, 2)[1:] == (kernel_of(even, M6).stored_bytes, 0.0)
