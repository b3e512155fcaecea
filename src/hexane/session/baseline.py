"""Two answers of ``check``, ``estimate`` or ``run`` held against each other: placement, time and error, op by op.

A gate keeps the JSON answer of a network that was good and asks of each new one whether anything became worse. What is
compared is a table of facts, (chip, kind, name) to value, that each schema is read into; one rule per kind says when
the new value is worse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexane.errors import FormatError, UsageError
from hexane.files import read_json
from hexane.graph import html
from hexane.session.verdict import ROUNDING, WORDS

SCHEMA = "hexane-compare/1"
ENGINE, HOST = "engine", "host"
APPLE, HEXANE = "Apple's compiler", "hexane"
PLACEMENT, SHARE, TIME, LAYER, ENERGY, ERROR, VERDICT = (
    "placement", "share of the MACs", "time, us", "time of a layer, us", "energy, mJ", "error", "verdict",
)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """Limits for a new answer: ``slower`` and ``error`` are shares of the old value.

    ``layers``: a layer that is slower counts, too, not the whole call alone. ``by``: whose placement counts, "apple",
    "hexane" or "both".
    """

    slower: float = 0.05
    error: float = 0.1
    layers: bool = False
    by: str = "both"

    def __post_init__(self) -> None:
        if not (self.slower >= 0 and self.error >= 0):
            raise UsageError("a limit is a share of the old value", hint="--slower 0.05 allows 5 % more time")
        if self.by not in ("apple", "hexane", "both"):
            raise UsageError(f"--by {self.by!r} is nobody's placement", hint="one of apple, hexane, both")


@dataclass(frozen=True)
class Fact:
    """One value of an answer; ``op`` is the type of what it is of, ``note`` a reason, ``whose`` a compiler."""

    value: Any
    op: str = ""
    note: str = ""
    whose: str = ""


Key = tuple[str, str, str]
Facts = dict[Key, Fact]


@dataclass(frozen=True)
class Change:
    """One fact that differs: ``old`` or ``new`` is None where an answer has none; ``worse`` by the limits."""

    chip: str
    kind: str
    name: str
    op: str
    old: Any
    new: Any
    worse: bool
    note: str

    @property
    def text(self) -> str:
        """The change in one line."""
        op = f" ({self.op})" if self.op else ""
        reason = f": {self.note}" if self.note else ""
        return f"{self.chip}, {self.kind} of {self.name}{op}: {shown(self.old)} -> {shown(self.new)}{reason}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "chip": self.chip, "kind": self.kind, "name": self.name, "op": self.op, "old": self.old, "new": self.new,
            "worse": self.worse, "note": self.note,
        }  # fmt: skip


HEAD = ["", "chip", "what", "of", "type", "old", "new", "reason"]
RIGHT = (5, 6)


@dataclass(frozen=True, repr=False)
class Comparison:
    """Everything that differs; ``compared`` counts facts of each chip and kind, ``notes`` say what is not alike."""

    changes: tuple[Change, ...]
    compared: dict[tuple[str, str], int]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<comparison: {self.text}>"

    def _repr_html_(self) -> str:
        """The table of ``hexane compare``, for notebooks."""
        notes = "".join(html.paragraph(f"note: {note}") for note in self.notes)
        return html.paragraph(self.text, bold=True) + notes + html.table(self.rows(), HEAD, RIGHT)

    def rows(self) -> list[list[str]]:
        """Every change under ``HEAD``, those that are worse first."""
        return [
            ["WORSE" if c.worse else "", c.chip, c.kind, c.name, c.op, shown(c.old), shown(c.new), c.note]
            for c in sorted(self.changes, key=lambda change: not change.worse)
        ]

    @property
    def worse(self) -> list[Change]:
        return [change for change in self.changes if change.worse]

    @property
    def text(self) -> str:
        """The outcome in one line."""
        facts = sum(self.compared.values())
        bad = len(self.worse)
        return f"{facts} facts compared, {len(self.changes)} differ, {bad or 'none'} {'are' if bad > 1 else 'is'} worse"

    def as_dict(self) -> dict[str, Any]:
        """Plain data, schema ``hexane-compare/1`` (docs/commands/compare.md)."""
        compared = [{"chip": chip, "kind": kind, "facts": count} for (chip, kind), count in self.compared.items()]
        changes = [change.as_dict() for change in self.changes]
        return {
            "schema": SCHEMA, "worse": len(self.worse), "changes": changes, "compared": compared,
            "notes": list(self.notes),
        }  # fmt: skip


def shown(value: Any) -> str:
    """A value of a fact for people."""
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def read_answer(path: Path) -> dict[str, Any]:
    """A JSON answer of a command, or the ``report.json`` of a report folder; UsageError or FormatError for others."""
    path = path / "report.json" if path.is_dir() else path
    if not path.is_file():
        raise UsageError("there is no answer", where=str(path), hint="hexane check MODEL --json > old.json makes one")
    data: Any = read_json(path)
    if not isinstance(data, dict) or data.get("schema") not in READERS:
        schema = data.get("schema") if isinstance(data, dict) else None
        hint = "an answer of hexane check, estimate or run with --json, or a report folder"
        raise FormatError(f"has the schema {schema!r}, which is not compared", where=str(path), hint=hint)
    return data


def compared(old: Mapping[str, Any], new: Mapping[str, Any], limits: Limits | None = None) -> Comparison:
    """Differences between two answers of one schema, and those that are worse.

    UsageError for answers to different questions, FormatError for one whose file was damaged or changed by hand.
    """
    limits = limits or Limits()
    if old["schema"] != new["schema"]:
        which = f"{old['schema']} and {new['schema']}"
        raise UsageError(f"{which} answer different questions", hint="compare like with like")
    try:
        before, after = dict(READERS[old["schema"]](old)), dict(READERS[new["schema"]](new))
        changes = list(_changes(before, after, limits))
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise FormatError(f"an answer does not hold what it should ({what})", hint="make it again") from None
    if not before:
        raise UsageError("the old answer holds nothing to compare", hint="make it of the same network and chips")
    counts = Counter((chip, kind) for chip, kind, _ in dict.fromkeys((*before, *after)))
    return Comparison(tuple(changes), dict(counts), tuple(_notes(old, new)))


def _notes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    versions = [answer.get("origin", {}).get("hexane") for answer in (old, new)]
    if versions[0] != versions[1]:
        yield f"hexane {versions[0] or 'of an unknown version'} made the old answer, {versions[1] or 'another'} the new"
    calls = [_options(answer.get("origin", {})) for answer in (old, new)]
    if calls[0] != calls[1]:
        yield f"the calls differ: {' '.join(calls[0]) or 'no options'}; {' '.join(calls[1]) or 'no options'}"


def _options(origin: Mapping[str, Any]) -> list[str]:
    """The words of a call that change what it answers: without the network's file, the baseline and the form."""
    words = list(origin.get("call", []))
    if "--baseline" in words:
        at = words.index("--baseline")
        del words[at : at + 2]
    return [word for word in words if word != "--json" and word != origin.get("file")]


