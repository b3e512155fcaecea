"""Facts of the streams of a generation: one record per generation.

The facts are Apple's words (150 tasks of H14, 35 of H15, 138 of H16, compared word by word in
``tests/isa/test_compose.py``); those of H17 and later are taken from H16 and their register tables (INFERRED).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

from hexane.errors import UnsupportedError
from hexane.isa.generations import WRITTEN, family_of


class Position(NamedTuple):
    """One value for each place that a task can have in its program."""

    only: int
    first: int
    middle: int
    last: int

    def at(self, index: int, count: int) -> int:
        if count == 1:
            return self.only
        return self.first if index == 0 else self.last if index == count - 1 else self.middle


KERNEL = "KernelDMASrc.KernelBase"
TABLE = "KernelDMASrc.TableBase"
SOURCE = "TileDMASrc.BaseAddr"
SECOND = "TileDMASrc.Src2BaseAddr"
RESULT = "TileDMADst.BaseAddr"

PACKETS = (
    (KERNEL, f"{KERNEL}High"),
    (TABLE, f"{TABLE}High"),
    (SOURCE, f"{SOURCE}High"),
    (SECOND, f"{SECOND}High"),
    (RESULT, f"{RESULT}High"),
)
"""Address records in the order in which they stand behind all others: base and high half."""

SOURCE_SWITCH = "TileDMASrc.DMAConfig"
SECOND_SWITCH = "TileDMASrc.Src2DMAConfig"
RESULT_SWITCH = "TileDMADst.DMAConfig"
SWITCHES = (SOURCE_SWITCH, SECOND_SWITCH, RESULT_SWITCH)
"""The switches of the tile DMAs in the order of their packets."""

EVENTS = {SOURCE_SWITCH: "TileDMASrc.Event", SECOND_SWITCH: "TileDMASrc.Src2Event", RESULT_SWITCH: "TileDMADst.Event"}
"""The event that each tile DMA waits for or signals, where the generation has such registers."""

ONE_CELL = 0x20  # an idle lane or side channel: its hint alone


@dataclass(frozen=True)
class Rules:
    """Rules for writing one generation's streams.

    Attributes
    ----------
    always : registers that every task writes, even at their reset value.
    packets : address records in order, each the registers that it writes.
    switch_slot : slot of the packets that hold the switches of the tile DMAs and of a runtime kernel's lanes; None
        where records hold them.
    event_slot : slot of the packets that hold the events of the tile DMAs, behind all others; None: there are none.
    data_set : DataSetId of switches.
    log_events, debug_position : header words 2, and the low bits of word 4.
    page_mask, flags : header words of the mask and of the flags.
    last_flag : what the last task's flags have besides.
    second_enable : whether the switch of source 2 has its own enable bit set.
    core_fields : fields whose sum is the logarithm of the cores that work.
    table_lanes : side channels that a table task tags, the table's own last.
    filler : whether a task must not end on a multiple of 64 bytes.
    cache : words of the CacheDMA block, which the last task writes.
    """

    always: tuple[str, ...]
    log_events: Position
    debug_position: Position
    page_mask: str
    flags: str
    packets: tuple[tuple[str, ...], ...] = PACKETS
    switch_slot: int | None = 4
    event_slot: int | None = None
    data_set: int = 0
    last_flag: int = 8
    second_enable: bool = True
    core_fields: tuple[str, ...] = ("Common.Cfg.ActiveNE",)
    table_lanes: tuple[str, ...] = ("KernelDMASrc.TableDMAConfig",)
    filler: bool = False
    cache: Mapping[str, int] = field(default_factory=dict)


def generation_of(target: str) -> str:
    """The register table's generation of a compiler target: ``h16g`` has the tasks of ``h16``."""
    return family_of(target).generation


@lru_cache
def rules_of(target: str) -> Rules:
    """The rules of a compiler target. Raises UnsupportedError where its streams are not known well enough to write."""
    generation = generation_of(target)
    if generation not in WRITTEN[1:]:
        raise UnsupportedError(
            f"hexane does not write task streams of {target}",
            hint=f"it writes those of {WRITTEN[1]} to {WRITTEN[-1]}; h13 has one layout that the encoder fills in",
        )
    rules: Rules = import_module(f"hexane.isa.compose.{generation}").RULES
    return rules
