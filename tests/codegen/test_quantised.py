"""Quantised maps through the compiler: bytes between tasks, exact sums of integers, the bits of graph level."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane import chips, numerics
from hexane.errors import UnsupportedError
from hexane.graph import GraphBuilder
from hexane.lowering.eight_bit import byte_product

CHIPS = ("M1", "M2", "M4", "M5")
GIVEN = {"x": np.random.default_rng(1).normal(0, 1, (1, 32, 12, 12)).astype(np.float16)}


def pair(b, x, scale, zero=None, dtype="int8", **more):
    """quantize and dequantize."""
    given = {} if zero is None else {"zero_point": np.array(zero, dtype)}
    stored = b.quantize(input=x, scale=np.asarray(scale, np.float16), output_dtype=dtype, **given, **more)
    return b.dequantize(input=stored, scale=np.asarray(scale, np.float16), **given, **more)


def integers(b, rng, *shape, scale=0.006, per_output=True):
    """int8 weights with a scale for each output, or one."""
    count = shape[0] if per_output else 1
    scales = (rng.uniform(0.5, 1.5, (count, *(1,) * (len(shape) - 1))) * scale).astype(np.float16)
    data = rng.integers(-127, 128, shape).astype(np.int8)
    return b.constexpr_blockwise_shift_scale(data=data, scale=scales)


def network(zero=None, dtype="int8", per_output=True, residual=False, scale=0.006):
    """Quantise, convolve, ReLU, quantise, convolve; with a residual the second map is used twice."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", (1, 32, 12, 12), "fp16")
    first = integers(b, rng, 64, 32, 3, 3, scale=scale, per_output=per_output)
    y = b.conv(
        x=pair(b, x, 0.05, zero, dtype), weight=first, bias=rng.normal(0, 1, 64).astype(np.float16), pad_type="same"
    )
    y = pair(b, b.relu(x=y), 0.4, zero, dtype)
    z = b.conv(x=y, weight=integers(b, rng, 64, 64, 1, 1, scale=scale, per_output=per_output))
    b.output(b.add(x=z, y=y) if residual else z)
    return b.graph


def both(graph, chip, given=None):
    """The program and its output; the graph's own evaluation has the same bits, and nothing is left to the host."""
    given = GIVEN if given is None else given
    program = hexane.compile(graph, chip)
    assert [segment.kind for segment in program.segments] == ["engine"]
    (out,) = program.run(given).values()
    (same,) = numerics.evaluate(program.graph, given, chip).values()
    assert out.dtype == same.dtype
    assert out.tobytes() == same.tobytes()
    return program, out


def sums_of_bytes(program, chip):
    """How many convolutions sum integers."""
    generation = chips.get(chip).generation
    return sum(op.type == "conv" and byte_product(op, generation) is not None for op in program.graph.main.walk())


VARIANTS = {  # tasks where convolutions read bytes, else
    "one number": ({}, 4, 6),
    "one scale for all weights": ({"per_output": False}, 4, 6),
    "a residual": ({"residual": True}, 6, 8),
    "zero point 0": ({"zero": 0}, 4, 6),
    "uint8": ({"dtype": "uint8"}, 4, 6),
}
WITH_ZERO = {"zero point 3": {"zero": 3}, "uint8 around 128": {"zero": 128, "dtype": "uint8"}}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", VARIANTS)
def test_bytes_between_tasks(name, chip):
    options, fused, apart = VARIANTS[name]
    program, out = both(network(**options), chip)
    reads = chip != "M1"  # H13's compiler folds int8 weights, so that there is nothing to sum as integers
    assert sums_of_bytes(program, chip) == (2 if reads else 0)
    tasks = sum(len(image.tasks) for image in program.images)
    assert tasks == (fused if reads else apart) - 1  # the first convolution quantises its result itself
    (wanted,) = network(**options).evaluate(GIVEN).values()
    assert np.abs(out - wanted).max() < 0.03 * np.abs(wanted).max()  # a step of a map here and there


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize("name", WITH_ZERO)
def test_zero_points_are_taken_off_first(name, chip):
    program, out = both(network(**WITH_ZERO[name]), chip)
    assert sums_of_bytes(program, chip) == 0
    (wanted,) = network(**WITH_ZERO[name]).evaluate(GIVEN).values()
    assert np.abs(out - wanted).max() < 0.03 * np.abs(wanted).max()


def exact(total: int, scale: float) -> float:
    """h(h(total) * scale) in whole numbers: eleven significant bits, halves away from zero."""

    def rounded(value: float) -> float:
        if value == 0:
            return 0.0
        step = 2.0 ** (np.floor(np.log2(abs(value))) - 10)
        return float(np.sign(value) * np.floor(abs(value) / step + 0.5) * step)

    return rounded(rounded(float(total)) * scale)


