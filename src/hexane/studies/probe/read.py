"""Hypotheses that a file of answers leaves standing: the emulator under every choice against it, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from hexane import chips, numerics
from hexane.arithmetic.hypotheses import ALL, assume
from hexane.codegen.driver import canonical
from hexane.errors import HexaneError
from hexane.isa import WRITTEN
from hexane.lowering.compilation import Compilation
from hexane.lowering.transformations import active
from hexane.program import Program
from hexane.studies.probe.answers import Answers, ProbeAnswer
from hexane.studies.probe.questions import RECIPE, Question, choices, not_asked, questions

HOLDS, REFUTED, OPEN, NONE_FITS, NOT_ANSWERED = "holds", "refuted", "not told apart", "no choice fits", "not answered"
APPLE = (
    "Apple's compiler made the programs of these answers from networks: where a choice fits bit by bit it is "
    "confirmed, where none fits the program's form may be another than ours"
)

NO_ENGINE = (
    "No engine: these are the emulator's own answers. They show that the questions work, nothing of the hardware."
)

Combination = Mapping[str, str]


@dataclass(frozen=True)
class Reading:
    """One question: the combinations of choices whose bits are the answer's, and how far off the default is."""

    question: Question
    answer: ProbeAnswer | None
    fits: tuple[Combination, ...] = ()
    differs: int = 0
    of: int = 0
    why: str = ""

    @property
    def as_predicted(self) -> bool:
        """True where the default gives the bits."""
        return self.answered and self.differs == 0

    @property
    def answered(self) -> bool:
        """True where there is something to compare."""
        return not self.why


