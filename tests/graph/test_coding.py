"""Codings of constants: what is stored gives the constant's values, through moves, casts and joint forms."""

from __future__ import annotations

import numpy as np
import pytest

from hexane import chips, passes
from hexane.bits import pack_bits
from hexane.graph import GraphBuilder, rewrite
from hexane.graph.coding import Coding
from hexane.lowering.compilation import Compilation

M1 = Compilation(chips.get("M1"))


def decoded(coding: Coding) -> np.ndarray:
    """The values that the stored elements stand for, as float32."""
    if coding.form == "palette":
        rows = coding.tables.astype(np.float32)
        values = rows[0][coding.stored] if coding.group is None else rows[coding.group, coding.stored]
    else:
        values = coding.stored.astype(np.float32)
    if coding.offset is not None:
        values = values - coding.offset.astype(np.float32)
    return values if coding.scale is None else values * coding.scale.astype(np.float32)


def folded(make) -> tuple[np.ndarray, Coding | None]:
    """The constant that a network's one weight becomes, and its coding."""
    b = GraphBuilder()
    x = b.input("x", (1, 8, 4, 4), "fp16")
    b.output(b.conv(x=x, weight=make(b)))
    graph = passes.run(b.graph, M1)
    (op,) = [op for op in graph.main.ops if op.type == "conv"]
    weight = op.arg("weight")
    assert weight.is_constant
    return weight.data, weight.constant.coding


RNG = np.random.default_rng(0)
SHAPE = (16, 8, 1, 1)
INTEGERS = RNG.integers(-127, 128, SHAPE).astype(np.int8)
INDICES = RNG.integers(0, 16, SHAPE).astype(np.uint8)
TABLE = RNG.normal(0, 1, 16).astype(np.float16)
SCALES = RNG.uniform(0.01, 0.02, 16).astype(np.float16)
HIT = RNG.random(SHAPE) < 0.4


def narrow(b, dtype, data):
    """A constant of a dtype that NumPy lacks."""
    return b.const(data, dtype)


def affine(b):
    return b.constexpr_affine_dequantize(quantized_data=INTEGERS, zero_point=np.int8(0), scale=SCALES, axis=0)


def affine_moved(b):
    rows = b.constexpr_affine_dequantize(
        quantized_data=np.ascontiguousarray(INTEGERS[:, :, 0, 0].T), zero_point=np.int8(3), scale=SCALES, axis=1
    )
    turned = b.transpose(x=rows, perm=[1, 0])
    return b.reshape(x=turned, shape=[16, 8, 1, 1])


def blockwise(b):
    return b.constexpr_blockwise_shift_scale(data=INTEGERS, scale=SCALES.reshape(16, 1, 1, 1))


def by_blocks_of_inputs(b):
    scale = RNG.uniform(0.01, 0.02, (16, 2, 1, 1)).astype(np.float16)
    return b.constexpr_blockwise_shift_scale(data=INTEGERS, scale=scale)


def palette(b):
    return b.constexpr_lut_to_dense(indices=narrow(b, "uint4", INDICES), lut=TABLE.reshape(1, 1, 1, 1, 16, 1))


def palette_of_groups(b):
    lut = RNG.normal(0, 1, (4, 1, 1, 1, 16, 1)).astype(np.float16)
    return b.constexpr_lut_to_dense(indices=narrow(b, "uint4", INDICES), lut=lut)


def scaled_palette(b):
    table = RNG.integers(-100, 100, (1, 1, 1, 1, 16, 1)).astype(np.int8)
    dense = b.constexpr_lut_to_dense(indices=narrow(b, "uint4", INDICES), lut=table)
    return b.constexpr_blockwise_shift_scale(data=dense, scale=SCALES.reshape(16, 1, 1, 1))


def sparse_palette(b):
    mask, values = b.constexpr_lut_to_sparse(
        indices_mask=narrow(b, "uint1", HIT.astype(np.uint8)),
        indices_nonzero_data=narrow(b, "uint4", INDICES[HIT]),
        lut=TABLE.reshape(1, 1, 1, 1, 16, 1),
    )
    return b.constexpr_sparse_to_dense(nonzero_data=values, mask=mask)


