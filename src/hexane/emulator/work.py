"""Work of a unit in one task, made ready before its operands are there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hexane.frozen import dict_init

if TYPE_CHECKING:
    from hexane.arithmetic.convolution_results import ConvolutionCall
    from hexane.arithmetic.fast.jobs import CompiledJob


class Events(NamedTuple):
    """Facts that only the numbers tell: further hypotheses that they rest on, and counts of what was lost.

    ``convolution``: what the result is one of, where it is one as `arithmetic.conv2d` computes it.
    """

    rests_on: tuple[str, ...] = ()
    counters: dict[str, int] | None = None
    convolution: ConvolutionCall | None = None


Operands = tuple[np.ndarray, ...]


def _nothing(operands: Operands, values: np.ndarray, observe: bool) -> Events:
    return Events()


def _no_bytes() -> int:
    return 0


def _no_function() -> None:
    return None


def _no_job(operands: Operands, target: np.ndarray) -> CompiledJob | None:
    return None


@dict_init
@dataclass(frozen=True)
class UnitWork:
    """One task's computation; everything that its registers ask for has been checked.

    Parameters
    ----------
    operation : one line for a reader.
    rests_on : hypotheses of :mod:`hexane.arithmetic` that take part whatever the numbers are.
    compute : from the operands, float16 with axes (g, d, c, h, w), to the result: in the array ``out`` if one is given
        and this computation can, else in another.
    events : from operands, result and whether to count, to what the numbers tell. For reports; costs time.
    observed : from operands to the result and what the numbers tell, counted; None: ``compute``, then ``events``.
    keep : pack the kernel once and for all and let it go as it was; gives the bytes that this takes.
    tabulate : compute a function's results for all 65536 values, for programs that run again.
    job : the same computation from operands that stand where they are to a place for the result, axes (g, d, c, h, w),
        float16 both, as compiled code takes it; None where it cannot. After ``keep`` and ``tabulate``.
    in_place : each element of the result asks for the operands' elements at its own place alone, so that the job may
        put it where an operand stands.
    """

    operation: str
    rests_on: tuple[str, ...]
    compute: Callable[..., np.ndarray]
    events: Callable[[Operands, np.ndarray, bool], Events] = _nothing
    keep: Callable[[], int] = _no_bytes
    tabulate: Callable[[], None] = _no_function
    job: Callable[[Operands, np.ndarray], CompiledJob | None] = _no_job
    in_place: bool = False
    observed: Callable[[Operands], tuple[np.ndarray, Events]] | None = None

    def watched(self, operands: Operands, *, observe: bool) -> tuple[np.ndarray, Events]:
        """The result, and what the numbers tell; ``observe`` counts how often the arithmetic lost something."""
        if observe and self.observed is not None:
            return self.observed(operands)
        values = self.compute(*operands)
        return values, self.events(operands, values, observe)
