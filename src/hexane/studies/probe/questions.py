"""The questions: a network (and, where the compiler writes no such task, an edit of its program), its inputs, and the
hypotheses that its bits tell apart.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from hexane import chips
from hexane.arithmetic import planar
from hexane.arithmetic.hypotheses import ALL
from hexane.codegen import compile
from hexane.codegen.recipes.registry import all_recipes
from hexane.codegen.select import load_recipes
from hexane.errors import HexaneError, UnsupportedError
from hexane.graph import Graph, GraphBuilder
from hexane.graph.ir import Value
from hexane.image.edit import edited
from hexane.image.kernels import read_kernels, with_kernels
from hexane.isa import WRITTEN
from hexane.program import Program
from hexane.studies.probe.examples import EXAMPLES, FORMS, MAP, ROWS, Build, network, weights

RULE, RECIPE = "rule", "recipe"
LONG = (1, 1, 8, 2048)
INFERRED = "INFERRED"


@dataclass(frozen=True)
class Question:
    """One program and what is asked with it.

    ``asks``: hypotheses (of a rule), or the recipe. ``values``: inputs of their own, every other element.
    ``edits``, ``table``: settings of ``hexane edit``, and a network whose table the last task gets; the program is one
    that no compiler writes then, and only a device that takes engine programs can be asked. ``rule``: the arithmetic
    itself, for what the emulator refuses because no program was seen to do it. ``dialect``: "apple" where the default
    one has another form than what is asked about, and ``accuracy`` likewise. ``winograd``: of chips that have
    Winograd's form only.
    """

    name: str
    kind: str
    about: str
    asks: tuple[str, ...]
    build: Build
    shapes: tuple[tuple[int, ...], ...]
    scale: float = 1.0
    edits: tuple[str, ...] = ()
    table: Build | None = None
    rule: Callable[[np.ndarray], np.ndarray] | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    dtype: str = "fp16"
    dialect: str = "default"
    accuracy: str = "exact"
    winograd: bool = False

    def graph(self) -> Graph:
        """The network."""
        return network(self.build, self.shapes, self.dtype)

    def inputs(self) -> dict[str, np.ndarray]:
        """The same numbers on every machine."""
        random = np.random.default_rng(zlib.crc32(self.name.encode()))
        arrays = {}
        for name, shape in zip("xyz", self.shapes):
            numbers = random.standard_normal(shape) * self.scale
            with np.errstate(over="ignore"):
                arrays[name] = numbers.astype(np.float16)
            if name in self.values:
                arrays[name].reshape(-1)[::2] = self.values[name]
        return arrays

    def program(self, chip: str) -> Program:
        """The compiled program. UnsupportedError where the engine does not run it whole."""
        program = compile(self.graph(), chip=chip, dialect=self.dialect, accuracy=self.accuracy)
        if len(program.segments) != 1 or program.segments[0].image is None:
            reasons = [segment.reason for segment in program.segments if segment.image is None]
            raise UnsupportedError(f"not one engine program on {chip}: {'; '.join(reasons) or 'several segments'}")
        if not self.is_edited:
            return program
        segment = program.segments[0]
        assert segment.image is not None
        image = edited(segment.image, self.edits)
        if self.table is not None:
            other = compile(network(self.table, (MAP,)), chip=chip).images[0]
            image = with_kernels(image, {len(image.tasks) - 1: {"table": read_kernels(other)[-1].arrays["table"]}})
        return replace(program, segments=(replace(segment, image=image, source=None),), graph=None)

    @property
    def is_edited(self) -> bool:
        """True where the program is one that no compiler writes."""
        return bool(self.edits) or self.table is not None

    def digest(self) -> str:
        """A name of network, inputs and edits: an answer is read only against the question that was asked."""
        hasher = hashlib.sha256(self.graph().to_mil().encode())
        for name, array in self.inputs().items():
            hasher.update(name.encode() + array.tobytes())
        if self.is_edited:
            hasher.update(repr((self.edits, self.table and network(self.table, (MAP,)).to_mil())).encode())
        return hasher.hexdigest()[:32]


def _quantized(bias: bool) -> Build:
    integers = np.random.default_rng(3).integers(-127, 127, (32, 32, 1, 1)).astype(np.int8)
    scales = (np.random.default_rng(4).random(32) * 0.01 + 0.001).astype(np.float16)
    more = {"bias": weights(32, scale=1.0)} if bias else {}
    return lambda b, x: b.conv(
        x=x,
        weight=b.constexpr_affine_dequantize(quantized_data=integers, zero_point=np.int8(0), scale=scales, axis=0),
        **more,
    )


def _rule(name: str, about: str, asks: str, build: Build, *shapes: tuple[int, ...], **more: object) -> Question:
    return Question(name, RULE, about, tuple(asks.split()), build, shapes or (MAP,), **more)  # type: ignore[arg-type]


def _norm_of_peaks(b: GraphBuilder, x: Value) -> Value:
    peaks = np.zeros(LONG, np.float16)
    peaks[0, 0, :, 7] = np.tile([300, 1000, 14858, 50000], 2) * np.repeat([1, -1], 4)
    return b.layer_norm(x=b.add(x=x, y=peaks), axes=[3], epsilon=np.float16(1e-5))


def _hard_swish_of(shape: tuple[int, int], rank: int) -> Build:
    def build(b: GraphBuilder, x: Value) -> Value:
        y = b.matmul(x=x, y=weights(*(1,) * (rank - 2), *shape))
        return b.mul(x=y, y=b.sigmoid_hard(x=y, alpha=np.float16(1 / 6), beta=np.float16(0.5)))

    return build


_C = np.float16(0.37)
RULES = (
    _rule("post-scale", "a convolution whose sum is scaled by a constant", "post-scale",
          lambda b, x: b.mul(x=b.conv(x=x, weight=weights(32, 32, 1, 1)), y=_C)),
    _rule("sum-order", "sums that meet the limit of 2^15 on their way", "sum-order",
          lambda b, x: b.conv(x=x, weight=weights(32, 32, 1, 1, scale=3)), scale=3000),
    _rule("table-input", "a sum straight into a table", "table-input",
          lambda b, x: b.sigmoid(x=b.conv(x=x, weight=weights(32, 32, 1, 1)))),
    _rule("acc-bias", "a constant added before a table", "acc-bias", lambda b, x: b.inverse(x=x)),
    _rule("maximum-mode", "a maximum over channels", "maximum-mode",
          lambda b, x: b.reduce_max(x=x, axes=[1], keep_dims=True)),
    _rule("reduction-max", "a maximum over rows and columns", "reduction-max",
          lambda b, x: b.reduce_max(x=x, axes=[2, 3], keep_dims=True)),
    _rule("product-mode", "a power of two computed tensors", "product-mode",
          lambda b, x, y: b.pow(x=b.abs(x=x), y=y), MAP, MAP),
    _rule("infinite-operand", "infinity times a quarter", "scalar-exponent-31 planar-scale",
          lambda b, x: b.mul(x=x, y=np.float16(0.25)), values={"x": np.inf}),
    _rule("sum-of-rows", "a sum along a long row", "reduction-sum",
          lambda b, x: b.reduce_sum(x=x, axes=[3], keep_dims=True), LONG),
    _rule("mean-of-rows", "a mean over 24 columns, which is no power of two", "reduction-finish reduction-sum",
          lambda b, x: b.reduce_mean(x=x, axes=[3], keep_dims=True), (1, 64, 16, 24)),
    _rule("norm-of-rows", "a layer norm along a long row",
          "planar-shift-scale planar-square reduction-sum reduction-finish reciprocal",
          lambda b, x: b.layer_norm(x=x, axes=[3], epsilon=np.float16(1e-5)), LONG),
    _rule("norm-of-channels", "a layer norm over channels",
          "planar-square planar-shift-scale reduction-sum reduction-finish reciprocal",
          lambda b, x: b.layer_norm(x=x, axes=[1], epsilon=np.float16(1e-5))),
    _rule("norm-of-peaks", "layer norms of rows that hold one value of 300, 1000, 14858 and 50000",
          "reduction-range planar-shift-scale planar-square reduction-sum reduction-finish reciprocal",
          _norm_of_peaks, LONG),
    _rule("hard-swish-of-rows", "hard swish behind a product of two axes (published: off by 4 %)", "flat-hard-swish",
          _hard_swish_of((64, 32), 2), (16, 64), dialect="apple"),
    _rule("hard-swish-of-maps", "the same with four axes (published: within fp16)", "hard-swish hard-sigmoid",
          _hard_swish_of((64, 32), 4), (1, 1, 16, 64), dialect="apple"),
    _rule("softmax-of-columns", "a softmax along columns", "planar-scale reduction-sum reduction-finish reciprocal",
          lambda b, x: b.softmax(x=x, axis=3), scale=3),
    _rule("integer-sums", "integer weights with a scale for each output", "integer-scale", _quantized(False)),
    _rule("integer-sums-and-bias", "the same with a bias", "integer-scale scaled-bias", _quantized(True)),
    _rule("int8-kernel", "a comparison: weights of +1 and -1 in 8 bits", "int8-kernel table-input",
          lambda b, x, y: b.cast(x=b.less(x=x, y=y), dtype="fp16"), MAP, MAP, dialect="apple"),
    _rule("byte-store", "fractions stored as 8 bits", "byte-store", lambda b, x, y: b.less(x=x, y=y), MAP, MAP,
          scale=60, dialect="apple", table=lambda b, x: b.clip(x=x, alpha=np.float16(0), beta=np.float16(200))),
    _rule("average-pooling", "an average of 3 by 3", "average-pooling post-scale",
          lambda b, x: b.avg_pool(x=x, kernel_sizes=[3, 3], strides=[1, 1], pad_type="same")),
    _rule("maximum-of-windows", "a maximum pool of 3 by 3", "window-without-kernel maximum-mode",
          lambda b, x: b.max_pool(x=x, kernel_sizes=[3, 3], strides=[1, 1], pad_type="same")),
    _rule("matrix-product", "rows times weights, as language models have them", "sum-order",
          lambda b, x: b.linear(x=x, weight=weights(64, 64)), ROWS),
    _rule("winograd-sums", "a convolution of 3 by 3 with a bias, in Winograd's form", "winograd-bias",
          lambda b, x: b.conv(x=x, weight=weights(32, 32, 3, 3), bias=weights(32, scale=1.0), pad_type="same"),
          winograd=True),
    _rule("winograd-large-inputs", "the same of inputs whose differences leave fp16", "winograd-transform-overflow",
          lambda b, x: b.conv(x=x, weight=weights(32, 32, 3, 3, scale=3e-4), pad_type="same"),
          scale=2e4, winograd=True),
    _rule("winograd-of-groups", "a convolution of 3 by 3 in two groups", "winograd-groups",
          lambda b, x: b.conv(x=x, weight=weights(32, 16, 3, 3), groups=2, pad_type="same"), winograd=True),
    _rule("scale-and-bias", "Scale and Bias in one planar task", "planar-scale",
          lambda b, x: b.mul(x=x, y=_C), edits=("task[0].PE.BiasScale.Bias=0x39ae",),
          rule=lambda x: planar.formula("add", x, scale=0.37, bias=float(np.uint16(0x39AE).view(np.float16)))),
)  # fmt: skip


@lru_cache(maxsize=8)
def recipes_in_doubt(chip: str) -> tuple[Question, ...]:
    """A question for every recipe whose example rests on inference on this chip; none for chips without programs."""
    if chips.get(chip).generation_name not in WRITTEN:
        return ()
    load_recipes()
    descriptions = {recipe.name: recipe.doc for recipe in all_recipes()}
    doubts = []
    for name, (build, shapes) in EXAMPLES.items():
        form = FORMS.get(name, {})
        question = Question(f"recipe-{name}", RECIPE, descriptions.get(name, ""), (name,), build, shapes, **form)
        try:
            segment = question.program(chip).segments[0]
        except HexaneError:
            continue
        if any(plan.evidence.value == INFERRED for plan in segment.plans):
            doubts.append(question)
    return tuple(doubts)


def questions(chip: str) -> tuple[Question, ...]:
    """All questions for a chip, those that go beyond what any compiler writes last."""
    target_chip = chips.get(chip)
    rules = [rule for rule in RULES if target_chip.winograd or not rule.winograd]
    ours = [rule for rule in rules if not rule.is_edited]
    return (*ours, *recipes_in_doubt(target_chip.name), *(rule for rule in rules if rule.is_edited))


def not_asked(chip: str = "M1") -> dict[str, str]:
    """Hypotheses and recipes without a question for a chip, and why."""
    load_recipes()
    covered = {name for question in questions(chip) for name in question.asks}
    open_names = {name for question in RULES for name in question.asks}
    ours = chips.get(chip).name
    why = {
        name: f"{ours} has no Winograd form; M5 and A19 are asked"
        for name in sorted(open_names - covered)
        if name in ALL
    }
    recipes = {f"recipe-{r.name}": "no example" for r in all_recipes() if r.name not in EXAMPLES}
    return {**why, **recipes}


def choices(hypothesis: str) -> tuple[str, ...]:
    """Choices that may be assumed, the default first."""
    row = ALL[hypothesis]
    return (row.default, *(name for name in row.choices if name != row.default))
