"""The planar engine: element-wise operations, scale and shift, reductions (docs/reference/engine-h13.md 8.3 to 8.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.arithmetic import chosen, elementwise, planar
from hexane.arithmetic.elementwise import planar_copy, shift_scale
from hexane.arithmetic.formats import canonical
from hexane.arithmetic.reduction import FUNCTIONS, reduce
from hexane.emulator.registers import Registers
from hexane.emulator.task import EngineTask, PEKind
from hexane.emulator.work import Events, Operands, UnitWork

if TYPE_CHECKING:
    from hexane.arithmetic.fast.jobs import CompiledJob

ADD, MUL, MAX, MIN, SUM_SQUARE = range(5)
OPERATIONS = {ADD: "add", MUL: "mul", MAX: "max", MIN: "min", SUM_SQUARE: "sumsq"}
NO_SOURCE, SOURCE_2, MINUS_SOURCE_2 = 0, 2, 3
REDUCED_AXES = (1, 3, 4)  # depth, height, width of (g, d, c, h, w)


def prepare(task: EngineTask) -> UnitWork:
    """A PE task, checked and ready for its operands: size 1 along broadcast axes."""
    r = task.registers
    r.one_of("PE.Cfg.Cond", (0, r.roles.absolute), "only none and abs are known")
    r.one_of("PE.Cfg.FirstSrc", (0, 1), "source 1 or its negative")
    _require_number(r, "PE.PreScale.PreScale", 1.0, "no task has another")
    if task.pe_kind in (PEKind.REDUCE, PEKind.BINARY_REDUCE):
        return _reduce(task)
    _require_plain(r)
    if task.pe_kind is PEKind.SCALE_SHIFT:
        return _scale_shift(task)
    return _elementwise(task)


def _require_plain(r: Registers) -> None:
    for name in ("PE.Cfg.ReduceMode", "PE.Cfg.NonlinearMode", "PE.PreScale.Epsilon", "L2.L2Cfg.PaddingMode"):
        r.one_of(name, (0,), "used in reductions only")
    _require_number(r, "PE.FinalScale.FinalScale", 1.0, "used in reductions only")


def _require_number(r: Registers, name: str, value: float, meaning: str) -> None:
    if r.number(name) != value:
        raise r.error(f"factor {r.number(name):g} has no known effect ({meaning}); known: {value:g}", name)


def _require_unscaled(r: Registers, meaning: str) -> None:
    _require_number(r, "PE.BiasScale.Scale", 1.0, meaning)
    r.one_of("PE.BiasScale.Bias", (0,), meaning)


def _minus(x: np.ndarray) -> np.ndarray:
    """The negative of an operand as the planar engine reads it."""
    return -canonical(x)


Signs = Callable[[np.ndarray, np.ndarray | None], tuple[np.ndarray, np.ndarray | None]]


def _operation(task: EngineTask) -> tuple[str, Signs, bool]:
    """The operation, what gives its operands the selected signs, and whether they are taken as they are."""
    r, two = task.registers, task.source2 is not None
    op = OPERATIONS[r.one_of("PE.Cfg.OpMode", OPERATIONS, "operation")]
    second = r.one_of("PE.Cfg.SecSrc", (SOURCE_2, MINUS_SOURCE_2) if two else (NO_SOURCE,), "second source")
    if not two and op not in ("add", "sumsq"):
        raise r.error(f"{op} with one operand has no known effect", "PE.Cfg.OpMode")
    first_minus = r.flag("PE.Cfg.FirstSrc")
    relu = two and r.flag("L2.L2Cfg.Src2ReLU")
    subtract = second == MINUS_SOURCE_2 and op == "add"
    second_minus = second == MINUS_SOURCE_2 and not subtract

    def signed(a: np.ndarray, b: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        if first_minus:
            a = _minus(a)
        if b is not None and relu:
            b = planar.relu(b)
        if b is not None and second_minus:
            b = _minus(b)
        return a, b

    return "sub" if subtract else op, signed, not (first_minus or relu or second_minus)


def _elementwise(task: EngineTask) -> UnitWork:
    """Kinds 2 and 3: ``(a op b) * Scale + Bias``, abs, ReLU, at the size of the output."""
    r, two = task.registers, task.source2 is not None
    op, signed, plain = _operation(task)
    scale, bias = r.number("PE.BiasScale.Scale"), r.number("PE.BiasScale.Bias")
    if scale != 1.0 and bias != 0.0:
        raise r.error("scale and bias together: their order is not known", "PE.BiasScale.Bias")
    absolute, relu = r["PE.Cfg.Cond"] != 0, r.flag("PE.Cfg.ReluEn")
    options: dict[str, Any] = {"scale": scale, "bias": bias, "absolute": absolute, "relu": relu}
    scaled = scale != 1.0 or bias != 0.0
    copied = not two and op == "add"
    # What follows the operation is a function of its rounded result, unless they are rounded together.
    together = scaled and chosen("planar-scale") == "once"
    behind = planar_copy(**options)
    follow = behind if scaled or absolute or relu or copied else None

    def compute(a: np.ndarray, b: np.ndarray | None = None, out: np.ndarray | None = None) -> np.ndarray:
        a, b = signed(a, b)
        if together:
            values = planar.formula(op, a, b, **options)
        elif copied:
            values = behind(a, out if a.shape == task.result.extent else None)
        else:
            b = _ZERO if b is None else b
            whole = a.shape == task.result.extent or b.shape == task.result.extent
            values = elementwise(op, a, b, follow=follow, out=out if whole else None)
        return values if values.shape == task.result.extent else np.broadcast_to(values, task.result.extent)

    def tabulate() -> None:
        if follow is not None and not together:
            follow.tabulate()

    def job(operands: Operands, target: np.ndarray) -> CompiledJob | None:
        from hexane.arithmetic.fast import planar_job

        only_relu = relu and not (scaled or absolute or copied)
        table = None if follow is None or only_relu else follow.results
        if not plain or together or (follow is not None and table is None and not only_relu):
            return None
        if op == "sumsq" and chosen("planar-square") != "each-step":
            return None
        a, *b = (x.view(np.uint16) for x in operands)
        if copied and table is not None:
            return planar_job.look_up(table, a, target.view(np.uint16)) if a.shape == target.shape else None
        second = b[0] if b else _ZERO.view(np.uint16)
        if target.shape not in (a.shape, second.shape):
            return None
        return planar_job.operate(op, a, second, table, target.view(np.uint16), relu=only_relu)

    def events(operands: Operands, values: np.ndarray, observe: bool) -> Events:
        return Events(("scalar-exponent-31",) if scale != 1.0 and np.isinf(values).any() else ())

    rests_on: tuple[str, ...] = ("planar-square",) if two and op == "sumsq" else ()
    name = op if two else "square" if op == "sumsq" else "copy"
    if scaled:
        name += f" * {scale:g}" * (scale != 1.0) + f" + {bias:g}" * (bias != 0.0)
        rests_on += ("planar-scale",)
    name += " + abs" * absolute + " + relu" * relu
    return UnitWork(name, rests_on, compute, events, tabulate=tabulate, job=job, in_place=True)


_ZERO = np.zeros((1, 1, 1, 1, 1), np.float16)


def _scale_shift(task: EngineTask) -> UnitWork:
    """Kind 4: ``(src1 + row 0) * row 1``, one value per channel (docs/reference/engine-h13.md 8.4)."""
    r = task.registers
    r.one_of("PE.Cfg.OpMode", (ADD,), "scale and shift")
    second = r.one_of("PE.Cfg.SecSrc", (SOURCE_2, MINUS_SOURCE_2), "second source")
    for name in ("PE.Cfg.FirstSrc", "PE.Cfg.Cond", "L2.L2Cfg.Src2ReLU"):
        r.one_of(name, (0,), "never away from it in scale and shift")
    _require_unscaled(r, "never away from it in scale and shift")
    if r.flag("PE.Cfg.ReluEn"):
        raise r.error("ReLU behind scale and shift has no known effect", "PE.Cfg.ReluEn")
    subtract = second == MINUS_SOURCE_2

    def compute(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        wide = np.broadcast_to(a, task.result.extent)
        return shift_scale(wide, b[:, :, :, 0:1], b[:, :, :, 1:2], subtract=subtract, out=out)

    def events(operands: Operands, values: np.ndarray, observe: bool) -> Events:
        rows = operands[1]
        plain = not np.any(rows[:, :, :, 0:1]) or np.all(rows[:, :, :, 1:2] == 1)
        return Events(() if plain else ("planar-shift-scale",))

    return UnitWork("(x - shift) * scale" if subtract else "(x + shift) * scale", (), compute, events)


def _reduce(task: EngineTask) -> UnitWork:
    """Kinds 5 and 6: over depth, height and width of every channel and group (docs/reference/engine-h13.md 8.5)."""
    r = task.registers
    r.one_of("PE.Cfg.ReluEn", (0,), "its place against a reduction is not known")
    absolute = r["PE.Cfg.Cond"] != 0
    _require_unscaled(r, "its place against a reduction is not known")
    mode = {0: "sum", 2: "max"}[r.one_of("PE.Cfg.ReduceMode", (0, 2), "only sum and maximum are known")]
    r.one_of("L2.L2Cfg.PaddingMode", (int(mode == "max"),), "1 in a maximum, 0 in all else")
    codes = (0, 1, 2) if r.linked else (0, 1, 2, 3)
    nonlinear = FUNCTIONS[r.one_of("PE.Cfg.NonlinearMode", codes, "non-linearity")]
    op, signed, plain = _operation(task)
    two = task.source2 is not None
    if absolute and (r.linked or two or op != "add" or mode != "max"):
        raise r.error("an absolute value here has no known effect", "PE.Cfg.Cond")
    scale = r.number("PE.FinalScale.FinalScale")
    if not np.isfinite(scale):
        raise r.error("a scale that is no number has no known effect", "PE.FinalScale.FinalScale")
    epsilon = r.number("PE.PreScale.Epsilon")
    if nonlinear not in ("rsqrt", "sqrt"):
        r.one_of("PE.PreScale.Epsilon", (0,), "only before a reciprocal square root")
    if mode == "max" and (scale != 1.0 or nonlinear):
        raise r.error("a scale or non-linearity behind a maximum has no known effect", "PE.Cfg.ReduceMode")
    shape = (task.groups, task.depth, task.cin, task.hin, task.win)

    def compute(a: np.ndarray, b: np.ndarray | None = None, out: np.ndarray | None = None) -> np.ndarray:
        a, b = signed(a, b)
        if absolute:
            a = planar.absolute(a)
        return reduce(
            np.broadcast_to(a, shape),
            REDUCED_AXES,
            mode,
            op=op if two or op != "add" else None,
            other=b,
            scale=scale,
            epsilon=epsilon,
            nonlinear=nonlinear,
            keepdims=True,
        )

    def job(operands: Operands, target: np.ndarray) -> CompiledJob | None:
        from hexane.arithmetic.fast import planar_job

        rules = (
            mode == "max" or chosen("reduction-sum") == "groups-of-four",
            chosen("reduction-finish") == "after-scale",
        )
        if not plain or absolute or two or op != "add" or not all(rules):
            return None
        x = np.broadcast_to(operands[0].view(np.uint16), shape)
        return planar_job.reduce(x, mode == "max", scale, epsilon, FUNCTIONS.index(nonlinear), target.view(np.uint16))

    rests_on: tuple[str, ...] = ("reduction-sum",) if mode == "sum" else ("reduction-max",)
    if op == "sumsq":
        rests_on += ("planar-square", "reduction-range")
    if scale != 1.0 or epsilon or nonlinear:
        rests_on += ("reduction-finish",)
    if nonlinear:
        rests_on += ("reciprocal",)
    name = f"reduce {mode}" + (f" of {op}" if two or op != "add" else " of abs" * absolute)
    name += (
        f" * {scale:g}" * (scale != 1.0) + f" + {epsilon:g}" * bool(epsilon) + (f" -> {nonlinear}" if nonlinear else "")
    )
    return UnitWork(name, rests_on, compute, job=job)
