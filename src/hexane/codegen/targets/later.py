"""Parts that H15 and later generations share: a configuration of source 2, full-width numbers, system cache hints."""

from __future__ import annotations

from hexane.codegen.cost import PE_PIXEL_ONE_NS, dma_bytes, engine_ns
from hexane.codegen.encode import ALIASES, Fields
from hexane.codegen.operations import After, Hint, PeKind, ReadHint, SourceType, WriteHint
from hexane.codegen.plan import Plan
from hexane.codegen.targets.packed import CHOICES, Packed, Turn
from hexane.frozen import replace

READ_HINTS = {ReadHint.NOALLOC: 1, ReadHint.DEPRI: 6, ReadHint.ALLOC: 7, ReadHint.DROP: 2}
WRITE_HINTS = {None: 0, WriteHint.NOALLOC: 0, WriteHint.ALLOC: 3}
RESULTS = After.NE_RESULT | After.PE_RESULT
FOLLOWS = After.FOLLOWS_NE | After.FOLLOWS_PE


class Later(Packed):
    """Surfaces from slot 6; a task's DMA time counts at ``bytes_per_us``."""

    first_surface = 6
    sources_apart = True
    bytes_per_us = 51200.0
    macs_per_us = 4096 * 2160.0
    pace = 1.0
    """Engine time of a plane, in that of H16."""
    writer = 3
    """CrH of every writer."""

    def common(self, plan: Plan, values: Fields) -> None:
        super().common(plan, values)
        if not plan.unicast:
            values["Common.GroupConvCfg.UnicastCin"] = self.idle_unicast

    idle_unicast = 0
    choices = replace(CHOICES, copy_weight=31, direct_operands=True, plain_pixel_copies=True)

    def l2(self, plan: Plan, turn: Turn, values: Fields) -> None:
        del values["L2.SourceCfg.Src2Dma"]
        super().l2(plan, turn, values)
        resident = plan.source.type is SourceType.RESIDENT
        second = plan.pe.operands == 2
        if plan.second.dma is not None:
            values["L2.Src2Cfg.SourceType"] = SourceType.DMA_STREAM
            values["L2.Src2Cfg.DMAFmt"] = "bits16" if plan.second.dma.element == 2 else "bits8"
            values["L2.Src2Cfg.DMAInterleave"] = plan.second.dma.interleave
            self.aliases(values, "Src2Cfg", plan.source.after)
            if resident:
                values["L2.SourceCfg.DMAFmt"], values["L2.SourceCfg.DMAInterleave"] = 0, 1
        elif second:
            values["L2.Src2Cfg.DMAInterleave"] = 1
            if not resident:
                self.aliases(values, "SourceCfg", plan.source.after & ~RESULTS)
            self.aliases(values, "Src2Cfg", plan.source.after & RESULTS)
        elif turn.first:
            values["L2.Src2Cfg.DMAInterleave"] = 1
            self.aliases(values, "Src2Cfg", After.ANYTHING)
        self.more(values, "SourceCfg", plan.source.besides)
        self.more(values, "Src2Cfg", plan.second.besides)

    def more(self, values: Fields, register: str, after: After) -> None:
        """Waits besides those that are there."""
        for name, flag in ALIASES.items():
            if flag in after:
                values[f"L2.{register}.{name}"] = True
        if after & FOLLOWS:
            values[f"L2.{register}.Dependent"] = "follows_ne" if After.FOLLOWS_NE in after else "follows_pe"

    def aliases(self, values: Fields, register: str, after: After) -> None:
        for name, flag in ALIASES.items():
            values[f"L2.{register}.{name}"] = flag in after

    def read_hint(self, hint: Hint) -> int:
        return READ_HINTS[hint.cache]

    def write_hint(self, hint: WriteHint | None) -> int:
        return WRITE_HINTS[hint]

    def destination(self, plan: Plan, values: Fields) -> None:
        super().destination(plan, values)
        if plan.result.transfer is not None:
            values["TileDMADst.DMAConfig.CrH"] = self.writer

    def duration(self, plan: Plan) -> int:
        if plan.streams_in:
            return 0
        engine = 0.0 if plan.ne.pairs else self.pace * engine_ns(plan)  # operands that are kept cost nothing
        if plan.pe.kind is PeKind.REDUCE and plan.groups > 1:
            engine = min(engine, plan.c * plan.groups * PE_PIXEL_ONE_NS)
        if plan.kernel is not None and not plan.unicast and not plan.ne.ones:
            taps = plan.c * plan.window.taps * plan.groups
            engine = 1000 * plan.wout * plan.hout * plan.cout * taps / self.macs_per_us
        return int(max(dma_bytes(plan) / self.bytes_per_us, engine / 1000))
