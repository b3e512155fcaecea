"""``hexane.compile``: a graph to a program (DESIGN, codegen)."""

from __future__ import annotations

import gc
import os
import struct
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hexane import chips, passes
from hexane.chips import Chip, Evidence, weakest
from hexane.codegen import kernel_results, moves, planar_copies
from hexane.codegen.context import APPLE, Context, Policy
from hexane.codegen.defects import TaskError, first_right
from hexane.codegen.fragment import ELEMENT_BYTES, surface_shape
from hexane.codegen.host import part_of, subgraph
from hexane.codegen.link import Linked, Linker
from hexane.codegen.partition import RecipeUnit, SegmentRun, runs_of, units_of
from hexane.codegen.price import price_us
from hexane.codegen.recipes.chain_steps import chain
from hexane.codegen.states import in_place as states_in_place
from hexane.codegen.targets import target_of
from hexane.emulator.static import check_program
from hexane.errors import EmulationError, GraphError, Reason, UnsupportedError, UsageError
from hexane.frontends.networks import network_of
from hexane.frozen import replace
from hexane.graph.ir import Function, Graph, Op, Value
from hexane.image import Ident, Surface, build_image
from hexane.image.dialect import CONTAINER_OF
from hexane.isa import FieldError
from hexane.isa.numbers import LARGEST_HALF
from hexane.lowering import transformations
from hexane.lowering.compilation import Compilation
from hexane.lowering.fusion import CUT_RUNS, cut_runs
from hexane.lowering.transformations import Transformations
from hexane.numerics.autoscale import rescaled
from hexane.passes.manager import OnPass
from hexane.program import ENGINE, HOST, Port, Program, Segment, input_ports
from hexane.program.attribution import with_macs
from hexane.restrictions.bounds import large_constant

GENERATION = "h13"
SURFACE_DTYPES = {"fp16": "float16", "bool": "uint8", "uint8": "uint8", "int8": "int8"}


@contextmanager
def _uncollected() -> Iterator[None]:
    """No search for unreachable cycles meanwhile: of the many small objects of a compilation few are in one.

    Such searches go through all objects of the process. Peaks of memory are the same without. Around a whole function,
    so that what only the function holds is gone when the searches begin again.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_uncollected()
def compile(
    graph: Graph | str | os.PathLike[str],
    chip: str | Chip = "M1",
    dialect: str = "default",
    strict: bool = False,
    ident: Mapping[str, Any] | None = None,
    on_pass: OnPass | None = None,
    scaling: Mapping[str, int] | None = None,
    without: Iterable[str] = (),
    as_: str = "",
    accuracy: str = "exact",
) -> Program:
    """Compile a network for the engine; the network itself stays as it is.

    Parameters
    ----------
    graph : the network, or the path of its file; its function that runs is compiled.
    chip : a chip from A14 and M1 to A19 and M5, or a name of the compiler's targets ("h14", "h16g").
    dialect : "default" (what is predicted fastest, and Apple's form where that is as fast), "apple" (Apple's form of
        macOS 26 wherever it is known) or "zin4" (compiler v4.2.1: its channels, container and task words).
    strict : refuse rules without evidence from hardware or Apple's compiler, and refuse ops that would go to the host.
    ident : what a file carries beyond the network: ``input_path``, ``output_path``, ``kernel_names``
        (docs/reference/engine-h13.md 2.13).
    on_pass : called after every pass with its name, the graph so far and how many ops it changed.
    scaling : powers of two by layer, as ``hexane.numerics.autoscale`` takes them.
    without : names of transformations that are left out (docs/transformations.md).
    as_ : "apple" is dialect "apple", which takes ops apart as Apple's compiler does (docs/restrictions.md), so that
        results are those of a phone where these are known to differ, and leaves to the host what Apple's limits leave
        there (``hexane.check(..., as_="apple")``); "hexane" is the default.
    accuracy : "exact" (no transformation that enlarges an error beyond fp16 rounding) or "fast" (those too).

    Raises
    ------
    UnsupportedError : a chip of another generation; with ``strict`` the first op that cannot be compiled.
    """
    dialect = dialect_as(as_, dialect)
    context = context_of(chip, dialect, without, strict=strict, accuracy=accuracy)
    network = network_of(graph)
    if dialect != "apple":
        _warn_of_constants(network)
    return compile_for(network, context, dialect, strict, ident, on_pass, scaling)


def _warn_of_constants(graph: Graph) -> None:
    """Say that a large constant is another number in the program; of one below zero, a mask, that is as good."""
    for op in graph.main.walk():
        number = large_constant(op)
        if number is not None and number > 0:
            text = f"{op.describe()} has the constant {number:g}, which is {LARGEST_HALF:g} in fp16"
            warnings.warn(text, RuntimeWarning, 4)
            return


def dialect_as(as_: str, dialect: str = "default") -> str:
    """The dialect that a question about one compiler's program means; UsageError for an unknown or another one."""
    if as_ not in ("", *AS):
        raise UsageError(f"there is no compiler {as_!r}", hint=f"one of {', '.join(AS)}")
    if as_ and dialect not in ("default", AS[as_]):
        raise UsageError(f"as {as_} is dialect {AS[as_]}, not {dialect}", hint="leave one of the two out")
    return AS.get(as_, dialect)


