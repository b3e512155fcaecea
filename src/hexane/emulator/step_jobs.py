"""A task as jobs of compiled code: operands brought together, the computation, the result taken where it belongs.

Most operands are read where they stand and most results go straight to their place. What lies in blocks, or with gaps
that a computation does not take, and a result whose place is also read, goes through memory beside the machine's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hexane.arithmetic.fast.jobs import CompiledJob
    from hexane.emulator.engine import OperandReader, Step

Part = tuple[slice, np.ndarray]
"""Some channels of a tensor as it is stored, and where they stand: a view with axes (g, d, c, h, w)."""


class Aside:
    """Memory beside the machine's, for one step after the other."""

    def __init__(self) -> None:
        self._buffers: list[np.ndarray] = []
        self._next = 0

    def restart(self) -> None:
        """Give back memory of a step that is over when the next one begins."""
        self._next = 0

    def empty(self, shape: tuple[int, ...]) -> np.ndarray:
        """Halfwords (uint16) of undefined content."""
        size = math.prod(shape)
        if self._next == len(self._buffers):
            self._buffers.append(np.empty(size, np.uint16))
        elif self._buffers[self._next].size < size:
            self._buffers[self._next] = np.empty(size, np.uint16)
        self._next += 1
        return self._buffers[self._next - 1][:size].reshape(shape)


def jobs_of(step: Step, aside: Aside) -> list[CompiledJob] | None:
    """The step as jobs, if it has run before; None where one of its parts is none."""
    from hexane.arithmetic.fast.planar_job import copied

    result = step.task.result
    if result.dtype != np.float16 or any(place.parts is None for place in step.places):
        return None
    aside.restart()
    before: list[CompiledJob] = []
    operands: list[np.ndarray] = []
    for source in step.sources:
        if source.load is not None:
            if np.may_share_memory(*source.load):
                return None
            before.append(copied(*source.load))
        stands = _standing(source, before, aside)
        if stands is None or stands.dtype != np.float16:
            return None
        operands.append(stands)
    parts = [part for place in step.places for part in place.parts or ()]
    for load, operand, target in _ways(step, operands, parts, aside):
        job = step.work.job(operand, target.view(np.float16))
        if job is not None:
            result_view = target.swapaxes(2, 4) if result.transposed else target
            after = [
                copied(result_view[:, :, some], view)
                for some, view in parts
                if not _same(result_view[:, :, some], view)
            ]
            return [*before, *load, job, *after]
    return None


def _ways(
    step: Step, operands: list[np.ndarray], parts: list[Part], aside: Aside
) -> Iterator[tuple[list[CompiledJob], tuple[np.ndarray, ...], np.ndarray]]:
    """Ways to compute, the shortest first: jobs that come before, operands, and the place of the logical result."""
    from hexane.arithmetic.fast.planar_job import copied

    result = step.task.result
    some, first = parts[0]
    place = first.swapaxes(2, 4) if result.transposed else first
    over = [x for x in operands if any(np.may_share_memory(x, view) for _, view in parts)]
    replaces = len(parts) == 1 and step.work.in_place and all(_same(x, place) for x in over)
    if some == slice(None) and (replaces or not over):
        yield [], tuple(operands), place
    target = aside.empty(result.extent)
    yield [], tuple(operands), target
    broken = [not x.flags.c_contiguous for x in operands]
    if any(broken):
        whole = [aside.empty(x.shape) if b else x.view(np.uint16) for x, b in zip(operands, broken)]
        load = [copied(x.view(np.uint16), y) for x, y, b in zip(operands, whole, broken) if b]
        yield load, tuple(x.view(np.float16) for x in whole), target


def _standing(source: OperandReader, before: list[CompiledJob], aside: Aside) -> np.ndarray | None:
    """Address from which an operand can be read, after the jobs that this adds."""
    from hexane.arithmetic.fast.planar_job import copied

    if source.stands is not None or source.blocks is None:
        return source.stands
    together = aside.empty(source.blocks.shape)
    before += [copied(view, together[:, :, some]) for some, view in source.blocks.parts]
    return source.blocks.logical(together)


def _same(x: np.ndarray, y: np.ndarray) -> bool:
    """True where every element of one array stands where that of the other does."""
    return x.ctypes.data == y.ctypes.data and x.shape == y.shape and x.strides == y.strides
