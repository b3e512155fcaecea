"""Speculative decoding: a small model proposes words, one call of the large one verifies all of them.

A call of a few rows reads weights and cache once, as a call of one row does, so that proposals cost little until the
array is full; what they are worth depends on how many are accepted. INFERRED: nothing is fitted to published rows of
verification, which `PUBLISHED` holds beside the prediction (docs/timing-error.md has the table).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hexane.chips import Chip
from hexane.chips.generations import KIB
from hexane.errors import UsageError
from hexane.timing.language import PREFILL_SCATTER, decode_rate, decoding, rows_us, token_us

MOST_PROPOSED = 63
"""Words of one call: 64 rows are what the array takes at a time."""


@dataclass(frozen=True)
class PublishedCall:
    """Milliseconds of calls of ``rows`` rows, ``fixed`` + ``slope`` for each 1,024 positions of a cache of so many
    bytes a position."""

    build: str
    rows: int
    cache_bytes: float
    fixed: float
    slope: float


FORGE = ("M6", 27.0, "3-bit", "Anemll/anemll-forge, Qwen3.8-27B (10.6 GB of weights a call), M6, macOS 27.0.1")
"""Chip, billions of parameters, format and source of `PUBLISHED`."""
PUBLISHED = (
    PublishedCall("release graph, fp16 values", 8, 64 * KIB, 99.3, 1.66),
    PublishedCall("release graph, int8 values", 8, 48.125 * KIB, 101.5, 1.385),
    PublishedCall("narrow tiles, int8 values", 8, 48.125 * KIB, 92.8, 0.727),
    PublishedCall("narrow tiles, int8 values", 4, 48.125 * KIB, 90.1, 0.577),
    PublishedCall("narrow tiles, int8 values", 3, 48.125 * KIB, 89.7, 0.517),
    PublishedCall("release graph, fp16 values", 64, 64 * KIB, 215, 8.59),
    PublishedCall("release graph, int8 values", 64, 48.125 * KIB, 248, 5.42),
    PublishedCall("narrow tiles, int8 values", 64, 48.125 * KIB, 221, 3.47),
)
"""SILICON, Anemll/anemll-forge, docs/research/M6_COMPUTE_ACCELERATION_2026-10-03.md and docs/verifier_len.md: least
squares of that project over caches of 8K to 64K positions, all chunks and the head."""
PUBLISHED_RATES = (
    # positions, milliseconds of verification, words a cycle, milliseconds of a cycle beside it, tokens per second
    (7673, 97.8, 6.55, 18.6, 55.12),
    (32249, 116.5, 7.40, 18.6, 54.12),
    (48633, 127.8, 6.92, 18.6, 47.27),
    (64953, 141.2, 7.40, 18.6, 45.78),
)
"""The same project's server with narrow tiles; words a cycle are 1 + 7 times the share of drafts that it accepted."""


@dataclass(frozen=True)
class DraftCycle:
    """One cycle of ``proposed`` words: milliseconds of the draft and of the verification, words that it gives on
    average, tokens per second with the rates one standard deviation below and above."""

    proposed: int
    draft_ms: float
    verify_ms: float
    words: float
    rate: float
    low: float
    high: float


def words_of(proposed: int, accepted: float) -> float:
    """Words of a cycle on average: proposals up to the first that is refused, and one of the large model's own.

    ``accepted`` is the chance of a proposal behind accepted ones, 0 to 1, the same for each.
    """
    if not 0 <= accepted <= 1 or not 0 <= proposed <= MOST_PROPOSED:
        hint = f"0 to {MOST_PROPOSED} words, of which a share from 0 to 1 is accepted"
        raise UsageError(f"{proposed} words with {accepted} accepted", hint=hint)
    return float(sum(accepted**n for n in range(proposed + 1)))


def verify_ms(
    chip: str | Chip, params: float, fmt: str, context: float | None, rows: int, cache_bytes: float | None = None
) -> float:
    """Milliseconds of one call for ``rows`` rows of one sequence: the last word and ``rows - 1`` proposals.

    ``cache_bytes``: keys and values of one position over all layers, where more is known than the rule of thumb of
    ``decode_rate``, whose other parameters these are.
    """
    work = decoding(chip, params, fmt, context, rows)
    return rows_us(work, None if cache_bytes is None else cache_bytes * work.context) / 1e3


def speculative_rate(
    chip: str | Chip,
    model: tuple[float, str],
    draft: tuple[float, str],
    proposed: int,
    accepted: float,
    context: float | None = None,
) -> DraftCycle:
    """A large ``model`` and its ``draft``, each (parameters, format) as in ``decode_rate``, on one engine by turns.

    The draft makes its words one by one. 0 words proposed is plain decoding, without a draft. Not counted: what the
    host does between the calls. Raises UsageError for numbers that make no sense.
    """
    words = words_of(proposed, accepted)
    work = decoding(chip, *draft, context, 1)
    draft_ms = proposed * float(token_us(work, work.numbers)) / 1e3
    checked = verify_ms(chip, *model, context, proposed + 1)
    plain, _, high = decode_rate(chip, *model, context)
    sigma = max(math.log(high / plain), PREFILL_SCATTER if proposed else 0.0)
    rate = 1e3 * words / (draft_ms + checked)
    return DraftCycle(proposed, draft_ms, checked, words, rate, rate * math.exp(-sigma), rate * math.exp(sigma))


def best_cycle(
    chip: str | Chip,
    model: tuple[float, str],
    draft: tuple[float, str],
    accepted: float,
    context: float | None = None,
    most: int = 7,
) -> DraftCycle:
    """The number of proposals, up to ``most``, with the highest rate; 0 where a draft does not pay."""
    cycles = (speculative_rate(chip, model, draft, proposed, accepted, context) for proposed in range(most + 1))
    return max(cycles, key=lambda cycle: cycle.rate)
