"""Operands one element longer or shorter, numbers one more or less: type rules refuse, or the op computes that type.

What a rule lets pass that the reference cannot compute, or computes in another shape, is a hole in the rule.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from graph.ops.run_op import evaluate
from graph.ops.test_against_coremltools import CASES, i, r
from hexane.errors import HexaneError

X = r(0, 2, 3, 4)
MAP = r(0, 2, 4, 5, 6)
LINE = r(1, 3, 2, 4)
"""Three steps of two sequences of four numbers."""
BOXES = np.float32([[0, 0, 3, 3], [1, 1, 4, 5]])
WEIGHTS = {"weight_ih": r(3, 12, 4), "weight_hh": r(4, 12, 3), "bias": r(5, 12)}
BACK = {f"{name}_back": array + 1 for name, array in WEIGHTS.items()}
PLACES = {
    "sampling_mode": "bilinear", "padding_mode": "constant", "padding_value": 0.0,
    "coordinates_mode": "normalized_minus_one_to_one", "align_corners": True,
}  # fmt: skip
GATED = {"direction": "forward", "layout": 0}

MORE = [
    ("conv", 15, {"x": MAP, "weight": r(1, 6, 2, 2, 3), "bias": r(2, 6), "groups": 2, "strides": [1, 2]}),
    ("conv", 15, {"x": X, "weight": r(1, 2, 3, 2), "pad_type": "custom", "pad": [1, 1], "dilations": [2]}),
    ("conv_transpose", 15, {"x": MAP, "weight": r(1, 4, 3, 2, 2), "bias": r(2, 6), "groups": 2, "strides": [2, 1]}),
    *(
        (op, 15, {"x": MAP, "kernel_sizes": [2, 3], "strides": [2, 1], "pad_type": "custom", "pad": [1, 1, 0, 1]})
        for op in ("avg_pool", "max_pool", "l2_pool")
    ),
    ("instance_norm", 15, {"x": MAP, "gamma": r(1, 4), "beta": r(2, 4)}),
    ("l2_norm", 15, {"x": X}),
    ("local_response_norm", 15, {"x": MAP, "size": 3}),
    ("crop", 15, {"x": MAP, "crop_height": [1, 1], "crop_width": [2, 1]}),
    ("crop_resize", 15, {"x": MAP, "roi": BOXES[:, None, :, None, None], "target_height": 2, "target_width": 3}),
    ("crop_resize", 17, {"x": MAP, "boxes": BOXES, "box_indices": np.int32([0, 1]), "target_height": 2}),
    ("resample", 15, {"x": MAP, "coordinates": r(1, 2, 3, 3, 2), **PLACES}),
    ("affine", 15, {"x": MAP, "transform_matrix": r(1, 2, 6), "output_height": 3, "output_width": 4, **PLACES}),
    ("resize", 17, {"x": MAP, "shape": [3, 4], "resized_dims": np.uint32(2)}),
    ("resize_bilinear", 15, {"x": MAP, "target_size_height": 3, "target_size_width": 4}),
    ("resize_nearest_neighbor", 15, {"x": MAP, "target_size_height": 3, "target_size_width": 4}),
    ("upsample_bilinear", 15, {"x": MAP, "scale_factor_height": 2.0, "scale_factor_width": 1.5}),
    ("upsample_nearest_neighbor", 15, {"x": MAP, "scale_factor_height": 2.0, "scale_factor_width": 3.0}),
    ("reverse_sequence", 15, {"x": X, "lengths": np.int32([1, 3]), "seq_axis": 1, "batch_axis": 0}),
    ("scatter", 15, {"data": X, "indices": np.int32([2, 0]), "updates": r(1, 2, 2, 4), "axis": 1}),
    ("scatter_nd", 15, {"data": X, "indices": i(1, 0, 2, 5, 2), "updates": r(1, 5, 4)}),
    ("scaled_dot_product_attention", 18, {
        "query": r(1, 2, 3, 4), "key": r(2, 2, 5, 4), "value": r(3, 2, 5, 6), "attn_mask": r(4, 2, 3, 5),
    }),
    ("gru", 15, {
        "x": LINE, "initial_h": r(2, 2, 4), "weight_ih": r(3, 12, 4), "weight_hh": r(4, 12, 4), "bias": r(5, 12),
    }),
    ("lstm", 15, {"x": LINE, "initial_h": r(2, 2, 3), "initial_c": r(6, 2, 3), **WEIGHTS, "peephole": r(7, 9)}),
    ("lstm", 15, {
        "x": LINE, "initial_h": r(2, 2, 6), "initial_c": r(6, 2, 6), **WEIGHTS, **BACK, "direction": "bidirectional",
        "output_sequence": True,
    }),
    ("rnn", 15, {
        "x": LINE, "initial_h": r(2, 2, 3), "weight_ih": r(3, 3, 4), "weight_hh": r(4, 3, 3), "bias": r(5, 3),
        "output_sequence": True,
    }),
    ("conv_quantized", 15, {
        "x": MAP, "weight": i(1, 0, 255, 3, 4, 2, 2).astype(np.uint8), "bias": r(2, 3), "quantization_type": "linear",
        "quant_scale": r(3, 3), "quant_bias": r(4, 3),
    }),
    ("random_categorical", 15, {"x": r(1, 2, 3), "size": 4, "seed": 1}),
    ("onnx.AveragePool", 15, {
        "x": MAP, "kernel_sizes": [2, 3], "strides": [1, 2], "pad": [1, 0, 1, 0], "dilations": [2, 1],
    }),
    ("onnx.LpPool", 15, {
        "x": MAP, "kernel_sizes": [2, 3], "strides": [1, 2], "pad": [1, 0, 1, 0], "dilations": [2, 1],
    }),
    ("onnx.MaxPool", 15, {
        "x": MAP, "kernel_sizes": [2, 3], "strides": [1, 2], "pad": [1, 0, 1, 0], "dilations": [2, 1],
    }),
    ("onnx.Col2Im", 15, {
        "x": r(1, 2, 12, 6), "image_shape": [4, 4], "block_shape": [2, 3], "strides": [1, 1], "pad": [0, 0, 0, 0],
        "dilations": [1, 1],
    }),
    ("onnx.DFT", 15, {"x": r(1, 2, 5, 1), "axis": 1, "onesided": True}),
    ("onnx.DeformConv", 15, {
        "x": MAP, "weight": r(1, 3, 4, 2, 2), "offset": r(2, 2, 8, 4, 5), "bias": r(3, 3), "mask": r(4, 2, 4, 4, 5),
    }),
    ("onnx.Det", 15, {"x": r(1, 2, 3, 3)}),
    ("onnx.GridSample", 15, {"x": MAP, "grid": r(1, 2, 3, 3, 2)}),
    ("onnx.Hardmax", 15, {"x": X, "axis": 1}),
    ("onnx.RoiAlign", 15, {
        "x": MAP, "rois": BOXES, "batch_indices": np.int32([0, 1]), "output_height": 2, "output_width": 3,
        "sampling_ratio": 2,
    }),
    ("onnx.STFT", 15, {"signal": r(1, 2, 16, 1), "window": r(2, 4), "frame_step": 3, "frame_length": 4}),
    ("onnx.TensorScatter", 15, {"past": r(1, 2, 3, 4), "update": r(2, 2, 2, 4), "write_indices": np.int32([0, 1])}),
    ("onnx.GRU", 15, {
        "X": LINE, "W": r(2, 1, 9, 4), "R": r(3, 1, 9, 3), "B": r(4, 1, 18), "sequence_lens": np.int32([3, 2]),
        "initial_h": r(5, 1, 2, 3), **GATED,
    }),
    ("onnx.RNN", 15, {
        "X": LINE, "W": r(2, 1, 3, 4), "R": r(3, 1, 3, 3), "B": r(4, 1, 6), "sequence_lens": np.int32([3, 2]),
        "initial_h": r(5, 1, 2, 3), **GATED,
    }),
    ("onnx.LSTM", 15, {
        "X": LINE, "W": r(2, 1, 12, 4), "R": r(3, 1, 12, 3), "B": r(4, 1, 24), "sequence_lens": np.int32([3, 2]),
        "initial_h": r(5, 1, 2, 3), "initial_c": r(6, 1, 2, 3), "P": r(7, 1, 9), **GATED,
    }),
]  # fmt: skip
RULES = [
    case
    for case in [*CASES, *MORE]
    if not any(type(item) is np.ndarray and item.dtype == np.uint32 for item in case[2].values())
]


def neighbours(operand):
    """The operand with one axis an element longer or shorter, or an axis more; a number, or one of several, beside."""
    if isinstance(operand, np.ndarray) and operand.ndim:
        for axis, extent in enumerate(operand.shape):
            for count in (extent - 1, extent + 1):
                if count > 0:
                    yield np.take(operand, np.arange(count) % extent, axis)
        yield operand[None]
    elif type(operand) is int:
        yield from (operand - 1, operand + 1)
    elif isinstance(operand, list) and all(type(item) is int for item in operand):
        for place, item in enumerate(operand):
            for other in (item - 1, item + 1):
                yield [*operand[:place], other, *operand[place + 1 :]]
        yield from (operand[:-1], [*operand, 1])
    elif isinstance(operand, tuple):
        for place, item in enumerate(operand):
            for other in neighbours(item):
                yield (*operand[:place], other, *operand[place + 1 :])


def computed(op, opset, operands):
    """The op on inputs; scalars, and shapes of packed constants, stay constants."""
    arrays = {name: item.item() if isinstance(item, np.generic) else item for name, item in operands.items()}
    return evaluate(op, opset=f"ios{opset}", **arrays)


@pytest.mark.parametrize(("op", "opset", "operands"), RULES, ids=[f"{op}-{n}" for n, (op, *_) in enumerate(RULES)])
def test_a_rule_lets_pass_what_can_be_computed(op, opset, operands):
    computed(op, opset, operands)
    holes = []
    for name, operand in operands.items():
        for other in neighbours(operand):
            try:
                computed(op, opset, operands | {name: other})
            except HexaneError as error:  # an index out of range is no matter of shapes
                if re.search("cannot be computed: (?!index .* is out of bounds)|came out with shape", str(error)):
                    shape = other.shape if isinstance(other, np.ndarray) else other
                    holes.append(f"{name} {shape}: {error}")
    assert not holes, "\n".join(holes)
