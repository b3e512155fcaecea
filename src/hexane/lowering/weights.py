"""Stored form of a weight that the engine streams, by generation, and why not (docs/reference/compressed.md).

One decision, asked by the compiler (which kernel to pack), the arithmetic (which rounding a scale brings), the report
and the timing. It looks at the constant's coding and at its op, and never changes a value: a form that cannot be
streamed is expanded to fp16, which gives the values that the file's op gives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from hexane.chips import Evidence, Generation
from hexane.graph import Op, Value
from hexane.graph.coding import Coding

MOST_ENTRIES = 256
"""Entries of the largest palette: indices have 8 bits at most."""
WIDTHS = (1, 2, 4, 6, 8)
THREE_BITS = 10
"""Feature level from which indices of 3 bits are real; before, they take 4."""
INTEGERS = 5
"""Feature level from which integer weights stream (H14); H13 folds them to fp16."""
SCALES_OF_OUTPUTS = 7
"""Feature level from which a scale for each output was seen beside a palette or integers (H16)."""
SPARSE_WORTH = 15 / 16
"""Density below which a mask and the values that are not zero take fewer bits than fp16."""


@dataclass(frozen=True, eq=False)
class Stream:
    """A weight as the cores read it: in the constant's own shape, outputs along axis ``outputs``.

    form : "palette", "integer" or "sparse".
    bits : of an index or integer; 16 of the values behind a mask.
    stored : indices (uint8) or integers (int8); None of a sparse form, whose values are the constant's own.
    entries : the palette, fp16.
    scales : one fp16 factor for each output; None where values need none.
    """

    form: str
    bits: int
    stored: np.ndarray | None
    entries: np.ndarray | None
    scales: np.ndarray | None
    evidence: Evidence

    @property
    def rounds_twice(self) -> bool:
        """True where sums are scaled behind the cores, which rounds once more than dense weights do."""
        return self.scales is not None

    def scaled_by(self, factor: float) -> Stream:
        """A number that multiplies every sum of the task, taken into the scales (one more rounding to fp16)."""
        if self.scales is None or factor == 1.0:
            return self
        return replace(self, scales=(self.scales.astype(np.float32) * np.float32(factor)).astype(np.float16))


@dataclass(frozen=True, eq=False)
class Decision:
    """Fate of a coded weight: ``stream`` is None where it is expanded to fp16.

    ``reason`` says why, ``apple`` what Apple's compiler does with the form on this generation ("streams", "folds",
    "host"), ``remedy`` what to change so that it streams.
    """

    coding: Coding
    stream: Stream | None
    reason: str
    apple: str
    remedy: str = ""


def weight_of(op: Op) -> Value | None:
    """The constant operand that an op of sums takes as its kernel, None where it has none."""
    name = {"conv": "weight", "linear": "weight", "matmul": "y"}.get(op.type)
    value = op.inputs.get(name) if name else None
    return value if isinstance(value, Value) and value.is_constant else None


def decision_of(op: Op, generation: Generation) -> Decision | None:
    """Fate of an op's coded weight on a generation; None for an op without one."""
    weight = weight_of(op)
    if weight is None or weight.constant is None or weight.constant.coding is None:
        return None
    return _decided(weight, op, generation)


def stream_of(op: Op, generation: Generation) -> Stream | None:
    """The stream of an op's weight, None for dense fp16."""
    decision = decision_of(op, generation)
    return None if decision is None else decision.stream


def _decided(weight: Value, op: Op, generation: Generation) -> Decision:
    assert weight.constant is not None and weight.constant.coding is not None
    coding = weight.constant.coding
    outputs = 1 if op.type == "matmul" and not op.arg("transpose_y") else 0
    apple, remedy = _apple(coding, generation, outputs)
    obstacle = _obstacle(op)
    if obstacle:
        return Decision(coding, None, f"expanded to fp16: {obstacle}", apple, remedy)
    stream, reason = _streams(weight, coding, generation, outputs)
    return Decision(coding, stream, reason, apple, remedy)


