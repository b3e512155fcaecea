"""Sums of products, as the cores compute them: convolutions and matrix products with what follows in the same task.

Functions take fp16 arrays in the graph's own shapes and return the bits of the result; other ops are computed by
``hexane.numerics.rules``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.arithmetic import conv2d, mac, matmul
from hexane.arithmetic.convolution_results import ConvolutionCall, ConvolutionResults
from hexane.arithmetic.integer import mac_scaled, prepare_scaled
from hexane.chips import Generation
from hexane.errors import UnsupportedError
from hexane.graph import Op
from hexane.lowering.fusion import Epilogue
from hexane.lowering.groups import dense, is_loop
from hexane.lowering.weights import Stream
from hexane.lowering.windows import shifts_first, window_of


def convolution(
    op: Op,
    x: np.ndarray,
    weight: np.ndarray,
    epilogue: Epilogue,
    form: str,
    limits: Generation,
    results: ConvolutionResults,
) -> np.ndarray:
    """A convolution with what rides along; ``form`` is direct or winograd (docs/reference/numerics.md 6).

    ``results``: those that are known already.
    """
    window = window_of(op)
    flat = x.ndim == 3
    source = x[:, :, None] if flat else x
    kernel = weight[:, :, None] if flat else weight
    groups, (height, width) = op.arg("groups"), ((1, *op.output.shape[2:])[-2:])
    one_to_one = weight.shape[1] == 1 and weight.shape[0] == groups
    biased = epilogue.bias is not None
    looped = one_to_one or is_loop(kernel.shape, groups, limits, bias=biased, width=width, height=height)
    if groups > 1 and not looped:
        kernel, groups = dense(kernel, groups), 1
    pads = window.pads
    pixel = one_to_one and groups > 1 and kernel.shape[2:] == window.strides == (1, 1)
    if pixel and not flat and shifts_first(source.shape, op.output.shape[2:], pads[0]):
        source, pads = _shifted(source, pads[0]), (0, 0, 0, 0)
    operands = source, kernel, epilogue.bias
    options: dict[str, Any] = {
        "strides": window.strides,
        "pads": pads,
        "groups": groups,
        "post_scale": epilogue.scale,
        "activation": epilogue.activation,
        "form": form,
    }
    same = results.get(ConvolutionCall(*operands, **options)) if set(window.dilations) == {1} else None
    result = conv2d(*operands, dilations=window.dilations, **options) if same is None else same
    return result[:, :, 0] if flat else result


def _shifted(x: np.ndarray, columns: int) -> np.ndarray:
    """The map with zeros on its left, as a product of its own gives it."""
    one_hot = np.zeros((x.shape[1], 1, 1, columns + 1), np.float16)
    one_hot[..., 0] = 1.0
    return conv2d(x, one_hot, pads=(columns, 0, columns, 0), groups=x.shape[1])


def scaled_convolution(op: Op, x: np.ndarray, weight: np.ndarray, stream: Stream, epilogue: Epilogue) -> np.ndarray:
    """A convolution whose outputs have scales of their own: integers, or a palette with scales."""
    window = window_of(op)
    flat = x.ndim == 3
    source = x[:, :, None] if flat else x
    stream = stream.scaled_by(epilogue.scale)
    kernel = _elements(stream, weight)
    kernel = kernel[:, :, None] if flat else kernel
    assert stream.scales is not None
    ready = prepare_scaled(
        source.shape[1:],
        kernel,
        stream.scales.astype(np.float64),
        epilogue.bias_behind_scale,
        strides=window.strides,
        pads=window.pads,
        activation=epilogue.activation,
    )
    result = ready(source)
    return result[:, :, 0] if flat else result


def scaled_product(op: Op, x: np.ndarray, w: np.ndarray, stream: Stream, epilogue: Epilogue) -> np.ndarray:
    """A product with a constant second operand whose outputs have scales of their own."""
    stream = stream.scaled_by(epilogue.scale)
    kernel = _elements(stream, w)
    kernel = kernel.reshape(kernel.shape[-2:])
    if op.type == "linear" or op.arg("transpose_y"):
        kernel = kernel.T
    if op.type == "matmul" and op.arg("transpose_x"):
        x = np.swapaxes(x, -1, -2)
    assert stream.scales is not None
    rows = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
    result = mac_scaled(
        rows, np.ascontiguousarray(kernel), stream.scales, epilogue.bias_behind_scale, epilogue.activation
    )
    return result.reshape((*x.shape[:-1], result.shape[-1]))


def _elements(stream: Stream, weight: np.ndarray) -> np.ndarray:
    """Factors of a product: integers, or the palette's entries without their scales."""
    if stream.stored is None:
        return weight
    return stream.stored if stream.entries is None else stream.entries[stream.stored]


def product(op: Op, x: np.ndarray, w: np.ndarray, epilogue: Epilogue) -> np.ndarray:
    """A product with constant or computed second operand, batches broadcast."""
    w = w.astype(np.float16, copy=False)  # constants of another dtype than x, as the kernel holds them
    if op.type == "linear":
        w = w.T
    else:
        x = np.swapaxes(x, -1, -2) if op.arg("transpose_x") else x
        w = np.swapaxes(w, -1, -2) if op.arg("transpose_y") else w
    if w.ndim == 2 or int(np.prod(w.shape[:-2])) == 1:
        kernel = np.ascontiguousarray(w.reshape(w.shape[-2:]))
        rows = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
        result = mac(rows, kernel, epilogue.bias, epilogue.scale, activation=epilogue.activation)
        batch = np.broadcast_shapes(x.shape[:-2], w.shape[:-2]) if x.ndim > 1 else ()
        return result.reshape(*batch, *x.shape[max(x.ndim - 2, 0) : -1], kernel.shape[1])
    if epilogue.bias is not None:
        raise UnsupportedError("a bias behind a product whose kernel is computed")
    return matmul(
        np.ascontiguousarray(x), np.ascontiguousarray(w), post_scale=epilogue.scale, activation=epilogue.activation
    )
