"""``hexane.check``: every op of a network with its place on a chip, the reason, and what would bring it on."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hexane import chips
from hexane.chips import Chip, Evidence
from hexane.codegen.driver import GENERATION
from hexane.graph.summary import macs_of
from hexane.lowering.fusion import SUMS
from hexane.restrictions.advice import answer_to
from hexane.restrictions.objections import Objection, is_bridged, objections

if TYPE_CHECKING:
    from hexane.graph import Graph, Op
    from hexane.program import Program

SCHEMA = "hexane-check/1"
ENGINE, HOST = "engine", "host"


@dataclass(frozen=True)
class Row:
    """One op: ``place`` is "engine" or "host", ``reason`` one sentence, ``evidence`` SILICON, APPLE or INFERRED.

    ``advice`` says what would bring the op onto the engine, empty for ops that are there. ``macs`` counts
    multiply-accumulates, ``shape`` is the first result's.
    """

    name: str
    op: str
    place: str
    reason: str
    evidence: str
    advice: str = ""
    macs: int = 0
    shape: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class CheckReport:
    """What a network does on one chip. ``compiled``: the rows are those of hexane's own program, not of rules alone."""

    chip: str
    generation: str
    compiled: bool
    rows: tuple[Row, ...]

    @property
    def fits(self) -> bool:
        """Whether every op is on the engine."""
        return all(row.place == ENGINE for row in self.rows)

    @property
    def totals(self) -> dict[str, Any]:
        """Ops and multiply-accumulates on either side, op types on the host, rows by evidence."""
        macs = sum(row.macs for row in self.rows)
        engine = [row for row in self.rows if row.place == ENGINE]
        return {
            "ops": len(self.rows),
            "engine_ops": len(engine),
            "host_ops": len(self.rows) - len(engine),
            "macs": macs,
            "engine_mac_share": sum(row.macs for row in engine) / macs if macs else 1.0,
            "host_types": dict(Counter(row.op for row in self.rows if row.place == HOST).most_common()),
            "evidence": dict(Counter(row.evidence for row in self.rows)),
        }

    @property
    def advice(self) -> list[dict[str, Any]]:
        """What to change, the change that helps most ops first: advice, reason, and the ops it is for."""
        found: dict[tuple[str, str], list[str]] = {}
        for row in self.rows:
            if row.place == HOST:
                found.setdefault((row.op, row.advice), []).append(row.name)
        reasons = {(row.op, row.advice): row.reason for row in reversed(self.rows)}
        rows = [
            {"op": op, "advice": text, "reason": reasons[op, text], "ops": names} for (op, text), names in found.items()
        ]
        return sorted(rows, key=lambda row: -len(row["ops"]))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, schema ``hexane-check/1`` (docs/commands/check.md)."""
        return {
            "schema": SCHEMA,
            "chip": self.chip,
            "generation": self.generation,
            "compiled": self.compiled,
            "fits": self.fits,
            "totals": self.totals,
            "advice": self.advice,
            "rows": [asdict(row) for row in self.rows],
        }


def check(graph: Graph, chip: str | Chip = "M1") -> CheckReport:
    """Where every op of ``graph`` runs on ``chip``, and why.

    For chips that hexane compiles for (H13: A14, M1 family) the rows come from the compiled program itself; for others
    from the limits of the generation and the operations of Apple's compiler (spec/limits), each with its evidence.
    UsageError for an unknown chip.
    """
    target = chips.get(chip)
    if target.generation_name == GENERATION:
        from hexane.codegen import compile

        return check_program(graph, compile(graph, chip=target))
    rows = tuple(_by_rules(op, target) for op in _visible(graph))
    return CheckReport(target.name, target.generation_name, False, rows)


def check_program(graph: Graph, program: Program) -> CheckReport:
    """The same for a network that is compiled already."""
    target = chips.get(program.chip)
    places = _places(program)
    homes = _homes(graph, places)
    homes.update(_sums_elsewhere(graph, program, places, homes))
    rows = tuple(_as_compiled(op, places, homes, target) for op in _visible(graph))
    return CheckReport(target.name, target.generation_name, True, rows)


def _visible(graph: Graph) -> Iterable[Op]:
    """Ops of the function that runs that have a result; those inside blocks belong to the op that holds them."""
    return [op for op in graph.main.ops if op.outputs]


def _row(op: Op, place: str, reason: str, evidence: Evidence | str, advice: str = "") -> Row:
    value = op.outputs[0]
    shape = tuple(getattr(value.type, "shape", ()))
    return Row(value.name, op.type, place, reason, str(evidence), advice, macs_of(op), shape)


# -- by rules ----------------------------------------------------------------------------------------------------------


def _by_rules(op: Op, chip: Chip) -> Row:
    found = objections(op, chip)
    if found:
        first = found[0]
        return _row(op, HOST, first.reason, first.evidence, _advice(found))
    bridge = is_bridged(op, chip)
    known = chips.Evidence.APPLE if chip.generation_name in ("h13", "h14", "h16") else chips.Evidence.INFERRED
    if bridge is not None:
        return _row(op, ENGINE, f"Apple's compiler has {op.type} in another form: {bridge}", known)
    return _row(op, ENGINE, f"{chip.name} has {op.type}, and its shapes and types are within the limits", known)


def _advice(found: list[Objection]) -> str:
    return "; ".join(dict.fromkeys(objection.advice for objection in found))


# -- by the compiled program -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    kind: str
    reason: str
    evidence: str
    label: str


def _places(program: Program) -> dict[str, _Place]:
    """Value name -> place, for every op that is left in the compiled program."""
    places = {}
    for segment in program.segments:
        for described in segment.ops:
            evidence = segment.evidence.get(described, Evidence.APPLE)
            places[value_name(described)] = _Place(
                segment.kind, segment.reasons.get(described, segment.reason), str(evidence), described
            )
    return places


def value_name(described: str) -> str:
    """The name in what ``Op.describe`` gives."""
    _, _, quoted = described.partition(" ")
    try:
        return str(ast.literal_eval(quoted)) if quoted else described
    except (ValueError, SyntaxError):
        return quoted


def _homes(graph: Graph, places: dict[str, _Place]) -> dict[str, str]:
    """For an op that the passes took apart or folded away: the value in the compiled program that stands for it."""
    homes: dict[str, str] = {}
    ops = list(_visible(graph))
    for op in reversed(ops):  # downwards first: a scale lives on in the convolution behind it
        name = op.outputs[0].name
        if name in places:
            homes[name] = name
            continue
        for user in op.outputs[0].users:
            home = homes.get(user.outputs[0].name) if user.outputs else None
            if home is not None:
                homes[name] = home
                break
    for op in ops:
        name = op.outputs[0].name
        if name not in homes:
            above = [homes[v.name] for v in op.operands() if v.name in homes]
            if above:
                homes[name] = above[0]
    return homes


def _sums_elsewhere(graph: Graph, program: Program, places: dict[str, _Place], homes: dict[str, str]) -> dict[str, str]:
    """Sums of products that the passes rewrote: the product behind the value that stands for them, by its new name."""
    known = {value.name for op in _visible(graph) for value in op.outputs} | set(graph.inputs)
    makers = {
        value.name: op
        for segment in program.segments
        for part in (segment.source or segment.graph,)
        if part is not None
        for op in part.main.ops
        for value in op.outputs
    }
    found = {}
    for op in _visible(graph):
        name = op.outputs[0].name
        if name in places or name not in homes or not macs_of(op):
            continue
        waiting, seen = [homes[name]], set()
        while waiting:
            maker = makers.get(waiting.pop())
            if maker is None or maker in seen:
                continue
            seen.add(maker)
            if maker.type in SUMS and maker.outputs[0].name in places:
                found[name] = maker.outputs[0].name
                break
            waiting += [v.name for v in maker.operands() if not v.is_constant and v.name not in known]
    return found


def _as_compiled(op: Op, places: dict[str, _Place], homes: dict[str, str], chip: Chip) -> Row:
    name = op.outputs[0].name
    place = places.get(name)
    if place is None:
        home = homes.get(name)
        if home is None:
            return _row(op, ENGINE, "computed when the network is compiled; no task is left of it", Evidence.APPLE)
        place = places[home]
        if place.kind == ENGINE:
            return _row(op, ENGINE, f"computed as part of {place.label}", place.evidence)
        place = _Place(HOST, f"joined to {place.label}, which is on the host: {place.reason}", place.evidence, home)
    if place.kind == ENGINE:
        return _row(op, ENGINE, place.reason, place.evidence)
    found = objections(op, chip)
    advice = _advice(found) if found else answer_to(place.reason, op.type)
    evidence = found[0].evidence if found else Evidence.INFERRED
    return _row(op, HOST, place.reason, evidence, advice)
