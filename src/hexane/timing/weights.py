"""How a layer's weights are stored, read off the constant or the ``constexpr`` op that makes them.

Source: docs/reference/limits.md 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hexane.graph import Value


@dataclass(frozen=True)
class Stored:
    """``count`` weights in ``bytes`` of stream; ``density`` is the share that is not zero;

    ``runtime``: the operand is no constant at all, but computed by the program or handed in.
    """

    format: str
    count: int
    bytes: float
    density: float = 1.0
    runtime: bool = False


def stored_weights(value: Value) -> Stored:
    """What the engine streams for ``value``: fp16, ``int8``, ``palette`` or ``sparse``.

    Source: docs/reference/limits.md 6.2.
    """
    count = prod(value.shape)
    if value.is_constant:
        narrow = value.dtype in ("int8", "uint8")
        return Stored("int8" if narrow else "fp16", count, count * (1.0 if narrow else 2.0))
    op = value.op
    if op is None:
        return Stored("fp16", count, 2.0 * count, runtime=True)
    if op.type in ("dequantize", "constexpr_affine_dequantize", "constexpr_blockwise_shift_scale"):
        data = next(iter(op.operands()))
        if op.type == "dequantize" and not data.is_constant:
            return Stored("fp16", count, 2.0 * count, runtime=True)
        return Stored("int8", count, count * (0.5 if data.dtype in ("int4", "uint4") else 1.0))
    if op.type in ("constexpr_lut_to_dense", "constexpr_lut_to_sparse"):
        return _palette(op, count)
    if op.type == "constexpr_sparse_to_dense":
        return _sparse(op, count)
    if op.type in ("constexpr_cast", "cast", "reshape", "transpose", "expand_dims", "squeeze", "identity"):
        source = next(iter(op.operands()))
        inner = stored_weights(source)
        return Stored(inner.format, count, inner.bytes, inner.density, inner.runtime)
    return Stored("fp16", count, 2.0 * count, runtime=True)


def _palette(op, count: int) -> Stored:
    indices = op.inputs.get("indices")
    lut = op.inputs.get("lut")
    if indices is None or lut is None:
        return Stored("palette", count, count / 2)
    entries = lut.shape[-2] if len(lut.shape) > 1 else lut.shape[0]
    bits = max((int(entries) - 1).bit_length(), 1)
    return Stored("palette", count, count * bits / 8 + 2.0 * prod(lut.shape))


def _sparse(op, count: int) -> Stored:
    data = op.inputs.get("nonzero_data")
    if data is None:
        return Stored("sparse", count, 2.0 * count)
    kept = prod(data.shape)
    width = 2.0
    if data.op is not None and data.op.type == "constexpr_lut_to_sparse":
        width = stored_weights(data).bytes / max(kept, 1)
    elif data.dtype in ("int8", "uint8"):
        width = 1.0
    return Stored("sparse", count, kept * width + count / 8, kept / max(count, 1))
