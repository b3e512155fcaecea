"""Operands of a plan say where they are and what they wait for; a change makes another plan."""

from __future__ import annotations

import pytest

from hexane.codegen.operations import After, ResultType, SourceType
from hexane.codegen.plan import Plan, Region
from hexane.codegen.tasks import by_dma, resident

EACH = list(After.__members__.values())


@pytest.mark.parametrize("after", EACH)
def test_ways_of_a_source(after: After) -> None:
    plan = Plan("PE", w=8)
    for keep, type in ((True, SourceType.DMA_KEEP), (False, SourceType.DMA_STREAM)):
        loaded = by_dma(plan, Region(64), keep=keep, after=after)
        assert loaded.source == plan.source._replace(region=Region(64), type=type, after=after)
        assert resident(loaded, Region(128), after).source == plan.source._replace(region=Region(128), after=after)
    assert (plan.source.type, plan.source.after) == (SourceType.RESIDENT, After.NOTHING)


@pytest.mark.parametrize("after", EACH)
def test_ways_of_a_result(after: After) -> None:
    plan = Plan("PE", w=8)
    sent = plan.streaming(Region(64, 16), after=after)
    assert sent.result == plan.result._replace(region=Region(64, 16), type=ResultType.DMA_STREAM, after=after)
    buffered = sent.sending(128)
    assert (buffered.result.region, buffered.result.automatic) == (Region(128), True)
    assert buffered.result.after is After.NOTHING
    assert buffered.leaving(Region(64), after=after).result == plan.result._replace(region=Region(64), after=after)
    assert (plan.result.type, plan.result.automatic, plan.result.after) == (ResultType.STAYS, False, After.NOTHING)