def sparse_integers(b):
    mask, values = b.constexpr_sparse_blockwise_shift_scale(
        data_mask=narrow(b, "uint1", HIT.astype(np.uint8)),
        nonzero_data=INTEGERS[HIT],
        scale=SCALES.reshape(16, 1, 1, 1),
    )
    return b.constexpr_sparse_to_dense(nonzero_data=values, mask=mask)


@pytest.mark.parametrize(
    "make, form, bits, masked, per_output",
    [
        (affine, "integer", 8, False, True),
        (affine_moved, "integer", 8, False, True),
        (blockwise, "integer", 8, False, True),
        (by_blocks_of_inputs, "integer", 8, False, False),
        (palette, "palette", 4, False, None),
        (palette_of_groups, "palette", 4, False, None),
        (scaled_palette, "palette", 4, False, True),
        (sparse_palette, "palette", 4, True, None),
        (sparse_integers, "integer", 8, True, True),
    ],
)
def test_what_is_stored_gives_the_values(make, form, bits, masked, per_output):
    values, coding = folded(make)
    assert (coding.form, coding.bits, coding.masked) == (form, bits, masked)
    assert coding.stored.shape == values.shape
    if per_output is not None:
        assert (coding.scale_per_output() is not None) == per_output
    wanted = decoded(coding) * (HIT if masked else 1)
    np.testing.assert_array_equal(wanted.astype(np.float16), values)


def test_a_mask_alone():
    def make(b):
        return b.constexpr_sparse_to_dense(
            nonzero_data=RNG.normal(0, 1, int(HIT.sum())).astype(np.float16),
            mask=narrow(b, "uint1", HIT.astype(np.uint8)),
        )

    values, coding = folded(make)
    assert (coding.form, coding.masked, coding.stored) == ("sparse", True, None)
    assert ((values != 0) == HIT).all()


def test_vectors_say_so():
    def make(b):
        lut = RNG.normal(0, 1, (1, 1, 1, 1, 16, 2)).astype(np.float16)
        return b.constexpr_lut_to_dense(indices=narrow(b, "uint4", INDICES[:8]), lut=lut, vector_axis=0)

    _, coding = folded(make)
    assert coding.vector == 2
    assert "entries of 2 numbers along axis 0" in coding.what


def test_a_change_of_the_values_drops_the_coding():
    def make(b):
        return b.mul(x=affine(b), y=np.float16(2))

    assert folded(make)[1] is None


def test_packed_indices_of_op_set_16():
    def make(b):
        packed = pack_bits(INDICES.reshape(-1), 4)
        return b.op("constexpr_lut_to_dense", opset="ios16", indices=packed, lut=TABLE, shape=np.uint32([16, 8, 1, 1]))

    values, coding = folded(make)
    np.testing.assert_array_equal(coding.stored, INDICES)
    np.testing.assert_array_equal(decoded(coding).astype(np.float16), values)


def test_packed_weights_are_unpacked_whatever_their_size():
    b = GraphBuilder()
    x = b.input("x", (1, 8, 4, 4), "fp16")
    b.output(b.conv(x=x, weight=b.mul(x=palette(b), y=np.float16(2))))
    rewrite.fold_constants(b.graph.main, limit=4)
    assert [op.type for op in b.graph.main.ops] == ["mul", "conv"]
    assert b.graph.main.ops[0].arg("x").constant.coding is not None


@pytest.mark.parametrize(
    "extents, words",
    [
        ((1, 1), "one scale"),
        ((16, 1), "a scale for each place of axis 0"), ((1, 8), "a scale for each place of axis 1"),
        ((8, 1), "scales by block"), ((16, 4), "scales by block"), ((16, 8), "scales by block"),
    ],
)  # fmt: skip
def test_scales_in_words(extents, words):
    scale = RNG.uniform(0.01, 0.02, (*extents, 1, 1)).astype(np.float16)
    _, coding = folded(lambda b: b.constexpr_blockwise_shift_scale(data=INTEGERS, scale=scale))
    assert coding.what == f"int8, {words}"
