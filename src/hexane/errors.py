"""One family of exceptions: every message says what was wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum

_LONGEST = 4000
"""Characters of a message's part; a name or number in hostile input may have millions."""


def _bounded(text: str) -> str:
    """The text, or both ends of a long one, with control characters as escapes: no file commands a terminal."""
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        text = f"{text[:half]} ... ({len(text) - 2 * half} more characters) ... {text[-half:]}"
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def quoted_line(source: str) -> str:
    """A line of a file as a message repeats it: a sign in place of each control character, so that columns stay."""
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in source)


class HexaneError(Exception):
    """Anything that hexane refuses, with the place and, where there is one, the way out.

    Parameters
    ----------
    message : what was wrong, one sentence without a full stop.
    where : the place in the user's own terms (``file.hwx at byte 0x4000``, ``task[3].NE.MACCfg``).
    hint : what to do about it.

    ``code`` says which kind of error it is, in a word that does not change with the message.
    """

    code: str = "error"

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.message = _bounded(message)
        self.where = where and _bounded(where)
        self.hint = hint and _bounded(hint)
        super().__init__(self.__str__())

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        if not self.hint:
            return text
        return f"{text}\n    {self.hint}" if "\n" in text else f"{text}; {self.hint}"

    def __reduce__(self) -> tuple:
        return (_rebuild, (type(self), self.message, self.where, self.hint, self.__dict__))


def _rebuild(kind: type[HexaneError], message: str, where: str | None, hint: str | None, state: dict) -> HexaneError:
    error = kind.__new__(kind)
    HexaneError.__init__(error, message, where=where, hint=hint)
    error.__dict__.update(state)
    return error


class FormatError(HexaneError):
    """A file's content is not what its format asks for. ``offset`` is the byte offset, where it is known."""

    code = "format"

    def __init__(
        self, message: str, *, offset: int | None = None, where: str | None = None, hint: str | None = None
    ) -> None:
        self.offset = offset
        if offset is not None:
            where = f"{where} at byte {offset:#x}" if where else f"byte {offset:#x}"
        super().__init__(message, where=where, hint=hint)


_SHOWN = 160
"""Characters of a line that a message repeats."""


def _around(source: str, at: int) -> tuple[str, int]:
    """The line, or the part of a long one around a position, and the position in it."""
    source = quoted_line(source)
    if len(source) <= _SHOWN:
        return source, at
    start = max(0, at - _SHOWN // 2)
    prefix = "..." if start else ""
    right = "..." if start + _SHOWN < len(source) else ""
    return f"{prefix}{source[start : start + _SHOWN]}{right}", at - start + len(prefix)


class SyntaxProblem(HexaneError):
    """Text (assembly, MIL, a command's argument) that does not parse. ``line`` and ``column`` count from 1."""

    code = "syntax"

    def __init__(
        self,
        message: str,
        *,
        line: int,
        column: int,
        source: str | None = None,
        name: str = "line",
        hint: str | None = None,
    ) -> None:
        self.line = line
        self.column = column
        self.source = source
        where = f"{name} {line}, column {column}" if name == "line" else f"{name}:{line}:{column}"
        if source is not None:
            excerpt, at = _around(source, column - 1)
            message = f"{message}\n    {excerpt}\n    {' ' * at}^"
        super().__init__(message, where=where, hint=hint)


class GraphError(HexaneError):
    """A graph breaks a type, shape or structure rule of the MIL vocabulary."""

    code = "graph"


class Reason(StrEnum):
    """Reason why an op or a network is not supported; advice is chosen by it, never by the words of a message.

    In the order of their weight: of several refusals of one op, the first of these is the one to answer.
    """

    ELEMENT_TYPE = "element-type"  # a dtype that the engine does not compute in
    SHAPE = "shape"  # extents that depend on data, or no elements
    RANK = "rank"  # more axes than a task has
    EXTENT = "extent"  # an axis, or a count of rows, that no task takes
    MEMORY = "memory"  # more than L2, scratch or a core's kernel memory holds
    COMPUTED = "computed-operand"  # an operand that has to be a constant
    CONSTANT = "constant-operand"  # an operand that has to be computed
    WINDOW = "window"
    DILATION = "dilation"
    STRIDE = "stride"
    GROUPS = "groups"
    PADDING = "padding"
    BROADCAST = "broadcast"
    BATCH = "batch"
    LAYOUT = "layout"  # an order of axes or bytes that no task reads or writes
    SURFACES = "surfaces"  # more inputs and outputs than channels
    STATE = "state"  # something that lives between calls
    EVIDENCE = "evidence"  # only inferred tasks, and ``strict`` refuses these
    CHIP = "chip"  # a generation that hexane does not write for
    OPERATION = "operation"  # the engine has no such op, or not in this form


class UnsupportedError(HexaneError):
    """Well-formed, and not something that hexane (or the engine) can do; the message says which of the two."""

    code: Reason

    def __init__(
        self, message: str, *, where: str | None = None, hint: str | None = None, code: Reason = Reason.OPERATION
    ) -> None:
        self.code = code
        super().__init__(message, where=where, hint=hint)


class UsageError(HexaneError):
    """An argument of a call or of a command is wrong (name, dtype, shape, range)."""

    code = "usage"


class EmulationError(HexaneError):
    """The emulated engine met a state that real hardware would hang on or that no rule covers.

    ``task`` is the task's index, ``register`` its dotted name, ``address`` a byte address in the memory named in the
    message; each is None where it does not apply.
    """

    code = "emulation"

    def __init__(
        self,
        message: str,
        *,
        task: int | None = None,
        register: str | None = None,
        address: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.task = task
        self.register = register
        self.address = address
        parts = [] if task is None else [f"task[{task}]"]
        if register is not None:
            parts.append(register)
        where = ".".join(parts) or None
        if address is not None:
            where = f"{where} at {address:#x}" if where else f"{address:#x}"
        super().__init__(message, where=where, hint=hint)


def nearest(name: object, choices: Iterable[str]) -> str | None:
    """A hint that names the choice which a misspelt name is close to; None where none is."""
    near = get_close_matches(str(name), list(choices), 1)
    return f"did you mean {near[0]!r}?" if near else None
