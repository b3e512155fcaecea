"""Bytes that addresses and sizes are multiples of."""

from __future__ import annotations

GRANULE = 64
"""Every address and stride of a tile or kernel DMA in DRAM is a multiple of it."""
UNIT = 16
"""Every address and stride in L2 is one."""
PAGE = 0x4000
"""A page of memory: no task of H13 straddles one, and buffers of the open drivers come in whole ones."""
