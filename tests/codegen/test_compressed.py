"""Compressed weights through the compiler: small sections, the engine's bits, and a reason for every one expanded."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hexane
from hexane import chips, numerics
from hexane.errors import UnsupportedError
from hexane.graph import GraphBuilder
from hexane.kernels import layout_of, windows_of
from hexane.lowering.weights import decision_of

RNG = np.random.default_rng(0)
SHAPE = (64, 32, 3, 3)
INTEGERS = RNG.integers(-127, 128, SHAPE).astype(np.int8)
INDICES = RNG.integers(0, 16, SHAPE).astype(np.uint8)
SCALES = RNG.uniform(0.001, 0.002, (64, 1, 1, 1)).astype(np.float16)
HIT = RNG.random(SHAPE) < 0.3
DENSE_BYTES = 2 * 64 * 32 * 9


def lut(*shape: int) -> np.ndarray:
    return RNG.normal(0, 0.1, shape).astype(np.float16)


FORMS = {
    "one table": lambda b: b.constexpr_lut_to_dense(indices=b.const(INDICES, "uint4"), lut=lut(1, 1, 1, 1, 16, 1)),
    "two bits": lambda b: b.constexpr_lut_to_dense(indices=b.const(INDICES & 3, "uint2"), lut=lut(1, 1, 1, 1, 4, 1)),
    "three bits": lambda b: b.constexpr_lut_to_dense(indices=b.const(INDICES & 7, "uint3"), lut=lut(1, 1, 1, 1, 8, 1)),
    "tables of outputs": lambda b: b.constexpr_lut_to_dense(
        indices=b.const(INDICES, "uint4"), lut=lut(4, 1, 1, 1, 16, 1)
    ),
    "tables of inputs": lambda b: b.constexpr_lut_to_dense(
        indices=b.const(INDICES, "uint4"), lut=lut(1, 32, 1, 1, 16, 1)
    ),
    "vectors": lambda b: b.constexpr_lut_to_dense(
        indices=b.const(INDICES[:32], "uint4"), lut=lut(1, 1, 1, 1, 16, 2), vector_axis=0
    ),
    "int8, one scale": lambda b: b.constexpr_blockwise_shift_scale(
        data=INTEGERS, scale=np.full((1, 1, 1, 1), 0.0013, np.float16)
    ),
    "int8, scales of outputs": lambda b: b.constexpr_blockwise_shift_scale(data=INTEGERS, scale=SCALES),
    "int8, scales of inputs": lambda b: b.constexpr_blockwise_shift_scale(data=INTEGERS, scale=lut(1, 32, 1, 1)),
    "int4, scales of outputs": lambda b: b.constexpr_blockwise_shift_scale(
        data=b.const((INDICES.astype(np.int8) - 8), "int4"), scale=SCALES * 10
    ),
    "a mask": lambda b: b.constexpr_sparse_to_dense(
        nonzero_data=RNG.normal(0, 0.1, int(HIT.sum())).astype(np.float16), mask=b.const(HIT.astype(np.uint8), "uint1")
    ),
}
ON_M1 = {  # bits of a weight in the section; 16: expanded
    "one table": 4,
    "two bits": 2,
    "three bits": 4,
    "tables of outputs": 6,
    "tables of inputs": 16,
    "vectors": 6,
    "int8, one scale": 8,
    "int8, scales of outputs": 16,
    "int8, scales of inputs": 16,
    "int4, scales of outputs": 16,
    "a mask": 16 * 0.3 + 1,
}


def network(form: str, follow=None):
    b = GraphBuilder()
    x = b.input("x", (1, 32, 12, 12), "fp16")
    bias = RNG.normal(0, 0.1, 64).astype(np.float16)
    y = b.conv(x=x, weight=FORMS[form](b), bias=bias, pad_type="same")
    b.output(b.relu(x=y) if follow is None else follow(b, y))
    return b.graph


def run_both(graph, chip: str):
    """The program, its output, and the graph's own evaluation with the chip's arithmetic: the same bits."""
    program = hexane.compile(graph, chip)
    assert program.stats()["macs_on_engine"] == 1.0
    value = graph.main.inputs[0]
    x = np.random.default_rng(1).normal(0, 1, value.shape).astype(np.float16)
    (name,) = [value.name for value in graph.main.outputs]
    out = program.run({value.name: x})[name]
    wanted = numerics.evaluate(program.graph, {value.name: x}, chip)[name]
    np.testing.assert_array_equal(out.view(np.uint16), wanted.view(np.uint16))
    exact = graph.evaluate({value.name: x})[name].astype(np.float64)
    assert np.abs(out - exact).max() < 0.01 * np.abs(exact).max()
    return program


def section_bytes(program) -> int:
    return sum(len(image.const) for image in program.images)


@pytest.mark.parametrize("form", list(FORMS))
def test_each_form_on_m1(form):
    program = run_both(network(form), "M1")
    # whole streams of sixteen cores, each rounded up to 64 bytes behind a palette of up to 512
    assert section_bytes(program) <= max(0x4000, DENSE_BYTES * ON_M1[form] / 16 + 16 * 640)
    if ON_M1[form] == 16:
        assert section_bytes(program) >= DENSE_BYTES


@pytest.mark.parametrize("form", ["one table", "int8, one scale", "vectors"])
def test_the_same_values_give_the_same_bits_dense(form):
    """A palette's products are those of its entries: only the section changes."""
    graph = network(form)
    small = run_both(graph, "M1")
    b = GraphBuilder()
    x = b.input("x", (1, 32, 12, 12), "fp16")
    (conv,) = [op for op in small.graph.main.ops if op.type == "conv"]
    y = b.conv(x=x, weight=np.array(conv.arg("weight").data), bias=np.array(conv.arg("bias").data), pad_type="same")
    b.output(b.relu(x=y))
    dense = hexane.compile(b.graph, "M1")
    given = np.random.default_rng(2).normal(0, 1, (1, 32, 12, 12)).astype(np.float16)
    (one,), (two,) = small.run({"x": given}).values(), dense.run({"x": given}).values()
    assert one.tobytes() == two.tobytes()
    assert section_bytes(small) < section_bytes(dense)


