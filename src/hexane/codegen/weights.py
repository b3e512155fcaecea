"""The weights of a task as its kernel stores them: plain fp16, or the stream that a coded constant allows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexane.codegen.operations import Element, KernelFormat
from hexane.codegen.plan import Plan
from hexane.frozen import dict_init, replace
from hexane.kernels import KernelLayout, PackedKernel, pack
from hexane.lowering.weights import Stream
from hexane.rounding import ceil_div

PALETTE_HEAD = 17
"""Halfwords of each lane's share that a palette's head and a row of scales take at most, beside the indices."""


@dict_init
@dataclass(frozen=True, eq=False)
class Weights:
    """fp16 values [O, ...] and, where the engine is to stream something smaller, that (in the same shape)."""

    values: np.ndarray
    stream: Stream | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    @property
    def scaled(self) -> bool:
        """True where every output has a factor of its own behind its sum."""
        return self.stream is not None and self.stream.scales is not None

    @property
    def factor(self) -> float | None:
        """Factor of every sum alike, of integers; None where scales differ, or there are none."""
        scales = None if self.stream is None or self.stream.form != "integer" else self.stream.scales
        return None if scales is None or np.any(scales != scales[0]) else float(scales[0])

    def rows(self, first: int, count: int) -> Weights:
        """Neighbouring outputs."""
        return self.outputs(slice(first, first + count))

    def outputs(self, part: slice | np.ndarray) -> Weights:
        """Some of the outputs, in the order of their numbers in ``part``."""
        if self.stream is None:
            return Weights(self.values[part])
        stored, scales = self.stream.stored, self.stream.scales
        cut = replace(
            self.stream,
            stored=None if stored is None else stored[part],
            scales=None if scales is None else scales[part],
        )
        return Weights(self.values[part], cut)

    def shaped(self, *shape: int) -> Weights:
        """The same elements in another shape; outputs stay in front."""
        if self.stream is None or self.stream.stored is None:
            return Weights(self.values.reshape(shape), self.stream)
        return Weights(self.values.reshape(shape), replace(self.stream, stored=self.stream.stored.reshape(shape)))

    def scaled_by(self, factor: float) -> Weights:
        """A number that multiplies all outputs, taken into their scales (rounded to fp16 once more)."""
        if self.stream is None or self.stream.scales is None:
            return self
        return Weights(self.values, self.stream.scaled_by(factor))

    def lane_halfwords(self, taps: int) -> int:
        """About how many halfwords of a stream one output channel takes."""
        if self.stream is None or self.stream.form == "sparse":
            return taps
        return ceil_div(taps * self.stream.bits, 16) + PALETTE_HEAD

    def layout(self, layout: KernelLayout) -> KernelLayout:
        """The layout of the plain kernel as this one has it."""
        stream = self.stream
        if stream is None:
            return layout
        if stream.form == "palette":
            return replace(layout, palette=stream.bits, scales=stream.scales is not None)
        if stream.form == "integer":
            return replace(layout, dtype="int8", scales=self._has_scales(bias=layout.bias))
        return replace(layout, sparse=True)

    def pack(self, layout: KernelLayout, bias: np.ndarray | None, table: bytes | None) -> PackedKernel:
        """The streams; ``layout`` is the result of `layout`."""
        stream = self.stream
        if stream is None or stream.stored is None:
            return pack(layout, self.values, bias=bias, table=table)
        stored = np.ascontiguousarray(stream.stored).reshape(layout.weight_shape)
        scales = stream.scales if layout.scales else None
        return pack(layout, stored, bias=bias, table=table, palette=stream.entries, scales=scales)

    def _has_scales(self, *, bias: bool) -> bool:
        """True where the kernel has a row of scales: not where one factor of the task does, which no bias meets."""
        return self.scaled and (self.factor is None or bias)

    def mark(self, plan: Plan, *, sparse: bool = False) -> Plan:
        """Registers of the task that describe the stream."""
        stream = self.stream
        if stream is None:
            return plan.but(kernel_format=KernelFormat(sparse=sparse))
        integers = stream.form == "integer"
        form = KernelFormat(
            Element.INT8 if integers else Element.FP16,
            palette_bits=stream.bits if stream.form == "palette" else 0,
            sparse=stream.form == "sparse",
            scales=self._has_scales(bias=plan.ne.bias),
        )
        plan = plan.but(kernel_format=form)
        if self.scaled:  # stands in the scales, or is what all have in common
            plan = plan.computing(post_scale=1.0 if form.scales or self.factor is None else self.factor)
        if integers:
            plan = plan.computing(binary_point=0)
        return plan


def weights_from(values: np.ndarray, stream: Stream | None, factor: float) -> Weights:
    """fp16 values and their stream; ``factor`` multiplies every sum of the task."""
    return Weights(np.asarray(values, np.float16), stream).scaled_by(factor)
