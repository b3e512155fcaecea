"""The channels behind which a program's buffers lie: what tasks name in place of addresses (docs/reference)."""

from __future__ import annotations

CHANNELS = 32
TEXT, CONST, SCRATCH = 0, 1, 3
FIRST_SURFACE = 4
