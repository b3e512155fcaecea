"""Notes on compressed weights: the stored form, what becomes of it, and what Apple's compiler does."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hexane.chips import Generation
from hexane.lowering.weights import Decision, decision_of

if TYPE_CHECKING:
    from hexane.graph import Function
    from hexane.session.check import CheckRow

_APPLE = {
    "streams": "Apple's compiler streams it",
    "folds": "Apple's compiler expands it",
    "host": "Apple's compiler leaves the op to the host",
}


@dataclass(frozen=True)
class WeightNote:
    """One op's weights: ``text`` for its row, ``remedy`` what would let them stream, "" where they do."""

    decision: Decision
    text: str
    remedy: str


def weight_notes(function: Function, generation: Generation) -> dict[str, WeightNote]:
    """By the name of an op's first result; ``function`` is a network after the passes, whose constants are coded."""
    notes = {}
    for op in function.walk():
        decision = decision_of(op, generation)
        if decision is None:
            continue
        reason = (
            decision.reason if decision.coding.what in decision.reason else f"{decision.coding.what}: {decision.reason}"
        )
        remedy = "" if decision.stream is not None and not decision.remedy else decision.remedy
        notes[op.outputs[0].name] = WeightNote(decision, f"weights: {reason}", remedy)
    return notes


def weights_summary(function: Function, generation: Generation) -> dict[str, int]:
    """Number of layers by the fate of their compressed weights, in words; empty without any."""
    return dict(Counter(note.decision.reason for note in weight_notes(function, generation).values()).most_common())


def with_weights(row: CheckRow, note: WeightNote | None) -> CheckRow:
    """The row with what its weights become; what Apple's compiler does with them where it takes the op."""
    if note is None or row.place == "unknown":
        return row
    apple = f"; {_APPLE[note.decision.apple]}" if row.apple == "engine" else ""
    advice = "; ".join(dict.fromkeys(filter(None, (row.advice, note.remedy if row.place == "host" else ""))))
    return replace(row, reason=f"{row.reason}; {note.text}{apple}", weights=note.text + apple, advice=advice)
