"""Work of an engine in numbers: layers, their shapes, their bytes. Cost rules read this and no more."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Literal

from hexane.cached import cached_property
from hexane.frozen import WithCache, slot_init

Unit = Literal[
    "mac", "runtime", "unary", "binary", "reduce", "softmax", "norm", "group_norm", "pool", "move", "sdpa", "topk"
]


@slot_init
@dataclass(frozen=True, slots=True)
class Layer(WithCache):
    """One pass of the engine: a convolution with its bias and activation, an element-wise op, a reduction ...

    ``unit`` says which rule times it. ``pixels`` counts output positions over the batch (rows of a linear layer),
    ``cin`` and ``cout`` channels over all groups, ``kh`` and ``kw`` taps. ``weight_bytes`` is what the weight stream
    carries, ``dense_bytes`` what the weights fill in kernel memory, ``density`` the share of non-zero weights,
    ``tables`` the palettes.
    ``in_bytes`` and ``out_bytes`` are the activations at two bytes (one for int8), ``elements`` what planar units
    count, ``axis`` the length of a reduced axis, ``batches`` the matrices of a product, or the rows of an rms or layer
    norm that are items of a batch (0: a norm over a map). ``reads_input``, ``writes_output``: the program's edges,
    ``weight_key`` names a weight set that several layers share. ``follows``: a task that runs patch by patch behind the
    one before it, on the other unit. ``placed``: a task, whose registers say what it moves; of a layer of a graph only
    the sizes are known. ``extrapolated`` says that nobody has published a time of such a layer (docs/timing.md).
    """

    name: str
    op: str
    unit: Unit
    pixels: int = 0
    cin: int = 0
    cout: int = 0
    kh: int = 1
    kw: int = 1
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    weight_bytes: float = 0.0
    dense_bytes: float = 0.0
    density: float = 1.0
    weight_format: str = "fp16"
    tables: int = 1
    weight_key: str | None = None
    int8: bool = False
    in_bytes: float = 0.0
    out_bytes: float = 0.0
    elements: float = 0.0
    axis: int = 0
    operands: int = 1
    batches: int = 1
    reads_input: bool = False
    writes_output: bool = False
    extrapolated: bool = False
    follows: bool = False
    placed: bool = False
    count: int = 1

    @cached_property
    def form(self) -> tuple[object, ...]:
        """Everything that its cost depends on: all but its name, count and which weight set it has."""
        return (*_priced(self), self.weight_key is None)

    @property
    def macs(self) -> float:
        """Multiply-accumulates of the dense layer, all repetitions."""
        if self.unit not in ("mac", "runtime"):
            return 0.0
        return float(self.pixels) * self.cin * self.cout * self.kh * self.kw / self.groups * self.count


_UNPRICED = ("name", "weight_key", "extrapolated", "follows", "placed", "count")
_priced = attrgetter(*(field.name for field in fields(Layer) if field.name not in _UNPRICED))


@slot_init
@dataclass(frozen=True, slots=True)
class Work:
    """One program: its layers in order, and what the host hands over and takes back, in bytes of fp16.

    ``host_in_padded`` and ``host_out_padded`` are those of them whose surfaces pad every row
    (docs/reference/engine-h13.md 6). ``chain``: every layer feeds only the next, so that tiles run through all of them
    without leaving the chip (docs/timing.md). ``worker``: the front end runs such a program through a second process.
    """

    layers: tuple[Layer, ...]
    host_in_bytes: float = 0.0
    host_out_bytes: float = 0.0
    host_in_padded: float = 0.0
    host_out_padded: float = 0.0
    chain: bool = False
    worker: bool = False
    notes: tuple[str, ...] = ()

    @property
    def macs(self) -> float:
        return sum(layer.macs for layer in self.layers)

    @property
    def layer_count(self) -> int:
        return sum(layer.count for layer in self.layers)

    @property
    def largest_tensor_bytes(self) -> float:
        return max((layer.in_bytes / layer.operands for layer in self.layers), default=0.0)


@dataclass(frozen=True)
class HostOp:
    """An op that runs on the host between engine programs: two operations per multiply-accumulate, bytes both ways.

    ``untimed``: nobody knows what it computes, so its bytes alone count.
    """

    name: str
    op: str
    flop: float
    bytes: float
    untimed: bool = False


@dataclass(frozen=True)
class Job:
    """Everything that one answer to "how long" counts: engine programs in the order of their calls, and host ops.

    ``basis`` says what was read: a ``network`` (what Apple's compiler would make of it: one program, cut only where the
    engine refuses an op), a ``program`` (the tasks and segments that hexane compiled) or an ``image`` (one engine
    program, whoever compiled it). ``generation`` is what it was compiled for, empty for a network; ``by_tasks`` says
    whether layers are compiled tasks.
    """

    basis: Literal["network", "program", "image"]
    launches: tuple[Work, ...]
    host: tuple[HostOp, ...] = ()
    notes: tuple[str, ...] = ()
    generation: str = ""
    by_tasks: bool = False


@dataclass(frozen=True)
class Parts:
    """Parts of a latency, microseconds; ``total_us`` is their sum.

    ``launches`` counts calls of engine programs and ``launch_us`` what these calls cost whatever they compute: driver,
    firmware, completion, waking. ``host_us`` are ops on the host, ``copies_us`` host copies into and out of the
    programs' surfaces, ``engine_us`` the tasks on the engine, from start to end.
    """

    launches: int
    launch_us: float
    host_us: float
    copies_us: float
    engine_us: float

    @property
    def total_us(self) -> float:
        return self.launch_us + self.host_us + self.copies_us + self.engine_us

    @property
    def work_us(self) -> float:
        """All that is computed, on the engine and on the host: without calls and copies."""
        return self.engine_us + self.host_us
