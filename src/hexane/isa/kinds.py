"""Named field values that several generations share.

Source: docs/reference/engine-h13.md 4, docs/reference/generations.md 7, 9.
"""

from __future__ import annotations

from hexane.isa.schema import values

ELEMENT = values(uint8=0, int8=1, fp16=2)
"""Element formats of ChCfg and KernelCfg."""

MEMORY = values(bits8=0, signed8=1, bits16=2, bits32=3)
"""Memory format of a tile DMA."""

DMA_WIDTH = values(bits8=0, bits16=1, bits32=3)
"""Element width of an L2 region that a tile DMA fills or drains."""

READ_HINT = values(noalloc=2, drop=4, depri=12, alloc=14)
"""System cache hint of a reader: normal, last reader of scratch, last reader, first of several."""

WRITE_HINT = values(noalloc=3, alloc=15)
"""System cache hint of a writer: normal, or a later task reads it."""

DEPENDENCY = values(none=0, earlier_task=1)
REREAD = values(none=0, source=1, kernel=2)
"""How an earlier task read the bytes that are written over."""

SOURCE_TYPE = values(resident=0, dma_keep=1, dma_stream=2, strips=3)
"""Where a task finds its source: in L2, or by tile DMA (docs/reference/engine-h13.md 12.1)."""

RESULT_TYPE = values(stays=0, dma_keep=1, dma_stream=2, strips=3)
"""Where a task leaves its result."""

DEPENDENT = values(no=0, follows_ne=1, follows_pe=2)
"""Whether a task runs patch by patch behind the task before it."""

PE_KIND = values(ne_task=0, pooling=1, unary=2, binary=3, scale_shift=4, reduce=5, reduce_binary=6)
"""What the planar engine does with its operands."""

REDUCE = values(sum=0, average=1, max=2, min=3)
PE_OP = values(add=0, mul=1, max=2, min=3, sumsq=4)
CONDITION = values(none=0, abs=1, eq=2, gt=3, ge=4, le=5, lt=6, ne=7)
LATER_CONDITION = values(none=0, abs=7)
"""From H15 on; the codes of comparisons have not been seen there."""
PE_NONLINEAR = values(none=0, reciprocal=1, rsqrt=2, sqrt=3)
"""What follows a reduction; sqrt is seen from H14 on."""
FIRST_SOURCE = values(src1=0, neg_src1=1)
SECOND_SOURCE = values(none=0, src2=2, neg_src2=3)

NE_OP = values(sum=0, elementwise=1, product=2, maximum=3, bypass=4, transposed_conv=5)
"""How the cores combine inputs and kernel positions; elementwise and transposed_conv are published names only."""

NE_NONLINEAR = values(none=0, relu=1, table=2)

TEXTURE = values(off=0, gather=1, bilinear=2, bicubic=3, nearest=4)

ELEMENT_3BIT = values(uint8=0, int8=1, fp16=2, e4m3=4)
"""Element formats where ChCfg has lanes of three bits (H18 and later)."""
