"""Host ops of signal processing: ``onnx.DFT``, ``onnx.STFT``, ``onnx.MelWeightMatrix`` and the window functions."""

from __future__ import annotations

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops._rules import fits
from hexane.graph.registry import op
from hexane.graph.types import NUMBERS, TensorType, eval_dtype


def _dft_type(x: TensorType, dft_length=None, axis=1, onesided=False, inverse=False):
    if x.rank < 2 or x.shape[-1] not in (1, 2):
        raise GraphError(f"onnx.DFT takes a last axis of 1 (real) or 2 (complex), not {x.shape}")
    axis = axis % x.rank
    if axis == x.rank - 1:
        raise GraphError("onnx.DFT: the last axis holds real and imaginary parts and cannot be transformed")
    length = _length(x.shape[axis], dft_length, onesided and inverse)
    if onesided and not inverse:
        last, length = 2, length // 2 + 1
    else:
        last = 1 if onesided else 2
    return TensorType(x.dtype, (*x.shape[:axis], length, *x.shape[axis + 1 : -1], last))


def _length(extent: int, dft_length: int | None, halved: bool) -> int:
    """Samples of the transform; a one-sided spectrum of n bins comes from 2 (n - 1) samples unless told otherwise."""
    if dft_length is not None:
        return int(dft_length)
    return 2 * (extent - 1) if halved else extent


def _complex(x: np.ndarray) -> np.ndarray:
    work = np.complex128 if x.dtype == np.float64 else np.complex64
    return x[..., 0].astype(work) if x.shape[-1] == 1 else (x[..., 0] + 1j * x[..., 1]).astype(work)


def _pairs(z: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.stack([z.real, z.imag], axis=-1).astype(dtype)


@op("onnx.DFT", "x:T dft_length:int? axis:int=1 onesided:bool=False inverse:bool=False", infer=_dft_type)
def dft(x, dft_length=None, axis=1, onesided=False, inverse=False):
    """Discrete Fourier transform along ``axis``; the last axis holds (real, imaginary) or only real parts.

    ``onesided`` keeps length // 2 + 1 bins of a forward transform; with ``inverse`` such bins give a real signal.
    """
    axis = axis % x.ndim
    signal = _complex(x)
    length = _length(x.shape[axis], dft_length, onesided and inverse)
    if inverse:
        if onesided:
            return np.fft.irfft(signal, length, axis=axis)[..., None].astype(x.dtype)
        return _pairs(np.fft.ifft(signal, length, axis=axis), x.dtype)
    spectrum = np.fft.fft(signal, length, axis=axis)
    if onesided:
        spectrum = np.take(spectrum, range(length // 2 + 1), axis=axis)
    return _pairs(spectrum, x.dtype)


def _stft_type(signal: TensorType, window=None, frame_step=1, frame_length=None, onesided=True):
    if frame_length is None and (window is None or window.rank != 1):
        raise GraphError("onnx.STFT needs a window of one axis or a frame_length")
    size = int(frame_length) if frame_length is not None else window.shape[0]
    if signal.rank not in (2, 3) or size < 1 or frame_step < 1 or signal.shape[1] < size:
        raise GraphError(f"onnx.STFT cannot cut frames of {size} at step {frame_step} from {signal.shape}")
    fits(window, (size,), "window")
    frames = (signal.shape[1] - size) // int(frame_step) + 1
    return TensorType(signal.dtype, (signal.shape[0], frames, size // 2 + 1 if onesided else size, 2))


@op("onnx.STFT", "signal:T window:T? frame_step:int frame_length:int? onesided:bool=True", infer=_stft_type)
def stft(signal, window=None, frame_step=1, frame_length=None, onesided=True):
    """Short-time Fourier transform of ``signal [batch, length(, 1 or 2)]``: ``[batch, frames, bins, 2]``."""
    z = _complex(signal if signal.ndim == 3 else signal[..., None])
    size = int(frame_length) if frame_length is not None else len(window)
    frames = np.lib.stride_tricks.sliding_window_view(z, size, axis=1)[:, :: int(frame_step)]
    if window is not None:
        frames = frames * window
    spectrum = np.fft.fft(frames, axis=-1)
    return _pairs(spectrum[..., : size // 2 + 1] if onesided else spectrum, signal.dtype)


def mel_weights(num_mel_bins: int, dft_length: int, sample_rate: int, low: float, high: float) -> np.ndarray:
    """The matrix ``[dft_length // 2 + 1, num_mel_bins]`` from spectra to mel bins, float64 (MelWeightMatrix)."""
    spectrum = dft_length // 2 + 1
    low_mel, high_mel = (2595 * np.log10(1 + f / 700) for f in (low, high))
    edges = np.arange(num_mel_bins + 2) * ((high_mel - low_mel) / (num_mel_bins + 2)) + low_mel
    bins = ((dft_length + 1) * (700 * (10 ** (edges / 2595) - 1)) // sample_rate).astype(np.int64)
    row = np.arange(spectrum)[:, None]
    left, centre, right = bins[:-2], bins[1:-1], bins[2:]
    rising = np.where(centre > left, (row - left) / np.maximum(centre - left, 1), row == centre)
    falling = (right - row) / np.maximum(right - centre, 1)
    inside = (row >= left) & (row <= centre)
    after = (row >= centre) & (row < right) & (right > centre)
    return np.where(after, falling, np.where(inside, rising, 0.0))


_WINDOWS = {"hann": (0.5, 0.5, 0.0), "hamming": (25 / 46, 21 / 46, 0.0), "blackman": (0.42, 0.5, 0.08)}


def window_values(kind: str, size: int, periodic: bool) -> np.ndarray:
    """``size`` samples of a Hann, Hamming or Blackman window, float64."""
    a0, a1, a2 = _WINDOWS[kind]
    angle = 2 * np.pi * np.arange(size) / max(size if periodic else size - 1, 1)
    return a0 - a1 * np.cos(angle) + a2 * np.cos(2 * angle)


def _made_type(*_, output_dtype="fp32", output_shape=None):
    return TensorType(output_dtype, tuple(output_shape))


@op(
    "onnx.Window",
    "size:I kind:str periodic:bool=True output_dtype:str='fp32' output_shape:ints",
    infer=_made_type,
    kind=_WINDOWS,
    output_dtype=sorted(NUMBERS),
)
def window(size, kind, periodic, output_dtype, output_shape):
    """A window whose size arrives at run time; it must be the size that the file declares."""
    if int(size) != output_shape[0]:
        raise GraphError(f"onnx.Window: the file declares {output_shape[0]} samples, asked for {int(size)} at run time")
    return window_values(kind, int(size), periodic).astype(eval_dtype(output_dtype))


@op(
    "onnx.MelWeightMatrix",
    "num_mel_bins:I dft_length:J sample_rate:K lower_edge_hertz:T upper_edge_hertz:U "
    "output_dtype:str='fp32' output_shape:ints",
    infer=_made_type,
    output_dtype=sorted(NUMBERS),
)
def mel_weight_matrix(
    num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz, output_dtype, output_shape
):
    """The mel matrix from sizes that arrive at run time; they must give the shape that the file declares."""
    extents = (int(dft_length) // 2 + 1, int(num_mel_bins))
    if extents != tuple(output_shape):
        raise GraphError(f"onnx.MelWeightMatrix: the file declares {tuple(output_shape)}, the inputs ask for {extents}")
    matrix = mel_weights(
        extents[1], int(dft_length), int(sample_rate), float(lower_edge_hertz), float(upper_edge_hertz)
    )
    return matrix.astype(eval_dtype(output_dtype))