def test_products_stream_too():
    b = GraphBuilder()
    x = b.input("x", (1, 24, 128), "fp16")
    indices = RNG.integers(0, 16, (256, 128)).astype(np.uint8)
    weight = b.constexpr_lut_to_dense(indices=b.const(indices, "uint4"), lut=lut(1, 1, 16, 1))
    h = b.gelu(x=b.linear(x=x, weight=weight, bias=RNG.normal(0, 0.1, 256).astype(np.float16)), mode="EXACT")
    back = b.constexpr_lut_to_dense(
        indices=b.const(np.ascontiguousarray(indices[:, :64]), "uint4"), lut=lut(1, 1, 16, 1)
    )
    b.output(b.matmul(x=h, y=back))
    program = run_both(b.graph, "M1")
    assert section_bytes(program) < 256 * 128 + 256 * 64 + 32 * 640


def test_multi_bit_palettes_on_m1_are_inferred():
    program = hexane.compile(network("one table"), "M1")
    notes = [plan.evidence.value for segment in program.segments for plan in segment.plans]
    assert "INFERRED" in notes
    with pytest.raises(UnsupportedError):
        hexane.compile(network("one table"), "M1", strict=True)


def decision(form: str, chip: str, follow=None):
    graph = hexane.compile(network(form, follow), "M1").graph
    (op,) = [op for op in graph.main.ops if op.type == "conv"]
    return decision_of(op, chips.get(chip).generation)


@pytest.mark.parametrize(
    "form, chip, bits, scaled, apple, words",
    [
        ("one table", "M1", 4, False, "streams", "4-bit indices"),
        ("three bits", "M4", 4, False, "streams", "4-bit indices"),
        ("three bits", "M6", 3, False, "streams", "3-bit indices"),
        ("int8, scales of outputs", "M1", None, False, "folds", "M1|H13"),
        ("int8, scales of outputs", "M2", 8, True, "streams", "int8 and a scale for each output"),
        ("int4, scales of outputs", "M4", 4, True, "streams", "4-bit indices and a scale for each output"),
        ("int8, scales of inputs", "M5", None, False, "host", "along the inputs"),
        ("tables of inputs", "M5", None, False, "host", "different values"),
        ("vectors", "M4", 6, False, "folds", "6-bit indices"),
        ("vectors", "M6", 6, False, "streams", "6-bit indices"),
    ],
)
def test_decisions_by_chip(form, chip, bits, scaled, apple, words):
    found = decision(form, chip)
    assert found.apple == apple
    assert any(word in found.reason for word in words.split("|"))
    assert (None if found.stream is None else found.stream.bits) == bits
    assert (found.stream is not None and found.stream.rounds_twice) == scaled


MASK_BYTES = int(HIT.sum()) * 2 + HIT.size // 8


@pytest.mark.parametrize("chip", ["M1", "M2", "M3", "M4", "M5"])
def test_masks_on_every_generation(chip):
    """At stride 1 INFERRED from streams at stride 2: masks of eight coefficients on H13, of sixteen later."""
    program = run_both(network("a mask"), chip)
    (image,) = program.images
    read = sum(window.size for task in image.tasks for window in windows_of(task))
    assert MASK_BYTES <= read <= MASK_BYTES + 16 * (64 + 3 + 2 * 4)
    assert "INFERRED" in [plan.evidence.value for segment in program.segments for plan in segment.plans]
    with pytest.raises(UnsupportedError):
        hexane.compile(network("a mask"), chip, strict=True)
    assert any("sparse stream at stride 1" in reason for reason in layout_of(image.tasks[0]).inferred)


