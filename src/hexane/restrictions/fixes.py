"""``hexane check --fix``: programs rewritten where a restriction has one mechanical way out.

A fix is a function from a statement and the program to edits of its text. Values keep their names and types, so that a
fixed program computes the same; the one exception is gelu, whose exact form becomes the tanh form.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hexane.formats.mil import parse_mil
from hexane.formats.mil.syntax import parse_text
from hexane.formats.mil.tree import TextPlace
from hexane.graph.parts import Names
from hexane.restrictions.edits import Edit, applied, bracketed, indent_at, offset_of, span_at, split_items
from hexane.restrictions.findings import Finding
from hexane.restrictions.reports import System
from hexane.restrictions.shapes import binding_order
from hexane.restrictions.subject import Statement, Subject
from hexane.restrictions.weights import FIRST_RECORD

BUILD_INFO = (
    ("coremlc-component-MIL", "3510.2.1"),
    ("coremlc-version", "3505.4.1"),
    ("coremltools-component-milinternal", ""),
    ("coremltools-version", "9.0"),
)


@dataclass
class Draft:
    """A text that is being fixed: what stands in it, and names that are free."""

    text: str
    subject: Subject = field(init=False)

    def __post_init__(self) -> None:
        tree, graph = parse_text(self.text), parse_mil(self.text)
        self.subject = Subject(self.text, tree, graph, System(None), "in-memory", "unknown")
        names = {p.name for f in tree.functions for p in f.inputs}
        names |= {r.name for f in tree.functions for c in f.body.statements for r in c.results}
        self.name = Names(names).unique

    @property
    def is_old(self) -> bool:
        """True where scalars are spelled ``tensor<T, []>``."""
        return self.subject.tree.version in ("1.0", "1")

    def scalar(self, dtype: str) -> str:
        """A scalar type in the text's dialect."""
        return f"tensor<{dtype}, []>" if self.is_old else dtype

    def label(self, name: str) -> str:
        return f'[name = {self.scalar("string")}("{name}")]'

    def constant(self, name: str, type_: str, value: str) -> str:
        """A const statement."""
        return f'{type_} {name} = const()[name = {self.scalar("string")}("{name}"), val = {type_}({value})];'

    def statement(self, finding: Finding) -> Statement | None:
        """The statement that a finding points into."""
        start, end = span_at(self.text, TextPlace(finding.line, finding.column))
        for statement in self.subject.statements:
            if start <= offset_of(self.text, statement.place) < end:
                return statement
        return None


Lines = list[str]
Fix = Callable[[Draft, Statement], Lines | None]
FIXES: dict[str, Fix] = {}


def fix(rule: str) -> Callable[[Fix], Fix]:
    """Declare a fix that puts statements in place of one."""

    def declare(function: Fix) -> Fix:
        FIXES[rule] = function
        return function

    return declare


def _original(draft: Draft, statement: Statement) -> str:
    start, end = span_at(draft.text, statement.place)
    return draft.text[start:end]


def _result(draft: Draft, statement: Statement) -> tuple[str, str]:
    """The type, as written, and the name of the result."""
    head = _original(draft, statement).split("=", 1)[0].strip()
    type_, _, name = head.rpartition(" ")
    return type_.strip(), name


def _argument(statement: Statement, name: str) -> str | None:
    operand = statement.call.arguments.get(name)
    return operand.content if operand is not None and operand.kind == "name" else None


def _with_argument(line: str, addition: str) -> str:
    """A call with one argument more."""
    first, last = bracketed(line, line.index("=") + 1)
    inside = line[first:last].rstrip()
    return f"{line[:first]}{inside}{', ' if inside else ''}{addition}{line[last:]}"


def _without_argument(line: str, name: str) -> str:
    first, last = bracketed(line, line.index("=") + 1)
    items = [item for item in split_items(line[first:last]) if item.split("=")[0].strip() != name]
    return f"{line[:first]}{', '.join(items)}{line[last:]}"


@fix("T5")
def _name_flags(draft: Draft, statement: Statement) -> Lines | None:
    line, before = _original(draft, statement), []
    for name, operand in statement.call.arguments.items():
        if operand.kind == "literal" and isinstance(operand.content, bool):
            flag = draft.name(f"{statement.name}_{name}")
            before.append(draft.constant(flag, draft.scalar("bool"), "true" if operand.content else "false"))
            line = re.sub(rf"\b{name}\s*=\s*(true|false)\b", f"{name} = {flag}", line)
    return [*before, line]


@fix("T8")
def _whole_concat(draft: Draft, statement: Statement) -> Lines | None:
    line, arguments, before = _original(draft, statement), statement.call.arguments, []
    if "values" not in arguments:
        x, y = _argument(statement, "x"), _argument(statement, "y")
        if x is None or y is None:
            return None
        line = _with_argument(_without_argument(_without_argument(line, "x"), "y"), f"values = ({x}, {y})")
    if statement.shape("axis"):
        axis = statement.value("axis")
        if axis is None or not axis.is_constant or axis.type.count != 1:  # type: ignore[union-attr]
            return None
        name = draft.name(f"{statement.name}_axis")
        before.append(draft.constant(name, draft.scalar("int32"), str(int(axis.data.reshape(-1)[0]))))
        line = _with_argument(_without_argument(line, "axis"), f"axis = {name}")
    if "interleave" not in arguments:
        name = draft.name(f"{statement.name}_interleave")
        before.append(draft.constant(name, draft.scalar("bool"), "false"))
        line = _with_argument(line, f"interleave = {name}")
    return [*before, line]