def _obstacle(op: Op) -> str:
    """Property of the op itself that keeps a coded weight from the stream."""
    if op.type != "conv":
        return "" if len(op.arg("x").shape) and prod(op.arg("x").shape[:-2]) <= 1 else "a product of several matrices"
    if op.arg("groups") != 1:
        return "a grouped or depthwise kernel"
    if any(step != 1 for step in (op.arg("strides") or (1,))):
        return "strided kernels are sparse streams of fp16"
    if any(step != 1 for step in (op.arg("dilations") or (1,))):
        return "a dilated kernel"
    size = tuple(op.arg("weight").shape[2:])
    if size[-1] > 7:
        return "a kernel wider than 7 is rewritten for two columns"
    return ""


def _apple(coding: Coding, generation: Generation, outputs: int) -> tuple[str, str]:
    """Answer of Apple's compiler to a form, and the change that helps; ``outputs`` is the axis of the outputs."""
    level = generation.feature_level
    if coding.form != "sparse" and coding.changes_along_inputs(outputs):
        return "host", "one table or scale for each output or group of outputs, not of inputs"
    if coding.form == "palette":
        if coding.vector > 1 and level < 8:
            return "folds", "scalar entries"
        return "streams", ""
    if coding.form == "integer":
        if coding.offset is not None and level < SCALES_OF_OUTPUTS:
            return "folds", "symmetric integers (zero point 0)"
        return ("streams", "") if level >= INTEGERS else ("folds", "a palette streams here")
    return "streams", ""


def _streams(weight: Value, coding: Coding, generation: Generation, axis: int) -> tuple[Stream | None, str]:
    """The smallest stream that holds exactly these values, and the words for it."""
    streams = [
        stream_made
        for make in (_as_palette, _as_integers, _as_mask)
        if (stream_made := make(weight, coding, generation, axis))
    ]
    if not streams:
        return None, f"expanded to fp16: {_why_not(coding, generation, axis)}"
    best = min(streams, key=lambda stream: _stream_bytes(stream, weight, generation.cores))
    if _stream_bytes(best, weight, generation.cores) >= 2 * prod(weight.shape):
        return None, f"expanded to fp16: {coding.what}: so few weights that tables or masks would take more"
    words = {
        "palette": f"streams {best.bits}-bit indices",
        "integer": f"streams int{best.bits}",
        "sparse": "streams a mask and the values that are not zero",
    }[best.form]
    return best, words + (" and a scale for each output" if best.scales is not None else "")


def _stream_bytes(stream: Stream, weight: Value, cores: int) -> float:
    """About how many bytes the cores read: every core has its own palette, in units of 64 bytes."""
    count = prod(weight.shape)
    if stream.form == "sparse":
        return count * (1 + 16 * _density(weight)) / 8
    head = cores * max(64, 2 << stream.bits) if stream.form == "palette" else 0
    return count * stream.bits / 8 + head + (0 if stream.scales is None else 2 * stream.scales.size)


def _density(weight: Value) -> float:
    data = weight.data
    return float(np.count_nonzero(data)) / max(data.size, 1)


def _why_not(coding: Coding, generation: Generation, axis: int) -> str:
    if coding.form == "sparse":
        return "too few zeros for a mask to pay"
    if coding.scale is not None and coding.scale_per_output(axis) is None:
        return f"{coding.what}: the engine scales outputs, and these scales change along the inputs"
    if coding.scale is not None and generation.feature_level < SCALES_OF_OUTPUTS:
        return f"{coding.what}: {generation.name.upper()} was never seen to scale outputs one by one"
    if coding.offset is not None:
        return f"{coding.what}: offsets that differ between outputs"
    return f"{coding.what}: more than {MOST_ENTRIES} different values"


# ---- forms ---


def _width(entries: int, generation: Generation) -> int:
    """Bits of an index into so many entries, as this generation has them."""
    need = max((entries - 1).bit_length(), 1)
    widths = sorted({*WIDTHS, *((3,) if generation.feature_level >= THREE_BITS else ())})
    return next(width for width in widths if width >= need)


