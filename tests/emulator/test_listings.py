"""Programs with 8-bit data, comparisons and rounding, which only the specification's listings have."""

from __future__ import annotations

import numpy as np

import hexane
from emulator import listings
from hexane import isa, kernels


def _surface(name: str, role: str, channel: int, dtype: str = "float16", shape=(1, 64, 1, 1)) -> dict:
    return {"name": name, "role": role, "shape": shape, "dtype": dtype, "channel": channel}


def _const(size: int, parts: dict[int, bytes]) -> bytes:
    data = bytearray(max(size, 0x4000))
    for offset, part in parts.items():
        data[offset : offset + len(part)] = part
    return bytes(data)


def _run(tasks: list[isa.Task], const: bytes, surfaces: list[dict], inputs: dict) -> hexane.emulator.Result:
    return hexane.emulator.run(hexane.build_image(isa.link(tasks), const, surfaces, "h13"), inputs)


def _values(seed: int, shape: tuple[int, ...] = (1, 64, 1, 1)) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape) * 4
    values.reshape(-1)[:8] = [0, -0.0, 1, -1, 2.5, -2.5, 1e-7, -1e-7]
    return values.astype(np.float16)


def test_less() -> None:
    """An int8 kernel (+1, -1) over pairs, the table x < 0, and bytes out."""
    x, y = _values(0), _values(1)
    y[:, 16:32] = x[:, 16:32]
    chunk = kernels.less_than_zero_table().to_bytes() + np.tile(np.array([1, -1], np.int8), 4).tobytes()
    const = _const(3072, {core * 0xC0: chunk for core in range(16)})
    surfaces = [_surface("x", "input", 4), _surface("y", "input", 5), _surface("z", "output", 6, "uint8")]
    result = _run(listings.listing("less"), const, surfaces, {"x": x, "y": y})
    far = np.abs(x.astype(float) - y.astype(float)) > 1e-4  # nearer than half a unit the sum is 0
    np.testing.assert_array_equal(result.outputs["z"][far], (x < y)[far])
    assert not result.outputs["z"][:, 16:32].any()
    assert {"int8-kernel", "byte-store"} <= set(result.report.hypotheses)


def test_cast_of_booleans() -> None:
    x = np.random.default_rng(0).integers(0, 2, (1, 1, 64, 1), np.uint8)
    surfaces = [_surface("x", "input", 4, "uint8", x.shape), _surface("y", "output", 5, shape=x.shape)]
    result = _run(listings.listing("cast"), b"", surfaces, {"x": x})
    np.testing.assert_array_equal(result.outputs["y"], x.astype(np.float16))


def test_logical_not() -> None:
    x = np.random.default_rng(0).integers(0, 2, (1, 1, 64, 64), np.uint8)
    surfaces = [_surface("x", "input", 4, "uint8", x.shape), _surface("y", "output", 5, "uint8", x.shape)]
    const = _const(128, {0: kernels.is_zero_table().to_bytes()})
    result = _run(listings.listing("logical_not"), const, surfaces, {"x": x})
    np.testing.assert_array_equal(result.outputs["y"], 1 - x)


def test_select() -> None:
    cond = np.random.default_rng(0).integers(0, 2, (1, 64, 1, 1), np.uint8)
    a, b = _values(1), _values(2)
    const = _const(2048, {0: kernels.not_zero_table().to_bytes(), 0x400: kernels.is_zero_table().to_bytes()})
    surfaces = [
        _surface("a", "input", 4),
        _surface("b", "input", 5),
        _surface("c", "input", 6, "uint8"),
        _surface("y", "output", 7),
    ]
    result = _run(listings.listing("select"), const, surfaces, {"a": a, "b": b, "c": cond})
    np.testing.assert_array_equal(result.outputs["y"], np.where(cond != 0, a, b))


def test_floor() -> None:
    x = _values(3)
    tables = {0: kernels.fraction_table(), 0x400: kernels.less_than_zero_table(), 0x480: kernels.integer_table()}
    const = _const(2176, {offset: table.to_bytes() for offset, table in tables.items()})
    surfaces = [_surface("x", "input", 4), _surface("y", "output", 5)]
    result = _run(listings.listing("floor"), const, surfaces, {"x": x})
    np.testing.assert_array_equal(result.outputs["y"], np.floor(x))


def test_maps_through_scratch() -> None:
    """Three copies into planes of scratch, a convolution of them, then y = ((c * i9 + i7) * i10) + i8."""
    shape = (1, 1, 1024, 2048)
    inputs = {f"i{k}": np.random.default_rng(k).integers(-4, 5, shape).astype(np.float16) for k in range(4, 11)}
    surfaces = [_surface(name, "input", int(name[1:]), shape=shape) for name in inputs]
    surfaces.append(_surface("y", "output", 11, shape=shape))
    weights = np.array([1, 2, -1], np.float16)
    tasks = isa.link(listings.listing("atan2"))
    image = hexane.build_image(tasks, _const(64, {0: weights.tobytes()}), surfaces, "h13", 1 << 24)
    result = hexane.emulator.run(image, inputs)
    c = inputs["i4"] * weights[0] + inputs["i5"] * weights[1] + inputs["i6"] * weights[2]
    wanted = (c * inputs["i9"] + inputs["i7"]) * inputs["i10"] + inputs["i8"]
    np.testing.assert_array_equal(result.outputs["y"], wanted)
    assert result.report.measured
