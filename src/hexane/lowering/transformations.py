"""What the default dialect does beyond Apple's forms, by name: each can be switched off.

A pass, a recipe or the linker asks ``is_on("NAME")``; the compiler sets what is on around a compilation (``using``),
and the graph that comes out of the passes carries the names, so that its evaluation follows the same rules. A new
transformation is a row of ``TRANSFORMATIONS``. docs/transformations.md is written from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from hexane.chips import Evidence, get
from hexane.errors import UsageError

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.graph import Graph

KEY = "transformations"
"""Of a graph's metadata: the names that were on when it was made canonical."""


@dataclass(frozen=True)
class Transformation:
    """One thing that the default dialect does: to make a program faster, or to make it right.

    Attributes
    ----------
    name : by which ``--without`` switches it off.
    does : what it does, in one sentence.
    evidence : what its tasks rest on; ``strict`` does without those that are INFERRED.
    generations : where it is done; everywhere if empty.
    in_apple : whether Apple's compiler is known to do the same, so that dialect ``apple`` has it too.
    for_truth : whether it is there for right answers, not for time.
    """

    name: str
    does: str
    evidence: Evidence
    in_apple: bool = False
    generations: tuple[str, ...] = ()
    for_truth: bool = False


_ROWS: tuple[Transformation, ...] = (
    Transformation(
        "in-place-moves",
        "A reshape, slice, split, padding or concatenation whose data stay in one piece has no task: the tasks around "
        "it write and read at an offset.",
        Evidence.SILICON,
    ),
    Transformation(
        "strided-moves",
        "One whose rows stay whole has none either: the tasks around it take other strides (part of in-place-moves).",
        Evidence.INFERRED,
    ),
    Transformation(
        "planar-copies",
        "Copies that are left are made by the planar engine where that is predicted faster and keeps every bit: of "
        "results that have neither -0 nor NaN.",
        Evidence.INFERRED,
    ),
    Transformation(
        "border-fills",
        "Padding fills what lies around the map, not the whole result before the map is copied into it.",
        Evidence.INFERRED,
    ),
    Transformation(
        "native-pools",
        "A maximum over a window is one task of the neural cores instead of maxima of shifted maps.",
        Evidence.INFERRED,
    ),
    Transformation(
        "rows-first-pools",
        "A maximum over windows with a stride is two or more tasks where that is predicted to be faster: planar maxima "
        "of rows, then windows of one row. The rate of pools is known within 44 % only.",
        Evidence.INFERRED,
    ),
    Transformation(
        "single-tables",
        "Hard swish and mish are one table each, and a number by which a function's results are multiplied or moved is "
        "in its table. Faster and less exact: hard swish in a table errs by up to 2.9e-3, where four tasks round fp16, "
        "mish by up to 9.9e-3, where three tasks err by 4.8e-3.",
        Evidence.INFERRED,
    ),
    Transformation(
        "local-norms",
        "Local response normalisation takes four tasks instead of seven: the scale of its squares is behind the "
        "convolution in front of it, the logarithm behind the window sum, the scale of the result in a table. "
        "Where one scale of the sum has no room for the squares of fp16 beside k (alpha above about 1e-3) two sums and "
        "the larger of their roots take eight to twelve, and two more without it.",
        Evidence.INFERRED,
    ),
    Transformation(
        "gathered-strides",
        "Pixels of an even stride beyond 2 become channels through a convolution of stride 2 with ones, not by copies; "
        "inputs are rounded to 2^-16 there, as products are in any sum.",
        Evidence.APPLE,
    ),
    Transformation(
        "split-groups",
        "A convolution whose groups are no loop of one task runs as several sums of neighbouring groups, as many as "
        "take the least time, not as one with zeros between all groups.",
        Evidence.INFERRED,
    ),
    Transformation(
        "table-epilogues",
        "Every function of one table (clip, clamps, leaky ReLU, hard sigmoid, hard swish, mish, softplus ...) is in "
        "the task of the convolution or product in front of it.",
        Evidence.INFERRED,
    ),
    Transformation(
        "planar-comparisons",
        "less, greater, equal ... are a difference of the planar engine and one step table, right for all numbers; "
        "Apple's sums of pairs take numbers closer than 2^-17 for equal and are wrong from 32768 on.",
        Evidence.INFERRED,
        for_truth=True,
    ),
    Transformation(
        "guarded-powers",
        "A power of two computed tensors whose base may be negative is the host's: the engine's is 2^(y log2 x), which "
        "has no answer there. Apple's compiler takes it all the same.",
        Evidence.APPLE,
        for_truth=True,
    ),
    Transformation(
        "affine-maps",
        "Multiplications and additions of one number per channel, one after the other, are one depthwise 1x1 "
        "convolution with what follows it.",
        Evidence.APPLE,
    ),
    Transformation(
        "priced-recipes",
        "Of a recipe that rests on inference and one that programs show, the one with the smaller predicted time is "
        "taken, not always the latter.",
        Evidence.INFERRED,
    ),
    Transformation(
        "heads-as-groups",
        "With keys-as-channels: one task multiplies all heads that are in L2, as groups of a computed kernel.",
        Evidence.INFERRED,
    ),
    Transformation(
        "rows-turned-once",
        "Products of the same rows with different constant weights share one turned copy of the rows.",
        Evidence.INFERRED,
    ),
    Transformation(
        "layouts",
        "Ops between transpositions work in one order of axes, so that the transpositions among them vanish, "
        "convolutions change rows and columns, and joins within rows become joins of whole rows.",
        Evidence.APPLE,
    ),
    Transformation(
        "early-cuts",
        "Slices of joins and paddings are taken from their operands, so that what is cut away is not joined.",
        Evidence.APPLE,
    ),
    Transformation(
        "signal-frames",
        "A long filter with a short step along a signal is one of few taps over windows of the signal, where less is "
        "moved and fetched than with blocks of results.",
        Evidence.INFERRED,
    ),
    Transformation(
        "signal-lines",
        "A chain of cuts, paddings and reshapes along one signal is one turned copy there and one back, with a line in "
        "memory for every sample; the signal may be longer than a tensor's axes.",
        Evidence.INFERRED,
    ),
    Transformation(
        "rows-as-channels",
        "A convolution of few outputs whose kernel is too tall for the engine gives several rows at once, as channels: "
        "no core is idle, and the kernel is as many times shorter.",
        Evidence.APPLE,
    ),
    Transformation(
        "lifted-functions",
        "A function of single elements behind a transposition, pixel shuffle, reshape or concatenation is applied "
        "before it, by the task that makes its operand.",
        Evidence.APPLE,
    ),
    Transformation(
        "shuffled-weights",
        "A shuffle of channels behind a dense convolution is in the order of its weights.",
        Evidence.APPLE,
    ),
    Transformation(
        "features-as-channels",
        "Layers of tokens run with features as channels and tokens along W: linear layers are 1x1 convolutions, means "
        "over features products with ones, and nothing is turned between them.",
        Evidence.INFERRED,
    ),
    Transformation(
        "attention-biases",
        "The bias of keys, which softmax does not see, is left out; that of values goes into the linear layer behind.",
        Evidence.INFERRED,
    ),
    Transformation(
        "padded-keys",
        "With keys-as-channels: attention over an odd number of keys gets keys of zeros that a mask hides.",
        Evidence.INFERRED,
        generations=("h13",),
    ),
    Transformation(
        "keys-as-channels",
        "Attention of several heads is computed with keys as channels: k and v are the kernels, scores and weights of "
        "all heads that fit stay in L2.",
        Evidence.INFERRED,
    ),
    Transformation(
        "query-blocks",
        "With keys-as-channels: attention whose scores do not fit L2 for a single head runs some queries at a time; "
        "scores and weights never leave L2.",
        Evidence.INFERRED,
    ),
    Transformation(
        "direct-operands",
        "A computed operand that is broadcast is read by the planar task itself, as on later generations, not from a "
        "copy in L2.",
        Evidence.INFERRED,
        generations=("h13", "h14"),
    ),
    Transformation(
        "halved-maxima",
        "With keys-as-channels: halves of the keys are compared by planar tasks before the cores find the maximum of "
        "what is left, as often as that is cheaper.",
        Evidence.INFERRED,
    ),
    Transformation(
        "hand-over",
        "A tensor that fits stays in L2 from the task that makes it to the last that reads it, as in Apple's chains; "
        "its bytes do not go to DRAM and back.",
        Evidence.APPLE,
    ),
    Transformation(
        "l2-parts",
        "With hand-over: also tensors that several tasks write or read in parts, and results that go to DRAM and stay.",
        Evidence.INFERRED,
    ),
    Transformation(
        "locked-pairs",
        "With hand-over: a task of one unit that goes element by element through the map that a task of the other unit "
        "leaves in L2 runs behind it patch by patch, not after it.",
        Evidence.INFERRED,
    ),
    Transformation(
        "l2-by-price",
        "With hand-over: tensors that move most stay in L2 before those that save more for their room, where the price "
        "of the whole program says so.",
        Evidence.INFERRED,
    ),
    Transformation(
        "bands",
        "With hand-over: where maps do not fit L2, several tasks run some rows at a time, if the price says that less "
        "traffic is worth more than rows computed twice.",
        Evidence.INFERRED,
    ),
)
TRANSFORMATIONS: dict[str, Transformation] = {row.name: row for row in _ROWS}

