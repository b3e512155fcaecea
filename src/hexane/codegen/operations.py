"""Operations of a task in the field's words: the named values of ``isa.kinds`` and the records that plans hold.

A member of an enumeration is the name that the register tables give the value (``isa.kinds``); the encoder looks the
number up in the table of the target's generation. Nothing here knows a register.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, IntFlag, StrEnum, auto

from hexane.frozen import dict_init, replace, slot_init


class Word(StrEnum):
    """A name of the register tables, with the hash of its text: an enumeration's own is a call of Python's."""

    __hash__ = str.__hash__


class Element(Word):
    """Format of the elements of a map or of a kernel."""

    UINT8 = "uint8"
    INT8 = "int8"
    FP16 = "fp16"

    bytes: int
    """Of one element."""

    def __init__(self, name: str) -> None:
        self.bytes = 2 if name == "fp16" else 1

    @classmethod
    def of(cls, element_bytes: int) -> Element:
        """The format of a surface's elements: fp16, or bytes (bool and uint8)."""
        return cls.FP16 if element_bytes == 2 else cls.UINT8


class PeKind(Word):
    """Operation of the planar engine on its operands."""

    NE_TASK = "ne_task"
    UNARY = "unary"
    BINARY = "binary"
    SCALE_SHIFT = "scale_shift"
    REDUCE = "reduce"
    REDUCE_BINARY = "reduce_binary"


class Axes(IntFlag):
    """Axes along which an operand of the planar engine has size 1."""

    NONE = 0
    W = 1
    H = 2
    D = 4
    C = 8


class Reduce(Word):
    SUM = "sum"
    MAX = "max"


class PeOp(Word):
    ADD = "add"
    MUL = "mul"
    MAX = "max"
    MIN = "min"
    SQUARE = "sumsq"


class Condition(Word):
    NONE = "none"
    ABS = "abs"


class PeNonlinear(Word):
    NONE = "none"
    RECIPROCAL = "reciprocal"
    RSQRT = "rsqrt"


class FirstSource(Word):
    PLAIN = "src1"
    NEGATED = "neg_src1"


class SecondSource(Word):
    NONE = "none"
    PLAIN = "src2"
    NEGATED = "neg_src2"


@slot_init
@dataclass(frozen=True, slots=True)
class Planar:
    """The planar engine's part of a task: operands, what joins them, the reduction and what follows it.

    ``relu_second``: source 2 is clamped at 0 on its way out of L2. The encoder rounds the numbers to fp16, but for
    ``final``.
    """

    op: PeOp = PeOp.ADD
    second: SecondSource = SecondSource.NONE
    first: FirstSource = FirstSource.PLAIN
    reduce: Reduce = Reduce.SUM
    condition: Condition = Condition.NONE
    nonlinear: PeNonlinear = PeNonlinear.NONE
    relu: bool = False
    kind: PeKind = PeKind.UNARY
    bias: float = 0.0
    scale: float = 1.0
    epsilon: float = 0.0
    final: float = 1.0
    relu_second: bool = False

    def with_relu(self, relu: bool = True) -> Planar:
        return replace(self, relu=relu)

    @property
    def operands(self) -> int:
        """Maps that the task reads, rows of shift and scale among them."""
        return 2 if self.kind in (PeKind.BINARY, PeKind.SCALE_SHIFT, PeKind.REDUCE_BINARY) else 1

    @property
    def reduces(self) -> bool:
        return self.kind in (PeKind.REDUCE, PeKind.REDUCE_BINARY)

    @property
    def elementwise(self) -> bool:
        return self.kind in (PeKind.UNARY, PeKind.BINARY, PeKind.SCALE_SHIFT)


def mean_over(count: int) -> Planar:
    """The mean of so many values."""
    return Planar(kind=PeKind.REDUCE, final=1.0 / count)


NE_TASK = Planar(kind=PeKind.NE_TASK)
"""In a task of the neural engine."""
COPY = Planar()
NEGATION = Planar(scale=-1.0)
ABSOLUTE = Planar(condition=Condition.ABS)
SQUARE = Planar(PeOp.SQUARE)
MAXIMUM = Planar(reduce=Reduce.MAX, kind=PeKind.REDUCE)
RECIPROCAL_SUM = Planar(nonlinear=PeNonlinear.RECIPROCAL, kind=PeKind.REDUCE)
BINARY = {
    "add": Planar(PeOp.ADD, SecondSource.PLAIN, kind=PeKind.BINARY),
    "sub": Planar(PeOp.ADD, SecondSource.NEGATED, kind=PeKind.BINARY),
    "mul": Planar(PeOp.MUL, SecondSource.PLAIN, kind=PeKind.BINARY),
    "maximum": Planar(PeOp.MAX, SecondSource.PLAIN, kind=PeKind.BINARY),
    "minimum": Planar(PeOp.MIN, SecondSource.PLAIN, kind=PeKind.BINARY),
}
"""MIL's ops of two operands."""
SCALE_SHIFT = {op: replace(BINARY[op], kind=PeKind.SCALE_SHIFT) for op in ("add", "sub")}
"""A scale for each channel, and a shift that is added or subtracted first."""


