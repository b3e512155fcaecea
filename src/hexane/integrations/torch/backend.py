"""``torch.compile(model, backend="hexane")``.

AOT autograd captures the graph in ATen operators; static parts are compiled for the engine (weights become constants of
the program), everything else stays with torch, with its reason in the log ``hexane.torch``. Graphs that keep values for
derivatives are left to torch as a whole. When a weight has changed, or an input has another size, the parts are
compiled anew.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from hexane.frontends.aten.translate import decompositions
from hexane.integrations.torch.parts import GraphReport, Left, PartOptions, cut, to_numpy

log = logging.getLogger("hexane.torch")
SIZES = 32
"""How many sizes of its inputs one captured graph keeps programs for."""
_collector: ContextVar[list[GraphReport] | None] = ContextVar("reports", default=None)


@contextmanager
def collected() -> Iterator[list[GraphReport]]:
    """The reports of all graphs that are compiled inside."""
    reports: list[GraphReport] = []
    token = _collector.set(reports)
    try:
        yield reports
    finally:
        _collector.reset(token)


def _said(report: GraphReport) -> None:
    for part in report.parts:
        log.info("a part of %s", part)
    for left in report.left:
        log.warning("left to torch: %s", left)
    reports = _collector.get()
    if reports is not None:
        reports.append(report)


class Captured:
    """One captured graph: its parts are compiled at the first call, and again when a weight has changed."""

    _boxed_call = True

    def __init__(self, module: torch.fx.GraphModule, static: Sequence[int], options: PartOptions) -> None:
        self.module = module
        self.static = tuple(static)
        self.options = options
        self.seen: tuple[tuple[int, int], ...] | None = None
        self.made: torch.fx.GraphModule | None = None

    def __call__(self, args: list[Any]) -> Any:
        weights = {number: args[number] for number in self.static if isinstance(args[number], torch.Tensor)}
        versions = tuple((weight.data_ptr(), weight._version) for weight in weights.values())
        if self.made is None or versions != self.seen:
            self.seen = versions
            self.made = self.compiled(weights)
        arguments = tuple(args)
        args.clear()
        with torch.no_grad():
            return self.made(*arguments)

    def compiled(self, weights: Mapping[int, torch.Tensor]) -> torch.fx.GraphModule:
        """The graph with programs in it."""
        holes = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        constants = {holes[number].name: to_numpy(weight).copy() for number, weight in weights.items()}
        graph = torch.fx.Graph()
        renamed: dict[Any, Any] = {}
        result = graph.graph_copy(self.module.graph, renamed)
        graph.output(result)
        module = torch.fx.GraphModule(self.module, graph)
        compiled_module, report = cut(module, constants, self.options)
        _said(report)
        return compiled_module


class CapturedSizes:
    """One captured graph of open sizes: for each set of them that a call brings, the graph with just these.

    torch leaves an extent open once it has met a second one (a batch of another size). The engine's programs are of
    one size, so each is compiled when it is first met; ``SIZES`` of them are kept, the last used.
    """

    _boxed_call = True

    def __init__(self, module: torch.fx.GraphModule, static: Sequence[int], options: PartOptions) -> None:
        self.module = module
        self.static = tuple(static)
        self.options = options
        self.by_size: OrderedDict[tuple[Any, ...], Captured] = OrderedDict()

    def __call__(self, args: list[Any]) -> Any:
        size = tuple((a.shape, a.stride(), a.dtype) if isinstance(a, torch.Tensor) else a for a in args)
        if size not in self.by_size:
            self.by_size[size] = Captured(self._closed(args), self.static, self.options)
            shapes = [one[0] for n, one in enumerate(size) if isinstance(one, tuple) and n not in self.static]
            sizes = ", ".join("x".join(map(str, shape)) for shape in shapes)
            log.info("compiled for inputs of the sizes %s", sizes)
            if len(self.by_size) > SIZES:
                self.by_size.popitem(last=False)
        self.by_size.move_to_end(size)
        return self.by_size[size](args)

    def _closed(self, args: Sequence[Any]) -> torch.fx.GraphModule:
        """The graph traced with the sizes of these arguments; extents that depend on values stay open."""
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.proxy_tensor import make_fx
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        with torch.no_grad(), FakeTensorMode(shape_env=ShapeEnv()) as mode:
            hollow = [
                mode.from_tensor(arg, static_shapes=True) if isinstance(arg, torch.Tensor) else arg for arg in args
            ]
            closed = make_fx(self.module)(*hollow)
        closed.graph.eliminate_dead_code()
        closed.recompile()
        return closed


def _inference(options: PartOptions) -> Any:
    def compile_graph(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        context = torch._guards.TracingContext.try_get()
        metadata = context.fw_metadata if context is not None else None
        static: list[int] = []
        if metadata is not None:
            mutated = {number for number, info in enumerate(metadata.input_info) if info.mutates_data}
            static = [number for number in metadata.static_input_indices or () if number not in mutated]
        holes = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
        form = CapturedSizes if any(isinstance(value, torch.SymInt) for value in holes) else Captured
        return form(module, static, options)

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

    options = PartOptions.of(given.get("options"))
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
