"""H14 (A15, M2 family): switches in records, filler, side channels tagged with the lanes [APPLE: 150 of 150 tasks]."""

from __future__ import annotations

from hexane.isa.compose.rules import KERNEL, RESULT, SECOND, SOURCE, TABLE, Position, Rules

RULES = Rules(
    always=("Common.TileCfg", "Common.TaskInfo"),
    log_events=Position(only=0x2A, first=0x08, middle=0, last=0x22),
    debug_position=Position(only=0x68, first=0x68, middle=0, last=0x68),
    page_mask="Header[6].PageMask",
    flags="Header[7]",
    packets=(
        (KERNEL, f"{KERNEL}High"),
        (TABLE, f"{TABLE}High"),
        ("KernelDMASrc.SideBaseAddr[3]",),
        (SOURCE, f"{SOURCE}High"),
        (SECOND, f"{SECOND}High"),
        (RESULT, f"{RESULT}High"),
    ),
    switch_slot=None,
    data_set=0x0E,
    last_flag=0,
    second_enable=False,
    table_lanes=tuple(f"KernelDMASrc.SideDMAConfig[{i}]" for i in range(4)),
    filler=True,
)
