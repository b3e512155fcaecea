"""The verdict of a run: is what the engine gives the same network, how far off is it, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hexane.counts import counted
from hexane.session.agreement import OF_A_PROBABILITY, Agreement, nonfinite_counts
from hexane.session.answers import EXACT
from hexane.session.lists import ROW

SAME, CLOSE, CHANGED, BROKEN = "same", "close", "changed", "broken"
WORDS = (SAME, CLOSE, CHANGED, BROKEN)

ROUNDING = 2.0**-10
"""Relative error (root mean square) up to which two outputs are the same: one unit in the last place of fp16."""
CLOSE_ERROR = 0.05
CLOSE_PROBABILITY = 0.01
"""A probability that is off by no more than this is close, however small it is itself."""
BROKEN_ERROR = 0.5
"""From here on most of what an output says is error."""
FEW = 0.01
"""Share of an output's decisions that may differ before its answer has changed: pixels of a map lie on the edge."""


@dataclass(frozen=True)
class Verdict:
    """``word`` is "same", "close", "changed" or "broken", ``far`` says how far in a sentence, ``advice`` what to do.

    "same": within the rounding of fp16, and the same answer. "close": within 5 %, or 0.01 of a probability, and the
    same answer. "changed": the
    answer differs (in more than 1 % of an output's decisions), or the error is larger than 5 %. "broken": infinities or
    NaN that float32 has not, or an error of half of the output's size and more.
    """

    word: str
    far: str
    advice: str = ""

    @property
    def good(self) -> bool:
        """True where the outputs may be used."""
        return self.word in (SAME, CLOSE)

    @property
    def text(self) -> str:
        """Word and sentence in one line."""
        return f"{self.word}: {self.far}"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"word": self.word, "text": self.far, "advice": self.advice}


def word_for(row: Agreement) -> str:
    """The verdict on one output."""
    if row.answer is not None and row.answer.kind == EXACT:
        return SAME if not row.answer.changed else CHANGED if row.answer.share > FEW else CLOSE
    if row.nonfinite or row.nans:
        return BROKEN
    if row.answer is not None and row.answer.kind == ROW and row.relative is None:
        return _by_answer(row, SAME)
    if row.relative is None:  # nothing finite to compare
        return BROKEN if row.infinities else SAME if row.identical else CHANGED
    if (row.largest or 0.0) <= row.negligible:
        return _by_answer(row, SAME)
    if row.relative == float("inf"):  # float32 is zero throughout
        return CLOSE if (row.largest or 0.0) <= ROUNDING else BROKEN
    if row.relative <= ROUNDING:
        return _by_answer(row, SAME)
    if row.negligible == OF_A_PROBABILITY and (row.largest or 0.0) <= CLOSE_PROBABILITY:
        return _by_answer(row, CLOSE)
    if row.relative >= BROKEN_ERROR:
        return BROKEN
    if row.relative > CLOSE_ERROR:
        return CHANGED
    return _by_answer(row, CLOSE)


def _by_answer(row: Agreement, word: str) -> str:
    """The word for a small error, or a larger one where decisions differ."""
    if row.answer is None or not row.answer.changed:
        return word
    return CHANGED if row.answer.share > FEW else CLOSE


def verdict_of(rows: Sequence[Agreement], by: str) -> Verdict | None:
    """The verdict on all outputs, without advice; ``by`` computed float32. None where nothing was compared."""
    if not rows:
        return None
    worst = max(rows, key=lambda row: (WORDS.index(word_for(row)), row.nonfinite, row.relative or 0.0))
    return Verdict(word_for(worst), _far(rows, worst, by))


NOT_COMPARED = "not compared: a compiled program holds no float32 network"


def unseen(outputs: dict[str, np.ndarray]) -> Verdict | None:
    """The verdict where nothing was compared: "broken" for infinities or NaN in an output, else none."""
    counts = {name: nonfinite_counts(array) for name, array in outputs.items()}
    bad = [f"{_counts(*pair)} in {name}" for name, pair in counts.items() if any(pair)]
    return Verdict(BROKEN, f"{', '.join(bad)}; not compared with float32") if bad else None