def test_masked_kernels_are_not_transformed():
    """A dense 3x3 kernel of an M5 is computed in Winograd form, one behind a mask is not: other bits, same values."""
    masked = run_both(network("a mask"), "M5")
    (conv,) = [op for op in masked.graph.main.ops if op.type == "conv"]
    b = GraphBuilder()
    x = b.input("x", (1, 32, 12, 12), "fp16")
    y = b.conv(x=x, weight=np.array(conv.arg("weight").data), bias=np.array(conv.arg("bias").data), pad_type="same")
    b.output(b.relu(x=y))
    given = {"x": np.random.default_rng(2).normal(0, 1, (1, 32, 12, 12)).astype(np.float16)}
    results = {chip: next(iter(numerics.evaluate(b.graph, given, chip).values())) for chip in ("M4", "M5")}
    (found,) = masked.run(given).values()
    assert found.tobytes() == results["M4"].tobytes() != results["M5"].tobytes()


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize("form, words", [
    ("one table", "palette of 4 bits"), ("a mask", "mask and fp16"),
    ("int8, one scale", "int8 with scales|palette of 8 bits"),
    ("int4, scales of outputs", "palette of 4 bits with scales|fp16"),
])  # fmt: skip
def test_kernels_are_shown_and_exported(form, words, chip, tmp_path):
    """Values taken out of a program and put back give its bytes; the command says what the stream is."""
    from typer.testing import CliRunner

    from hexane.cli.main import app
    from hexane.formats.kernel_files import replace_kernels

    program = hexane.compile(network(form), chip)
    program.save(tmp_path / "m.hwx")
    done = CliRunner().invoke(app, ["kernels", str(tmp_path / "m.hwx"), "--extract", str(tmp_path / "k"), "--json"])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.output)
    assert row["form"] in words.split("|")
    image = hexane.open_image(tmp_path / "m.hwx")
    same, changed = replace_kernels(image, tmp_path / "k")
    assert not changed
    assert same.to_bytes() == image.to_bytes()
    arrays = dict(np.load(tmp_path / "k" / "task_0000.npz"))
    weights = arrays["palette"][arrays["indices"]] if "palette" in arrays else arrays["weights"]
    scale = arrays.get("scales", np.ones(1, np.float16)).reshape(-1, 1, 1, 1).astype(np.float32)
    (conv,) = [op for op in program.graph.main.ops if op.type == "conv"]
    wanted = np.asarray(conv.arg("weight").data, np.float32)
    np.testing.assert_allclose(weights.astype(np.float32) * scale, wanted, rtol=2e-3, atol=1e-7)


@pytest.mark.parametrize("chip", ["M5", "A19"])
def test_e4m3_kernels_are_read_from_h18_on_and_not_computed(chip):
    """Code 3 of the weights' format (docs/reference/compressed.md 2): what its products are is not known."""
    from hexane.kernels import read_kernel

    image = hexane.compile(network("int8, scales of outputs"), chip).images[0]
    section = image.kernel_section
    plain = read_kernel(image.tasks[0], section)
    task = image.tasks[0].copy()
    task.set("NE.KernelCfg.KernelFmt", 3)
    if chip == "M5":
        with pytest.raises(UnsupportedError, match="kernel format 3"):
            layout_of(task)
        return
    found = read_kernel(task, section)
    assert found.layout.form == "e4m3 with scales"
    assert found.weights.tobytes() == plain.weights.tobytes()
    assert "a kernel of E4M3 numbers" in found.layout.inferred


def test_strided_kernels_are_expanded_and_say_so():
    b = GraphBuilder()
    x = b.input("x", (1, 32, 12, 12), "fp16")
    b.output(b.conv(x=x, weight=FORMS["one table"](b), pad_type="same", strides=[2, 2]))
    program = run_both(b.graph, "M1")
    (op,) = [op for op in program.graph.main.ops if op.type == "conv"]
    found = decision_of(op, chips.get("M1").generation)
    assert found.stream is None
    assert "strided" in found.reason


def test_a_dilated_kernel_becomes_a_dense_one():
    b = GraphBuilder()
    x = b.input("x", (1, 32, 12, 12), "fp16")
    b.output(b.conv(x=x, weight=FORMS["one table"](b), pad_type="same", dilations=[2, 2]))
    assert section_bytes(run_both(b.graph, "M1")) >= DENSE_BYTES


@pytest.mark.parametrize("chip", ["M1", "M4", "M5"])
@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("form", ["int8", "palette4"])
def test_products_stream_whichever_way_their_weights_lie(form, rows, chip):
    """matmul has its outputs in the second axis; no recipe for computed operands takes its weights as a tensor."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", (rows, 64), "fp16")
    b.output(b.matmul(x=x, y=rng.normal(0, 0.1, (64, 96)).astype(np.float16)))
    graph = hexane.compress(b.graph, form)
    program = run_both(graph, chip)
    layouts = [layout for image in program.images for task in image.tasks if (layout := layout_of(task))]
    (op,) = [op for op in program.graph.main.ops if op.type == "matmul"]
    decision = decision_of(op, chips.get(chip).generation)
    assert [layout.form != "fp16" for layout in layouts] == [decision.stream is not None] * len(layouts)
    assert not any(layout.runtime for layout in layouts)
    assert decision.apple == ("folds" if (form, chip) == ("int8", "M1") else "streams")
