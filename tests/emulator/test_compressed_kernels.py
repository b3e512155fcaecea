"""Tasks whose kernels are palettes, integers or scaled: the emulator against plain statements of the rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator import engine_numerics as numerics
from emulator import tasks
from emulator.test_random_tasks import _values, run
from hexane import kernels
from hexane.errors import HexaneError
from hexane.kernels import KernelLayout

few = settings(deadline=None, max_examples=20)
seeds = st.integers(0, 2**32 - 1)


def conv_task(layout: KernelLayout, packed: kernels.PackedKernel, size: tuple[int, int], **fields: int):
    """A 1x1 convolution of one group whose registers say what the layout says, and its surfaces."""
    task = tasks.blank("NE")
    tasks.dimensions(task, 1, layout.cin, *size, layout.cout, *size)
    cores = layout.cores.bit_length() - 1
    code = {"int8": 1, "float16": 2}[layout.dtype]
    tasks.put(
        task,
        {
            "Common.ConvCfg.OCGSize": layout.ocg,
            "Common.Cfg.ActiveNE": cores,
            "Header[8].ENE": cores + 1,
            "NE.KernelCfg.KernelFmt": code,
            "NE.KernelCfg.PalettizedEn": int(layout.palette > 0),
            "NE.KernelCfg.PalettizedBits": layout.palette or 8,
            "NE.MACCfg.BiasMode": int(layout.bias),
            "NE.MACCfg.BinaryPoint": 0 if layout.dtype == "int8" else 0x1C,
            "NE.MACCfg.PostScaleMode": int(layout.scales),
            **fields,
        },
    )
    tasks.kernel(task, packed)
    source = tasks.Layout((1, layout.cin, *size), (0, 0, 0, 0))
    target = tasks.Layout((1, layout.cout, *size), (0, 0, 0, 0))
    source.source(task)
    target.result(task)
    tasks.region(task, "Source", 0, layout.cin, size[1])
    return task, source, target


def half(value: np.ndarray) -> np.ndarray:
    """h(v), half away, as float64."""
    return numerics.half_away(value).astype(np.float64)


@few
@given(seeds, st.sampled_from((1, 2, 3, 4, 6, 8)), st.integers(1, 9), st.booleans(), st.integers(1, 3))
def test_a_palette_computes_what_its_entries_would(seed, bits, cin, bias, lanes):
    layout = KernelLayout(16 * lanes, cin, palette=bits, bias=bias, ocg=(lanes - 1).bit_length())
    rng = np.random.default_rng(seed)
    palette = _values(seed, 1 << bits)
    indices = rng.integers(0, 1 << bits, layout.weight_shape).astype(np.uint8)
    b = _values(seed + 1, layout.cout) if bias else None
    x = _values(seed + 2, 1, cin, 3, 17)
    packed = kernels.pack(layout, indices, b, palette=palette)
    got = run(*_with(conv_task(layout, packed, (3, 17)), packed, x), jobs=False)
    dense = palette[indices].reshape(layout.cout, cin)
    wanted = numerics.matmul(dense, x[0].reshape(cin, -1), b).reshape(1, layout.cout, 3, 17)
    np.testing.assert_array_equal(got.view(np.uint16), wanted.view(np.uint16))


def eleven(value: np.ndarray) -> np.ndarray:
    """To eleven significant bits, ties away from zero, without a limit of range."""
    significand, exponent = np.frexp(value)
    cells = np.abs(significand) * 2048
    return np.copysign(np.ldexp(np.floor(cells + 0.5), exponent - 11), value)


def _with(made, packed, x):
    task, source, target = made
    return task, packed.data, x, source, target


@few
@given(seeds, st.integers(1, 9), st.booleans(), st.booleans())
def test_integers_are_summed_exactly_and_scaled_per_output(seed, cin, bias, relu):
    layout = KernelLayout(32, cin, dtype="int8", scales=True, bias=bias, ocg=1)
    rng = np.random.default_rng(seed)
    w = rng.integers(-128, 128, layout.weight_shape).astype(np.int8)
    scales = rng.uniform(0.001, 0.1, 32).astype(np.float16)
    b = _values(seed + 1, 32) if bias else None
    x = _values(seed + 2, 1, cin, 3, 5)
    packed = kernels.pack(layout, w, b, scales=scales)
    task = conv_task(layout, packed, (3, 5), **{"NE.MACCfg.NonlinearMode": int(relu)})
    got = run(*_with(task, packed, x), jobs=False)
    sums = w.reshape(32, cin).astype(np.float64) @ x[0].reshape(cin, -1).astype(np.float64)
    wanted = eleven(sums) * scales.astype(np.float64)[:, None]
    if b is not None:
        wanted = wanted + b.astype(np.float64)[:, None]
    wanted = half(np.maximum(wanted, 0) if relu else wanted).astype(np.float16).reshape(1, 32, 3, 5)
    np.testing.assert_array_equal(got.view(np.uint16), (wanted + np.float16(0)).view(np.uint16))


def test_integers_with_one_scale_take_the_post_scale():
    layout = KernelLayout(16, 4, dtype="int8", ocg=0)
    rng = np.random.default_rng(0)
    w = rng.integers(-128, 128, layout.weight_shape).astype(np.int8)
    x = _values(7, 1, 4, 2, 6)
    packed = kernels.pack(layout, w)
    scale = np.float16(0.013)
    task = conv_task(layout, packed, (2, 6), **{"NE.PostScale.PostScale": int(scale.view(np.uint16))})
    got = run(*_with(task, packed, x), jobs=False)
    sums = w.reshape(16, 4).astype(np.float64) @ x[0].reshape(4, -1).astype(np.float64)
    wanted = half(eleven(sums) * float(scale)).astype(np.float16).reshape(got.shape)
    np.testing.assert_array_equal(got.view(np.uint16), (wanted + np.float16(0)).view(np.uint16))


def test_scales_beside_a_palette():
    layout = KernelLayout(16, 6, palette=4, scales=True, ocg=0)
    rng = np.random.default_rng(1)
    palette = rng.normal(0, 1, 16).astype(np.float16)
    indices = rng.integers(0, 16, layout.weight_shape).astype(np.uint8)
    scales = rng.uniform(0.5, 2, 16).astype(np.float16)
    x = _values(9, 1, 6, 2, 6)
    packed = kernels.pack(layout, indices, palette=palette, scales=scales)
    got = run(*_with(conv_task(layout, packed, (2, 6)), packed, x), jobs=False)
    sums = numerics.matmul(palette[indices].reshape(16, 6), x[0].reshape(6, -1), None)
    wanted = half(sums.astype(np.float64) * scales.astype(np.float64)[:, None]).astype(np.float16)
    np.testing.assert_array_equal(got.view(np.uint16), (wanted.reshape(got.shape) + np.float16(0)).view(np.uint16))


@pytest.mark.parametrize(
    "fields",
    [{"NE.PostScale.PostScale": 0x4000}, {"NE.AccBias.AccBias": 0x3C00}, {"NE.MACCfg.BinaryPoint": 0x1C}],
)
def test_what_has_no_known_effect_beside_scales_is_refused(fields):
    layout = KernelLayout(16, 4, dtype="int8", scales=True, ocg=0)
    packed = kernels.pack(layout, np.ones(layout.weight_shape, np.int8), scales=np.ones(16, np.float16))
    with pytest.raises(HexaneError):
        run(*_with(conv_task(layout, packed, (2, 6), **fields), packed, _values(1, 1, 4, 2, 6)), jobs=False)
