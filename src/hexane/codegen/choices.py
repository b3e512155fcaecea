"""Choices in which the compilers of the generations differ where a recipe is the same (docs/parity.md).

A recipe asks its target (``context.choices``). The defaults are H13's. Every row says what it rests on: programs
of Apple's compiler that have it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choices:
    """One generation's answers.

    Attributes
    ----------
    small_area : largest map of a small-source task in pixels; 0: 8 x 8.
    small_kernel_bytes : largest stream per core of a small-source task.
    small_patch : a small-source task with a 1x1 kernel takes the patch of its map, not the tallest.
    small_patch_bytes : largest stream per core of such a task.
    shared_inputs : a turned copy of more than 16 channels lets each core see several (UnicastCin), lower cores first.
    narrow_copies : the patch of a task with one core per channel is no wider than the map.
    copy_weight : how much streaming the coefficients of such a task weighs against moving its surfaces.
    folds_products : a product of 9 to 64 rows with a long kernel runs over M/8 x 8 pixels.
    follows_closely : a task starts patch by patch behind the one before it also where a sum, a turn or a turned copy
        comes first: softmax's product behind its sum over channels, a vector's norm, the first product of a pair.
    turned_quotients : the reciprocals of a map are turned too, not only those of single pixels.
    direct_operands : a broadcast or constant operand comes by its own DMA, in the task that uses it.
    plain_pixel_copies : a turned copy of one row has no work units to choose.
    holds_two_patches : a sum over channels runs untiled where its source and two patches of the result fit L2.
    mask_elements : coefficients that share one mask of a sparse stream.
    steps_kernels : the kernel DMA steps through the batches of a computed kernel and through passes of the cores.
    alone_side_by_side : source 2 may come alone with several channels side by side; H14 has no known word for that.
    fat_tiles : a convolution of two outputs per core gives four to each pair of cores, on tiles of one patch.
    rows_as_channels : a reduction over the rows of one channel has the rows as channels, not as groups.
    ring_of_sums : sums over channels leave through one row of L2, not from a map of them.
    plain_columns : a second operand of one column stands right behind the first, without a pad.
    lone_elements : space to depth goes through scratch with every element in a line of its own.
    weighs_pairs : the product of pairs that ends a power has the patch of a sum over its inputs, where several fit.
    planar_powers : the product of a power is the planar engine's, over the logarithms, with their exponentials behind.
    whole_powers : tiles of a power leave from a map of whole rows, not from an automatic buffer (H16, 3x224x224).
    stacks_units : few cores that only copy get several work units each, one core alone patches of twice the pixels.
    """

    small_area: int = 0
    small_kernel_bytes: int = 0x14040
    small_patch: bool = False
    small_patch_bytes: int = 1 << 31
    shared_inputs: bool = False
    narrow_copies: bool = False
    copy_weight: float = 4.5
    folds_products: bool = True
    follows_closely: bool = False
    turned_quotients: bool = True
    direct_operands: bool = False
    plain_pixel_copies: bool = False
    steps_kernels: bool = False
    fat_tiles: bool = False
    stacks_units: bool = False
    weighs_pairs: bool = False
    planar_powers: bool = False
    whole_powers: bool = False
    lone_elements: bool = False
    plain_columns: bool = False
    rows_as_channels: bool = False
    ring_of_sums: bool = False
    mask_elements: int = 8
    holds_two_patches: bool = False
    alone_side_by_side: bool = True
