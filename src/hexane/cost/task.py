"""Cost of a task by its facts, the same for a task that is written and for one that is only planned.

``hexane.timing`` reads the facts from registers, ``hexane.codegen`` from a plan; both get the same layer, so that a
plan is chosen by the price that an estimate of the program will state.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from hexane.cost.work import Layer, Unit

Operation = Literal["sum", "bypass", "product", "maximum", "planar"]
PLANAR: dict[int, Unit] = {1: "pool", 2: "unary", 3: "binary", 4: "unary", 5: "reduce", 6: "reduce"}
"""Kind of a planar task (docs/reference/engine-h13.md 4.3) -> the unit that times it."""
TWO_OPERANDS = (3, 6)
"""Kinds whose second operand is as large as the first; the rows of scales of kind 4 are not counted."""
OPERATIONS: dict[int, Operation] = {0: "sum", 2: "product", 3: "maximum", 4: "bypass"}
"""How the cores combine (``NE.MACCfg.OpMode``)."""


class TaskFacts(NamedTuple):
    """One task in numbers.

    ``win`` to ``cout`` are its dimensions, channels over one of ``groups``; ``read_bytes`` what its operands bring from
    memory, None where nothing comes; ``writes``: its result goes there. ``kernel_bytes`` are all kernel streams;
    ``computed``: the kernel is an operand. ``stored``: the format of its weights (fp16, int8, palette, sparse).
    ``unicast``: every output channel has its own inputs. ``follows``: it runs patch by patch behind the task before it,
    on the other unit.
    """

    operation: Operation
    kind: int
    win: int
    hin: int
    din: int
    cin: int
    wout: int
    hout: int
    cout: int
    groups: int
    in_width: int
    out_width: int
    kh: int
    kw: int
    stride: int
    read_bytes: float | None
    writes: bool
    kernel_bytes: int
    computed: bool
    unicast: bool
    stored: str
    table: bool
    follows: bool


def layer_of(facts: TaskFacts, name: str) -> Layer:
    """The layer that times a task."""
    f = facts
    cin, cout = f.cin * f.groups, f.cout * f.groups
    in_bytes = float(f.win * f.hin * f.din * cin * f.in_width)
    out_bytes = float(f.wout * f.hout * f.din * cout * f.out_width)
    shared: dict[str, Any] = dict(
        name=name,
        in_bytes=in_bytes if f.read_bytes is None else f.read_bytes,
        out_bytes=out_bytes,
        reads_input=f.read_bytes is not None,
        writes_output=f.writes,
        follows=f.follows,
        placed=True,
    )
    if f.operation == "planar":
        return Layer(
            **shared,
            op=f"PE kind {f.kind}",
            unit=PLANAR.get(f.kind, "unary"),
            elements=max(in_bytes / f.in_width, out_bytes / f.out_width),
            operands=2 if f.kind in TWO_OPERANDS else 1,
        )
    if f.operation == "bypass":
        unit: Unit = "unary" if f.table else "move"
        return Layer(**shared, op="NE table" if f.table else "NE copy", unit=unit, elements=out_bytes / f.out_width)
    if f.operation == "maximum" and f.kh * f.kw > 1:
        return Layer(**shared, op="NE pool", unit="pool", elements=in_bytes / f.in_width, extrapolated=True)
    if f.operation != "sum":
        return Layer(**shared, op=f"NE {f.operation}", unit="reduce", elements=in_bytes / f.in_width)
    bytes_summed = f.in_width == 1 and f.stored == "int8" and not f.unicast
    count = float(cin * cout * f.kh * f.kw) / (f.groups * (cin if f.unicast else 1))
    dense = count * (1 if bytes_summed else 2)
    return Layer(
        **shared,
        op="NE matmul" if f.computed else "NE conv",
        unit="runtime" if f.computed else "mac",
        pixels=f.wout * f.hout * f.din,
        cin=cin,
        cout=cout,
        kh=f.kh,
        kw=f.kw,
        stride=f.stride,
        groups=f.groups * (cin // f.groups if f.unicast else 1),
        weight_bytes=float(f.kernel_bytes),
        dense_bytes=dense,
        density=_density(f.kernel_bytes, count) if f.stored == "sparse" else 1.0,
        weight_format=f.stored,
        int8=bytes_summed,
        extrapolated=f.unicast or f.groups > 1,
    )


def _density(stream: float, count: float) -> float:
    """Share of weights that a sparse stream holds: one bit for each place, two bytes for each value."""
    return min(1.0, max(0.0, (stream - count / 8) / (2 * count)))


def operand_bytes(shape: tuple[int, int, int, int, int], broadcast: int, width: int) -> int:
    """Bytes of an operand of (w, h, d, c, groups), size 1 along the axes whose broadcast bits (w, h, d, c) are set."""
    size = shape[4] * width
    for bit, extent in enumerate(shape[:4]):
        size *= 1 if broadcast >> bit & 1 else extent
    return size