DIALECTS = ("default", "apple", "zin4")
"""Whose programs are written: what is predicted fastest, Apple's of macOS 26, Apple's v4.2.1."""


def active(
    dialect: str = "default", without: Iterable[str] = (), *, strict: bool = False, generation: str = ""
) -> frozenset[str]:
    """The names that are on for a generation, or for any; UsageError for a dialect or a name that does not exist."""
    if dialect not in DIALECTS:
        raise UsageError(f"there is no dialect {dialect!r}", hint=f"one of {', '.join(DIALECTS)}")
    off = (without,) if isinstance(without, str) else tuple(without)
    for name in off:
        if name not in TRANSFORMATIONS:
            close = get_close_matches(name, TRANSFORMATIONS, n=3)
            hint = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(TRANSFORMATIONS)}"
            raise UsageError(f"there is no transformation {name!r}", hint=hint)
    rows = [row for row in TRANSFORMATIONS.values() if dialect == "default" or row.in_apple]
    if strict:
        rows = [row for row in rows if row.evidence is not Evidence.INFERRED]
    if generation:
        rows = [row for row in rows if not row.generations or generation in row.generations]
    return frozenset(row.name for row in rows) - set(off)


_ON: ContextVar[frozenset[str] | None] = ContextVar("transformations", default=None)
_CHIP: ContextVar[Chip | None] = ContextVar("chip", default=None)


def is_on(name: str) -> bool:
    """Whether a transformation is to be done; all of them outside of a compilation. KeyError for an unknown name."""
    TRANSFORMATIONS[name]
    names = _ON.get()
    return names is None or name in names


def target_chip() -> Chip:
    """The chip whose prices decide inside of a compilation; M1 outside of one."""
    return _CHIP.get() or get("M1")


@contextmanager
def using(names: Iterable[str], chip: Chip | None = None) -> Iterator[None]:
    """Just these are on inside, and what is chosen by price has the prices of ``chip``, if one is given."""
    token, other = _ON.set(frozenset(names)), _CHIP.set(chip or _CHIP.get())
    try:
        yield
    finally:
        _ON.reset(token)
        _CHIP.reset(other)


def current() -> frozenset[str]:
    """The names that are on here."""
    names = _ON.get()
    return frozenset(TRANSFORMATIONS) if names is None else names


def carried(graph: Graph) -> frozenset[str]:
    """The names that were on when a graph was made canonical; what is on here for any other graph."""
    names = graph.metadata.get(KEY)
    return current() if names is None else frozenset(names)
