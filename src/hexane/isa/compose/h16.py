"""H16 (A17 Pro, M4 family): nine header words, one register per size [APPLE: 138 of 138 tasks of h16 and h16g]."""

from __future__ import annotations

from hexane.isa.compose.rules import Position, Rules

CACHE = {
    "CacheDMA.Control": 0x12,
    "CacheDMA.Prefetch": 0x00A000A0,
    "CacheDMA.DataSet": 0,
    "CacheDMA.BackOff": 0x007F0000,
    "CacheDMA.BackOff2": 0x20010701,
}
"""Telemetry and system cache: the same words in the last task of every program; they do not change results."""

RULES = Rules(
    always=("Common.TileCfg", "Common.TaskInfo"),
    log_events=Position(only=0x04000068, first=0x68, middle=0, last=0x04000000),
    debug_position=Position(only=0x68, first=0x68, middle=0x20, last=0x60),
    page_mask="Header[7].PageMask",
    flags="Header[8]",
    core_fields=("Common.Cfg.ActiveNE", "Common.NECfg.WUStackLog2", "Common.NECfg.FatTile"),
    cache=CACHE,
)
