"""``hexane.torch.explain``: what of a module runs on the engine, and what stays off it and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from hexane.counts import counted
from hexane.errors import UsageError
from hexane.integrations.torch.backend import collected, hexane_backend
from hexane.integrations.torch.parts import Left, PartOptions, PartReport


@dataclass(frozen=True)
class Explanation:
    """Parts on the engine, operators left to torch, and why torch broke the graph."""

    graphs: int
    parts: tuple[PartReport, ...]
    left: tuple[Left, ...]
    graph_breaks: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """True where one program holds everything, with nothing on any host."""
        return (
            self.graphs == 1 and len(self.parts) == 1 and not self.left and not self.graph_breaks
            and not self.parts[0].host
        )  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{counted(self.graphs, 'graph')}, {counted(len(self.parts), 'part')} on the engine"]
        lines += [f"  part {number}: {part}" for number, part in enumerate(self.parts)]
        lines += [f"  left to torch: {left}" for left in self.left]
        lines += [f"  graph break: {reason}" for reason in self.graph_breaks]
        return "\n".join(lines)


def explain(model: Any, inputs: Any, **options: Any) -> Explanation:
    """Run ``torch.compile`` once on ``model(*inputs)`` and say where everything went.

    Parameters
    ----------
    model : a module or a function of tensors; it is run under ``torch.no_grad``.
    inputs : a tensor, a tuple of positional arguments, or a dict of keyword arguments.
    options : ``chip``, ``device``, ``level``, as the back end takes them.
    """
    if isinstance(inputs, Mapping):
        args, kwargs = (), dict(inputs)
    else:
        args, kwargs = (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), {}
    if not callable(model):
        raise UsageError(f"a {type(model).__name__} is no model", hint="give a torch.nn.Module or a function")
    PartOptions.of(options)
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters["graph_break"].clear()
    with collected() as reports, torch.no_grad():
        torch.compile(model, backend=hexane_backend, options=options)(*args, **kwargs)
    breaks = tuple(str(reason).splitlines()[0] for reason in counters["graph_break"])
    torch._dynamo.reset()
    parts = tuple(part for report in reports for part in report.parts)
    left = tuple(one for report in reports for one in report.left)
    return Explanation(len(reports), parts, left, breaks)