@fix("T10")
def _epsilon(draft: Draft, statement: Statement) -> Lines | None:
    name = draft.name(f"{statement.name}_epsilon")
    dtype = statement.op.outputs[0].dtype
    line = _with_argument(_original(draft, statement), f"epsilon = {name}")
    return [draft.constant(name, draft.scalar(dtype), "0x0p+0"), line]


@fix("O2")
def _gelu(draft: Draft, statement: Statement) -> Lines | None:
    x = _argument(statement, "x")
    if x is None:
        return None
    type_, result = _result(draft, statement)
    dtype = draft.scalar(statement.op.outputs[0].dtype)
    parts = {part: draft.name(f"{result}_{part}") for part in ("cubic", "root", "half", "one", "x2", "x3", "scaled")}
    steps = {step: draft.name(f"{result}_{step}") for step in ("sum", "inner", "tanh", "plus", "gate")}

    def call(name: str, op: str, a: str, b: str | None = None) -> str:
        arguments = f"x = {a}" if b is None else f"x = {a}, y = {b}"
        return f"{type_} {name} = {op}({arguments}){draft.label(name)};"

    return [
        draft.constant(parts["cubic"], dtype, "0x1.6e4p-5"),
        draft.constant(parts["root"], dtype, "0x1.988p-1"),
        draft.constant(parts["half"], dtype, "0x1p-1"),
        draft.constant(parts["one"], dtype, "0x1p+0"),
        call(parts["x2"], "mul", x, x),
        call(parts["x3"], "mul", parts["x2"], x),
        call(parts["scaled"], "mul", parts["x3"], parts["cubic"]),
        call(steps["sum"], "add", x, parts["scaled"]),
        call(steps["inner"], "mul", steps["sum"], parts["root"]),
        call(steps["tanh"], "tanh", steps["inner"]),
        call(steps["plus"], "add", steps["tanh"], parts["one"]),
        call(steps["gate"], "mul", steps["plus"], parts["half"]),
        call(result, "mul", x, steps["gate"]),
    ]


@fix("O3")
def _bias(draft: Draft, statement: Statement) -> Lines | None:
    bias = _argument(statement, "bias")
    if bias is None or len(statement.shape("bias")) != 1:
        return None
    type_, result = _result(draft, statement)
    line = _without_argument(_original(draft, statement), "bias")
    plain, shape, wide = (draft.name(f"{result}_{part}") for part in ("plain", "bias_shape", "bias"))
    value = statement.op.outputs[0]
    extents = [1, statement.shape("bias")[0], *([1] * (value.rank - 2))]
    shape_type = f"tensor<int32, [{len(extents)}]>"
    wide_type = f"tensor<{value.dtype}, {extents}>"
    head, _, rest = line.partition("=")
    return [
        f"{type_} {plain} ={rest}" if head else line,
        draft.constant(shape, shape_type, str(extents)),
        f"{wide_type} {wide} = reshape(shape = {shape}, x = {bias}){draft.label(wide)};",
        f"{type_} {result} = add(x = {plain}, y = {wide}){draft.label(result)};",
    ]


@fix("O5")
def _rsqrt(draft: Draft, statement: Statement) -> Lines | None:
    x, epsilon = _argument(statement, "x"), statement.value("epsilon")
    if x is None or (epsilon is not None and not epsilon.is_constant):
        return None
    type_, result = _result(draft, statement)
    power = draft.name(f"{result}_power")
    lines = [draft.constant(power, draft.scalar(statement.op.outputs[0].dtype), "-0x1p-1")]
    if epsilon is not None and float(epsilon.data) != 0.0:
        shifted = draft.name(f"{result}_shifted")
        name = _argument(statement, "epsilon")
        if name is None:
            return None
        lines.append(f"{type_} {shifted} = add(x = {x}, y = {name}){draft.label(shifted)};")
        x = shifted
    return [*lines, f"{type_} {result} = pow(x = {x}, y = {power}){draft.label(result)};"]


@fix("O8")
def _identity(draft: Draft, statement: Statement) -> Lines | None:
    x, dtype = _argument(statement, "x"), statement.op.outputs[0].dtype
    if x is None or dtype not in ("fp16", "fp32"):
        return None
    type_, result = _result(draft, statement)
    one = draft.name(f"{result}_one")
    return [
        draft.constant(one, draft.scalar(dtype), "0x1p+0"),
        f"{type_} {result} = mul(x = {x}, y = {one}){draft.label(result)};",
    ]


