"""Verification and drafts: published calls beside the prediction, and what proposals are worth."""

from __future__ import annotations

import math
import random

import pytest

from hexane.errors import UsageError
from hexane.timing.language import decode_rate
from hexane.timing.speculation import (
    FORGE,
    PUBLISHED,
    PUBLISHED_RATES,
    best_cycle,
    speculative_rate,
    verify_ms,
    words_of,
)


def test_published_calls_lie_within_the_stated_factor() -> None:
    """Eight fits of one project at three contexts; docs/timing-error.md states the same mean factor."""
    logs = [
        math.log(verify_ms(*FORGE[:3], k * 1024, call.rows, call.cache_bytes) / (call.fixed + call.slope * k))
        for call in PUBLISHED
        for k in (8, 32, 64)
    ]
    assert math.exp(sum(map(abs, logs)) / len(logs)) < 1.55
    wide = [log for log, call in zip(logs[::3], PUBLISHED) if call.rows == 64]
    assert all(abs(log) < math.log(1.3) for log in wide)


def test_published_rates_are_words_over_the_time_of_a_cycle() -> None:
    for positions, verified, words, beside, rate in PUBLISHED_RATES:
        assert positions < 65536 and 1e3 * words / (verified + beside) == pytest.approx(rate, rel=0.04)


@pytest.mark.parametrize("chance", [0.0, 0.35, 0.8, 1.0])
def test_words_of_a_cycle_are_the_mean_of_drawn_ones(chance: float) -> None:
    draw = random.Random(1)
    drawn = [1 + next((i for i in range(5) if draw.random() >= chance), 5) for _ in range(20000)]
    assert words_of(5, chance) == pytest.approx(sum(drawn) / len(drawn), rel=0.02)


def test_without_proposals_it_is_plain_decoding() -> None:
    model, draft = (1.2, "int8"), (0.135, "int8")
    assert speculative_rate("M4", model, draft, 0, 0.5, 1024).rate == pytest.approx(decode_rate("M4", *model, 1024)[0])


def test_a_draft_pays_as_it_is_accepted() -> None:
    """A draft that is never right costs, and more proposals pay where more are accepted."""
    model, draft = (1.2, "int8"), (0.135, "int8")
    assert best_cycle("M4", model, draft, 0.0, 1024).proposed == 0
    counts = [best_cycle("M4", model, draft, chance, 1024).proposed for chance in (0.3, 0.6, 0.95)]
    assert counts == sorted(counts) and counts[-1] > counts[0] > 0
    assert best_cycle("M4", model, model, 0.9, 1024).rate < 1.1 * decode_rate("M4", *model, 1024)[0]


@pytest.mark.parametrize(("proposed", "chance"), [(-1, 0.5), (64, 0.5), (4, 1.5), (4, math.nan)])
def test_numbers_that_make_no_sense_are_refused(proposed: int, chance: float) -> None:
    with pytest.raises(UsageError, match="words with"):
        words_of(proposed, chance)
