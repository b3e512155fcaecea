"""Speculative decoding: words that a small decoder proposes, verified by a large one several rows at a time.

Greedy: what comes out are the large model's own largest logits, as its program for several rows computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hexane.errors import UsageError
from hexane.language.network import MOST_DECODED
from hexane.language.plan import parameters_of, timed_as
from hexane.timing.language import BILLION
from hexane.timing.speculation import DraftCycle, best_cycle, speculative_rate

if TYPE_CHECKING:
    from hexane.language.decoder import Decoder, DecoderRun
    from hexane.language.plan import DecoderPlan

CHANCES = (0.5, 0.7, 0.9)
"""Chances of a proposal for which a rate is shown where nothing is sequence."""
SHOWN = 4
"""Words proposed at a time, where nobody says, when tokens are made."""


@dataclass(frozen=True)
class Speculated:
    """``tokens`` of the large model; how many words the draft ``proposed``, how many of them were ``accepted``; the
    calls of the large model behind the prompt, and how many of them refused a word."""

    tokens: tuple[int, ...]
    proposed: int
    accepted: int
    calls: int
    refusals: int

    @property
    def chance(self) -> float:
        """The share of proposals behind accepted ones that were accepted themselves; 0 without proposals."""
        judged = self.accepted + self.refusals
        return self.accepted / judged if judged else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"chance": self.chance}


@dataclass(frozen=True)
class DraftModel:
    """A small decoder with the same words, and how many it proposes at a time, 1 to 7; None: as many as pay best."""

    decoder: Decoder
    proposed: int | None = None

    def __post_init__(self) -> None:
        if self.proposed is not None and not 1 <= self.proposed < MOST_DECODED:
            raise UsageError(f"{self.proposed} words proposed", hint=f"1 to {MOST_DECODED - 1}, of one call")

    def speculate(
        self, model: Decoder, ids: Sequence[int], n: int, chip: str = "M4", level: str = "graph"
    ) -> Speculated:
        """``n`` tokens of the model behind ``ids``, by calls that verify the draft's words (4 where nobody says).

        Rows of refused words stay in the caches behind the position, where masks hide them until others are written
        over them.
        """
        if self.decoder.architecture.words != model.architecture.words:
            counts = f"{self.decoder.architecture.words} words, the model {model.architecture.words}"
            raise UsageError(f"the draft has {counts}", hint="a draft with the same tokenizer")
        tokens, proposed = model.checked(ids), SHOWN if self.proposed is None else self.proposed
        length = min(
            model.context_for(len(tokens) + n + proposed), self.decoder.context_for(len(tokens) + n + proposed)
        )
        if len(tokens) + n > length + 1:
            raise UsageError(f"{len(tokens)} tokens and {n} more do not fit a context of {length}")
        large, small = model.start(length, chip, level), self.decoder.start(length, chip, level)
        answer = [int(large.best(tokens)[0][-1])] if n else []
        total = accepted = refusals = calls = 0
        while len(answer) < n:
            count = proposed if large.position + proposed < length else 0
            words = _proposals(small, [*tokens, *answer], count)
            verified = large.together([answer[-1], *words]).tolist()
            right = next((i for i, word in enumerate(words) if word != verified[i]), count)
            total, accepted, refusals, calls = total + count, accepted + right, refusals + (right < count), calls + 1
            large.position -= count - right
            answer += verified[: right + 1]
        return Speculated(tuple(answer[:n]), total, accepted, calls, refusals)

    def cycle(self, plan: DecoderPlan, chance: float) -> DraftCycle:
        """The rate of a plan's model where a proposal is accepted with this chance."""
        model = plan.parameters / BILLION, plan.timed_as
        small = parameters_of(self.decoder.architecture) / BILLION, timed_as(self.decoder.weights)
        if self.proposed is None:
            return best_cycle(plan.chip, model, small, chance, plan.context, MOST_DECODED - 1)
        return speculative_rate(plan.chip, model, small, self.proposed, chance, plan.context)

    def cycles(self, plans: Sequence[DecoderPlan], chances: Sequence[float]) -> list[dict[str, Any]]:
        """A ``DraftCycle`` for each plan and chance, plain data."""
        return [
            {"chip": plan.chip, "context": plan.context, "accepted": chance, **asdict(self.cycle(plan, chance))}
            for plan in plans
            for chance in chances
        ]


def _proposals(small: DecoderRun, sequence: list[int], count: int) -> list[int]:
    """The draft's words behind ``sequence``, of which it may have read more than is true."""
    if not count:
        return []
    small.position = min(small.position, len(sequence) - 1)
    words = [int(small.best(sequence[small.position :])[0][-1])]
    while len(words) < count:
        words.append(int(small.best(words[-1:])[0][-1]))
    return words
