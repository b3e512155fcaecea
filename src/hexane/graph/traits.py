"""Traits of an op, stated where the op is declared; passes ask for traits and name no ops."""

from __future__ import annotations

from enum import Flag, auto


class Trait(Flag):
    """Facts about an op that hold for all its operands and parameters."""

    __hash__ = object.__hash__  # of an only instance; an enumeration's own is a call of Python's

    ELEMENTWISE = auto()
    """Each element of the result depends on the elements at its place alone; operands broadcast, axes mean nothing."""
    SAME_VALUES = auto()
    """The operand's numbers at their places, perhaps in another type."""
    RESHAPES = auto()
    """The operand's elements in their row-major order, in another shape."""
    REARRANGES = auto()
    """Each element of the operand ``x`` once, in another order."""
    PICKS = auto()
    """Each element of the results is an element of an operand: cuts, joins, repetitions."""
    REDUCES = auto()
    """One number for all elements along ``axes``, which ``keep_dims`` keeps as axes of one element."""
    NEVER_NEGATIVE = auto()
    """No result is below zero, whatever the operands are."""
    PRODUCTS = auto()
    """Sums of products of elements of the first two tensors, the second being a layer's weights where it is constant;
    nothing but a ``bias`` is added."""
    CONVOLVES = auto()
    """``PRODUCTS`` of ``x`` [N, C, *spatial] and a kernel ``weight`` [.., .., *K], in ``groups`` of channels."""
    POOLS = auto()
    """One number for each window of ``kernel_sizes`` over the axes of ``x`` [N, C, *spatial] behind the channels."""
    GATHERS = auto()
    """Each element of the result is the element of ``x`` that ``indices`` name."""


NO_TRAITS = Trait(0)
ELEMENTWISE, SAME_VALUES, RESHAPES = Trait.ELEMENTWISE, Trait.SAME_VALUES, Trait.RESHAPES
REARRANGES, PICKS, REDUCES, NEVER_NEGATIVE = Trait.REARRANGES, Trait.PICKS, Trait.REDUCES, Trait.NEVER_NEGATIVE
PRODUCTS, CONVOLVES, POOLS, GATHERS = Trait.PRODUCTS, Trait.CONVOLVES, Trait.POOLS, Trait.GATHERS
MOVES = RESHAPES | REARRANGES
"""Either of them: all elements of ``x``, each once."""
