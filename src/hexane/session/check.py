"""``hexane.check``: every op of a network with its place on a chip, the reason, and what would bring it on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import copysign
from typing import TYPE_CHECKING, Any

from hexane import chips, passes
from hexane.chips import Chip, Evidence
from hexane.codegen.driver import GENERATION, compile_for, context_of
from hexane.counts import counted
from hexane.errors import HexaneError, UsageError
from hexane.frontends.networks import network_of
from hexane.graph import html
from hexane.graph.macs import macs_of
from hexane.graph.ops.onnx_foreign import FOREIGN, kind_of
from hexane.graph.types import StateType
from hexane.isa.numbers import LARGEST_HALF
from hexane.lowering.compilation import Compilation
from hexane.passes.apple_places import apple_places
from hexane.program import ENGINE, HOST
from hexane.program.attribution import OpPlace, idle_ops, makers_of, places_of, share_on_engine, visible_ops
from hexane.restrictions.advice import INTEGER_SUMS, OF_INTEGER_SUMS, answer_to
from hexane.restrictions.bounds import large_constant
from hexane.restrictions.numbers import NO_NAN
from hexane.restrictions.objections import OpPlacement
from hexane.restrictions.remarks import Remark, remarks
from hexane.session.weight_notes import WeightNote, weight_notes, with_weights

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Set

    from hexane.graph import Graph, Op, Value
    from hexane.program import Program

SCHEMA = "hexane-check/1"
LOOK_UPS = frozenset(("classify",))
NONE, UNKNOWN = "none", "unknown"

DEVIATIONS = (
    "numbers within 255 of their mean; beyond, if squares inside a reduction do not end at 65504, which shipped models "
    "suggest and nobody measured (hypothesis reduction-range)"
)
SQUARES = "a sum of squares of at most 65504; beyond it the result is infinite, and what is divided by it 0"
ONE_ROOT = f"{SQUARES} (hexane's program stores the sum; Apple's very likely not: executorch 19523)"
KEEPS_TO = {
    "layer_norm": DEVIATIONS,
    "instance_norm": DEVIATIONS,
    "l2_norm": SQUARES,
    "reduce_l2_norm": ONE_ROOT,
    "reduce_sum_square": SQUARES,
}
"""For which numbers an op is right, where its result would fit fp16 and its squares do not."""


UPDATE = "coreml_update_state"
"""One op of coremltools, of which the graph makes a write and a read."""
IDLE = OpPlacement(ENGINE, "nothing is left of it: what takes its result takes its operand", Evidence.APPLE)


@dataclass(frozen=True)
class CheckRow:
    """One op: ``place`` is "engine", "host" or "unknown" (A12, A13), ``reason`` one sentence.

    ``evidence`` is SILICON, APPLE or INFERRED, the weaker one where Apple's compiler and hexane both have the op on the
    engine. ``advice`` says what would bring the op onto the engine, empty for ops that are there. ``macs`` counts
    multiply-accumulates, ``shape`` is the first result's, ``weights`` says what becomes of compressed weights.
    ``apple`` and ``hexane`` say where Apple's compiler would put the op, by the limits of the chip, and where it is in
    hexane's own program ("engine", "host"; "none" where hexane writes no programs for the chip); ``place`` is hexane's
    for chips of H13, where the report is of its program, and Apple's for the others. ``remarks`` is every rule that
    the op breaks, or breaks for some numbers. ``other`` says why the other compiler leaves an op to the host that the
    one asked about has on the engine. ``node`` and ``node_type`` are the op's name and type in the file that it
    comes from (ONNX: the node; Core ML: the operation), empty where that says nothing more. ``partly``: hexane's
    program has its multiply-accumulates on the engine, and another part of it on the host.
    """

    name: str
    op: str
    place: str
    reason: str
    evidence: str
    advice: str = ""
    macs: int = 0
    shape: tuple[int | None, ...] = ()
    weights: str = ""
    apple: str = ""
    hexane: str = ""
    keeps_to: str = ""
    remarks: tuple[Remark, ...] = ()
    node: str = ""
    node_type: str = ""
    other: str = ""
    partly: bool = False


@dataclass(frozen=True, repr=False)
class CheckReport:
    """Placement of a network on one chip. ``compiled``: the rows are those of hexane's program, not of rules alone.

    ``casts``: changes of dtype on the host that hexane's program has beside the network's own ops.
    """

    chip: str
    generation: str
    compiled: bool
    rows: tuple[CheckRow, ...]
    as_: str = ""
    casts: int = 0

    @property
    def question(self) -> str:
        """Whose program the places, reasons and ``fits`` are about: "hexane" or "apple"."""
        return self.as_ or ("hexane" if self.compiled else "apple")

    @property
    def fits(self) -> bool:
        """True where every op is on the engine; the look-up of a label is Core ML's own on every machine."""
        return all(row.place == ENGINE or row.op in LOOK_UPS for row in self.rows)

    @property
    def known(self) -> bool:
        """True where any source says where the ops of this chip run."""
        return all(row.place != UNKNOWN for row in self.rows)

    @property
    def totals(self) -> dict[str, Any]:
        """Ops and multiply-accumulates on either side, op types on the host, rows by evidence."""
        macs = sum(row.macs for row in self.rows)
        engine = [row for row in self.rows if row.place == ENGINE]
        summed = sum(row.macs for row in self.rows if row.place == ENGINE or (self.compiled and row.partly))
        return {
            "ops": len(self.rows),
            "engine_ops": len(engine),
            "host_ops": sum(row.place == HOST for row in self.rows),
            "macs": macs,
            "macs_on_engine": share_on_engine(summed, macs, len(self.rows) - len(engine)) if self.known else None,
            "apple_macs": sum(row.macs for row in self.rows if row.apple == ENGINE),
            "hexane_macs": sum(row.macs for row in self.rows if row.partly or row.hexane == ENGINE),
            "apple_ops": sum(row.apple == ENGINE for row in self.rows) if self.known else None,
            "hexane_ops": None
            if any(row.hexane == NONE for row in self.rows)
            else sum(row.hexane == ENGINE for row in self.rows),
            "partly_ops": sum(row.partly and row.macs > 0 for row in self.rows) if self.compiled else 0,
            "casts": self.casts,
            "host_types": dict(Counter(row.op for row in self.rows if row.place == HOST).most_common()),
            "evidence": dict(Counter(row.evidence for row in self.rows)),
        }

    @property
    def ranges(self) -> dict[str, list[str]]:
        """For which numbers ops are right, and the ops."""
        lines: dict[str, list[str]] = {}
        for row in self.rows:
            if row.keeps_to:
                lines.setdefault(row.keeps_to, []).append(row.name)
        return lines

    @property
    def advice(self) -> list[dict[str, Any]]:
        """Changes that help, those that help most ops first: advice, reason, and the ops it is for."""
        places: dict[tuple[str, str], list[str]] = {}
        for row in self.rows:
            if row.place == HOST:
                places.setdefault((row.op, row.advice), []).append(row.name)
        reasons = {(row.op, row.advice): row.reason for row in reversed(self.rows)}
        rows = [
            {"op": op, "advice": text, "reason": reasons[op, text], "ops": names}
            for (op, text), names in places.items()
        ]
        return sorted(rows, key=lambda row: -len(row["ops"]))

    def __repr__(self) -> str:
        totals = self.totals
        return f"<check for {self.chip}: {totals['engine_ops']} of {counted(totals['ops'], 'op')} on the engine>"

    def _repr_html_(self) -> str:
        """The tables of ``hexane check``, for notebooks."""
        from hexane.session.tables import check_rows, check_title

        first, second = check_title(self)
        head, rows = check_rows(self)
        advice = [[f"{len(item['ops'])} x {item['op']}", item["advice"]] for item in self.advice]
        parts = (html.paragraph(first, bold=True), html.paragraph(second), html.table(rows, head))
        return "".join((*parts, html.table(advice, ["ops", "what would bring them onto the engine"])))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, schema ``hexane-check/1`` (docs/commands/check.md)."""
        return {
            "schema": SCHEMA,
            "chip": self.chip,
            "generation": self.generation,
            "compiled": self.compiled,
            "as": self.question,
            "fits": self.fits,
            "fits_apple": all(row.apple == ENGINE or row.op in LOOK_UPS for row in self.rows),
            "fits_hexane": all(row.hexane == ENGINE or row.op in LOOK_UPS for row in self.rows),
            "macs_on_engine": self.totals["macs_on_engine"],
            "totals": self.totals,
            "advice": self.advice,
            "ranges": self.ranges,
            "rows": [{**vars(row), "remarks": [r.as_dict() for r in row.remarks]} for row in self.rows],
        }


WHOSE = ("hexane", "apple")
"""Whose program a question is about."""


def check(
    graph: Graph | str | os.PathLike[str],
    chip: str | Chip = "M1",
    as_: str = "",
    values: Mapping[str, Any] | None = None,
) -> CheckReport:
    """Place of every op of ``graph`` (or of the network in that file) on ``chip``, and why.

    For chips of H13 (A14, M1 family) the rows come from the compiled program itself; for others from the limits of the
    generation and the operations of Apple's compiler (docs/reference/limits.md), each with its evidence. ``as_``:
    "apple" or "hexane" asks for that compiler's places on any chip; of a Core ML model the question is what a phone
    runs, "apple", unless told otherwise. ``values``: what every value of the network is on
    inputs of the user's, by name (``hexane.numerics.insight.every_value``), for rules that numbers decide.
    UsageError for an unknown chip.
    """
    graph, target = network_of(graph), chips.get(chip)
    if as_ not in ("", *WHOSE):
        raise UsageError(f"there is no compiler {as_!r}", hint=f"one of {', '.join(WHOSE)}")
    if not as_ and (graph.metadata.get("format") == "coreml" or graph.metadata.get("compiled_model")):
        as_ = "apple"
    program = _compiled(graph, target)
    if as_ == "hexane" and program is None:
        raise UsageError(f"hexane writes no programs for {target.name}", hint="leave out as_, or take M1 to M5")
    ours = program is not None and (as_ == "hexane" or (not as_ and target.generation_name == GENERATION))
    if program is not None and ours:
        return replace(check_program(graph, program, values), as_=as_)
    notes = weight_notes(passes.run(graph, Compilation(target)).main, target.generation) if _is_packed(graph) else {}
    return replace(_report(graph, target, program, notes, values, compiled=False), as_=as_)


def _is_packed(graph: Graph) -> bool:
    """True where a network has compressed weights at all; the passes need not run for others."""
    return any(op.type.startswith("constexpr_") or op.type == "dequantize" for op in graph.main.walk())


def check_program(graph: Graph, program: Program, values: Mapping[str, Any] | None = None) -> CheckReport:
    """The same for a network that is compiled already."""
    target = chips.get(program.chip)
    notes = weight_notes(program.graph.main, target.generation) if program.graph is not None else {}
    return _report(graph, target, program, notes, values, compiled=True)


def _compiled(graph: Graph, chip: Chip) -> Program | None:
    """hexane's own program for a chip; None where it writes none."""
    try:
        return compile_for(graph, context_of(chip))
    except HexaneError:
        if chip.generation_name == GENERATION:
            raise
        return None