@dataclass(frozen=True)
class ProbeVerdict:
    """Verdict on a hypothesis: ``word`` and the choices that stand; ``reason`` in a sentence."""

    hypothesis: str
    word: str
    standing: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class ProbeReport:
    """All of it."""

    answers: Answers
    readings: tuple[Reading, ...]
    verdicts: tuple[ProbeVerdict, ...]

    @property
    def good(self) -> bool:
        """True where nothing contradicts what hexane assumes."""
        refuted = any(verdict.word in (REFUTED, NONE_FITS) for verdict in self.verdicts)
        return not refuted and all(r.as_predicted for r in self.recipes if r.answered)

    @property
    def recipes(self) -> tuple[Reading, ...]:
        """The readings of recipes that rest on inference."""
        return tuple(reading for reading in self.readings if reading.question.kind == RECIPE)

    @property
    def note(self) -> str:
        """Remarks on the whole file."""
        if self.answers.device.startswith(("virtual", "emulator")):
            return NO_ENGINE
        return APPLE if self.answers.device.startswith(("macos", "coreml")) else ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, schema hexane-probe-reading/1."""
        return {
            "schema": "hexane-probe-reading/1",
            "device": self.answers.device,
            "chip": self.answers.chip,
            "version": self.answers.version,
            "good": self.good,
            "note": self.note,
            "hypotheses": [
                {"name": v.hypothesis, "verdict": v.word, "standing": list(v.standing), "reason": v.reason}
                for v in self.verdicts
            ],
            "questions": [
                {"name": r.question.name, "kind": r.question.kind, "asks": list(r.question.asks),
                 "as_predicted": r.as_predicted, "differs": r.differs, "of": r.of, "why": r.why,
                 "fits": [dict(combination) for combination in r.fits]}
                for r in self.readings
            ],
        }  # fmt: skip


def read(answers: Answers) -> ProbeReport:
    """Compare every answer with the emulator under every choice of what its question asks."""
    answer_of = {answer.question: answer for answer in answers.answers}
    readings = tuple(
        _reading(question, answer_of.get(question.name), answers.chip) for question in questions(answers.chip)
    )
    narrow, silent = narrowed(readings), not_asked(answers.chip)
    return ProbeReport(answers, readings, tuple(_verdict(name, narrow, silent) for name in ALL))


def narrowed(readings: tuple[Reading, ...]) -> tuple[Reading, ...]:
    """The readings without combinations that other questions rule out, until nothing changes.

    A question that no combination is left for keeps what it had: the contradiction has to show.
    """
    while True:
        standing = {name: set(_standing(name, readings)) for name in ALL}
        changed = []
        for reading in readings:
            fits_left = tuple(
                fit for fit in reading.fits if all(choice in (standing[n] or {choice}) for n, choice in fit.items())
            )
            changed.append(replace(reading, fits=fits_left or reading.fits))
        if tuple(changed) == readings:
            return readings
        readings = tuple(changed)


def _standing(name: str, readings: tuple[Reading, ...]) -> tuple[str, ...]:
    """The choices that every question that fits at all leaves."""
    matched = [r.fits for r in readings if r.fits and name in r.question.asks and r.question.kind != RECIPE]
    return tuple(c for c in choices(name) if all(any(fit[name] == c for fit in fits) for fits in matched))


def _reading(question: Question, answer: ProbeAnswer | None, chip: str) -> Reading:
    if answer is None:
        return Reading(question, None, why="not asked")
    if answer.error:
        return Reading(question, answer, why=answer.error)
    if answer.digest != question.digest():
        return Reading(question, answer, why="another version of hexane asked another question")
    try:
        program = compiled(question, chip)
        expected = predicted(question, chip, {}, program)
        fits = tuple(
            c for c in combinations(question) if not _differing(predicted(question, chip, c, program), answer.outputs)
        )
    except HexaneError as error:
        return Reading(question, answer, why=f"cannot be predicted: {error.message.splitlines()[0]}")
    of = sum(array.size for array in expected.values())
    return Reading(question, answer, fits, _differing(expected, answer.outputs), of)


def combinations(question: Question) -> Iterator[Combination]:
    """Every choice of every hypothesis that a question asks, the defaults first; one empty one for a recipe."""
    names = [name for name in question.asks if name in ALL]
    for picked in product(*map(choices, names)):
        yield dict(zip(names, picked))


def compiled(question: Question, chip: str) -> Program | None:
    """Program that the emulator runs for a question; None where the arithmetic answers in its place."""
    if question.rule is not None or chips.get(chip).generation_name not in WRITTEN:
        return None
    return question.program(chip)


def predicted(
    question: Question, chip: str, assumed: Combination, program: Program | None = None
) -> dict[str, np.ndarray]:
    """Outputs of the emulator under a combination; the chip's arithmetic where its programs are not emulated.

    ``program``: of :func:`compiled`, where it is asked more than once.
    """
    with ExitStack() as stack:
        for name, choice in assumed.items():
            stack.enter_context(assume(name, choice))
        if question.rule is not None:
            return {"out": question.rule(question.inputs()["x"])}
        fresh = program is None or any(ALL[name].form for name in assumed)
        ready = compiled(question, chip) if fresh else program
        if ready is not None:
            return ready.run(question.inputs())
        graph = question.graph()
        if question.dialect == "apple":
            target = chips.get(chip)
            on = active("apple", generation=target.generation_name)
            graph = canonical(graph, Compilation(target, on, as_apple=True))
        return dict(numerics.evaluate(graph, question.inputs(), chip=chip))


def _differing(expected: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> int:
    """Elements whose bits differ; all of them where names, shapes or dtypes do."""
    count = 0
    for name, array in expected.items():
        other = outputs.get(name)
        if other is None or other.shape != array.shape or other.dtype != array.dtype:
            count += array.size
            continue
        bits = np.dtype(f"u{array.dtype.itemsize}")
        one, two = (np.ascontiguousarray(a).view(bits) for a in (array, other))
        count += int(np.count_nonzero(one != two))
    return count


def _verdict(name: str, readings: tuple[Reading, ...], silent: Mapping[str, str]) -> ProbeVerdict:
    relevant = [r for r in readings if name in r.question.asks and r.question.kind != RECIPE]
    answered = [r for r in relevant if r.answered]
    if not answered:
        why = silent.get(name) or (
            f"{relevant[0].question.name}: {relevant[0].why}" if relevant else "no question asks it"
        )
        return ProbeVerdict(name, NOT_ANSWERED, (), why)
    matched = [r for r in answered if r.fits]
    if not matched:
        names = ", ".join(f"{r.question.name} ({r.differs} of {r.of} values)" for r in answered)
        return ProbeVerdict(name, NONE_FITS, (), f"other bits than any known choice gives: {names}")
    standing = _standing(name, readings)
    question_names = ", ".join(r.question.name for r in matched)
    default = ALL[name].default
    if not standing:
        return ProbeVerdict(name, NONE_FITS, (), f"no one choice fits all of {question_names}")
    if default not in standing:
        return ProbeVerdict(
            name, REFUTED, standing, f"{' or '.join(standing)} fits {question_names}, {default} does not"
        )
    if len(standing) > 1:
        return ProbeVerdict(name, OPEN, standing, f"{' and '.join(standing)} give the bits of {question_names}")
    missed = [r.question.name for r in answered if not r.fits]
    but = f"; nothing fits {', '.join(missed)}" if missed else ""
    return ProbeVerdict(name, HOLDS, standing, f"{default} gives the bits of {question_names}{but}")
