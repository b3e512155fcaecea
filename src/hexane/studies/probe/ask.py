"""Ask a device every question, and write down what it gives."""

from __future__ import annotations

import errno
import platform
import time
from collections.abc import Callable, Sequence

import numpy as np

from hexane import __version__ as VERSION
from hexane import chips
from hexane.chips.operations import REFUSED, support
from hexane.errors import HexaneError, UnsupportedError, UsageError
from hexane.program import Port, Program, Segment
from hexane.program.run import Device, Session
from hexane.runtime.devices import device_named
from hexane.studies.probe.answers import Answers, ProbeAnswer
from hexane.studies.probe.questions import Question, questions
from hexane.studies.probe.runner import CALLS

STOPS = (errno.ETIMEDOUT, errno.ECANCELED, errno.ENODEV)
"""Errors after which an engine is not asked again: another try can make it worse."""
NOT_ASKED = "not asked: "
NOT_OURS = f"{NOT_ASKED}the program is edited, and this device takes networks only; ask under Linux"
NOT_EMULATED = f"{NOT_ASKED}the emulator refuses what no program was seen to do"
INVALID = "InvalidMILProgram"
"""What Apple's compiler says of a network that it does not take as it stands."""

EMULATED = ("emulator", "virtual")

OnAnswer = Callable[[int, int, ProbeAnswer], None]


def ask(device: str | Device, chip: str, *, only: Sequence[str] = (), on_answer: OnAnswer | None = None) -> Answers:
    """The answers of a device.

    Parameters
    ----------
    device : a name of ``hexane.devices()`` or a device object.
    chip : the chip that it is; programs are compiled for it.
    only : names of questions; all where it is empty.
    on_answer : called with number, count and answer after every question.
    """
    engine = device_named(device) if isinstance(device, str) else device
    name = chips.get(chip).name
    selection = [question for question in questions(name) if not only or question.name in only]
    unknown = sorted(set(only) - {question.name for question in selection})
    if unknown:
        raise UsageError(f"there is no question {unknown[0]!r} for {name}", hint="hexane probe --list names them")
    answers: list[ProbeAnswer] = []
    stopped = ""
    for number, question in enumerate(selection):
        answer = ProbeAnswer(question.name, question.digest(), error=stopped)
        if not stopped:
            answer, stopped = _answer(question, engine, name)
        answers.append(answer)
        if on_answer is not None:
            on_answer(number + 1, len(selection), answer)
    title = device if isinstance(device, str) else engine.name
    system = f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}"
    return Answers(title, name, VERSION, system, tuple(answers))


def _answer(question: Question, device: Device, chip: str) -> tuple[ProbeAnswer, str]:
    """The answer, and why no other question may be asked ("" where they may)."""
    digest = question.digest()
    try:
        program = as_taken(question, device, chip)
        outputs, seconds = _called(program, question.inputs(), device)
    except HexaneError as error:
        stops = getattr(error, "errno", 0) in STOPS
        words = error.message.splitlines()[0]
        if INVALID in words:
            words = _not_taken(question, chip) or words
        return ProbeAnswer(question.name, digest, error=words), f"{NOT_ASKED}{words}" if stops else ""
    return ProbeAnswer(question.name, digest, outputs, seconds), ""


def _not_taken(question: Question, chip: str) -> str:
    """That Apple's compiler, which refused the network, is known to have no such op; "" where it has them all."""
    target = chips.get(chip)
    types = {op.type for op in question.graph().main.walk()}
    missing = sorted(op for op in types if support(op, target).verdict == REFUSED)
    return f"{NOT_ASKED}Apple's compiler has no {', '.join(missing)} for {target.name}" if missing else ""


def as_taken(question: Question, device: Device, chip: str) -> Program:
    """The program in the form that a device takes: compiled, or the network itself."""
    if question.rule is not None and device.title.startswith(EMULATED):
        raise UnsupportedError(NOT_EMULATED)
    if not getattr(device, "networks", False):
        return question.program(chip)
    if question.is_edited:
        raise UnsupportedError(NOT_OURS)
    main = question.graph().main
    inputs, outputs = (tuple(Port(v.name, v.shape, v.dtype) for v in side) for side in (main.inputs, main.outputs))
    ops = tuple(op.describe() for op in main.walk())
    segment = Segment("engine", "a question", ops, inputs, outputs, source=question.graph())
    return Program((segment,), inputs, outputs, chip, "default")


def _called(program: Program, inputs: dict[str, np.ndarray], device: Device) -> tuple[dict[str, np.ndarray], float]:
    best = float("inf")
    outputs: dict[str, np.ndarray] | None = None
    with Session(program, device) as session:
        for _ in range(CALLS):
            start = time.perf_counter()
            results = session.run(inputs)
            best = min(best, time.perf_counter() - start)
            if outputs is not None and any(results[name].tobytes() != outputs[name].tobytes() for name in results):
                raise HexaneError("two calls with the same inputs gave different bits")
            outputs = {name: array.copy() for name, array in results.items()}
    assert outputs is not None
    return outputs, best
