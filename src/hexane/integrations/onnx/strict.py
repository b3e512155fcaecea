"""The engine alone: a program of which nothing runs on the host."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hexane.errors import Reason, UnsupportedError
from hexane.program.segment import HOST

if TYPE_CHECKING:
    from hexane.program import Program


def engine_alone(program: Program) -> None:
    """UnsupportedError where a part of the program runs on the host, with every reason.

    A result that is a constant of the network counts as the host's: the engine has nothing to do for it.
    """
    host = [segment for segment in program.segments if segment.kind == HOST]
    if not host:
        return
    reasons = Counter(reason for segment in host for reason in segment.reasons.values())
    ops = sum(len(segment.ops) for segment in host)
    named = [f"{reason} ({count} ops)" if count > 1 else reason for reason, count in reasons.most_common(5)]
    what = "; ".join(named) or "its results are constants, there is nothing for the engine to do"
    raise UnsupportedError(
        f"strict: {ops} of {sum(len(s.ops) for s in program.segments)} ops would run on the host: {what}",
        hint="without strict the host takes them",
        code=Reason.OPERATION,
    )
