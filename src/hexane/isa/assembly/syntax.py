"""Lines of assembly text as values. Lines are parsed one by one; equal lines are parsed once."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any, NoReturn

from hexane.errors import SyntaxProblem

LONGEST_LINE = 1 << 20


@dataclass(frozen=True, slots=True)
class Expression:
    """``kind`` is number, real, name, text, list, call, or an operator; ``parts`` what it is made of."""

    kind: str
    parts: tuple[Any, ...]
    column: int


@dataclass(frozen=True, slots=True)
class Path:
    """A register, or elements ``first`` to ``last`` of an array of them."""

    name: str  # "Common.InDim", "Header"
    first: int | None
    last: int | None
    column: int


@dataclass(frozen=True, slots=True)
class DirectiveLine:
    name: str
    arguments: tuple[Expression, ...]
    options: tuple[tuple[str, Expression], ...]
    column: int


@dataclass(frozen=True, slots=True)
class TaskLine:
    label: str
    column: int


@dataclass(frozen=True, slots=True)
class RecordLine:
    form: str
    slot: Expression | None
    column: int


@dataclass(frozen=True, slots=True)
class ZeroLine:
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class RegisterLine:
    path: Path
    fields: tuple[tuple[str, Expression, int], ...]  # name, value, column; the name "" gives the whole word


@dataclass(frozen=True)
class Directive:
    """A directive that the caller asked for.

    ``arguments`` and ``options`` hold integers, floats, strings (names and quoted text alike) and lists of these.
    """

    name: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    line: int
    column: int
    source: str = field(repr=False, default="")
    file: str = field(repr=False, default="line")

    def fail(self, message: str, hint: str | None = None) -> NoReturn:
        """Raise a SyntaxProblem at this directive."""
        raise SyntaxProblem(
            f".{self.name}: {message}",
            line=self.line,
            column=self.column,
            source=self.source,
            name=self.file,
            hint=hint,
        )


class LineProblem(Exception):
    """Error and its column (from 1); the reader of the file adds line and name."""

    def __init__(self, message: str, column: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.column, self.hint = message, column, hint


def parse_line(line: str) -> Any:
    """One of the ``...Line`` classes, or None for a line without a statement. Raises LineProblem."""
    stripped = line.strip()
    if not stripped or stripped.startswith(";"):
        return None
    return _parse(line)


@lru_cache(1 << 14)
def _parse(line: str) -> Any:
    from lark.exceptions import UnexpectedCharacters, UnexpectedInput, VisitError

    if len(line) > LONGEST_LINE:
        raise LineProblem(f"a line of {len(line)} characters", 1, f"{LONGEST_LINE} is the limit")
    try:
        return _parser().parse(line)
    except VisitError as error:
        if isinstance(error.orig_exc, LineProblem):
            raise error.orig_exc from None
        raise
    except UnexpectedCharacters as error:
        raise LineProblem(f"{line[error.column - 1]!r} does not belong here", error.column) from None
    except UnexpectedInput as error:
        token = getattr(error, "token", None)
        if token is None or token.type == "$END":
            raise LineProblem(f"the line ends too early; {_expected(error)}", len(line.rstrip()) + 1) from None
        raise LineProblem(f"{str(token)!r} does not belong here; {_expected(error)}", token.column) from None


_TERMINALS = {
    "NAME": "a name",
    "INT": "a number",
    "FLOAT": "a number",
    "STRING": "a text in quotes",
    "EQUAL": "=",
    "COMMA": ",",
    "LPAR": "(",
    "RPAR": ")",
    "LSQB": "[",
    "RSQB": "]",
    "DOT": ".",
    "COLON": ":",
    "$END": "the end of the line",
    "DIRECTIVE": "a directive",
}


def _expected(error: Any) -> str:
    tokens = getattr(error, "expected", None) or getattr(error, "accepts", None) or ()
    names = sorted({_TERMINALS[name] for name in tokens if name in _TERMINALS})
    return f"expected {' or '.join(names)}" if names else "expected something else"


@lru_cache(1)
def _parser() -> Any:
    from lark import Lark, Transformer, v_args

    @v_args(inline=True)
    class Build(Transformer):
        def nothing(self) -> None:
            return None

        def directive(self, name: Any, *rest: Any) -> DirectiveLine:
            arguments = tuple(part for part in rest if isinstance(part, Expression))
            options = tuple(part for part in rest if isinstance(part, tuple))
            return DirectiveLine(str(name)[1:], arguments, tuple((n, v) for n, v, _ in options), name.column)

        def option(self, name: Any, value: Expression) -> tuple:
            return (str(name), value, name.column)

        field = option

        def task(self, label: Any) -> TaskLine:
            return TaskLine(str(label), label.column)

        def record(self, form: Any, slot: Expression | None = None) -> RecordLine:
            return RecordLine(str(form), slot, form.column)

        def zero(self, *paths: Path) -> ZeroLine:
            return ZeroLine(paths)

        def fields(self, path: Path, *rows: tuple) -> RegisterLine:
            return RegisterLine(path, rows)

        def whole(self, path: Path, value: Expression) -> RegisterLine:
            return RegisterLine(path, (("", value, value.column),))

        def path(self, block: Any, register: Any, span: Any = (None, None)) -> Path:
            return Path(f"{block}.{register}", span[0], span[1], block.column)

        def header_path(self, block: Any, span: Any) -> Path:
            return Path(str(block), span[0], span[1], block.column)

        def range(self, first: Any, last: Any) -> tuple[int, int]:
            low = _integer(first)
            high = low if last is None else _integer(last)
            if high < low or high - low > 1023:
                raise LineProblem(f"no elements {low} to {high}", first.column)
            return low, high

        def list(self, *items: Expression) -> Expression:
            return Expression("list", items, items[0].column if items else 1)

        number, real = _leaf("number", _integer), _leaf("real", float)
        name, text = _leaf("name", str), _leaf("text", _unquote)

        def call(self, name: Any, *arguments: Expression) -> Expression:
            return Expression("call", (str(name), *arguments), name.column)

        or_, add, sub, mul, shl = map(_binary, ("|", "+", "-", "*", "<<"))

        def neg(self, a: Expression) -> Expression:
            return Expression("-", (Expression("number", (0,), a.column), a), a.column)

    grammar = files("hexane.isa.assembly").joinpath("line.lark").read_text()
    return Lark(grammar, start="line", parser="lalr", transformer=Build(), maybe_placeholders=True)


def _leaf(kind: str, value: Callable[[Any], Any]) -> Any:
    """The rule of an expression that is one token."""
    return lambda self, token: Expression(kind, (value(token),), token.column)


def _binary(kind: str) -> Any:
    """The rule of an expression of two operands."""
    return lambda self, a, b: Expression(kind, (a, b), a.column)


def _integer(token: Any) -> int:
    try:
        return int(str(token).replace("_", ""), 0) if str(token)[:1] == "0" and len(token) > 1 else int(token)
    except ValueError:
        raise LineProblem(f"{str(token)!r} is no number", token.column) from None


def _unquote(token: Any) -> str:
    try:
        return ast.literal_eval(str(token))
    except (ValueError, SyntaxError):
        raise LineProblem("a text with a wrong escape", token.column) from None