def _far(rows: Sequence[Agreement], worst: Agreement, by: str) -> str:
    parts = []
    for row in rows:
        if row.nonfinite:
            theirs = counted(row.reference_nonfinite, "infinite value or NaN", "infinite values or NaN")
            own = f", which itself has {theirs}" if row.reference_nonfinite else ""
            parts.append(
                f"{row.name} has {_counts(row.infinities, row.nans)}; {row.nonfinite} of its "
                f"{counted(prod(row.shape), 'value')} {'is' if row.nonfinite == 1 else 'are'} not as in float32{own}"
            )
        elif row.infinities or row.nans:
            parts.append(f"{row.name} has {_counts(row.infinities, row.nans)}, as float32 has")
    if worst.relative is not None and not (worst.answer and worst.answer.kind == EXACT):
        finite = worst.infinities or worst.nans
        parts.append(f"{worst.name}{' (finite values)' if finite else ''} is off by {_error(worst)} against {by}")
        if worst.fp16_storage is not None:
            parts[-1] += f" (fp16 storage alone: {percent(worst.fp16_storage)})"
    return "; ".join([*parts, *_answers(rows)]) or f"as {by} has it"


def _answers(rows: Sequence[Agreement]) -> list[str]:
    """Decisions and what became of them, outputs of which the same is true in one sentence."""
    names: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        answer = row.answer
        if answer is not None and answer.decisions + row.reference_nonfinite:
            how = f"differs in {answer.changed} of {answer.decisions}" if answer.changed else "is the same"
            how = how if answer.decisions else "is not decided by float32"
            several = "" if answer.changed or answer.decisions <= 1 else f" in all {answer.decisions}"
            ties = f" ({answer.ties} a tie: float32's two numbers are one in fp16)" if answer.ties else ""
            names.setdefault((answer.kind, f"{how}{several}{ties}"), []).append(row.name)
    return [f"{kind} of {', '.join(outputs)} {said}" for (kind, said), outputs in names.items()]


def _error(row: Agreement) -> str:
    """The error that the word rests on: absolute where relative ones say nothing."""
    largest = row.largest or 0.0
    probability = row.negligible == OF_A_PROBABILITY
    if (row.relative or 0.0) > ROUNDING and largest <= (CLOSE_PROBABILITY if probability else row.negligible):
        what = " of a probability" if probability else ", less than fp16 can tell from 0,"
        return f"{largest:.1e}{what} at most"
    assert row.relative is not None
    return f"{percent(row.relative)} (rms)"


def _counts(infinities: int, nans: int) -> str:
    parts = [counted(infinities, "infinite value")] if infinities else []
    return " and ".join([*parts, *([f"{nans} NaN"] if nans else [])]) or "neither infinite values nor NaN"


def percent(share: float) -> str:
    """A share in per cent: 92.58 %, 0.01 %, 1.2e-05 %."""
    if not np.isfinite(share):
        return "without bound"
    return f"{100 * share:.2f} %" if share == 0 or share >= 5e-5 else f"{100 * share:.1e} %"


def storage_loses(rows: Sequence[Agreement]) -> float | None:
    """Error by fp16 storage alone in the output that is furthest off, where that is most of its error; else None."""
    worst = max(rows, key=lambda row: (WORDS.index(word_for(row)), row.nonfinite, row.relative or 0.0), default=None)
    if worst is None or worst.relative is None or worst.fp16_storage is None:
        return None
    return worst.fp16_storage if worst.fp16_storage > max(CLOSE_ERROR, worst.relative / 2) else None


def advice_for(word: str, *, scaling: str, first_wrong: str, overflows: bool, storage: float | None = None) -> str:
    """One line of what to do; empty for a good verdict.

    ``scaling`` says what ``--autoscale`` gave where it was tried and helped, ``first_wrong`` is the first layer that
    goes wrong, ``overflows`` whether it does so by infinities; ``storage`` of ``storage_loses``.
    """
    if word in (SAME, CLOSE):
        return ""
    if scaling:
        return f"WRONG: try --autoscale ({scaling})"
    if storage is not None and not overflows:
        return (
            f"WRONG: fp16 storage alone costs {percent(storage)}, so no 16-bit device keeps this network on these "
            "inputs: scale them, or keep the part that needs more bits on the host"
        )
    if first_wrong and overflows:
        return f"WRONG: {first_wrong!r} overflows fp16 (65504): scale its inputs down, or keep it on the host"
    if first_wrong:
        return f"WRONG: {first_wrong!r} is the first layer that goes wrong; --report DIR shows every layer"
    return "WRONG: no single layer stands out; --report DIR shows every layer"