def _report(
    graph: Graph,
    chip: Chip,
    program: Program | None,
    notes: dict[str, WeightNote],
    values: Mapping[str, Any] | None = None,
    *,
    compiled: bool,
) -> CheckReport:
    """Every op with both columns; the row itself speaks of hexane's program where ``compiled``, else of Apple's."""
    tasks = places_of(graph, program.segments) if program is not None else {}
    rows, updates, remarks_by_op = [], _updates(graph), remarks(graph, chip, values)
    nodes, apple = graph.metadata.get("nodes", {}), apple_places(graph, chip)
    ops, idle = visible_ops(graph), frozenset[str]()
    if program is not None:
        idle = idle_ops(ops, makers_of(program.segments))
    own = {value.name for op in ops for value in op.outputs}
    for op in ops:
        name, task = op.outputs[0].name, None
        ours = IDLE if name in idle else None
        if ours is None and program is not None:
            task = tasks.get(name)
            ours = _as_compiled(op, task, program, own)
        row = _row(op, apple[name], ours, compiled)
        row = replace(row, partly=task is not None and task.held_back is not None)
        if ENGINE in (row.apple, row.hexane):
            row = replace(row, keeps_to=_keeps_to(op, row.hexane == ENGINE))
        if op in updates:
            row = replace(row, op=UPDATE, reason=row.reason.replace(op.type, UPDATE))
        node, kind = nodes.get(name, (op.name if op.name != name else "", ""))
        row = replace(row, remarks=remarks_by_op.get(op, ()), node=node or "", node_type=kind)
        if row.advice and kind in INTEGER_SUMS:
            row = replace(row, advice=OF_INTEGER_SUMS)
        rows.append(replace(row, op=kind_of(op)) if op.type == FOREIGN else with_weights(row, notes.get(row.name)))
    casts = 0 if program is None else _casts_on_host(program) - sum(r.op == "cast" and r.hexane == HOST for r in rows)
    return CheckReport(chip.name, chip.generation_name, compiled, tuple(rows), casts=max(casts, 0))


