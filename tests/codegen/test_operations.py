"""Operands of a plan say where they are and what they wait for; a change makes another plan."""

from __future__ import annotations

import pytest

from hexane.codegen.operations import COPY, MAC_COPY, MAXIMUM, NE_TASK, After, ResultType, SourceType
from hexane.codegen.plan import Plan, Region
from hexane.codegen.tasks import by_dma, resident
from hexane.frozen import replace

EACH = list(After.__members__.values())


@pytest.mark.parametrize("after", EACH)
def test_ways_of_a_source(after: After) -> None:
    plan = Plan(pe=COPY, w=8)
    for keep, type in ((True, SourceType.DMA_KEEP), (False, SourceType.DMA_STREAM)):
        loaded = by_dma(plan, Region(64), keep=keep, after=after)
        assert loaded.source == plan.source._replace(region=Region(64), type=type, after=after)
        assert resident(loaded, Region(128), after).source == plan.source._replace(region=Region(128), after=after)
    assert (plan.source.type, plan.source.after) == (SourceType.RESIDENT, After.NOTHING)


@pytest.mark.parametrize("after", EACH)
def test_ways_of_a_result(after: After) -> None:
    plan = Plan(pe=COPY, w=8)
    sent = plan.streaming(Region(64, 16), after=after)
    assert sent.result == plan.result._replace(region=Region(64, 16), type=ResultType.DMA_STREAM, after=after)
    buffered = sent.sending(128)
    assert (buffered.result.region, buffered.result.automatic) == (Region(128), True)
    assert buffered.result.after is After.NOTHING
    assert buffered.leaving(Region(64), after=after).result == plan.result._replace(region=Region(64), after=after)
    assert (plan.result.type, plan.result.automatic, plan.result.after) == (ResultType.STAYS, False, After.NOTHING)


@pytest.mark.parametrize("before", EACH)
@pytest.mark.parametrize("more", EACH)
def test_waits_add_up(before: After, more: After) -> None:
    plan = Plan(pe=COPY, w=8)
    for kind in SourceType:
        plan = plan.reading(type=kind, after=before)
        assert plan.waiting(more).source == plan.source._replace(after=before | more)
        assert plan.waiting(more).result == plan.result
    for kind in ResultType:
        for automatic in (False, True):
            plan = plan.writing(type=kind, automatic=automatic, after=before)
            assert plan.waiting(result=more).result == plan.result._replace(after=before | more)
            assert plan.waiting(result=more).source == plan.source


def test_the_unit_follows_from_the_part() -> None:
    neural, planar = Plan(ne=MAC_COPY, w=8), Plan(pe=MAXIMUM, w=8)
    assert (neural.unit, planar.unit, planar.but(pe=NE_TASK).unit) == ("NE", "PE", "NE")
    assert planar.computing(final=0.5).pe == replace(MAXIMUM, final=0.5) and planar.computing(final=0.5).ne == planar.ne
    assert neural.computing(acc_bias=0.5).ne == replace(MAC_COPY, acc_bias=0.5)
    for change in (lambda: neural.computing(final=0.5), lambda: planar.computing(ones=True), lambda: planar.but(x=1)):
        with pytest.raises(TypeError):
            change()
    with pytest.raises(TypeError, match="no field of a plan: unit"):
        planar.but(unit="NE")


def test_the_first_is_left_as_it_is() -> None:
    plan = Plan(pe=COPY, w=8).reading(after=After.NE_RESULT).writing(after=After.PE_RESULT)
    assert plan.waiting(After.PE_SOURCE, result=After.NE_SOURCE) is not plan
    assert (plan.source.after, plan.result.after) == (After.NE_RESULT, After.PE_RESULT)
