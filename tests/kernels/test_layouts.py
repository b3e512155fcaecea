"""Layouts of kernel streams: which of them Apple's bytes show, and the passes over their lanes."""

from __future__ import annotations

from hexane.kernels import KernelLayout


def test_what_apples_bytes_show_and_what_follows_by_analogy():
    for shown in (
        KernelLayout(64, 64, 3, 3, ocg=2, bias=True),
        KernelLayout(224, 256, 3, 3, ocg=4),
        KernelLayout(1024, 256, ocg=4),
        KernelLayout(768, 256, ocg=5),
        KernelLayout(64, 1, 3, 3, unicast=True, bias=True),
        KernelLayout(16, 16, 3, 3, groups=4, stride=(2, 2), sparse=True),
        KernelLayout(256, 256, 3, 3, ocg=4, stride=(2, 2), sparse=True, bias=True),
        KernelLayout(1024, 1, 1, 9, unicast=True, stride=(1, 2), bias=True, widened=True),
        KernelLayout(128, 64, ocg=3, runtime=True),
    ):
        assert shown.inferred == ()
    for analogy in (
        KernelLayout(1000, 64, ocg=4),
        KernelLayout(320 + 48, 64, ocg=4),
        KernelLayout(1024, 256, ocg=4, bias=True),
        KernelLayout(64, 64, 3, 3, ocg=2, bias=True, table=True),
        KernelLayout(64, 64, 3, 3, ocg=2, stride=(1, 2), sparse=True),
        KernelLayout(1024, 1, 1, 9, unicast=True, stride=(1, 2), widened=True),
    ):
        assert analogy.inferred


def test_a_strided_kernel_of_dense_weights_says_what_is_inferred():
    """A kernel with steps of two is a sparse stream, whatever its weights; no program shows two lanes a core."""
    (reason,) = KernelLayout(32, 3, 3, 3, ocg=1, stride=(2, 2), sparse=True).inferred
    assert reason == (
        "strided kernels, sparse streams even of dense weights, of 2 lanes a core: "
        "programs show one and multiples of four"
    )
    for outputs, ocg in ((16, 0), (64, 2)):
        assert KernelLayout(outputs, 3, 3, 3, ocg=ocg, stride=(2, 2), sparse=True).inferred == ()


def test_lanes_beyond_the_cap_make_several_passes():
    """768 outputs of a small map are 512 channels with 32 lanes, then 256 with 16."""
    layout = KernelLayout(768, 4, ocg=5)
    assert [(step.first, step.lanes) for step in layout.passes()] == [(0, 32), (512, 16)]
    assert [step.lanes for step in KernelLayout(768, 4, ocg=4).passes()] == [16, 16, 16]
