"""Programs of ours that fail our own check: which form is compiled next, and what is said of it.

A program that the emulator would refuse is not handed out. The network is compiled again without what keeps more in L2
than whole tensors, then without keeping tensors in L2 at all; then the op whose task fails goes to the host. Whatever
helps is named in a `DefectWarning`: the failure is a defect of hexane, unless a number fits no field.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hexane.errors import HexaneError, UnsupportedError
from hexane.isa import FieldError

if TYPE_CHECKING:
    from hexane.graph.ir import Graph
    from hexane.program import Program

IN_L2 = frozenset({"l2-parts", "locked-pairs", "l2-by-price", "bands"})
HAND_OVER = frozenset({"hand-over"})
MOST_TO_HOST = 8
"""Ops that one compilation sends to the host for this reason before it gives up."""

Compiled = Callable[[frozenset[str], Mapping[str, str]], "Program"]
"""A network's program with these transformations and these ops (by description, with the reason) on the host."""


class DefectWarning(UserWarning):
    """hexane compiled something that its own check refused; what was handed out is another form."""


class TaskError(Exception):
    """The check of a program failed at a task; ``op`` made it, as far as that is known.

    A number that a field has no room for (``FieldError``) is a limit of the engine, not a defect: no warning, and the
    field is the host's reason.
    """

    def __init__(self, error: Exception, op: str) -> None:
        super().__init__(str(error))
        self.error, self.op = error, op

    @property
    def is_limit(self) -> bool:
        return isinstance(self.error, FieldError) and bool(self.op)


def first_right(compiled: Compiled, names: frozenset[str], graph: Graph, *, may_use_host: bool) -> Program:
    """The first form of the program that passes the check; a warning tells of those that did not.

    Raises UnsupportedError where no form passes.
    """
    failed: list[TaskError] = []
    for form, on_host in _forms(names, failed, may_use_host):
        try:
            program = compiled(form, on_host)
        except TaskError as error:
            failed.append(error)
            continue
        if defects := [failure for failure in failed if not failure.is_limit]:
            left_out = ", ".join(sorted(names - form)) or "nothing"
            instead = f"{len(on_host)} ops run on the host" if on_host else f"compiled without {left_out}"
            warnings.warn(f"{_said(defects[0])}; {instead}. Please report it: {_saved(graph)}", DefectWarning, 3)
        return program
    if failed[-1].is_limit:
        raise UnsupportedError(str(failed[-1].error), where=failed[-1].op) from failed[-1].error
    raise UnsupportedError(
        _said(failed[-1]), where=failed[-1].op or None, hint=f"a defect of hexane; please report it: {_saved(graph)}"
    ) from failed[-1].error


def _forms(
    names: frozenset[str], failed: list[TaskError], may_use_host: bool
) -> Iterator[tuple[frozenset[str], dict[str, str]]]:
    yield names, {}
    for left_out in (IN_L2, IN_L2 | HAND_OVER):
        if names & left_out:
            yield names - left_out, {}
    on_host: dict[str, str] = {}
    while may_use_host and failed[-1].op and failed[-1].op not in on_host and len(on_host) < MOST_TO_HOST:
        error = failed[-1].error
        reason = str(error) if failed[-1].is_limit else f"hexane's tasks for it fail its own check ({error})"
        on_host[failed[-1].op] = reason
        yield names - IN_L2 - HAND_OVER, dict(on_host)


def _said(failure: TaskError) -> str:
    op = f" of {failure.op}" if failure.op else ""
    return f"the tasks{op} fail hexane's own check: {failure.error}"


def _saved(graph: Graph) -> str:
    """Write the network without its weights into a new file of the temporary folder; what to send."""
    from hexane.formats.mil import WeightCollector, to_text

    try:
        text = to_text(graph, weights=WeightCollector())
        with tempfile.NamedTemporaryFile("w", prefix="hexane-defect-", suffix=".mil", delete=False) as file:
            file.write(text)
    except (OSError, HexaneError) as error:
        return f"the network could not be saved ({error})"
    return f"{Path(file.name)} holds the network without its weights"