def _evidence(generation: Generation) -> Evidence:
    """Chunks with palettes of 2 and 4 bits and scales were read out of programs for H16 (APPLE)."""
    return Evidence.APPLE if generation.feature_level >= SCALES_OF_OUTPUTS else Evidence.INFERRED


def _as_palette(weight: Value, coding: Coding, generation: Generation, axis: int) -> Stream | None:
    """One table of scalars: also of several tables or of vectors, where all entries together are few enough."""
    scales = coding.scale_per_output(axis)
    if coding.form == "sparse" or (coding.scale is not None and scales is None):
        return None
    offset = coding.offset
    if offset is not None:
        first = offset.reshape(-1)[:1]
        if not bool((offset == first).all()):
            return None
    whole = scales is not None and bool((scales == scales[:1]).all())
    if coding.form == "integer" and not whole and coding.bits == 8 and offset is None:
        return None  # int8 with a scale for each output is the integer form
    if scales is not None and not whole and generation.feature_level < SCALES_OF_OUTPUTS:
        return None
    if whole or scales is None:
        return _indexed(weight.data, None, generation)
    plain = _unscaled(coding)
    return None if plain is None else _indexed(plain, scales, generation)


def _unscaled(coding: Coding) -> np.ndarray | None:
    """The values before the scale, where fp16 holds them exactly."""
    if coding.form == "palette":
        if coding.vector > 1 or coding.tables is None or coding.stored is None:
            return None
        values = coding.tables[0][coding.stored] if coding.group is None else coding.tables[coding.group, coding.stored]
    else:
        assert coding.stored is not None
        values = coding.stored
    values = values.astype(np.float32)
    if coding.offset is not None:
        values = values - coding.offset.astype(np.float32)
    narrow = values.astype(np.float16)
    return narrow if bool((narrow.astype(np.float32) == values).all()) else None


def _indexed(values: np.ndarray, scales: np.ndarray | None, generation: Generation) -> Stream | None:
    """fp16 values as indices, None where they are too many."""
    bits = np.ascontiguousarray(values.astype(np.float16, copy=False)).view(np.uint16)
    entries, codes = _distinct(bits)
    if entries.size > MOST_ENTRIES:
        return None
    width = _width(entries.size, generation)
    return Stream(
        "palette",
        width,
        codes.reshape(values.shape),
        entries.view(np.float16),
        None if scales is None else scales.astype(np.float16),
        _evidence(generation),
    )


def _distinct(bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different halfwords in ascending order, and for every element its place among them (modulo 256)."""
    present = np.zeros(1 << 16, bool)
    present[bits.reshape(-1)] = True
    entries = np.flatnonzero(present).astype(np.uint16)
    place = np.zeros(1 << 16, np.uint8)
    place[entries] = np.arange(entries.size, dtype=np.int64).astype(np.uint8)
    return entries, place[bits]


def _as_integers(weight: Value, coding: Coding, generation: Generation, axis: int) -> Stream | None:
    """int8 and a scale: from H14 on, symmetric."""
    if coding.form != "integer" or coding.offset is not None or generation.feature_level < INTEGERS:
        return None
    scales = coding.scale_per_output(axis)
    if scales is None or coding.stored is None or coding.stored.dtype != np.int8:
        return None
    outputs = weight.shape[axis]
    return Stream(
        "integer", 8, coding.stored, None, np.broadcast_to(scales.astype(np.float16), (outputs,)), _evidence(generation)
    )


def _as_mask(weight: Value, coding: Coding, generation: Generation, axis: int) -> Stream | None:
    """A mask bit for every weight and the fp16 values that are not zero; INFERRED from streams at stride 2."""
    if not coding.masked or _density(weight) >= SPARSE_WORTH:
        return None
    if coding.scale is not None and coding.form == "integer" and coding.scale_per_output(axis) is None:
        return None
    return Stream("sparse", 16, None, None, None, Evidence.INFERRED)
