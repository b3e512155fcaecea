"""MIL text to a syntax tree of plain records, by the grammar beside this file."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError

from hexane.errors import GraphError, SyntaxProblem, quoted_line
from hexane.formats.mil.literals import Blob, Braces, Parens, TypedValue, number, numbers, unquoted
from hexane.formats.mil.tree import (
    BlockText,
    Body,
    Call,
    FunctionText,
    Located,
    MilOperand,
    Parameter,
    ProgramText,
    TextPlace,
    place_of,
)
from hexane.graph.types import BufferType, DictType, ListType, StateType, TensorType, TupleType

DEPTH_LIMIT = 64
"""Deepest nesting of brackets of any kind; nothing real comes near."""


_TENSOR = re.compile(r"tensor\s*<\s*(\w+)\s*,\s*\[([^\]]*)\]")


# What the terminal CONSTANT of the grammar has found well-formed, taken apart.
_TYPE = r"tensor\s*<[^>]*>|\w+"
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_CONSTANT = re.compile(
    rf"({_TYPE})\s+([\w.]+)\s*=\s*const\s*\(\s*\)\s*\[\s*name\s*=\s*({_TYPE})\s*\(\s*({_QUOTED})\s*\)"
    rf"\s*,\s*val\s*=\s*({_TYPE})\s*\(\s*(.*\S)\s*\)\s*\]\s*;",
    re.DOTALL,
)
_BLOB = re.compile(
    rf"BLOBFILE\s*\(\s*path\s*=\s*(?:{_TYPE})\s*\(\s*({_QUOTED})\s*\)"
    rf"\s*,\s*offset\s*=\s*(?:{_TYPE})\s*\(\s*([^\s)]+)\s*\)\s*\)",
    re.DOTALL,
)


def _place_in(token: Token, start: int) -> TextPlace:
    """The place of the character ``start`` of a token."""
    line, column = token.line or 1, token.column or 1
    lines = token.count("\n", 0, start)
    return TextPlace(line + lines, start - token.rfind("\n", 0, start) if lines else column + start)


def _part(token: Token, start: int, text: str) -> Token:
    """A part of a token as a token of its own, with its place."""
    place = _place_in(token, start)
    return Token(token.type, text, line=place.line, column=place.column)


class _Builder(Transformer):
    """Called while the text is parsed, innermost rule first; children arrive as a list."""

    def __init__(self) -> None:
        super().__init__(visit_tokens=False)
        self._types: dict[str, TensorType] = {}

    # Types

    def scalar(self, children: list) -> TensorType:
        return TensorType(str(children[0]), ())

    def tensor_token(self, children: list) -> TensorType:
        token = children[0]
        tensor_type = self._types.get(token)
        if tensor_type is None:
            match = _TENSOR.match(token)
            assert match is not None
            shape = tuple(None if e == "?" else int(e) for e in map(str.strip, match[2].split(",")) if e)
            tensor_type = self._types[str(token)] = self._checked(TensorType, place_of(token), match[1], shape)
        return tensor_type

    def _checked(self, make: Any, place: TextPlace, *arguments: Any) -> Any:
        try:
            return make(*arguments)
        except GraphError as error:
            raise Located(error.message, place, error.hint) from None

    def shape_token(self, children: list) -> tuple[Token, tuple]:
        token = children[0]
        extents = _read(numbers, token)
        if not all(isinstance(extent, int) and extent >= 0 for extent in extents):
            raise Located("a shape is a list of whole numbers from 0 on", place_of(token))
        return token, tuple(extents)

    def extent(self, children: list) -> tuple[Token, int]:
        value = _read(number, children[0])
        if not isinstance(value, int) or value < 0:
            raise Located("an extent is a whole number from 0 on", place_of(children[0]))
        return children[0], value

    def unknown(self, children: list) -> tuple[None, None]:
        return None, None

    def shape(self, children: list) -> tuple[Any, tuple]:
        token = next((token for token, _ in children if token is not None), None)
        return token, tuple(extent for _, extent in children)

    def tensor(self, children: list) -> TensorType:
        scalar, (token, shape) = children
        return self._checked(TensorType, place_of(token or scalar), str(scalar), shape)

    def buffer(self, children: list) -> BufferType:
        scalar, (token, shape), (_, strides), (_, factors) = children
        return self._checked(BufferType, place_of(token or scalar), str(scalar), shape, strides, factors)

    def state(self, children: list) -> StateType:
        if not isinstance(children[0], TensorType):
            raise GraphError("a state holds a tensor")
        return StateType(children[0])

    def list_type(self, children: list) -> ListType:
        return ListType(children[0], children[1][1])

    def tuple_type(self, children: list) -> TupleType:
        return TupleType(tuple(children))

    def dict_type(self, children: list) -> DictType:
        return DictType(*children)

    # Values

    def number(self, children: list) -> Any:
        return _read(number, children[0])

    def numbers(self, children: list) -> Any:
        return _read(numbers, children[0])

    def string(self, children: list) -> str:
        return unquoted(children[0])

    def true(self, children: list) -> bool:
        return True

    def false(self, children: list) -> bool:
        return False

    def list_literal(self, children: list) -> Any:
        return list(children)

    def braces(self, children: list) -> Braces:
        return Braces(children)

    def parens(self, children: list) -> Parens:
        return Parens(children)

    def literal(self, children: list) -> Any:
        return children[0]

    payload = literal

    def blob(self, children: list) -> Blob:
        fields = {str(children[0]): children[1], str(children[2]): children[3]}
        path, offset = fields.get("path"), fields.get("offset")
        if path is None or offset is None:
            raise Located("BLOBFILE takes path and offset", place_of(children[0]))
        if not isinstance(path.payload, str) or not isinstance(offset.payload, int) or offset.payload < 0:
            raise Located("BLOBFILE takes a string and a whole number from 0 on", place_of(children[0]))
        return Blob(path.payload, offset.payload)

    def value(self, children: list) -> TypedValue:
        return TypedValue(children[0], children[1] if len(children) > 1 else None)

    # Structure

    def constant(self, children: list) -> Call:
        token = children[0]
        match = _CONSTANT.fullmatch(token)
        assert match is not None
        name = Parameter(self._type_at(token, match, 1), match[2], _place_in(token, match.start(2)), {})
        text = match[6]
        if text[0] == '"':
            payload: Any = unquoted(text)
        elif text[0] == "B":
            payload = self._blob_at(token, match.start(6), text)
        elif text in ("true", "false"):
            payload = text == "true"
        else:
            payload = _read(numbers if text[0] == "[" else number, _part(token, match.start(6), text))
        label = TypedValue(self._type_at(token, match, 3), unquoted(match[4]))
        attributes = {"name": label, "val": TypedValue(self._type_at(token, match, 5), payload)}
        place = _place_in(token, token.index("const", match.end(2)))
        return Call("const", None, {}, attributes, [], place, [name])

    def _type_at(self, token: Token, match: re.Match[str], group: int) -> TensorType:
        tensor_type = self._types.get(match[group])
        if tensor_type is not None:
            return tensor_type
        part = _part(token, match.start(group), match[group])
        if part.startswith("tensor"):
            return self.tensor_token([part])
        return self._types.setdefault(match[group], TensorType(match[group], ()))

    def _blob_at(self, token: Token, start: int, text: str) -> Blob:
        match = _BLOB.fullmatch(text)
        assert match is not None
        offset = _read(number, _part(token, start + match.start(2), match[2]))
        if not isinstance(offset, int) or offset < 0:
            raise Located(
                "BLOBFILE takes a string and a whole number from 0 on", _place_in(token, start + text.index("path"))
            )
        return Blob(unquoted(match[1]), offset)

    def attribute(self, children: list) -> tuple[Token, TypedValue]:
        return children[0], children[1]

    def attributes(self, children: list) -> dict[str, TypedValue]:
        values: dict[str, TypedValue] = {}
        for name, value in children:
            if name in values:
                raise Located(f"attribute {name} is given twice", place_of(name))
            values[str(name)] = value
        return _Attributes(values)

    def opset(self, children: list) -> _Opset:
        return _Opset(children[0])

    def parameter(self, children: list) -> Parameter:
        attributes = children[2] if len(children) > 2 else {}
        return Parameter(children[0], str(children[1]), place_of(children[1]), attributes)

    def reference(self, children: list) -> MilOperand:
        return MilOperand("name", str(children[0]), place_of(children[0]))

    def inline(self, children: list) -> MilOperand:
        return MilOperand("value", children[0], _NOWHERE)

    def bare(self, children: list) -> MilOperand:
        return MilOperand("literal", children[0], _NOWHERE)

    def operands(self, children: list) -> MilOperand:
        return MilOperand("tuple", children, children[0].place if children else _NOWHERE)

    def argument(self, children: list) -> tuple[Token, MilOperand]:
        name, operand = children
        if operand.place is _NOWHERE:
            operand.place = place_of(name)
        return name, operand

    def call(self, children: list) -> Call:
        call = Call(str(children[0]), None, {}, {}, [], place_of(children[0]))
        for child in children[1:]:
            if isinstance(child, _Opset):
                call.opset = str(child)
            elif isinstance(child, _Attributes):
                call.attributes = child
            elif isinstance(child, _Blocks):
                call.blocks = child
            else:
                name, operand = child
                if name in call.arguments:
                    raise Located(f"argument {name} is given twice", place_of(name))
                call.arguments[str(name)] = operand
        return call

    def results(self, children: list) -> Any:
        return children

    def assignment(self, children: list) -> Call:
        children[1].results = children[0]
        return children[1]

    def bare_call(self, children: list) -> Call:
        return children[0]

    def body(self, children: list) -> Body:
        statements = [child for child in children if isinstance(child, Call)]
        outputs = [(str(child), place_of(child)) for child in children if isinstance(child, Token)]
        return Body(statements, outputs)

    def block(self, children: list) -> BlockText:
        return BlockText(children[:-1], children[-1])

    def blocks(self, children: list) -> _Blocks:
        return _Blocks(children)

    def function(self, children: list) -> FunctionText:
        name, body = children[0], children[-1]
        function = FunctionText(str(name), None, [], {}, body, place_of(name))
        for child in children[1:-1]:
            if isinstance(child, _Opset):
                function.opset = str(child)
            elif isinstance(child, _Attributes):
                function.attributes = child
            else:
                function.inputs.append(child)
        return function

    def start(self, children: list) -> ProgramText:
        attributes = children[1] if isinstance(children[1], _Attributes) else {}
        functions = [child for child in children if isinstance(child, FunctionText)]
        return ProgramText(str(children[0]), attributes, functions)


def _read(read: Any, token: Token) -> Any:
    """A number's or a list's value; Located when it is none that a computer holds (``0x1p99999``, 5000 digits)."""
    try:
        return read(token)
    except (ValueError, OverflowError):
        raise Located(f"{str(token)[:40]!r} cannot be read as a number", place_of(token)) from None


class _Opset(str):
    __slots__ = ()


class _Attributes(dict):
    pass


class _Blocks(list):
    pass


_NOWHERE = TextPlace(0, 0)


@lru_cache(maxsize=1)
def _parser() -> Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", transformer=_Builder(), maybe_placeholders=False)


_READABLE = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "SCALAR": "a type",
    "TENSOR": "a type",
    "NUMBERS": "a list of numbers",
    "$END": "the end",
    "LPAR": "(",
    "RPAR": ")",
    "LSQB": "[",
    "RSQB": "]",
    "LBRACE": "{",
    "RBRACE": "}",
    "COMMA": ",",
    "SEMICOLON": ";",
    "EQUAL": "=",
    "LESSTHAN": "<",
    "MORETHAN": ">",
    "__ANON_0": "->",
}


def _expected(names: Any) -> str | None:
    shown = sorted({_READABLE[name] for name in names if name in _READABLE})[:6]
    return f"expected {' or '.join(shown)}" if shown else None


def problem_at(text: str, name: str, message: str, line: int, column: int, hint: str | None = None) -> SyntaxProblem:
    """A SyntaxProblem that shows the line of text; of a very long line, the part around the place."""
    lines = text.split("\n")
    line, column = min(max(line, 1), len(lines)), max(column, 1)
    source = lines[line - 1].replace("\t", " ").rstrip("\r")
    if len(source) <= 300:
        return SyntaxProblem(message, line=line, column=column, source=source, name=name, hint=hint)
    start = max(0, min(column - 100, len(source) - 200))
    part = f"{message}\n    {quoted_line(source[start : start + 200])}\n    {' ' * (column - 1 - start)}^"
    return SyntaxProblem(part, line=line, column=column, name=name, hint=hint)


_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|->|[\[({<]|[\])}>]', re.DOTALL)


def _check_depth(text: str, name: str) -> None:
    """SyntaxProblem where brackets nest too deeply for anything that walks the tree."""
    depth = 0
    for match in _BRACKET.finditer(text):
        sign = match[0]
        if sign in "[({<":
            depth += 1
            if depth > DEPTH_LIMIT:
                line = text.count("\n", 0, match.start()) + 1
                column = match.start() - text.rfind("\n", 0, match.start())
                raise problem_at(text, name, f"brackets nest more than {DEPTH_LIMIT} deep", line, column)
        elif sign in "])}>":
            depth -= 1


def parse_text(text: str, name: str = "line") -> ProgramText:
    """The syntax tree; SyntaxProblem with line, column and caret for the first mistake."""
    _check_depth(text, name)
    try:
        return _parser().parse(text)  # type: ignore[return-value]
    except UnexpectedToken as error:
        if error.token.type == "$END":
            last = text.rstrip().split("\n")
            raise problem_at(text, name, "the text ends too early", len(last), len(last[-1]) + 1) from None
        shown = str(error.token) if len(str(error.token)) <= 40 else str(error.token)[:37] + "..."
        hint = _expected(error.accepts or error.expected)
        raise problem_at(text, name, f"{shown!r} does not belong here", error.line, error.column, hint) from None
    except UnexpectedCharacters as error:
        position = error.pos_in_stream
        shown = text[position] if position is not None and position < len(text) else "the end"
        hint = _expected(error.allowed or ())
        raise problem_at(text, name, f"{shown!r} does not belong here", error.line, error.column, hint) from None
    except UnexpectedInput as error:
        raise problem_at(text, name, "the text cannot be read", error.line, error.column) from None
    except Located as error:
        raise problem_at(text, name, error.message, error.place.line, error.place.column, error.hint) from None
    except VisitError as error:
        raise problem_at(text, name, str(error.orig_exc), 1, 1) from None
    except GraphError as error:
        raise problem_at(text, name, error.message, 1, 1, error.hint) from None