@pytest.mark.parametrize("chip", ["M2", "M4", "M5"])
def test_sums_are_those_of_whole_numbers(chip):
    """NumPy's int64 and the rule in words, no code of the engine's: every result, large sums and ties among them."""
    rng = np.random.default_rng(3)
    x = rng.integers(-128, 128, (1, 48, 6, 6)).astype(np.int8)
    w = rng.integers(-127, 128, (32, 48, 3, 3)).astype(np.int8)
    w[0], x[0, :, 0, 0] = 127, -128
    scales = np.array([2.0 ** -(i % 5 + 9) * (1 + i / 64) for i in range(32)], np.float16)
    b = GraphBuilder()
    source = b.input("x", (1, 48, 6, 6), "int8")
    weight = b.constexpr_blockwise_shift_scale(data=w, scale=scales.reshape(-1, 1, 1, 1))
    b.output(b.conv(x=b.dequantize(input=source, scale=np.float16(0.5)), weight=weight, pad_type="valid"))
    _, out = both(b.graph, chip, {"x": x})
    windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.int64), (3, 3), (1, 2))
    totals = np.einsum("ihwkl,oikl->ohw", windows, w.astype(np.int64))
    assert np.abs(totals).max() > 32768
    wanted = [[exact(t, float(np.float16(s * np.float16(0.5)))) for t in row.ravel()] for row, s in zip(totals, scales)]
    np.testing.assert_array_equal(out[0].reshape(32, -1).astype(np.float64), np.array(wanted))


def test_maps_saturate_and_stand_as_bytes():
    b = GraphBuilder()
    x = b.input("x", (1, 3, 4, 70), "fp16")
    b.output(b.quantize(input=x, scale=np.float16(0.5), output_dtype="int8"))
    b.output(b.quantize(input=x, scale=np.float16(0.5), zero_point=np.uint8(100), output_dtype="uint8"))
    values = np.linspace(-200, 200, 3 * 4 * 70).reshape(1, 3, 4, 70).astype(np.float16)
    values[0, 0, 0, :4] = (0.25, -0.25, 65504, -65504)
    for chip in ("M1", "M4"):
        program = hexane.compile(b.graph, chip)
        found = program.run({"x": values})
        wanted = b.graph.evaluate({"x": values})
        for name, dtype in zip(found, (np.int8, np.uint8)):
            assert found[name].dtype == dtype
            apart = found[name].astype(int) - wanted[name].astype(int)
            near = np.abs(values.astype(np.float64) * 2 % 1 - 0.5) < 2.0**-3  # MIL rounds once, and halves to even
            assert not apart[~near].any()
            assert np.abs(apart).max() <= 1
        assert found["quantize"].min() == -128
        assert found["quantize"].max() == 127
        (image,) = program.images
        sizes = {surface.dtype for surface in image.surfaces}
        assert {"int8", "uint8", "float16"} <= sizes


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_scales_of_channels(chip):
    """A scale for each channel of a map is a product before and behind; a map of signed bytes is cast in one task."""
    rng = np.random.default_rng(5)
    b = GraphBuilder()
    x = b.input("x", (1, 32, 12, 12), "fp16")
    scales = rng.uniform(0.02, 0.05, 32).astype(np.float16)
    b.output(pair(b, x, scales, axis=1))
    _, out = both(b.graph, chip)
    (wanted,) = b.graph.evaluate(GIVEN).values()
    steps = np.abs(out.astype(np.float64) - wanted) / scales.reshape(-1, 1, 1)
    assert steps.max() < 1.2
    assert (steps > 0.3).mean() < 0.03


def test_scales_that_fp16_cannot_hold_stay_numbers():
    """Sums whose scale would be a rough subnormal are formed of numbers instead, and still on the engine."""
    program, _ = both(network(scale=2e-5), "M4")
    assert sums_of_bytes(program, "M4") == 0
    b = GraphBuilder()
    x = b.input("x", (1, 32, 12, 12), "fp16")
    b.output(b.quantize(input=x, scale=np.float16(1e-6), output_dtype="int8"))
    program = hexane.compile(b.graph, "M4")
    assert [segment.kind for segment in program.segments] == ["host"]
    assert "reciprocal" in program.segments[0].reason


@pytest.mark.parametrize(
    "more, shape",
    [({"strides": [2, 2]}, (64, 32, 3, 3)), ({"groups": 4}, (64, 8, 3, 3)), ({"groups": 32}, (32, 1, 3, 3)),
     ({"dilations": [2, 2]}, (64, 32, 3, 3))],
    ids=str,
)  # fmt: skip
def test_other_convolutions_of_quantised_maps(more, shape):
    b = GraphBuilder()
    x = b.input("x", (1, 32, 12, 12), "fp16")
    weight = integers(b, np.random.default_rng(6), *shape)
    b.output(b.conv(x=pair(b, x, 0.05), weight=weight, pad_type="same", **more))
    both(b.graph, "M4")


