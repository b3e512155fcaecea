"""Storage of a layer's weights, and the kernel that is compiled of them (docs/reference/compressed.md).

Read off shapes alone: the constant's coding or the ``constexpr`` ops that make it, no values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from hexane.errors import HexaneError
from hexane.graph import Op, Value
from hexane.graph.coding import Coding
from hexane.kernels import KernelLayout


@dataclass(frozen=True)
class StoredWeights:
    """``count`` weights in ``bytes`` of a file; ``density`` is the share that is not zero.

    ``runtime``: the operand is no constant at all, but computed by the program or handed in. ``bits`` of a
    stored element's index or number alone, ``bytes`` with mask and tables; ``tables`` of a palette, ``scales``: a
    factor for each output stands in the stream.
    """

    format: str
    count: int
    bytes: float
    density: float = 1.0
    runtime: bool = False
    bits: float = 16.0
    tables: int = 1
    scales: bool = False


def stored_weights(value: Value, outputs: int = 0) -> StoredWeights:
    """Stream of ``value`` on the engine: fp16, ``int8``, ``palette`` or ``sparse`` (docs/reference/compressed.md).

    ``outputs`` is the axis of the output channels.
    """
    count = prod(value.shape)
    if value.is_constant:
        coding = None if value.constant is None else value.constant.coding
        if coding is not None:
            return _coded(coding, value, outputs)
        narrow = value.dtype in ("int8", "uint8")
        if narrow:
            return StoredWeights("int8", count, 1.0 * count, bits=8)
        return StoredWeights("fp16", count, 2.0 * count)
    op = value.op
    if op is None:
        return StoredWeights("fp16", count, 2.0 * count, runtime=True)
    if op.type in ("dequantize", "constexpr_affine_dequantize"):
        data = op.inputs["input" if op.type == "dequantize" else "quantized_data"]
        if not data.is_constant:
            return StoredWeights("fp16", count, 2.0 * count, runtime=True)
        return StoredWeights("int8", count, 1.0 * count, bits=8, scales=_varies(op.inputs.get("scale")))
    if op.type == "constexpr_blockwise_shift_scale":
        return _blockwise(op, count, outputs)
    if op.type in ("constexpr_lut_to_dense", "constexpr_lut_to_sparse"):
        return _palette(op, count)
    if op.type == "constexpr_sparse_to_dense":
        return _sparse(op, count)
    if op.type in ("constexpr_cast", "cast", "reshape", "transpose", "expand_dims", "squeeze", "identity"):
        source = op.inputs["source_val" if op.type == "constexpr_cast" else "x"]
        transposed = op.type == "transpose" and source.rank == 2
        inner = stored_weights(source, 1 - outputs if transposed else outputs)
        return replace(inner, count=count)
    return StoredWeights("fp16", count, 2.0 * count, runtime=True)


def _varies(value: Any) -> bool:
    return isinstance(value, Value) and prod(value.shape) > 1


def _blockwise(op: Op, count: int, outputs: int) -> StoredWeights:
    scale, data = op.inputs["scale"], op.inputs["data"]
    if data.op is not None and data.op.type.startswith("constexpr_lut"):
        inner = stored_weights(data, outputs)
        size = inner.bytes + 2.0 * prod(scale.shape)
        return replace(inner, bytes=size, scales=_varies(scale))
    four = data.dtype in ("int4", "uint4")
    size = count * (0.5 if four else 1.0)
    return StoredWeights("palette" if four else "int8", count, size, bits=4 if four else 8, scales=_varies(scale))


def _palette(op: Op, count: int) -> StoredWeights:
    lut = op.inputs.get("lut")
    if lut is None:
        return StoredWeights("palette", count, count / 2, bits=4)
    entries = lut.shape[-2] if len(lut.shape) > 1 else lut.shape[0]
    bits = max((int(entries) - 1).bit_length(), 1)
    groups = lut.shape[:-2] if len(lut.shape) > 2 else ()
    vector = lut.shape[-1] if len(lut.shape) > 2 else 1
    return StoredWeights("palette", count, count * bits / 8 / vector + 2.0 * prod(lut.shape), bits=bits / vector,
                  tables=prod(groups))  # fmt: skip


def _sparse(op: Op, count: int) -> StoredWeights:
    data = op.inputs.get("nonzero_data")
    if data is None:
        return StoredWeights("sparse", count, 2.0 * count)
    values = stored_weights(data)
    return StoredWeights("sparse", count, values.bytes + count / 8, values.count / max(count, 1), bits=values.bits)


def _coded(coding: Coding, value: Value, outputs: int) -> StoredWeights:
    """A constant that passes have folded: its coding says what the file held."""
    count = prod(value.shape)
    scales = coding.scale_per_output(outputs)
    own = scales is not None and bool((scales != scales[:1]).any())
    bits = coding.bits / coding.vector
    entries = 0 if coding.tables is None else coding.tables.size
    if coding.masked:
        nonzero = int(np.count_nonzero(value.data))
        size = nonzero * bits / 8 + 2.0 * entries + count / 8
        return StoredWeights("sparse", count, size, nonzero / max(count, 1), bits=bits)
    four = coding.form == "integer" and coding.bits == 4
    return StoredWeights(
        "palette" if coding.form == "palette" or four else "int8",
        count,
        count * bits / 8 + 2.0 * entries,
        bits=bits,
        tables=1 if coding.tables is None else len(coding.tables),
        scales=own,
    )


def compiled_bytes(stored: StoredWeights, cout: int, cin: int, kh: int, kw: int, groups: int = 1) -> float:
    """Bytes of the kernel streams of all cores: indices or integers, palettes, scales, padding.

    ``cout`` and ``cin`` count over all groups. Forms whose stream is not of palettes or integers keep their own size.
    """
    if stored.format not in ("palette", "int8") or stored.runtime or stored.density < 1:
        return stored.bytes
    width = next((bits for bits in (1, 2, 3, 4, 6, 8) if stored.bits <= bits), 8)
    how: dict[str, Any] = {"dtype": "int8"} if stored.format == "int8" else {"palette": width}
    try:
        layout = KernelLayout(cout // groups, cin // groups, kh, kw, groups=groups, scales=stored.scales, **how)
        total = sum(layout.core_bytes(core) for core in range(layout.active))
    except HexaneError:  # a kernel that no single task holds, or whose layout is not known
        return stored.bytes
    more = max(stored.tables - layout.active, 0)
    return float(total * (stored.bits / width if stored.format == "palette" else 1.0) + 64 * more)
