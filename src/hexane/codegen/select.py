"""Choice of the recipe for an op: the first, by rank, whose tasks can be made (docs/reference/engine-h13.md 13)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from hexane.chips import Evidence, weakest
from hexane.chips.operations import REFUSED, support
from hexane.codegen import batches
from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment
from hexane.codegen.price import price_us
from hexane.codegen.recipes.registry import Recipe, recipes_for
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import slot_init
from hexane.graph.ir import Op
from hexane.graph.ops.onnx_foreign import reason_on_host
from hexane.passes.resampling import MOST_WEIGHTS, RESIZES

FAMILIES = (
    "unary",
    "elementwise",
    "broadcast",
    "byte_chain",
    "conv",
    "conv_pixels",
    "linear",
    "siblings",
    "matmul",
    "batched",
    "constant_first",
    "attention",
    "heads",
    "reduce",
    "softmax",
    "norm",
    "compare",
    "quantise",
    "quotient",
    "shape",
    "activation",
    "pooling",
    "rearrange",
    "regroup",
    "padding",
    "lines",
    "chains",
)
"""The recipe files, loaded at the first selection. A new family adds its name here."""

ORDINARY = 10  # rank of recipes for single ops


@slot_init
@dataclass(frozen=True, slots=True)
class Choice:
    """A recipe, the ops that it covers, and the tasks that it made."""

    recipe: Recipe
    ops: tuple[Op, ...]
    fragment: Fragment

    @property
    def evidence(self) -> Evidence:
        """The weakest label among the tasks."""
        return weakest(Evidence.APPLE, *(plan.evidence for plan in self.fragment.plans))


_RESIZED = (
    "a resize by no whole factor that is not linear, of other than the last two of four axes, or of an axis whose "
    f"matrix of weights (results x elements) has more than {MOST_WEIGHTS >> 20} Mi elements"
)
LEFT_WHOLE = {
    **dict.fromkeys(RESIZES, _RESIZED),
    **dict.fromkeys(
        ("avg_pool", "l2_pool"),
        "a window of more than 32 elements along an axis, or of more than 31 of padding, is no task's",
    ),
    "local_response_norm": "a local response norm whose sum of squares no scale of the accumulator holds for every "
    "fp16 map (k is too small beside alpha), or of other numbers than alpha >= 0, beta > 0 and k > 0 on four axes",
}
"""Why an op is left that passes write in others wherever the engine can."""


@cache
def load_recipes() -> None:
    for family in FAMILIES:
        import_module(f"hexane.codegen.recipes.{family}")


def select(op: Op, context: Context, *, strict: bool = False) -> Choice:
    """The choice for an op: the first recipe without inferred tasks, else the first that takes it at all.

    With ``priced-recipes`` on, an earlier recipe with inferred tasks is kept where its price is smaller.

    A recipe for a run of ops (rank below the ordinary) wins as it is: it saves whole tasks. ``strict`` refuses inferred
    tasks and each recipe that no program of the target shows. UnsupportedError with every recipe's reason
    when none takes the op.
    """
    choice = _select(op, context, strict=strict)
    doubt, described = "; ".join(_doubts(choice, context)), choice.ops[-1].describe()
    plans = choice.fragment.plans
    choice.fragment.plans = [plan.but(recipe_doubt=doubt, op=plan.op or described) for plan in plans]
    return choice


def _select(op: Op, context: Context, *, strict: bool) -> Choice:
    load_recipes()
    reasons: dict[str, Reason] = {}
    inferred: Choice | None = None
    for recipe in recipes_for(op.type):
        for choice in _choices(recipe, op, context, reasons):
            notes = {plan.note for plan in choice.fragment.plans if plan.note}
            if strict:
                notes.update(_doubts(choice, context))
            if not notes or (recipe.rank < ORDINARY and not strict):
                if inferred is not None and not strict and context.on.priced_recipes:
                    return _cheaper(inferred, choice, context)
                return choice
            inferred = inferred or choice
            if not strict:
                break
            reasons.setdefault(f"inferred only ({', '.join(sorted(notes))})", Reason.EVIDENCE)
    if inferred is not None and not strict:
        return inferred
    code = min(reasons.values(), key=list(Reason).index, default=Reason.OPERATION)
    refused = support(op.type, context.chip).verdict == REFUSED
    nothing = f"the engine has no {op.type}" if refused else f"hexane has no tasks for this form of {op.type}"
    reason = reason_on_host(op) if op.type.startswith("onnx.") else LEFT_WHOLE.get(op.type, nothing)
    raise UnsupportedError("; ".join(reasons) or reason, where=op.describe(), code=code)


def _doubts(choice: Choice, context: Context) -> list[str]:
    """Why no program of Apple's is an example of a choice: what passes wrote, a recipe that the target lacks."""
    doubts = list(dict.fromkeys(op.doubt for op in choice.ops if op.doubt))
    if not context.target.shows(choice.recipe.name):
        doubts.append(f"no program of {context.target.name} shows {choice.recipe.name}")
    return doubts


def _cheaper(inferred: Choice, shown: Choice, context: Context) -> Choice:
    """The choice with the smaller price; that whose tasks programs of Apple's compiler show where they are equal.

    What one of them covers beyond the other is priced by the choices for those ops.
    """
    first, second = (price_us(choice.fragment.plans, context.chip) for choice in (inferred, shown))
    longer, shorter = (inferred, shown) if len(inferred.ops) >= len(shown.ops) else (shown, inferred)
    rest = 0.0
    for op in longer.ops[len(shorter.ops) :]:
        try:
            rest += price_us(_select(op, context, strict=False).fragment.plans, context.chip)
        except UnsupportedError:
            return longer
    if longer is inferred:
        second += rest
    else:
        first += rest
    return shown if second <= first else inferred


def _choices(recipe: Recipe, op: Op, context: Context, reasons: dict[str, Reason]) -> Iterator[Choice]:
    """Results of the recipe for the run of ops that it matches, then for shorter runs where it takes them."""
    matched = recipe.match(op, context)
    if matched is None:
        return
    for count in range(len(matched), 0 if recipe.shrinks else len(matched) - 1, -1):
        ops = matched[:count]
        try:
            fragment = recipe.lower(ops, context)
            batches.in_parts(fragment, context.limits.max_groups)
            for plan in fragment.plans:
                context.target.require_fields(plan)
        except UnsupportedError as error:
            reasons.setdefault(error.message, error.code)
            continue
        yield Choice(recipe, ops, fragment)