MOST_OPS_IN_TWO_FORMS = 48
"""Ops of a network whose layers are also compiled as Apple keeps them in L2; a larger one would take twice as long."""

AS = {"hexane": "default", "apple": "apple"}
"""Whose program is asked for, and the dialect that gives it."""


def context_of(
    chip: str | Chip = "M1",
    dialect: str = "default",
    without: Iterable[str] = (),
    *,
    strict: bool = False,
    accuracy: str = "exact",
) -> Context:
    """Parameters of ``compile``, as one record."""
    on_chip = chips.get(chip)
    target = target_of(on_chip, dialect)
    on = transformations.active(dialect, without, strict=strict, generation=target.generation, accuracy=accuracy)
    apple = dialect == "apple"
    return Context(on_chip, on, apple, target=target, policy=APPLE if apple else Policy())


def compile_for(
    graph: Graph,
    context: Context,
    dialect: str = "default",
    strict: bool = False,
    ident: Mapping[str, Any] | None = None,
    on_pass: OnPass | None = None,
    scaling: Mapping[str, int] | None = None,
) -> Program:
    """A network's program for a context; the other parameters are those of ``compile``."""

    def compiled(names: frozenset[str], on_host: Mapping[str, str]) -> Program:
        form = replace(context, on=Transformations.of(names))
        return _compiled(graph, form, dialect, strict, ident, on_pass, scaling, on_host)

    return first_right(compiled, context.on.names, graph, may_use_host=not strict)


def _compiled(
    graph: Graph,
    context: Context,
    dialect: str,
    strict: bool,
    ident: Mapping[str, Any] | None,
    on_pass: OnPass | None,
    scaling: Mapping[str, int] | None,
    on_host: Mapping[str, str],
) -> Program:
    """The program with the transformations that are on; ops of ``on_host`` (by description) are left to the host."""
    source, declared, inputs = graph, graph.main, input_ports(graph)
    graph = canonical(graph, context, scaling=scaling, on_pass=on_pass)

    def segments_for(function: Function, form: Context) -> list[Segment]:
        units = units_of(function, form, strict=strict, on_host=on_host)
        if strict:
            _refuse_host(units)
        return [
            _engine_segment(run, graph, form, dialect, ident) if run.on_engine else _host_segment(run, function.opset)
            for run in runs_of(function, units, form)
        ]

    function, with_states, results = states_in_place(graph, context)
    try:
        segments = segments_for(function, with_states)
    except GraphError:  # contents that are needed before and behind a write of them
        function, with_states, results = graph.main, context, {}
        segments = segments_for(function, with_states)
    if _has_chains(function, with_states) and not strict:
        segments = _cheaper(segments, segments_for(function, replace(context, policy=APPLE)), context)
    constants = [value for value in function.outputs if value.is_constant]
    if constants:
        host_part = subgraph((), (), constants, function.opset)
        segments.append(Segment(HOST, "constants", (), (), tuple(map(_port, constants)), graph=host_part))
    return Program(
        tuple(with_macs(source, segments)),
        inputs,
        tuple(_port(v) for v in declared.outputs),
        context.chip.name,
        dialect,
        graph,
        tuple(map(_port, declared.states)),
        results,
    )