class NeOp(Word):
    """Combination of inputs and kernel positions in the cores."""

    SUM = "sum"
    PRODUCT = "product"
    MAXIMUM = "maximum"
    BYPASS = "bypass"


class NeNonlinear(Word):
    NONE = "none"
    RELU = "relu"
    TABLE = "table"


@slot_init
@dataclass(frozen=True, slots=True)
class Mac:
    """The neural engine's part of a task: ``ones`` is a kernel of ones that needs no stream, ``bias`` one per output.

    ``binary_point`` is -4 with fp16 and 0 with 8-bit operands (and in copies of the early compiler). ``acc_bias`` for
    all outputs and ``post_scale`` are rounded to fp16.
    """

    op: NeOp = NeOp.SUM
    ones: bool = False
    bias: bool = False
    binary_point: int = -4
    nonlinear: NeNonlinear = NeNonlinear.NONE
    acc_bias: float = 0.0
    post_scale: float = 1.0

    @property
    def pairs(self) -> bool:
        """True where the task multiplies its inputs in pairs (ElemMultMode)."""
        return self.op is NeOp.PRODUCT

    @property
    def plain_copy(self) -> bool:
        """True where the task only moves data."""
        plain = self.op is NeOp.BYPASS and self.nonlinear is NeNonlinear.NONE
        return plain and self.post_scale == 1.0 and not self.acc_bias


MAC_COPY = Mac(NeOp.BYPASS, ones=True)
MAC_COPY_BYTES = Mac(NeOp.BYPASS, ones=True, binary_point=0)
MAC_CONV = Mac()
MAC_BYTES = Mac(binary_point=0)
MAC_SUM = Mac(ones=True)
"""x + AccBias with unit weights."""
MAC_PRODUCT = Mac(NeOp.PRODUCT, ones=True)
MAC_MAXIMUM = Mac(NeOp.MAXIMUM, ones=True)


@slot_init
@dataclass(frozen=True, slots=True)
class KernelWindow:
    """Kernel size, stride, and padding at the top and on the left; ``ox`` columns of results for each step along W."""

    kh: int = 1
    kw: int = 1
    sy: int = 1
    sx: int = 1
    top: int = 0
    left: int = 0
    ox: int = 1

    @property
    def taps(self) -> int:
        """Positions of the kernel."""
        return self.kh * self.kw

    @property
    def strided(self) -> bool:
        """True where kernels have sparse streams (§9.6)."""
        return self.sy != 1 or self.sx != 1


PIXEL = KernelWindow()


@dict_init
@dataclass(frozen=True)
class KernelFormat:
    """Coding of a kernel stream; ``computed`` is a kernel that an earlier task or the caller wrote."""

    element: Element = Element.FP16
    palette_bits: int = 0  # 0: no palette
    sparse: bool = False
    binary: bool = False  # masks only: a set bit means the palette's entry
    scales: bool = False  # a factor for each output channel stands in the stream
    computed: bool = False


PLAIN_KERNEL = KernelFormat()
SPARSE_KERNEL = KernelFormat(sparse=True)
ONE_HOT_KERNEL = KernelFormat(palette_bits=1, sparse=True, binary=True)
RUNTIME_KERNEL = KernelFormat(computed=True)
INT8_KERNEL = KernelFormat(Element.INT8)
NO_KERNEL = KernelFormat(Element.UINT8)


class After(Flag):
    """Dependence of a region of L2 on the tasks before.

    ``NE_SOURCE`` to ``PE_RESULT``: it touches that region of the task that the unit ran last. ``FOLLOWS_*``: the task
    runs patch by patch behind the one before. ``STAGED``: the task before left it through a staging pair.
    """

    __hash__ = object.__hash__  # of an only instance

    NOTHING = 0
    NE_SOURCE = auto()
    NE_RESULT = auto()
    PE_SOURCE = auto()
    PE_RESULT = auto()
    FOLLOWS_NE = auto()
    FOLLOWS_PE = auto()
    STAGED = auto()
    NE = NE_SOURCE | NE_RESULT
    ANYTHING = NE_SOURCE | NE_RESULT | PE_SOURCE | PE_RESULT


class SourceType(Word):
    """Place of a task's first source."""

    RESIDENT = "resident"
    DMA_KEEP = "dma_keep"
    DMA_STREAM = "dma_stream"
    STRIPS = "strips"


class ResultType(Word):
    """Place of a task's result."""

    STAYS = "stays"
    DMA_KEEP = "dma_keep"
    DMA_STREAM = "dma_stream"
    STRIPS = "strips"


class ReadHint(Word):
    """System cache hint of a reader."""

    NOALLOC = "noalloc"
    DROP = "drop"
    DEPRI = "depri"
    ALLOC = "alloc"


class WriteHint(Word):
    """System cache hint of a writer."""

    NOALLOC = "noalloc"
    ALLOC = "alloc"


@slot_init
@dataclass(frozen=True, slots=True)
class Hint:
    """A reader's cache hint, and whether the data come from an earlier task of the program."""

    cache: ReadHint = ReadHint.NOALLOC
    after_task: bool = False


UNHINTED = Hint()