def test_evidence():
    """Nothing of it is in a program of Apple's compiler: strict refuses it, and every task says so."""
    program = hexane.compile(network(), "M4")
    assert {plan.evidence.value for segment in program.segments for plan in segment.plans} == {"INFERRED"}
    with pytest.raises(UnsupportedError):
        hexane.compile(network(), "M4", strict=True)


def layers(seed, count=3):
    """Convolutions with bytes between them: kernel, channels, scales and ReLU drawn; weights and scales as integers."""
    rng = np.random.default_rng(seed)
    b = GraphBuilder()
    y = b.input("x", (1, 16, 24, int(rng.choice([16, 24, 32]))), "fp16")
    steps = []
    for i in range(count):
        k, out = int(rng.choice([1, 3])), int(rng.choice([16, 32, 48]))
        data = rng.integers(-90, 91, (out, y.shape[1], k, k)).astype(np.int8)
        y = b.conv(
            x=y,
            weight=b.constexpr_blockwise_shift_scale(data=data, scale=np.full((1, 1, 1, 1), 2.0**-9, np.float16)),
            pad_type="same",
        )
        relu = bool(rng.integers(2))
        y = b.relu(x=y) if relu else y
        power = int(rng.integers(-2, 2))
        steps.append((data.astype(np.int64), relu, 2.0**power if i < count - 1 else None))
        y = pair(b, y, 2.0**power) if i < count - 1 else y
    b.output(y)
    return b.graph, steps


def eleven_bits(x):
    """Rounded to eleven significant bits, half away from zero."""
    part, power = np.frexp(x)
    return np.ldexp(np.copysign(np.floor(np.abs(part) * 2048 + 0.5) / 2048, part), power)


def in_whole_numbers(x, steps):
    """The same in int64 and float64: every product of powers of two is exact; a byte is rounded half away, clamped."""
    scale = 1.0
    for data, relu, step in steps:
        k = data.shape[-1] // 2
        padded = np.pad(x, ((0, 0), (0, 0), (k, k), (k, k)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, data.shape[2:], axis=(2, 3))
        sums = np.einsum("nchwij,ocij->nohw", windows, data).astype(np.float64)
        sums = np.maximum(sums, 0) if relu else sums
        stored = eleven_bits(eleven_bits(sums) * (scale * 2.0**-9))
        if step is None:
            return stored
        x = np.clip(np.copysign(np.floor(np.abs(stored / step) + 0.5), stored), -128, 127).astype(np.int64)
        scale = step
    raise AssertionError("a network without an end")


@pytest.mark.parametrize("dialect", ["default", "apple"])
@pytest.mark.parametrize("chip", ["M4", "A19"])
@pytest.mark.parametrize("seed", range(4))
def test_layers_store_bytes(seed, chip, dialect):
    """One task a layer; the results are those of whole numbers."""
    graph, steps = layers(seed)
    given = np.random.default_rng(seed).integers(-9, 10, graph.main.inputs[0].shape)
    program = hexane.compile(graph, chip, dialect=dialect)
    arrays = {"x": given.astype(np.float16)}
    (out,) = program.run(arrays).values()
    (same,) = program.run(arrays, level="graph").values()
    assert [segment.kind for segment in program.segments] == ["engine"] and out.tobytes() == same.tobytes()
    assert sum(len(image.tasks) for image in program.images) == 3
    wanted = in_whole_numbers(given, steps)
    np.testing.assert_array_equal(out, wanted)


def test_bytes_are_kept_where_they_fit():
    """In dialect apple maps of a chain stand one behind the other while there is room, and take turns where not."""
    for size, count, reuse in ((64, 4, False), (128, 3, False), (128, 4, True)):
        b = GraphBuilder()
        x = y = b.input("x", (1, 48, size, size), "fp16")
        for i in range(count):
            y = b.conv(x=y, weight=integers(b, np.random.default_rng(i), 48, 48, 1, 1, per_output=False))
            y = pair(b, y, 0.5) if i < count - 1 else y
        b.output(y)
        program = hexane.compile(b.graph, "M4", dialect="apple")
        plans = [plan for segment in program.segments for plan in segment.plans]
        assert len(plans) == count
        bases = [plan.result.region.base for plan in plans[:-1]]
        assert ((len(set(bases)) < len(bases)) == reuse and bases == sorted(bases)) or reuse
        given = {"x": np.random.default_rng(9).normal(size=x.shape).astype(np.float16)}
        (out,), (same,) = (program.run(given, level=level).values() for level in ("engine", "graph"))
        assert out.tobytes() == same.tobytes()
