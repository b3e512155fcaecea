"""``torch.compile(model, backend="hexane")``.

AOT autograd captures the graph in ATen operators; static parts are compiled for the engine (weights become constants of
the program), everything else stays with torch, with its reason in the log ``hexane.torch``. Graphs that keep values for
derivatives are left to torch as a whole. When a weight has changed, the parts are compiled anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from hexane.formats.aten.translate import decompositions
from hexane.integrations.torch.parts import GraphReport, Left, Options, cut, to_numpy

log = logging.getLogger("hexane.torch")
_collector: ContextVar[list[GraphReport] | None] = ContextVar("reports", default=None)


@contextmanager
def collected() -> Iterator[list[GraphReport]]:
    """The reports of all graphs that are compiled inside."""
    found: list[GraphReport] = []
    token = _collector.set(found)
    try:
        yield found
    finally:
        _collector.reset(token)


def _said(report: GraphReport) -> None:
    for part in report.parts:
        log.info("a part of %s", part)
    for left in report.left:
        log.warning("left to torch: %s", left)
    found = _collector.get()
    if found is not None:
        found.append(report)


class Captured:
    """One captured graph: parts are compiled at the first call, and again when a weight has changed."""

    _boxed_call = True

    def __init__(self, module: torch.fx.GraphModule, static: Sequence[int], options: Options) -> None:
        self.module = module
        self.static = tuple(static)
        self.options = options
        self.seen: tuple[tuple[int, int], ...] | None = None
        self.made: torch.fx.GraphModule | None = None

    def __call__(self, args: list[Any]) -> Any:
        weights = {number: args[number] for number in self.static if isinstance(args[number], torch.Tensor)}
        seen = tuple((weight.data_ptr(), weight._version) for weight in weights.values())
        if self.made is None or seen != self.seen:
            self.seen = seen
            self.made = self.compiled(weights)
        given = tuple(args)
        args.clear()
        with torch.no_grad():
            return self.made(*given)

    def compiled(self, weights: Mapping[int, torch.Tensor]) -> torch.fx.GraphModule:
        """The graph with programs in it."""
        holes = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        constants = {holes[number].name: to_numpy(weight).copy() for number, weight in weights.items()}
        graph = torch.fx.Graph()
        renamed: dict[Any, Any] = {}
        result = graph.graph_copy(self.module.graph, renamed)
        graph.output(result)
        module = torch.fx.GraphModule(self.module, graph)
        made, report = cut(module, constants, self.options)
        _said(report)
        return made


def _inference(options: Options) -> Any:
    def compile_graph(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        context = torch._guards.TracingContext.try_get()
        metadata = context.fw_metadata if context is not None else None
        if metadata is None:
            return Captured(module, (), options)
        written = {number for number, info in enumerate(metadata.input_info) if info.mutates_data}
        return Captured(module, [n for n in metadata.static_input_indices or () if n not in written], options)

    return compile_graph


def _training(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
    from functorch.compile import make_boxed_func

    calls = [node.name for node in module.graph.nodes if node.op == "call_function"]
    why = "derivatives are wanted, and the engine keeps none (call it under torch.no_grad())"
    _said(GraphReport([], [Left("the whole graph", why, tuple(calls))]))
    return make_boxed_func(module.forward)


def hexane_backend(module: torch.fx.GraphModule, example_inputs: Sequence[Any], **given: Any) -> Any:
    """The back end itself: what ``torch.compile`` calls with each graph that it captures.

    ``options={"chip": "M1", "device": "emulator", "level": "engine"}`` as ``hexane.compile`` and ``Program.run`` have
    them. UsageError for another option.
    """
    from torch._dynamo.backends.common import aot_autograd

    options = Options.of(given.get("options"))
    back_end = aot_autograd(
        fw_compiler=_training,
        bw_compiler=_training,
        inference_compiler=_inference(options),
        decompositions=decompositions(),
    )
    return back_end(module, example_inputs)


def register() -> None:
    """Make ``backend="hexane"`` known to torch (installed, torch finds it by its entry point)."""
    from torch._dynamo.backends.registry import _COMPILER_FNS, register_backend

    if "hexane" not in _COMPILER_FNS:
        register_backend(hexane_backend, name="hexane")
