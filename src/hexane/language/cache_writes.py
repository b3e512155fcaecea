"""Cost of putting a step's new keys and values into the cache, by the form in which a program can say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hexane.errors import UnsupportedError
from hexane.graph import GraphBuilder
from hexane.graph.types import DTYPES

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.graph import Graph, Value
    from hexane.language.architecture import Architecture

Shape = tuple[int, int, int, int]
ELEMENT = DTYPES["fp16"].carrier.itemsize


@dataclass(frozen=True)
class CacheWrite:
    """A form of the write of one layer's new row: where hexane's program has it, its ``tasks`` on the engine,
    microseconds of a step beyond the launch (predicted), bytes that the host reads and writes for it, programs that a
    sequence needs, and what is known of the form."""

    form: str
    place: str
    tasks: int
    us: float
    host_bytes: int
    programs: int
    note: str


def cache_writes(a: Architecture, chip: Chip, context: int) -> tuple[CacheWrite, ...]:
    """The forms for one layer's cache, positions along rows: [1, 2 x heads of keys, context, head_dim] in fp16.

    Empty for a chip for which no programs are written.
    """
    from hexane.codegen import compile

    shape = (1, 2 * a.kv_heads, context, a.head_dim)
    writes = []
    for form, (write, per_position, note) in FORMS.items():
        try:
            program = compile(_network(shape, write), chip=chip)
        except UnsupportedError:
            return ()
        parts = program.estimate().parts
        on_host = not program.state_results
        bytes_ = 2 * ELEMENT * shape[1] * context * a.head_dim if on_host else 0
        tasks = sum(len(image.tasks) for image in program.images)
        us = parts.host_us + parts.copies_us + parts.engine_us
        place, count = "host" if on_host else "engine", context if per_position else 1
        writes.append(CacheWrite(form, place, tasks, us, bytes_, count, note))
    return tuple(writes)


def _network(shape: Shape, write: Callable[[GraphBuilder, Value, Value, Shape], Value]) -> Graph:
    """A step that writes a row, and reads the last one."""
    b = GraphBuilder()
    state, row = b.state("cache", shape), b.input("row", (1, shape[1], 1, shape[3]), "fp16")
    b.write_state(data=write(b, b.read_state(input=state), row, shape), input=state)
    last = b.slice_by_size(x=b.read_state(input=state), begin=[0, 0, shape[2] - 1, 0], size=[1, shape[1], 1, shape[3]])
    b.output(b.relu(x=last), name="y")
    return b.graph


def _by_mask(b: GraphBuilder, old: Value, row: Value, shape: Shape) -> Value:
    here, keep = (b.input(name, (1, 1, shape[2], 1), "fp16") for name in ("here", "keep"))
    return b.add(x=b.mul(x=old, y=keep), y=b.mul(x=row, y=here))


def _at_a_constant_place(b: GraphBuilder, old: Value, row: Value, shape: Shape) -> Value:
    return b.slice_update(x=old, update=row, begin=[0, 0, 0, 0], end=[1, shape[1], 1, shape[3]])


def _at_a_place_of_run_time(b: GraphBuilder, old: Value, row: Value, shape: Shape) -> Value:
    begin, end = (b.input(name, (4,), "int32") for name in ("begin", "end"))
    return b.slice_update(x=old, update=row, begin=begin, end=end)


def _shifted(b: GraphBuilder, old: Value, row: Value, shape: Shape) -> Value:
    rest = b.slice_by_size(x=old, begin=[0, 0, 1, 0], size=[1, shape[1], shape[2] - 1, shape[3]])
    return b.concat(values=[rest, row], axis=2)


FORMS = {
    "mask, K * (1 - m) + k * m": (_by_mask, False, "what hexane's decoders have"),
    "slice_update at a place of run time": (
        _at_a_place_of_run_time, False, "rule C16: Apple's compiler takes it, how much of a decoder is disputed",
    ),
    "slice_update at a constant place": (_at_a_constant_place, True, "a program for each position"),
    "shift by concat": (_shifted, False, "rule C14: published to fail with -14"),
}  # fmt: skip
"""The write of a form, whether each position has a program of its own, and what is known."""