@fix("O10")
def _slice(draft: Draft, statement: Statement) -> Lines | None:
    x, begin, end = _argument(statement, "x"), statement.constant("begin"), statement.constant("end")
    stride, shape = statement.constant("stride"), statement.shape("x")
    masks = [statement.constant(mask) for mask in ("begin_mask", "end_mask", "squeeze_mask")]
    if x is None or begin is None or end is None or any(mask and any(mask) for mask in masks):
        return None
    if stride is not None and any(step != 1 for step in stride):
        return None
    starts = [b + n if b < 0 else b for b, n in zip(begin, shape)]
    stops = [min(e + n if e < 0 else e, n) for e, n in zip(end, shape)]
    type_, result = _result(draft, statement)
    first, size = draft.name(f"{result}_begin"), draft.name(f"{result}_size")
    vector = f"tensor<int32, [{len(shape)}]>"
    return [
        draft.constant(first, vector, str(starts)),
        draft.constant(size, vector, str([stop - start for start, stop in zip(starts, stops)])),
        f"{type_} {result} = slice_by_size(begin = {first}, size = {size}, x = {x}){draft.label(result)};",
    ]


# -- what is no statement ---------------------------------------------------------------------------------------------


def _header(draft: Draft, _: Finding) -> list[Edit]:
    match = re.search(r"program\s*\([^)]*\)", draft.text)
    if match is None:
        return []
    string = draft.scalar("string")
    pairs = ", ".join(f'{{"{key}", "{value}"}}' for key, value in BUILD_INFO)
    attribute = f"buildInfo = dict<{string}, {string}>({{{pairs}}})"
    rest = draft.text[match.end() :]
    bracket = re.match(r"\s*\[", rest)
    if bracket:
        at = match.end() + bracket.end()
        return [Edit(at, at, f"{attribute}, " if rest[bracket.end() :].lstrip()[:1] != "]" else attribute)]
    return [Edit(match.end(), match.end(), f"\n[{attribute}]")]


def _results(draft: Draft, finding: Finding) -> list[Edit]:
    start, end = span_at(draft.text, TextPlace(finding.line, finding.column))
    first, last = bracketed(draft.text, start)
    names = binding_order(split_items(draft.text[first:last]), results=True)
    return [Edit(first, last, ", ".join(names))] if start < end else []


def _inputs(draft: Draft, finding: Finding) -> list[Edit]:
    at = offset_of(draft.text, draft.subject.main.place)
    first, last = bracketed(draft.text, at)
    declared = split_items(draft.text[first:last])
    types = dict(zip((p.name for p in draft.subject.main.inputs), declared))
    return [Edit(first, last, ", ".join(types[name] for name in binding_order(list(types))))]


def _offset(draft: Draft, finding: Finding) -> list[Edit]:
    blobs = draft.subject.blobs
    wrong = next((b for b in blobs if (b.place.line, b.place.column) == (finding.line, finding.column)), None)
    if wrong is None or any(b.path == wrong.path and b.offset == FIRST_RECORD for b in blobs):
        return []
    start, end = span_at(draft.text, wrong.place)
    match = re.search(r"(offset\s*=\s*[^()]*\(\s*)(\d+)(\s*\))", draft.text[start:end])
    return [Edit(start + match.start(2), start + match.end(2), str(FIRST_RECORD))] if match else []


ELSEWHERE: dict[str, Callable[[Draft, Finding], list[Edit]]] = {
    "T2": _header,
    "S2": _results,
    "S7": _inputs,
    "W2": _offset,
}


def is_fixable(rule: str) -> bool:
    """True where a rule has a mechanical way out."""
    return rule in FIXES or rule in ELSEWHERE


def edits_for(draft: Draft, finding: Finding) -> list[Edit]:
    """The edits that take a finding away; none where it has no mechanical way out."""
    if finding.rule in ELSEWHERE:
        return ELSEWHERE[finding.rule](draft, finding)
    statement = draft.statement(finding) if finding.rule in FIXES else None
    lines = FIXES[finding.rule](draft, statement) if statement is not None else None
    if not lines or statement is None:
        return []
    start, end = span_at(draft.text, statement.place)
    indent = indent_at(draft.text, start)
    separator = f"\n{indent}" if indent != " " else " "
    return [Edit(start, end, separator.join(lines))]


def fixed(text: str, findings: Callable[[str], list[Finding]]) -> tuple[str, list[Finding]]:
    """The text with every mechanical fix made, and the findings that were fixed.

    ``findings`` gives the findings of a text. The fixes of one rule are made together, then the text is checked again,
    so that one rule's fix may take another's finding away.
    """
    repaired: list[Finding] = []
    attempts: set[str] = set()
    while True:
        remaining = findings(text)
        rule = next((f.rule for f in remaining if f.fixable and f.rule not in attempts), None)
        if rule is None:
            return text, repaired
        attempts.add(rule)
        draft, edits = Draft(text), {}
        for finding in remaining:
            if finding.rule == rule:
                draft_edits = edits_for(draft, finding)
                repaired += [finding] if draft_edits else []
                edits.update({(edit.start, edit.end): edit for edit in draft_edits})
        text = applied(text, list(edits.values()))


def difference(old: str, new: str, name: str, to: str) -> Iterator[str]:
    """The lines of a unified diff."""
    return difflib.unified_diff(old.splitlines(), new.splitlines(), name, to, lineterm="")