def _casts_on_host(program: Program) -> int:
    return sum(label.startswith("cast ") for part in program.segments if part.kind == HOST for label in part.ops)


def _keeps_to(op: Op, by_hexane: bool) -> str:
    """For which numbers an op is right on an engine."""
    number = large_constant(op) if by_hexane else None
    if number is not None:
        end = copysign(LARGEST_HALF, number)
        return f"what a mask hides: hexane's program has {end:g} for the constant {number:g}, which fp16 does not hold"
    if op.type in ("equal", "not_equal") and op.inputs.get("x") is op.inputs.get("y"):
        return NO_NAN
    return KEEPS_TO.get(op.type, "")


def _updates(graph: Graph) -> frozenset[Op]:
    """Reads of a state that was written just before: both are one op of coremltools, coreml_update_state."""
    latest: dict[Value, str] = {}
    updates = []
    for op in graph.main.ops:
        for value in op.operands():
            if isinstance(value.type, StateType):
                if op.type == "read_state" and latest.get(value) == "write_state":
                    updates.append(op)
                latest[value] = op.type
    return frozenset(updates)


def _row(op: Op, apple: OpPlacement, ours: OpPlacement | None, compiled: bool) -> CheckRow:
    value = op.outputs[0]
    placement = ours if compiled and ours is not None else apple
    other, who = (apple, "Apple's compiler") if placement is ours else (ours, "hexane")
    reason, evidence, instead = placement.reason, placement.evidence, ""
    if other is not None and other.where == HOST and placement.where == ENGINE:
        instead = f"{who} leaves it to the host: {other.reason}"
    elif other is ours and ours is not None and ours.where == placement.where == ENGINE:
        evidence = chips.weakest(evidence, ours.evidence)
    if placement is ours and placement.where == apple.where == HOST:  # what Apple's compiler wants helps here, too
        evidence, advice = apple.evidence, apple.advice
    else:
        advice = "" if placement.where == ENGINE else placement.advice
    return CheckRow(
        value.name, op.type, placement.where, reason, str(evidence), advice,
        macs_of(op), tuple(getattr(value.type, "shape", ())), apple=apple.where,
        hexane=NONE if ours is None else ours.where, other=instead,
    )  # fmt: skip


def _as_compiled(op: Op, place: OpPlace | None, program: Program, own: Set[str]) -> OpPlacement:
    """Segment of hexane's program that computes an op, by which rule, and how that is known; ``own``: the network's
    names."""
    if place is None:
        return OpPlacement(ENGINE, "computed when the network is compiled; no task is left of it", Evidence.APPLE)
    evidence, place = place.evidence, place.held_back or place
    segment = program.segments[place.segment]
    renamed = place.name not in own and place.label.startswith(f"{op.kind} ")
    itself = renamed or place.name in (op.outputs[0].name, f"{op.outputs[0].name}__full")
    reason = segment.reasons.get(place.label, segment.reason)
    if segment.kind == ENGINE:
        reason = reason if itself else f"computed as part of {place.label}: {reason}"
        return OpPlacement(ENGINE, reason, evidence)
    if not itself:
        reason = f"joined to {place.label}, which is on the host: {reason}"
    held_back = place.label.partition(" ")[0]  # advice is for the op that the host needs, not for those joined to it
    return OpPlacement(HOST, reason, Evidence.INFERRED, answer_to(segment.codes.get(place.label, ""), held_back))
