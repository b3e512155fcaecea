"""Ops whose value coremltools itself infers from constants: the same shapes, dtypes and numbers."""

from __future__ import annotations

import logging
import warnings

import numpy as np
import pytest

from graph.ops.run_op import evaluate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def infer():
    """A function (op, opset, operands) -> values that coremltools infers, or None where it infers none."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    ct = pytest.importorskip("coremltools")
    from coremltools.converters.mil.mil import Builder as mb

    targets = {15: ct.target.iOS15, 16: ct.target.iOS16, 17: ct.target.iOS17, 18: ct.target.iOS18}

    def value(op, opset, operands):
        found = []

        @mb.program(input_specs=[mb.TensorSpec(shape=(1,))], opset_version=targets[opset])
        def program(placeholder):
            result = getattr(mb, op)(**operands)
            for var in result if isinstance(result, (list, tuple)) else (result,):
                held = var.val
                if held is None:
                    held = (
                        var.op.materialized_val_inference() if hasattr(var.op, "materialized_val_inference") else None
                    )
                found.append(held)
            return mb.identity(x=placeholder)

        if any(item is None for item in found):
            return None
        return found[0] if isinstance(found[0], tuple) else tuple(found)

    yield value
    logging.disable(logging.NOTSET)


def r(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def i(seed, low, high, *shape):
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.int32)


X = r(0, 2, 3, 4)
X.flags.writeable = False  # nobody may write into an operand
CASES = [
    *((name, 15, {"x": X}) for name in ("abs", "atan", "ceil", "cos", "erf", "exp", "exp2", "floor", "round", "sign")),
    *((name, 15, {"x": X}) for name in ("sin", "sinh", "cosh", "square", "tan", "tanh", "relu", "sigmoid", "softplus")),
    *((name, 15, {"x": X}) for name in ("softsign", "relu6", "reduce_sum", "reduce_mean", "reduce_max", "reduce_prod")),
    ("rsqrt", 15, {"x": np.abs(X), "epsilon": np.float32(0.1)}),
    ("log", 15, {"x": np.abs(X), "epsilon": np.float32(0.1)}),
    ("inverse", 15, {"x": X, "epsilon": np.float32(0.1)}),
    ("clip", 15, {"x": X, "alpha": np.float32(-0.5), "beta": np.float32(0.5)}),
    ("threshold", 15, {"x": X, "alpha": np.float32(0.2)}),
    ("clamped_relu", 15, {"x": X * 4, "alpha": np.float32(0.2), "beta": np.float32(2)}),
    ("thresholded_relu", 15, {"x": X, "alpha": np.float32(0.2)}),
    ("sigmoid_hard", 15, {"x": X, "alpha": np.float32(0.3), "beta": np.float32(0.4)}),
    ("linear_activation", 15, {"x": X, "alpha": np.float32(0.3), "beta": np.float32(0.4)}),
    ("scaled_tanh", 15, {"x": X, "alpha": np.float32(0.3), "beta": np.float32(0.4)}),
    ("elu", 15, {"x": X, "alpha": np.float32(0.3)}),
    ("leaky_relu", 15, {"x": X, "alpha": np.float32(0.3)}),
    ("prelu", 15, {"x": r(0, 2, 3, 4, 5), "alpha": r(1, 3)}),
    ("softplus_parametric", 15, {"x": r(0, 2, 3, 4, 5), "alpha": r(1, 3), "beta": r(2, 3)}),
    *(("gelu", 15, {"x": X, "mode": mode}) for mode in ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")),
    ("softmax", 15, {"x": X, "axis": 1}),
    *((name, 15, {"x": X, "y": r(3, 3, 1)}) for name in ("add", "sub", "mul", "maximum", "minimum", "real_div")),
    *((name, 15, {"x": i(4, -20, 20, 30), "y": i(5, 1, 7, 30)}) for name in ("floor_div", "mod", "real_div", "add")),
    *((name, 15, {"x": i(4, 0, 3, 30), "y": i(5, 0, 3, 30)}) for name in ("equal", "not_equal", "less", "greater")),
    *((name, 15, {"x": X > 0, "y": r(6, 2, 3, 4) > 0}) for name in ("logical_and", "logical_or", "logical_xor")),
    ("logical_not", 15, {"x": X > 0}),
    ("select", 15, {"cond": X > 0, "a": X, "b": -X}),
    ("cast", 15, {"x": X * 5, "dtype": "int32"}),
    ("cast", 15, {"x": X, "dtype": "bool"}),
    ("cast", 15, {"x": X * 1000, "dtype": "fp16"}),
    ("reduce_log_sum_exp", 15, {"x": X, "axes": [1], "keep_dims": True}),
    ("reduce_l2_norm", 15, {"x": X, "axes": [0, 2]}),
    ("reduce_l1_norm", 15, {"x": X, "axes": [-1]}),
    ("reduce_log_sum", 15, {"x": np.abs(X), "axes": [1]}),
    ("reduce_sum_square", 15, {"x": X, "axes": [1, 2]}),
    ("reduce_argmax", 17, {"x": X, "axis": 1}),
    ("reduce_argmin", 15, {"x": X, "axis": -1, "keep_dims": True}),
    ("batch_norm", 15, {"x": X, "mean": r(1, 3), "variance": np.abs(r(2, 3)), "gamma": r(3, 3), "beta": r(4, 3)}),
    ("layer_norm", 15, {"x": X, "axes": [2], "gamma": r(3, 4), "beta": r(4, 4)}),
    ("matmul", 15, {"x": X, "y": r(5, 2, 5, 4), "transpose_y": True}),
    ("linear", 15, {"x": X, "weight": r(5, 6, 4), "bias": r(6, 6)}),
    ("einsum", 15, {"values": (r(1, 2, 3, 4, 5), r(2, 2, 5, 4, 6)), "equation": "nchw,nwhu->nchu"}),
    ("reshape", 15, {"x": X, "shape": [0, -1, 2]}),
    ("transpose", 15, {"x": X, "perm": [2, 0, 1]}),
    ("expand_dims", 15, {"x": X, "axes": [0, -1]}),
    ("squeeze", 15, {"x": r(0, 1, 3, 1), "axes": [0]}),
    ("concat", 15, {"values": (X, X + 1), "axis": 1}),
    ("stack", 15, {"values": (X, X + 1), "axis": 1}),
    ("split", 15, {"x": X, "num_splits": 2, "axis": 2}),
    ("split", 15, {"x": X, "split_sizes": [1, 2], "axis": 1}),
    ("tile", 15, {"x": X, "reps": [2, 1, 3]}),
    ("reverse", 15, {"x": X, "axes": [0, 2]}),
    ("flatten2d", 15, {"x": X, "axis": 2}),
    ("shape", 15, {"x": X}),
    ("slice_by_index", 15, {"x": X, "begin": [0, 1, -3], "end": [2, 3, -1], "stride": [1, 1, 1]}),
    (
        "slice_by_index",
        15,
        {"x": X, "begin": [1, 2, 3], "end": [0, 0, 0], "stride": [-1, -1, -2], "end_mask": [True, True, False]},
    ),
    (
        "slice_by_index",
        15,
        {
            "x": X,
            "begin": [1, 0, 0],
            "end": [2, 3, 4],
            "squeeze_mask": [True, False, False],
            "begin_mask": [False, True, False],
        },
    ),
    ("slice_by_size", 15, {"x": X, "begin": [0, 1, 2], "size": [-1, 2, 1]}),
    ("slice_update", 18, {"x": X, "update": r(1, 1, 3, 2), "begin": [1, 0, 1], "end": [2, 3, 3]}),
    *(("pad", 15, {"x": X, "pad": [1, 2, 3, 2], "mode": mode}) for mode in ("replicate",)),
    ("pad", 15, {"x": X, "pad": [1, 2, 3, 2], "mode": "constant", "constant_val": np.float32(7)}),
    ("gather", 15, {"x": X, "indices": i(1, 0, 3, 2, 2), "axis": 1}),
    ("gather", 17, {"x": X, "indices": i(1, 0, 4, 2, 2), "axis": 2, "batch_dims": 1}),
    ("gather_along_axis", 15, {"x": X, "indices": i(1, 0, 3, 2, 2, 4), "axis": 1}),
    ("gather_nd", 16, {"x": X, "indices": i(1, 0, 2, 5, 2)}),
    ("gather_nd", 17, {"x": X, "indices": i(1, 0, 3, 2, 1), "batch_dims": 1}),
    # coremltools' own inference looks at no other mode of scatter, nor at the interleave of concat
    (
        "scatter_along_axis",
        15,
        {"data": X, "indices": i(1, 0, 3, 2, 1, 4), "updates": r(2, 2, 1, 4), "axis": 1, "mode": "update"},
    ),
    ("argsort", 15, {"x": X, "axis": 1, "ascending": True}),
    ("argsort", 15, {"x": X, "axis": -1, "ascending": False}),
    ("topk", 15, {"x": X, "k": 2, "axis": 1}),
    ("topk", 17, {"x": X, "k": 2, "axis": -1, "ascending": True}),
    (
        "one_hot",
        15,
        {"indices": i(1, 0, 4, 2, 3), "one_hot_vector_size": 4, "axis": 1, "on_value": 2.0, "off_value": 0.5},
    ),
    ("non_zero", 15, {"x": i(1, 0, 2, 3, 4)}),
    ("cumsum", 15, {"x": X, "axis": 1, "reverse": True}),
    ("band_part", 15, {"x": r(0, 4, 5), "lower": 1, "upper": 2}),
    ("fill", 15, {"shape": [2, 3], "value": np.float32(1.5)}),
    ("fill_like", 16, {"ref_tensor": X, "value": np.float32(1.5)}),
    ("range_1d", 15, {"start": 2, "end": 11, "step": 3}),
    ("range_1d", 15, {"start": np.float32(0), "end": np.float32(1), "step": np.float32(0.3)}),
    ("sliding_windows", 15, {"x": X, "axis": 1, "size": 2}),
    ("depth_to_space", 15, {"x": r(0, 1, 8, 2, 3), "block_size": 2}),
    ("space_to_depth", 15, {"x": r(0, 1, 2, 4, 6), "block_size": 2}),
    ("pixel_shuffle", 15, {"x": r(0, 1, 8, 2, 3), "upscale_factor": 2}),
    ("pixel_unshuffle", 16, {"x": r(0, 1, 2, 4, 6), "downscale_factor": np.uint32(2)}),
    ("space_to_batch", 15, {"x": r(0, 2, 3, 4, 6), "block_shape": [2, 3], "paddings": [[0, 0], [0, 0]]}),
    ("batch_to_space", 15, {"x": r(0, 12, 3, 2, 2), "block_shape": [2, 3], "crops": [[0, 0], [0, 0]]}),
    ("quantize", 17, {"input": X, "scale": np.float32(0.01), "zero_point": np.int8(3), "output_dtype": "int8"}),
    ("quantize", 17, {"input": X, "scale": np.abs(r(1, 3)) / 50, "axis": 1, "output_dtype": "uint8"}),
    (
        "dequantize",
        17,
        {"input": i(1, 0, 200, 2, 3).astype(np.uint8), "scale": np.float32(0.1), "zero_point": np.uint8(9)},
    ),
    (
        "constexpr_affine_dequantize",
        16,
        {
            "quantized_data": i(1, -9, 9, 3, 4).astype(np.int8),
            "scale": r(2, 3),
            "zero_point": i(3, -3, 3, 3).astype(np.int8),
            "axis": 0,
        },
    ),
    (
        "constexpr_lut_to_dense",
        16,
        {"indices": i(1, 0, 256, 9).astype(np.uint8), "lut": r(2, 64), "shape": np.array([3, 4], np.uint32)},
    ),
    (
        "constexpr_sparse_to_dense",
        16,
        {
            "nonzero_data": r(1, 5),
            "mask": np.array([0b10110010, 0b00000001], np.uint8),
            "shape": np.array([3, 4], np.uint32),
        },
    ),
    (
        "constexpr_blockwise_shift_scale",
        18,
        {"data": i(1, -9, 9, 4, 6).astype(np.int8), "scale": r(2, 2, 3), "offset": i(3, -3, 3, 2, 3).astype(np.int8)},
    ),
    (
        "constexpr_lut_to_dense",
        18,
        {"indices": i(1, 0, 256, 4, 6).astype(np.uint8), "lut": r(2, 2, 3, 256, 1)},
    ),
    (
        "constexpr_lut_to_dense",
        18,
        {"indices": i(1, 0, 256, 4, 6).astype(np.uint8), "lut": r(2, 2, 1, 256, 3), "vector_axis": 1},
    ),
]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{op}_{number}" for number, (op, *_) in enumerate(CASES)])
def test_value(infer, number):
    op, opset, operands = CASES[number]
    # a copy, since coremltools' thresholded_relu writes into its operand
    wanted = infer(op, opset, {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in operands.items()})
    if wanted is None:
        pytest.skip("coremltools infers no value")
    constants = {
        name: np.array(operand) if isinstance(operand, np.generic) else operand for name, operand in operands.items()
    }
    if op in ("space_to_batch", "batch_to_space"):
        name = "paddings" if op == "space_to_batch" else "crops"
        constants[name] = np.array(constants[name], np.int32)
    got = evaluate_constants(op, opset, constants)
    got = got if isinstance(got, tuple) else (got,)
    assert len(got) == len(wanted)
    for found, value in zip(got, wanted):
        value = np.asarray(value)
        assert found.shape == value.shape
        np.testing.assert_allclose(
            found.astype(np.float64),
            value.astype(np.float64),
            rtol=2e-3 if found.dtype == np.float16 else 1e-5,
            atol=1e-5,
        )


def evaluate_constants(op, opset, operands):
    """The op on constants; attributes such as axes stay what they are."""
    from hexane.graph import GraphBuilder

    b = GraphBuilder(opset=f"ios{opset}")
    results = b.op(op, **operands)
    results = results if isinstance(results, tuple) else (results,)
    b.output(*results)
    outputs = b.graph.verify().evaluate({})
    found = tuple(outputs[value.name] for value in results)
    return found[0] if len(found) == 1 else found


def test_the_helper_is_used():
    np.testing.assert_array_equal(evaluate("relu", x=np.float32([-1, 2])), [0, 2])
