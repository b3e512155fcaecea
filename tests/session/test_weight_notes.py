"""``hexane.check`` says of compressed weights what is stored, what becomes of it, and what Apple's compiler does."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

RNG = np.random.default_rng(0)
INDICES = RNG.integers(0, 16, (64, 32, 1, 1)).astype(np.uint8)


def network(*groups: int):
    b = GraphBuilder()
    x = b.input("x", (1, 32, 8, 8), "fp16")
    lut = RNG.normal(0, 1, (*groups, 16, 1)).astype(np.float16)
    b.output(b.conv(x=x, weight=b.constexpr_lut_to_dense(indices=b.const(INDICES, "uint4"), lut=lut), name="y"))
    return b.graph


def row(graph, chip):
    (found,) = [row for row in hexane.check(graph, chip).rows if row.op == "conv"]
    return found


@pytest.mark.parametrize("chip", ["M1", "M6"])
def test_a_palette_that_streams(chip):
    found = row(network(1, 1, 1, 1), chip)
    assert found.place == "engine"
    assert "palette of 4 bits: streams 4-bit indices; Apple's compiler streams it" in found.reason
    assert found.weights


def test_tables_of_inputs_are_the_hosts_for_apples_compiler():
    found = row(network(1, 32, 1, 1), "M6")
    assert found.place == "host"
    assert "tables along axis 1" in found.reason
    assert "group of outputs" in found.advice
    mine = row(network(1, 32, 1, 1), "M1")
    assert mine.place == "engine"
    assert "expanded to fp16" in mine.reason
    assert "leaves it to the host" in mine.other


SHAPE = (64, 32, 3, 3)


def packed(form: str):
    """A 3x3 convolution with weights as Core ML packs them before iOS 18, and after it."""
    b = GraphBuilder(opset="ios18" if form == "blocks" else "ios16")
    x = b.input("x", (1, 32, 8, 8), "fp16")
    count = int(np.prod(SHAPE))
    if form == "palette":
        data = RNG.integers(0, 256, count // 2).astype(np.uint8)
        weight = b.constexpr_lut_to_dense(
            indices=data, lut=RNG.normal(size=16).astype(np.float16), shape=np.array(SHAPE, np.uint32)
        )
    elif form == "int8":
        data = RNG.integers(-127, 127, SHAPE).astype(np.int8)
        scale = RNG.uniform(0.01, 0.02, SHAPE[0]).astype(np.float16)
        weight = b.constexpr_affine_dequantize(quantized_data=data, scale=scale, zero_point=np.int8(0), axis=0)
    elif form == "sparse":
        mask = RNG.integers(0, 256, count // 8).astype(np.uint8)
        values = RNG.normal(size=int(np.unpackbits(mask).sum())).astype(np.float16)
        weight = b.constexpr_sparse_to_dense(nonzero_data=values, mask=mask, shape=np.array(SHAPE, np.uint32))
    else:
        data = RNG.integers(-127, 127, SHAPE).astype(np.int8)
        scale = RNG.uniform(0.01, 0.02, (SHAPE[0], 4, 1, 1)).astype(np.float16)
        weight = b.constexpr_blockwise_shift_scale(data=data, scale=scale)
    b.output(b.conv(x=x, weight=weight, pad_type="same", name="y"))
    return b.graph


@pytest.mark.parametrize("chip", ["A14", "M1", "M2", "A16", "M3", "M4", "M5", "M6"])
@pytest.mark.parametrize("form", ["palette", "int8", "sparse", "blocks"])
def test_every_door_gives_one_place_and_its_reason(form, chip):
    """``check``, its Core ML placement and ``estimate`` ask one function; no reason contradicts its column."""
    graph, host = packed(form), form == "blocks"
    found = row(graph, chip)
    assert found.apple == ("host" if host else "engine")
    said = (
        ("leaves it to the host", "along the inputs")
        if host
        else ("Apple's compiler streams it", "compiler expands it")
    )
    assert any(words in f"{found.reason} {found.other}" for words in said)
    assert host or "host" not in found.reason
    parts = hexane.timing.estimate(graph, chip).parts
    assert (parts.launches, parts.host_us > 0) == ((0, True) if host else (1, False))
    (op,) = [op for op in hexane.timing.place(graph, chip).ops if op.op == "conv"]
    assert (op.engine_us is None) == host


@pytest.mark.parametrize("chip", ["A12", "A13"])
def test_nothing_is_known_of_the_first_two(chip):
    report = hexane.check(packed("palette"), chip)
    assert {row.place for row in report.rows} == {"unknown"} and not report.fits and not report.known
    assert report.advice == [] and report.totals["apple_ops"] is report.totals["macs_on_engine"] is None
    assert "no source says" in report.rows[0].reason
    with pytest.raises(hexane.HexaneError, match="no source says"):
        hexane.timing.estimate(packed("palette"), chip)
    assert hexane.chips.get(chip).cores == 8


def test_plain_weights_say_nothing():
    b = GraphBuilder()
    x = b.input("x", (1, 32, 8, 8), "fp16")
    b.output(b.conv(x=x, weight=np.ones((4, 32, 1, 1), np.float16)))
    assert row(b.graph, "M1").weights == row(b.graph, "M6").weights == ""


@pytest.mark.parametrize(
    "groups, words", [((1, 1, 1, 1), "streams 4-bit indices"), ((1, 32, 1, 1), "expanded to fp16")]
)
def test_compile_says_what_becomes_of_compressed_weights(tmp_path, groups, words):
    import json

    from typer.testing import CliRunner

    from hexane.cli.main import app

    network(*groups).save(tmp_path / "m.mil")
    arguments = ["compile", str(tmp_path / "m.mil"), "-o", str(tmp_path / "m.hwx")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert f"compressed weights of 1 layer: {words}" in done.output
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    ((reason, count),) = found["weights"].items()
    assert words in reason and count == 1