# ------------------------------------------------------------------------------------------------------------ facts


def _of_checks(answer: Mapping[str, Any]) -> Iterator[tuple[Key, Fact]]:
    for report in answer["reports"]:
        yield from _of_check(report)


def _of_check(report: Mapping[str, Any]) -> Iterator[tuple[Key, Fact]]:
    chip, rows = report["chip"], report["rows"]
    for whose, column in ((APPLE, "apple"), (HEXANE, "hexane")):
        on = sum(row["macs"] for row in rows if row[column] == ENGINE)
        whole = sum(row["macs"] for row in rows)
        if whole:
            yield (chip, SHARE, whose), Fact(on / whole, whose=column)
        for row in rows:
            yield (chip, PLACEMENT, f"{row['name']} by {whose}"), Fact(row[column], _type(row), row["reason"], column)


def _type(row: Mapping[str, Any]) -> str:
    """An op's type, and the node of the source that it is of."""
    node, kind = row.get("node") or "", row.get("node_type") or ""
    return ", ".join(part for part in (row["op"], f"{kind} {node}".strip()) if part)


def _of_estimates(answer: Mapping[str, Any]) -> Iterator[tuple[Key, Fact]]:
    ours = [one["program"] for one in answer["how_long"] if one.get("program")]
    for estimate in (*answer["estimates"], *ours):
        yield from _of_estimate(estimate)


