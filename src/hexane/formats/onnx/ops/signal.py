"""Recurrent layers and signal processing: host ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.formats.onnx.context import NodeContext
from hexane.formats.onnx.ops.elementwise import element_type
from hexane.formats.onnx.registry import onnx_op
from hexane.formats.operands import Operand
from hexane.graph.ops.onnx_signal import mel_weights, window_values
from hexane.graph.types import DTYPES

_RECURRENT = {
    "RNN": ("B", "sequence_lens", "initial_h"),
    "GRU": ("B", "sequence_lens", "initial_h"),
    "LSTM": ("B", "sequence_lens", "initial_h", "initial_c", "P"),
}


@onnx_op(*_RECURRENT)
def recurrent(c: NodeContext) -> object:
    kind = c.node.op_type
    direction = c.attr("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise GraphError(f"{kind} has no direction {direction!r}")
    arguments: dict[str, Any] = {"direction": direction, "layout": c.attr("layout", 0), "clip": c.attr("clip", 0.0)}
    for name in ("activations", "activation_alpha", "activation_beta"):
        values = c.attr(name, [])
        if values:
            arguments[name] = np.array(values) if name == "activations" else np.array(values, np.float32)
    for flag in ("linear_before_reset",) if kind == "GRU" else ("input_forget",) if kind == "LSTM" else ():
        arguments[flag] = c.attr(flag, 0)
    for index, name in enumerate(_RECURRENT[kind], start=3):
        if c.has(index):
            arguments[name] = c.need(index)
    return c.ops.op(f"onnx.{kind}", X=c.need(0), W=c.need(1), R=c.need(2), **arguments)


@onnx_op("DFT")
def dft(c: NodeContext) -> Operand:
    x = c.need(0)
    flags = {"onesided": bool(c.attr("onesided", 0)), "inverse": bool(c.attr("inverse", 0))}
    if c.version < 20:
        axis: Any = np.array(c.attr("axis", 1), np.int32)
    else:
        axis = np.array(-2, np.int32) if not c.has(2) else c.reshape(c.need(2), ())
    extra = {"dft_length": c.reshape(c.need(1), ())} if c.has(1) else {}
    if isinstance(axis, np.ndarray) and c.is_constant(1):
        return c.ops.op("onnx.DFT", x=x, axis=int(axis), **extra, **flags)
    return c.at_run_time("DFTAt", "the length or the axis", x=x, axis=axis, **extra, **flags)


@onnx_op("STFT")
def stft(c: NodeContext) -> Operand:
    operands: dict[str, Any] = {"signal": c.need(0), "frame_step": c.reshape(c.need(1), ())}
    if c.has(2):
        operands["window"] = c.need(2)
    if c.has(3):
        operands["frame_length"] = c.reshape(c.need(3), ())
    operands["onesided"] = bool(c.attr("onesided", 1))
    if c.is_constant(1) and c.is_constant(3):
        return c.ops.op("onnx.STFT", **operands)
    return c.at_run_time("STFTAt", "the frames", **operands)


_WINDOWS = {"HannWindow": "hann", "HammingWindow": "hamming", "BlackmanWindow": "blackman"}


@onnx_op(*_WINDOWS)
def window(c: NodeContext) -> Operand:
    kind, periodic = _WINDOWS[c.node.op_type], bool(c.attr("periodic", 1))
    dtype = element_type(c, c.attr("output_datatype", 1))
    if c.is_constant(0):
        size = (c.ints(0) or [0])[0]
        if not 0 <= size <= 1 << 24:
            raise GraphError(f"a window of {size} samples")
        return window_values(kind, size, periodic).astype(DTYPES[dtype].carrier)
    size = c.reshape(c.need(0), ())
    return c.at_run_time("Window", "size", size=size, kind=kind, periodic=periodic, output_dtype=dtype)


@onnx_op("MelWeightMatrix")
def mel_weight_matrix(c: NodeContext) -> Operand:
    dtype = element_type(c, c.attr("output_datatype", 1))
    if all(c.is_constant(index) for index in range(5)):
        bins, length, rate = (int(c.need_constant(index).reshape(())) for index in range(3))
        low, high = (float(c.need_constant(index).reshape(())) for index in (3, 4))
        if not 0 < bins <= 1 << 16 or not 0 < length <= 1 << 20 or rate < 1:
            raise GraphError(f"{bins} bins of a transform of {length} at {rate} Hz")
        return mel_weights(bins, length, rate, low, high).astype(DTYPES[dtype].carrier)
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    operands = {name: c.reshape(c.need(index), ()) for index, name in enumerate(names)}
    return c.at_run_time("MelWeightMatrix", "its inputs", output_dtype=dtype, **operands)
