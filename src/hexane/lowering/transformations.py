"""Transformations of the default dialect beyond Apple's forms, by name: each can be switched off.

A pass, a recipe or the linker asks its compilation (``compilation.on.bands``), and the graph that comes out of the
passes carries the names, so that its evaluation follows the same rules. A new transformation is an attribute of
``Transformations``. docs/transformations.md is written from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from hexane.chips import Evidence
from hexane.errors import UsageError

if TYPE_CHECKING:
    from hexane.graph import Graph

KEY = "transformations"
"""Of a graph's metadata: the names that were on when it was made canonical."""

TAKEN = "transformations that changed something"
"""Of a graph's metadata: how many ops each changed, by name, of those that passes do."""


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
    passes : the passes that do it, where their names are others; none for what recipes and the linker do.
    error : the largest absolute error of a result that it adds beyond fp16 rounding; done for accuracy "fast" alone.
    """

    name: str
    does: str
    evidence: Evidence
    in_apple: bool = False
    generations: tuple[str, ...] = ()
    for_truth: bool = False
    passes: tuple[str, ...] = ()
    error: float = 0.0

    @property
    def attribute(self) -> str:
        """Its name as an attribute of ``Transformations``."""
        return self.name.replace("-", "_")


def _row(
    does: str,
    evidence: Evidence,
    *,
    in_apple: bool = False,
    generations: tuple[str, ...] = (),
    for_truth: bool = False,
    passes: tuple[str, ...] = (),
    error: float = 0.0,
) -> Any:
    """An attribute of ``Transformations`` with its row of ``TRANSFORMATIONS``: on, unless it costs accuracy."""
    row = Transformation("", does, evidence, in_apple, generations, for_truth, passes, error)
    return field(default=not error, metadata={"row": row})


@dataclass(frozen=True, kw_only=True)
class Transformations:
    """Transformations that are on: an attribute for each, with what it is. By default all that cost no accuracy."""

    states_in_place: bool = _row(
        "States that change at constant places are surfaces of the program, read and written by tasks in place.",
        Evidence.INFERRED,
        for_truth=True,
    )
    in_place_moves: bool = _row(
        "A reshape, slice, split, padding or concatenation whose data stay in one piece has no task: the tasks around "
        "it write and read at an offset.",
        Evidence.SILICON,
        in_apple=True,
    )
    strided_moves: bool = _row(
        "One whose rows stay whole has none either: the tasks around it take other strides (part of in-place-moves).",
        Evidence.INFERRED,
    )
    planar_copies: bool = _row(
        "Copies that are left are made by the planar engine where that is predicted faster and keeps every bit: of "
        "results that have neither -0 nor NaN.",
        Evidence.INFERRED,
    )
    border_fills: bool = _row(
        "Padding fills what lies around the map, not the whole result before the map is copied into it.",
        Evidence.INFERRED,
    )
    native_pools: bool = _row(
        "A maximum over a window is one task of the neural cores instead of maxima of shifted maps.",
        Evidence.INFERRED,
        in_apple=True,
    )
    rows_first_pools: bool = _row(
        "A maximum over windows with a stride is two or more tasks where that is predicted to be faster: planar maxima "
        "of rows, then windows of one row. The rate of pools is known within 44 % only.",
        Evidence.INFERRED,
    )
    single_tables: bool = _row(
        "Hard swish and mish are one table each. Faster and less exact: hard swish in a table errs by up to 2.9e-3, "
        "where a clamp and a product round fp16, mish by up to 9.9e-3, where three tasks err by 4.8e-3.",
        Evidence.INFERRED,
        error=9.9e-3,
    )
    scaled_tables: bool = _row(
        "A number by which a function's results are multiplied or moved is in its table.",
        Evidence.INFERRED,
    )
    byte_results: bool = _row(
        "A convolution whose result is quantised, with zero point 0, stores the bytes itself, and its sums are rounded "
        "once less.",
        Evidence.INFERRED,
        in_apple=True,
    )
    local_norms: bool = _row(
        "Local response normalisation takes four tasks instead of seven: the scale of its squares is behind the "
        "convolution in front of it, the logarithm behind the window sum, the scale of the result in a table. "
        "Where one scale of the sum has no room for the squares of fp16 beside k (alpha above about 1e-3) two sums and "
        "the larger of their roots take eight to twelve, and two more without it.",
        Evidence.INFERRED,
    )
    gathered_strides: bool = _row(
        "Pixels of an even stride beyond 2 become channels through a convolution of stride 2 with ones, not by copies; "
        "inputs are rounded to 2^-16 there, as products are in any sum.",
        Evidence.APPLE,
    )
    split_groups: bool = _row(
        "A convolution whose groups are no loop of one task runs as several sums of neighbouring groups, as many as "
        "take the least time, not as one with zeros between all groups.",
        Evidence.INFERRED,
    )
    table_epilogues: bool = _row(
        "Every function of one table (clip, clamps, leaky ReLU, hard sigmoid, hard swish, mish, softplus ...) is in "
        "the task of the convolution or product in front of it. Apple's programs show GELU so; MobileNet v2 takes 480 "
        "and 490 us on A16 and A17 Pro, 616 and 606 predicted with clips as tasks, 474 and 469 without.",
        Evidence.INFERRED,
        in_apple=True,
    )
    planar_comparisons: bool = _row(
        "less, greater, equal ... are a difference of the planar engine and one step table, right for all numbers; "
        "Apple's sums of pairs take numbers closer than 2^-17 for equal and are wrong from 32768 on.",
        Evidence.INFERRED,
        for_truth=True,
    )
    guarded_powers: bool = _row(
        "A power of two computed tensors whose base may be negative is the host's: the engine's is 2^(y log2 x), which "
        "has no answer there. Apple's compiler takes it all the same.",
        Evidence.APPLE,
        for_truth=True,
    )
    affine_maps: bool = _row(
        "Multiplications and additions of one number per channel, one after the other, are one depthwise 1x1 "
        "convolution with what follows it.",
        Evidence.APPLE,
    )
    batch_norms: bool = _row(
        "A product and a sum of one number per channel, one behind the other, are a shift and a scale of one planar "
        "task, where they are no depthwise convolution.",
        Evidence.INFERRED,
        in_apple=True,
    )
    priced_recipes: bool = _row(
        "Of a recipe that rests on inference and one that programs show, the one with the smaller predicted time is "
        "taken, not always the latter.",
        Evidence.INFERRED,
    )
    heads_as_groups: bool = _row(
        "With keys-as-channels: one task multiplies all heads that are in L2, as groups of a computed kernel.",
        Evidence.INFERRED,
    )
    rows_turned_once: bool = _row(
        "Products of the same rows with different constant weights share one turned copy of the rows, as two products "
        "of one input do in a program of Apple's for H14.",
        Evidence.INFERRED,
        in_apple=True,
    )
    layouts: bool = _row(
        "Ops between transpositions work in one order of axes, so that the transpositions among them vanish, "
        "convolutions change rows and columns, and joins within rows become joins of whole rows.",
        Evidence.APPLE,
    )
    early_cuts: bool = _row(
        "Slices of joins and paddings are taken from their operands, so that what is cut away is not joined.",
        Evidence.APPLE,
        passes=("cut_early",),
    )
    signal_frames: bool = _row(
        "A long filter with a short step along a signal is one of few taps over windows of the signal, where less is "
        "moved and fetched than with blocks of results.",
        Evidence.INFERRED,
    )
    signal_lines: bool = _row(
        "A chain of cuts, paddings and reshapes along one signal is one turned copy there and one back, with a line in "
        "memory for every sample; the signal may be longer than a tensor's axes.",
        Evidence.INFERRED,
        passes=("own_chains",),
    )
    rows_as_channels: bool = _row(
        "A convolution of few outputs whose kernel is too tall for the engine gives several rows at once, as channels: "
        "no core is idle, and the kernel is as many times shorter.",
        Evidence.APPLE,
        passes=("keep_rows_as_channels",),
    )
    lifted_functions: bool = _row(
        "A function of single elements behind a transposition, pixel shuffle, reshape or concatenation is applied "
        "before it, by the task that makes its operand.",
        Evidence.APPLE,
        passes=("lift_functions",),
    )
    shuffled_weights: bool = _row(
        "A shuffle of channels behind a dense convolution is in the order of its weights.",
        Evidence.APPLE,
        passes=("shuffle_weights",),
    )
    features_as_channels: bool = _row(
        "Layers of tokens run with features as channels and tokens along W: linear layers are 1x1 convolutions, means "
        "over features products with ones, and nothing is turned between them.",
        Evidence.INFERRED,
    )
    attention_biases: bool = _row(
        "The bias of keys, which softmax does not see, is left out; that of values goes into the linear layer behind.",
        Evidence.INFERRED,
    )
    padded_keys: bool = _row(
        "With keys-as-channels: attention over an odd number of keys gets keys of zeros that a mask hides.",
        Evidence.INFERRED,
        generations=("h13",),
    )
    keys_as_channels: bool = _row(
        "Attention of several heads is computed with keys as channels: k and v are the kernels, scores and weights of "
        "all heads that fit stay in L2.",
        Evidence.INFERRED,
        passes=("attention",),
    )
    query_blocks: bool = _row(
        "With keys-as-channels: attention whose scores do not fit L2 for a single head runs some queries at a time; "
        "scores and weights never leave L2.",
        Evidence.INFERRED,
    )
    direct_operands: bool = _row(
        "A computed operand that is broadcast is read by the planar task itself, as on later generations, not from a "
        "copy in L2.",
        Evidence.INFERRED,
        generations=("h13", "h14"),
    )
    halved_maxima: bool = _row(
        "With keys-as-channels: halves of the keys are compared by planar tasks before the cores find the maximum of "
        "what is left, as often as that is cheaper.",
        Evidence.INFERRED,
    )
    hand_over: bool = _row(
        "A tensor that fits stays in L2 from the task that makes it to the last that reads it, as in Apple's chains; "
        "its bytes do not go to DRAM and back.",
        Evidence.APPLE,
        in_apple=True,
    )
    l2_parts: bool = _row(
        "With hand-over: also tensors that several tasks write or read in parts, and results that go to DRAM and stay.",
        Evidence.INFERRED,
        in_apple=True,
    )
    locked_pairs: bool = _row(
        "With hand-over: a task of one unit that goes element by element through the map that a task of the other unit "
        "leaves in L2 runs behind it patch by patch, not after it.",
        Evidence.INFERRED,
    )
    l2_by_price: bool = _row(
        "With hand-over: tensors that move most stay in L2 before those that save more for their room, where the price "
        "of the whole program says so.",
        Evidence.INFERRED,
    )
    bands: bool = _row(
        "With hand-over: where maps do not fit L2, several tasks run some rows at a time, if the price says that less "
        "traffic is worth more than rows computed twice.",
        Evidence.INFERRED,
        in_apple=True,
    )

    @classmethod
    def of(cls, names: Iterable[str]) -> Transformations:
        """Just these are on."""
        on = set(names)
        return cls(**{row.attribute: row.name in on for row in TRANSFORMATIONS.values()})

    @property
    def names(self) -> frozenset[str]:
        """The names of those that are on."""
        return frozenset(row.name for row in TRANSFORMATIONS.values() if getattr(self, row.attribute))


TRANSFORMATIONS: dict[str, Transformation] = {
    row.name: row
    for row in (replace(each.metadata["row"], name=each.name.replace("_", "-")) for each in fields(Transformations))
}


ACCURACIES = ("exact", "fast")
"""No transformation that enlarges an error beyond fp16 rounding, or these too."""

DIALECTS = ("default", "apple", "zin4")
"""Whose programs are written: what is predicted fastest, Apple's of macOS 26, Apple's v4.2.1."""


def active(
    dialect: str = "default",
    without: Iterable[str] = (),
    *,
    strict: bool = False,
    generation: str = "",
    accuracy: str = "exact",
) -> Transformations:
    """Transformations for a generation, or for any; UsageError for a dialect, accuracy or name that does not exist."""
    if accuracy not in ACCURACIES:
        raise UsageError(f"there is no accuracy {accuracy!r}", hint=f"one of {', '.join(ACCURACIES)}")
    if dialect not in DIALECTS:
        raise UsageError(f"there is no dialect {dialect!r}", hint=f"one of {', '.join(DIALECTS)}")
    off = (without,) if isinstance(without, str) else tuple(without)
    for name in off:
        if name not in TRANSFORMATIONS:
            close = get_close_matches(name, TRANSFORMATIONS, n=3)
            near = f"did you mean {' or '.join(close)}?" if close else f"{len(TRANSFORMATIONS)} have a name"
            hint = f"{near}; `hexane compile --without help` lists them"
            raise UsageError(f"there is no transformation {name!r}", hint=hint)
    rows = [row for row in TRANSFORMATIONS.values() if dialect == "default" or (row.in_apple and dialect == "apple")]
    if accuracy == "exact":
        rows = [row for row in rows if not row.error]
    if strict:
        rows = [row for row in rows if row.evidence is not Evidence.INFERRED]
    if generation:
        rows = [row for row in rows if not row.generations or generation in row.generations]
    return Transformations.of({row.name for row in rows} - set(off))


def named_after(pass_name: str) -> str:
    """The transformation that a pass does; empty for a pass that is always done."""
    rows = TRANSFORMATIONS.values()
    return next((row.name for row in rows if pass_name in (row.passes or (row.attribute,))), "")


def carried(graph: Graph) -> Transformations:
    """Transformations with which a graph was made canonical; the default's for a graph that no compilation made."""
    names = graph.metadata.get(KEY)
    return Transformations() if names is None else Transformations.of(names)
