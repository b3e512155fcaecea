"""H17 (A18, M5 family): as H16 but for what stands here [APPLE: 76 of 76 tasks of A18].

Source: docs/reference/generations.md 10.1.
"""

from __future__ import annotations

from dataclasses import replace

from hexane.isa.compose.h16 import RULES as _H16
from hexane.isa.compose.rules import PACKETS, SECOND, Position

RULES = replace(
    _H16,
    packets=tuple(packet for each in PACKETS for packet in ((each, each) if each[0] == SECOND else (each,))),
    debug_position=Position(only=0x68, first=0x68, middle=0, last=0x60),
)