def _of_estimate(estimate: Mapping[str, Any]) -> Iterator[tuple[Key, Fact]]:
    chip, basis = estimate["chip"], estimate["basis"]
    yield (chip, TIME, f"a call of the {basis}"), Fact(float(estimate["latency_us"]), note=estimate["bottleneck"])
    yield (chip, TIME, f"the host's part of the {basis}"), Fact(float(estimate["parts"]["host_us"]))
    yield (chip, ENERGY, f"a call of the {basis}"), Fact(float(estimate["energy_mj"]))
    for row in estimate["ops"] if basis == "network" else ():  # tasks of a program have numbers, which move
        yield (chip, LAYER, f"{row['name']}"), Fact(float(row["us"]), row["op"], row["bottleneck"])


def _of_run(answer: Mapping[str, Any]) -> Iterator[tuple[Key, Fact]]:
    chip = answer["chip"]
    if answer["verdict"] is not None:
        yield (chip, VERDICT, "the network"), Fact(answer["verdict"], note=answer["verdict_text"])
    if answer["macs_on_engine"] is not None:
        yield (chip, SHARE, HEXANE), Fact(float(answer["macs_on_engine"]), whose="hexane")
    for row in answer["agreement"]:
        yield (chip, ERROR, row["name"]), Fact(_number(row["relative"]))
        yield (chip, ERROR, f"{row['name']}, infinite or NaN"), Fact(row["nonfinite"])


def _of_report(report: Mapping[str, Any]) -> Iterator[tuple[Key, Fact]]:
    """A report folder's: everything, and the error of every layer."""
    yield from _of_run(report["run"])
    if report["placement"]:
        yield from _of_check(report["placement"])
    if report["estimate"]:
        yield from _of_estimate(report["estimate"])
    for layer in report["layers"]:
        if layer["error"] is not None:
            yield (report["run"]["chip"], ERROR, f"layer {layer['name']}"), Fact(_number(layer["error"]))


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


READERS = {
    "hexane-checks/1": _of_checks,
    "hexane-check/1": _of_check,
    "hexane-estimates/1": _of_estimates,
    "hexane-estimate/1": _of_estimate,
    "hexane-run/1": _of_run,
    "hexane-report/1": _of_report,
}
"""How each schema is read."""


# ------------------------------------------------------------------------------------------------------------ rules


def _changes(old: Facts, new: Facts, limits: Limits) -> Iterator[Change]:
    crowded = _more_on_the_host(old, new)
    for key in dict.fromkeys((*old, *new)):
        before, after = old.get(key), new.get(key)
        if before is not None and after is not None and before.value == after.value:
            continue
        chip, kind, name = key
        fact = after or before
        assert fact is not None
        worse = _is_worse(kind, before, after, limits, (chip, fact.whose, fact.op) in crowded)
        values = (None if before is None else before.value, None if after is None else after.value)
        yield Change(chip, kind, name, fact.op, *values, worse, fact.note)


def _more_on_the_host(old: Facts, new: Facts) -> set[tuple[str, str, str]]:
    """(chip, whose, type) of which the new answer has more ops outside the engine: names may have changed."""

    def outside(facts: Facts) -> Counter[tuple[str, str, str]]:
        return Counter(
            (chip, fact.whose, fact.op)
            for (chip, kind, _), fact in facts.items()
            if kind == PLACEMENT and fact.value != ENGINE
        )

    before, after = outside(old), outside(new)
    return {key for key, count in after.items() if count > before[key]}


def _is_worse(kind: str, old: Fact | None, new: Fact | None, limits: Limits, crowded: bool) -> bool:
    """The rule of each kind of fact."""
    whose = (new or old or Fact(None)).whose
    if whose and limits.by not in ("both", whose):
        return False
    if new is None:  # a layer or an op may go; an answer about a whole may not
        return kind in (TIME, VERDICT, ERROR, SHARE)
    if kind == PLACEMENT:
        return new.value != ENGINE and (crowded if old is None else old.value == ENGINE)
    if old is None:
        return False
    if kind == VERDICT:
        return WORDS.index(new.value) > WORDS.index(old.value)
    if new.value is None or old.value is None:  # nothing finite to compare
        return new.value is None
    if kind == ERROR:
        return not new.value <= max(old.value * (1 + limits.error), ROUNDING if old.value < 1 else old.value)
    if kind in (TIME, ENERGY) or (kind == LAYER and limits.layers):
        return not new.value <= old.value * (1 + limits.slower)
    return False
