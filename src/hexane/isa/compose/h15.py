"""H15 (A16, M3 family): H14's header with marks on the last task, H16's packets [APPLE: 35 of 35 tasks]."""

from __future__ import annotations

from hexane.isa.compose.h16 import CACHE
from hexane.isa.compose.rules import Position, Rules

RULES = Rules(
    always=("Common.TileCfg", "Common.TaskInfo"),
    log_events=Position(only=0x0300002A, first=0x08, middle=0, last=0x03000022),
    debug_position=Position(only=0x68, first=0x68, middle=0, last=0x68),
    page_mask="Header[6].PageMask",
    flags="Header[7]",
    cache=CACHE,
)