def _has_chains(function: Function, context: Context) -> bool:
    """True where a small network has layers that Apple's compiler keeps in L2 together, and their price may decide."""
    if context.policy != Policy() or not context.on.priced_recipes or len(function.ops) > MOST_OPS_IN_TWO_FORMS:
        return False
    apples = replace(context, policy=APPLE)
    return any(chain(op, apples) for op in function.ops)


def _cheaper(default: list[Segment], apples: list[Segment], context: Context) -> list[Segment]:
    """Apple's form of a network where all of it runs on the engine for less."""
    if any(segment.kind != ENGINE for segment in (*default, *apples)):
        return default
    first, second = (sum(price_us(segment.plans, context.chip) for segment in form) for form in (default, apples))
    return apples if second < first else default


def _refuse_host(units: Iterable[RecipeUnit]) -> None:
    """``strict``: UnsupportedError for the first unit that has no place on the engine, else for the first inferred."""
    refused = [unit for unit in units if not unit.on_engine]
    if not refused:
        return
    unit = min(refused, key=lambda unit: unit.code == Reason.EVIDENCE)
    takes = "it is compiled, marked INFERRED" if unit.code == Reason.EVIDENCE else "the host takes it"
    raise UnsupportedError(
        unit.reason, where=unit.ops[0].describe(), hint=f"without --strict {takes}", code=Reason(unit.code)
    )


def canonical(
    graph: Graph, compilation: Compilation, *, scaling: Mapping[str, int] | None = None, on_pass: OnPass | None = None
) -> Graph:
    """The graph after the passes; with ``scaling`` its layers are scaled right before they are rounded to fp16."""
    changes: dict[str, int] = {}

    def count(name: str, after: Graph, changed: int) -> None:
        of = transformations.named_after(name)
        if of and changed:
            changes[of] = changes.get(of, 0) + changed
        if on_pass is not None:
            on_pass(name, after, changed)

    names = list(passes.available())
    cut = names.index("half_precision") if scaling else len(names)
    graph = passes.run(graph, compilation, names[:cut], count)
    graph.metadata[transformations.KEY] = sorted(compilation.on.names)
    if scaling:
        graph = passes.run(rescaled(graph, scaling), compilation, names[cut:], count)
    graph.metadata[transformations.TAKEN] = changes
    return graph


def _port(value: Value) -> Port:
    return Port(value.name, value.shape, value.dtype)


def link_run(run: SegmentRun, context: Context) -> Linked:
    """The tasks of an engine run."""
    inputs, outputs = (list(map(context.home, values)) for values in (run.inputs, run.outputs))
    channels = context.target.channels(inputs, outputs)
    values = run.tensors(context)
    fragments = []
    for unit in run.units:
        assert unit.choice is not None
        fragments.append(unit.choice.fragment)
    moves.remove(fragments, values, inputs, outputs, context.on)
    kernel_results.through_scratch(fragments, values, outputs, context)
    planar_copies.replace(fragments, values, context)
    surfaces = {context.home(v): context.surface(v) for v in run.inputs if v.dtype in ELEMENT_BYTES}
    linker = Linker(context, channels, surfaces | values)
    for fragment in fragments:
        linker.add(fragment)
    return linker.finish()


def parts_of(graph: Graph, context: Context, scaling: Mapping[str, int] | None = None) -> list[tuple[str, Graph]]:
    """Parts of a network's program, without tasks: ("engine" or "host", graph) in order.

    The parameters are those of ``compile_for``. Where an op is left to the host because its task would be wrong
    (``DefectWarning``), the program has one part more.
    """
    form = canonical(graph, context, scaling=scaling)
    function = form.main
    parts = [
        (ENGINE, _source(run, form, context))
        if run.on_engine
        else (HOST, subgraph(run.ops, run.inputs, run.outputs, function.opset))
        for run in runs_of(function, units_of(function, context), context)
    ]
    constants = [value for value in function.outputs if value.is_constant]
    return [*parts, (HOST, subgraph((), (), constants, function.opset))] if constants else parts


