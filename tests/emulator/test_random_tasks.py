"""Random legal tasks against NumPy: shapes, strides, tile heights, groups, interleave, transposition, broadcasts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import hexane
from emulator import engine_numerics as numerics
from emulator import tasks
from hexane import kernels

few = settings(deadline=None, max_examples=30)
seeds = st.integers(0, 2**32 - 1)
pads = st.tuples(*[st.integers(0, 2)] * 4)
l2_pads = st.tuples(st.integers(0, 2), st.integers(0, 3))


def _values(seed: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 4, shape)
    return values.astype(np.float16)


def run(
    task, const: bytes, x: np.ndarray, source: tasks.Layout, target: tasks.Layout, second=None, *, jobs: bool = True
) -> np.ndarray:
    """The result of a task, checked, made ready and run again; ``jobs``: it has to become jobs of the compiled loop."""
    surfaces = [source.surface("x", "input", tasks.X), target.surface("y", "output", tasks.Y)]
    inputs = {"x": source.to_bytes(x)}
    if second is not None:
        layout, z = second
        surfaces.append(layout.surface("z", "input", tasks.Z))
        inputs["z"] = layout.to_bytes(z)
    image = tasks.program([task], const, surfaces)
    program = hexane.emulator.EmulatedProgram.of(image.to_bytes())
    strict = hexane.emulator.run(program, inputs, until=0).outputs["y"].reshape(-1)
    for _ in range(3):  # checked, made ready, run again; the bytes that no task writes are zero
        raw = hexane.emulate(program, inputs, sanitize=False)["y"].reshape(-1)
        np.testing.assert_array_equal(raw, strict)
    assert not jobs or all(step.jobs() is not None for step in program.idle[0].chain.steps)
    return target.of_bytes(np.ascontiguousarray(raw))


def _direct(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, stride: int, pad: int, out: tuple[int, int]
) -> np.ndarray:
    """One group: x (c, h, w), w (o, c, k, k)."""
    k = w.shape[2]
    reach = [(n - 1) * stride + k - size - pad for n, size in zip(out, x.shape[1:])]
    padded = np.pad(x, ((0, 0), *((pad, max(0, r)) for r in reach)))
    taps = [
        padded[:, ky : ky + (out[0] - 1) * stride + 1 : stride, kx : kx + (out[1] - 1) * stride + 1 : stride]
        for ky in range(k)
        for kx in range(k)
    ]
    terms = np.stack(taps, 1).reshape(-1, out[0] * out[1])
    return numerics.matmul(w.reshape(w.shape[0], -1), terms, bias).reshape(-1, *out)


@few
@given(
    seed=seeds,
    groups=st.integers(1, 3),
    cin=st.integers(1, 6),
    cores=st.sampled_from([0, 1, 2, 3, 4]),
    lanes=st.sampled_from([1, 2, 4]),
    size=st.tuples(st.integers(3, 9), st.integers(3, 40)),
    k=st.sampled_from([1, 2, 3]),
    stride=st.sampled_from([1, 2]),
    pad=st.integers(0, 1),
    bias=st.booleans(),
    relu=st.booleans(),
    tile=st.integers(1, 9),
    strides=st.tuples(pads, pads, l2_pads),
    interleave=st.sampled_from([1, 2, 4, 8]),
)
def test_convolution(
    seed, groups, cin, cores, lanes, size, k, stride, pad, bias, relu, tile, strides, interleave
) -> None:
    cout = lanes << cores
    pad = min(pad, k - 1)
    out = tuple((n + 2 * pad - k) // stride + 1 for n in size)
    x, w = _values(seed, groups, cin, *size), _values(seed + 1, groups * cout, cin, k, k)
    b = _values(seed + 2, groups * cout) if bias else None
    layout = kernels.KernelLayout(
        cout, cin, k, k, groups=groups, cores=1 << cores, ocg=(lanes - 1).bit_length(), stride=(stride, stride),
        sparse=stride == 2, bias=bias,
    )  # fmt: skip
    packed = kernels.pack(layout, w, b)
    source, target = tasks.Layout(x.shape, strides[0]), tasks.Layout((groups, cout, *out), strides[1], interleave)
    task = tasks.blank("NE")
    tasks.dimensions(task, groups, cin, *size, cout, *out)
    tasks.put(
        task, {"Common.ConvCfg.Kw": k, "Common.ConvCfg.Kh": k, "Common.ConvCfg.Sx": stride, "Common.ConvCfg.Sy": stride}
    )
    tasks.put(task, {"Common.ConvCfg.Px": pad, "Common.ConvCfg.Py": pad, "Common.ConvCfg.OCGSize": layout.ocg})
    tasks.put(
        task, {"Common.Cfg.ActiveNE": cores, "Header[8].ENE": cores + 1, "Common.TileCfg.TileHeight": min(tile, out[0])}
    )
    tasks.put(task, {"NE.MACCfg.BiasMode": int(bias), "NE.MACCfg.NonlinearMode": int(relu)})
    tasks.kernel(task, packed, sparse=layout.sparse)
    source.source(task)
    target.result(task)
    tasks.region(task, "Source", 0, cin, size[1], strides[2])
    got = run(task, packed.data, x, source, target)
    for g in range(groups):
        mine = slice(g * cout, (g + 1) * cout)
        wanted = _direct(x[g], w[mine], None if b is None else b[mine], stride, pad, out)
        wanted = np.maximum(wanted, np.float16(0)) if relu else wanted
        np.testing.assert_array_equal(got[g].view(np.uint16), wanted.view(np.uint16))


@few
@given(
    seed=seeds,
    shape=st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 5), st.integers(1, 40)),
    transposed=st.booleans(),
    strides=st.tuples(pads, pads, l2_pads),
    interleaves=st.tuples(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8])),
    tile=st.integers(1, 5),
)
def test_copy_is_bit_exact(seed, shape, transposed, strides, interleaves, tile) -> None:
    """All halfwords, subnormals and -0 among them, through strides, groups, interleave and transposition."""
    groups, channels, rows, columns = shape
    x = np.random.default_rng(seed).integers(0, 0x7C00, shape, np.uint16).view(np.float16)
    stored = (groups, columns, rows, channels) if transposed else shape
    source, target = tasks.Layout(shape, strides[0], interleaves[0]), tasks.Layout(stored, strides[1], interleaves[1])
    task = tasks.blank("NE")
    tasks.dimensions(task, groups, channels, rows, columns, channels, rows, columns)
    tasks.put(task, {"Common.GroupConvCfg.UnicastEn": 1, "NE.MACCfg.OpMode": 4, "NE.MACCfg.KernelMode": 1})
    tasks.put(task, {"Common.Cfg.OutTrans": int(transposed), "Common.TileCfg.TileHeight": min(tile, rows)})
    source.source(task)
    target.result(task)
    tasks.region(task, "Source", 0, channels, columns, strides[2])
    got = run(task, b"", x, source, target)
    wanted = x.swapaxes(1, 3) if transposed else x
    np.testing.assert_array_equal(got.view(np.uint16), wanted.view(np.uint16))


OPERATIONS = {
    "add": (0, 2, np.add),
    "mul": (1, 2, np.multiply),
    "max": (2, 2, np.maximum),
    "min": (3, 2, np.minimum),
    "sub": (0, 3, np.subtract),
}


@few
@given(
    seed=seeds,
    shape=st.tuples(st.integers(1, 3), st.integers(1, 12), st.integers(1, 5), st.integers(1, 40)),
    op=st.sampled_from(sorted(OPERATIONS)),
    broadcast=st.tuples(*[st.booleans()] * 3),
    transposed=st.booleans(),
    relu=st.booleans(),
    strides=st.tuples(pads, pads, pads, l2_pads),
)
def test_elementwise(seed, shape, op, broadcast, transposed, relu, strides) -> None:
    """Two operands by DMA, the second broadcast along any of W, H, C and possibly stored with channels along W."""
    groups, channels, rows, columns = shape
    along_w, along_h, along_c = broadcast
    small = (groups, 1 if along_c else channels, 1 if along_h else rows, 1 if along_w else columns)
    x, z = _values(seed, *shape), _values(seed + 1, *small)
    stored = z.swapaxes(1, 3) if transposed else z
    source, target = tasks.Layout(shape, strides[0]), tasks.Layout(shape, strides[1])
    other = tasks.Layout(stored.shape, strides[2])
    mode, second, function = OPERATIONS[op]
    task = tasks.blank("PE")
    tasks.dimensions(task, groups, channels, rows, columns, channels, rows, columns)
    tasks.put(
        task, {"Common.Cfg.PEKind": 3, "PE.Cfg.OpMode": mode, "PE.Cfg.SecSrc": second, "PE.Cfg.ReluEn": int(relu)}
    )
    bits = along_w | along_h << 1 | along_c << 3
    tasks.put(task, {"Common.PECfg.Src2Broadcast": bits, "Common.PECfg.Src2Transpose": int(transposed)})
    source.source(task)
    other.source(task, second=True)
    target.result(task)
    tasks.region(task, "Source", 0, channels, columns, strides[3])
    tasks.region(task, "Src2", 0x80000, stored.shape[1], stored.shape[3], strides[3])
    got = run(task, b"", x, source, target, (other, np.ascontiguousarray(stored)))
    wanted = numerics.half_away(function(x.astype(np.float64), z.astype(np.float64)))
    wanted = np.maximum(wanted, np.float16(0)) if relu else wanted
    np.testing.assert_array_equal(got.view(np.uint16), np.broadcast_to(wanted, shape).view(np.uint16))


@few
@given(
    seed=seeds,
    shape=st.tuples(st.integers(1, 3), st.integers(1, 12), st.integers(1, 6), st.integers(1, 30)),
    largest=st.booleans(),
    transposed=st.booleans(),
    strides=st.tuples(pads, pads, l2_pads),
)
def test_reduction(seed, shape, largest, transposed, strides) -> None:
    """Sums of small integers, which any adder gives exactly, and maxima, per channel and group."""
    groups, channels, rows, columns = shape
    x = np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float16)
    stored = (groups, 1, 1, channels) if transposed else (groups, channels, 1, 1)
    source, target = tasks.Layout(shape, strides[0]), tasks.Layout(stored, strides[1])
    task = tasks.blank("PE")
    tasks.dimensions(task, groups, channels, rows, columns, channels, rows, columns)
    tasks.put(task, {"Common.Cfg.PEKind": 5, "PE.Cfg.ReduceMode": 2 * largest, "L2.L2Cfg.PaddingMode": int(largest)})
    tasks.put(task, {"Common.PECfg.OutputTranspose": int(transposed)})
    source.source(task)
    target.result(task)
    tasks.region(task, "Source", 0, channels, columns, strides[2])
    got = run(task, b"", x, source, target).reshape(groups, channels)
    exact = x.astype(np.float64)
    np.testing.assert_array_equal(got, exact.max((2, 3)) if largest else exact.sum((2, 3)))


@few
@given(
    seed=seeds,
    shape=st.tuples(st.integers(1, 2), st.integers(1, 12), st.integers(3, 9), st.integers(3, 20)),
    k=st.sampled_from([2, 3]),
    stride=st.sampled_from([1, 2]),
    pad=st.integers(0, 1),
    largest=st.booleans(),
    strides=st.tuples(pads, pads, l2_pads),
)
def test_windows_without_a_kernel(seed, shape, k, stride, pad, largest, strides) -> None:
    """Maximum and sum over a window, one channel at a time; marked as a hypothesis.

    Source: docs/reference/engine-h13.md 14.1, 14.2.
    """
    groups, channels, *size = shape
    out = tuple((n + 2 * pad - k) // stride + 1 for n in size)
    x = np.random.default_rng(seed).integers(-64, 65, shape).astype(np.float16)
    source, target = tasks.Layout(shape, strides[0]), tasks.Layout((groups, channels, *out), strides[1])
    task = tasks.blank("NE")
    tasks.dimensions(task, groups, channels, *size, channels, *out)
    tasks.put(task, {"Common.ConvCfg.Kw": k, "Common.ConvCfg.Kh": k, "Common.GroupConvCfg.UnicastEn": 1})
    tasks.put(task, {"Common.ConvCfg.Sx": stride, "Common.ConvCfg.Sy": stride})
    tasks.put(task, {"Common.ConvCfg.Px": pad, "Common.ConvCfg.Py": pad, "L2.L2Cfg.PaddingMode": int(largest)})
    tasks.put(task, {"NE.MACCfg.OpMode": 3 * largest, "NE.MACCfg.KernelMode": 1})
    source.source(task)
    target.result(task)
    tasks.region(task, "Source", 0, channels, size[1], strides[2])
    got = run(task, b"", x, source, target)
    fill = -np.inf if largest else 0
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), (2, 3))[:, :, ::stride, ::stride]
    np.testing.assert_array_equal(got, (windows.max if largest else windows.sum)((4, 5)))
