"""The syntax tree of a MIL text: plain records, each with its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hexane.errors import HexaneError
from hexane.formats.mil.literals import TypedValue

if TYPE_CHECKING:
    from lark import Token


@dataclass(frozen=True)
class TextPlace:
    """Line and column, from 1."""

    line: int
    column: int


@dataclass
class Parameter:
    """A typed name: a function's input or an op's result."""

    type: Any
    name: str
    place: TextPlace
    attributes: dict[str, TypedValue]


@dataclass
class MilOperand:
    """An argument: ``kind`` is "name", "value", "literal" or "tuple"."""

    kind: str
    content: Any
    place: TextPlace


@dataclass
class Call:
    """``op<opset>(arguments)[attributes]``."""

    type: str
    opset: str | None
    arguments: dict[str, MilOperand]
    attributes: dict[str, TypedValue]
    blocks: list[BlockText]
    place: TextPlace
    results: list[Parameter] = field(default_factory=list)


@dataclass
class Body:
    statements: list[Call]
    outputs: list[tuple[str, TextPlace]]


@dataclass
class BlockText:
    inputs: list[Parameter]
    body: Body


@dataclass
class FunctionText:
    name: str
    opset: str | None
    inputs: list[Parameter]
    attributes: dict[str, TypedValue]
    body: Body
    place: TextPlace


@dataclass
class ProgramText:
    version: str
    attributes: dict[str, TypedValue]
    functions: list[FunctionText]


class Located(HexaneError):
    """A mistake with its place; the reader turns it into a SyntaxProblem with the line of text."""

    def __init__(self, message: str, place: TextPlace, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.place = place


def place_of(token: Token) -> TextPlace:
    return TextPlace(token.line or 1, token.column or 1)