def _source(run: SegmentRun, graph: Graph, context: Context) -> Graph:
    """The part of a canonical graph that a run of tasks computes."""
    function = run.units[0].ops[0].block
    assert isinstance(function, Function)
    source = part_of(function, run.ops, run.inputs, run.outputs)
    source.metadata[transformations.KEY] = graph.metadata[transformations.KEY]
    source.metadata[CUT_RUNS] = cut_runs((unit.ops for unit in run.units), context.on)
    return source


def _engine_segment(
    run: SegmentRun, graph: Graph, context: Context, dialect: str, ident: Mapping[str, Any] | None
) -> Segment:
    target = context.target
    try:
        linked = link_run(run, context)
    except (FieldError, struct.error) as error:
        raise TaskError(error, "") from error
    source = _source(run, graph, context)
    surfaces = [
        Surface(
            value.name,
            role,
            surface_shape(value.shape),
            dtype=SURFACE_DTYPES[value.dtype],
            channel=linked.channels[context.home(value)],
        )
        for role, values in (("input", run.inputs), ("output", run.outputs))
        for value in values
    ]
    image = build_image(
        linked.tasks,
        linked.const,
        surfaces,
        target.generation,
        linked.scratch_bytes,
        dialect=CONTAINER_OF[dialect],
        ident=_ident(ident, Ident),
        procedure=procedure_name(graph, dialect),
        kernels=linked.kernel_section,
    )
    try:
        check_program(image)
    except EmulationError as error:
        op = "" if error.task is None else linked.plans[error.task].op
        raise TaskError(error, op) from error
    recipes = dict.fromkeys(unit.reason for unit in run.units)
    described = {op: op.describe() for op in run.ops}
    label = weakest(Evidence.APPLE, *(plan.evidence for plan in linked.plans)).value
    return Segment(
        ENGINE,
        f"{label}: {'; '.join(recipes)}",
        tuple(described.values()),
        tuple(_port(v) for v in run.inputs),
        tuple(_port(v) for v in run.outputs),
        image=image,
        source=source,
        plans=tuple(linked.plans),
        reasons={described[op]: unit.reason for unit in run.units for op in unit.ops},
        evidence=_evidence_of(run, linked, described),
    )


def _evidence_of(run: SegmentRun, linked: Linked, described: Mapping[Op, str]) -> dict[str, str]:
    """The weakest label among the tasks of each op, as they were linked."""
    marks: dict[str, Evidence] = {}
    for plan in linked.plans:
        marks[plan.op] = weakest(plan.evidence, marks.get(plan.op, plan.evidence))
    return {
        described[op]: (marks.get(described[unit.ops[-1]]) or unit.choice.evidence).value
        for unit in run.units
        if unit.choice
        for op in unit.ops
    }


def procedure_name(graph: Graph, dialect: str) -> str:
    """The function's name; of a net.plist the entry of its ``Networks`` (§2.13)."""
    if graph.metadata.get("format") == "netplist":
        return str(graph.metadata.get("name", "net"))
    return graph.main.name if CONTAINER_OF[dialect] == "default" else "net"


def _ident(names: Mapping[str, Any] | None, kind: Any) -> Any:
    if names is None:
        return None
    unknown = set(names) - {"input_path", "output_path", "kernel_names", "target", "text"}
    if unknown:
        raise UsageError(f"ident has no {sorted(unknown)[0]!r}", hint="input_path, output_path, kernel_names")
    return kind(**names)


def _host_segment(run: SegmentRun, opset: str) -> Segment:
    reasons = {op.describe(): unit.reason for unit in run.units for op in unit.ops}
    return Segment(
        HOST,
        "; ".join(dict.fromkeys(reasons.values())),
        tuple(op.describe() for op in run.ops),
        tuple(_port(v) for v in run.inputs),
        tuple(_port(v) for v in run.outputs),
        graph=subgraph(run.ops, run.inputs, run.outputs, opset),
        reasons=reasons,
        codes={op.describe(): unit.code for unit in run.units for op in unit.ops},
    )
