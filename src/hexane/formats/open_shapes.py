"""Networks that leave extents open: what is taken without being asked, and how the rest is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hexane.errors import UsageError

NUMBER = "NUMBER"
"""What stands for an extent whose own name is in upper case."""

Extent = int | str | None
"""A known extent, the name of an open one, or None for an open one without a name."""

_BATCH = re.compile(r"batch|^(n|b|bs|nb)$", re.IGNORECASE)
_NAMELESS = re.compile(
    r"^((unk|unknown|dim|dyn|dynamic|axis)[_.a-z]*\d*|(p2o\.)?DynamicDimension[._]?\d*|[dsu]\d+|\?|)$", re.IGNORECASE
)
"""Names that exporters make up."""


class OpenShapes(UsageError):
    """A network leaves extents open that are needed.

    ``inputs`` gives the extents of every input, ``options`` the ``--shape`` options that would bind them (upper-case
    words stand for numbers), ``outputs`` and ``kinds`` what else is known of the network (op type to count).
    """

    def __init__(
        self,
        inputs: Mapping[str, Sequence[Extent]],
        *,
        where: str | None = None,
        outputs: Mapping[str, Sequence[Extent]] | None = None,
        kinds: Mapping[str, int] | None = None,
    ) -> None:
        self.inputs = {name: tuple(extents) for name, extents in inputs.items()}
        self.outputs = {name: tuple(extents) for name, extents in (outputs or {}).items()}
        self.kinds = dict(kinds or {})
        self.options = options_for(self.inputs)
        opened = [f"{name} {shape_text(extents)}" for name, extents in self.inputs.items() if is_open(extents)]
        super().__init__(
            f"the graph is static, and these inputs have open dimensions: {'; '.join(opened)}",
            where=where,
            hint=f"bind them: {' '.join(self.options)} (in Python hexane.load(path, shapes={python_for(self.inputs)}))",
        )


def is_made_up(name: str) -> bool:
    """True where an exporter made the name up, so that two extents of one name need not be one."""
    return _NAMELESS.match(name) is not None


def is_open(extents: Sequence[Extent]) -> bool:
    """True where an extent is not known."""
    return any(not isinstance(extent, int) for extent in extents)


def shape_text(extents: Sequence[Extent]) -> str:
    """``[1, height, ?]``."""
    return "[" + ", ".join("?" if extent is None else str(extent) for extent in extents) + "]"


def options_for(inputs: Mapping[str, Sequence[Extent]]) -> tuple[str, ...]:
    """One ``--shape`` option per named extent, or per input where an extent has no usable name."""
    options: dict[str, None] = {}
    for name, extents in inputs.items():
        names = [extent for extent in extents if not isinstance(extent, int)]
        if not names:
            continue
        if all(isinstance(symbol, str) and re.fullmatch(r"[A-Za-z_]\w*", symbol) for symbol in names):
            for symbol in names:
                word = str(symbol).upper()
                options[f"--shape {symbol}={word if word != symbol else NUMBER}"] = None
        else:
            words = iter("ABCDEFGHIJKLMNOPQRSTUVW")
            filled = [str(e) if isinstance(e, int) else next(words) for e in extents]
            options[f"--shape {name}={'x'.join(filled)}"] = None
    return tuple(options)


def python_for(inputs: Mapping[str, Sequence[Extent]]) -> str:
    """The same as the ``shapes`` argument."""
    rows = []
    for name, extents in inputs.items():
        if is_open(extents):
            filled = ", ".join(str(e) if isinstance(e, int) else "..." for e in extents)
            rows.append(f'"{name}": ({filled}{"," if len(extents) == 1 else ""})')
    return "{" + ", ".join(rows) + "}"


def assumed_batch(extents: Sequence[Extent]) -> list[int]:
    """The axes of an input that are a batch and are taken as 1 when nobody says otherwise.

    An open extent that is called a batch; or the first one of at least two axes, where it is the only open one and has
    no name of its own.
    """
    opened = [axis for axis, extent in enumerate(extents) if not isinstance(extent, int)]
    axes = [axis for axis in opened if isinstance(extents[axis], str) and _BATCH.search(str(extents[axis]))]
    if not axes and opened == [0] and len(extents) > 1 and _NAMELESS.match(str(extents[0] or "")):
        return [0]
    return axes


def allowed_shapes_text(allowed: Mapping[str, Any]) -> str:
    """The shapes that a flexible Core ML input allows: a list, or a range per axis."""
    if "enumerated" in allowed:
        return "one of " + ", ".join("x".join(map(str, shape)) for shape in allowed["enumerated"])
    ranges = [f"{low}" if low == high else f"{low}..{'' if high is None else high}" for low, high in allowed["range"]]
    return "x".join(ranges)


def require_allowed(name: str, shape: Sequence[int], allowed: Mapping[str, Any] | None, where: str) -> None:
    """UsageError for a shape that the model's own description of a flexible input does not allow."""
    if allowed is None:
        return
    if "enumerated" in allowed:
        good = list(shape) in [list(one) for one in allowed["enumerated"]]
    else:
        ranges = allowed["range"]
        good = len(ranges) == len(shape) and all(
            low <= extent and (high is None or extent <= high) for extent, (low, high) in zip(shape, ranges)
        )
    if not good:
        raise UsageError(
            f"input {name!r} cannot have the shape {'x'.join(map(str, shape))}",
            where=where,
            hint=f"the model allows {allowed_shapes_text(allowed)}",
        )
