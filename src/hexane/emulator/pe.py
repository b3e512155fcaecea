"""The planar engine: element-wise operations, scale and shift, reductions (spec/engine-h13 §8.3 to §8.5)."""

from __future__ import annotations

import numpy as np

from hexane.arithmetic import chosen, elementwise, planar
from hexane.arithmetic.formats import canonical
from hexane.arithmetic.reduction import reduce
from hexane.emulator.pointwise import pointwise
from hexane.emulator.registers import Registers
from hexane.emulator.task import PEKind, Task
from hexane.emulator.trace import Computation

ADD, MUL, MAX, MIN, SUM_SQUARE = range(5)
OPERATIONS = {ADD: "add", MUL: "mul", MAX: "max", MIN: "min", SUM_SQUARE: "sumsq"}
NO_SOURCE, SOURCE_2, MINUS_SOURCE_2 = 0, 2, 3
ONE_FP16, ONE_FP32 = 0x3C00, 0x3F800000
REDUCED_AXES = (1, 3, 4)  # depth, height, width of (g, d, c, h, w)


def run(task: Task, a: np.ndarray, b: np.ndarray | None) -> Computation:
    """Execute a PE task on its operands, float16 with axes (g, d, c, h, w) and size 1 along broadcast axes."""
    r = task.registers
    assert task.pe_kind is not None
    r.one_of("PE.Cfg.Cond", (0, 1), "only none and abs are known")
    r.one_of("PE.Cfg.FirstSrc", (0, 1), "source 1 or its negative")
    if task.pe_kind in (PEKind.REDUCE, PEKind.BINARY_REDUCE):
        return _reduce(task, a, b)
    for name, value in _PLAIN.items():
        r.one_of(name, (value,), "used in reductions only")
    if task.pe_kind is PEKind.SCALE_SHIFT:
        assert b is not None
        return _scale_shift(task, a, b)
    return _elementwise(task, a, b)


_PLAIN = {
    "PE.Cfg.ReduceMode": 0,
    "PE.Cfg.NonlinearMode": 0,
    "PE.PreScale.Epsilon": 0,
    "PE.FinalScale.FinalScale": ONE_FP32,
    "L2.L2Cfg.PaddingMode": 0,
}


def _half(r: Registers, name: str) -> float:
    return float(np.uint16(r[name]).view(np.float16))


def _minus(x: np.ndarray) -> np.ndarray:
    """The negative of an operand as the planar engine reads it."""
    return -canonical(x)


def _operands(r: Registers, a: np.ndarray, b: np.ndarray | None) -> tuple[str, np.ndarray, np.ndarray | None]:
    """The operation and its operands, with the selected signs."""
    op = OPERATIONS[r.one_of("PE.Cfg.OpMode", OPERATIONS, "operation")]
    second = r.one_of("PE.Cfg.SecSrc", (NO_SOURCE,) if b is None else (SOURCE_2, MINUS_SOURCE_2), "second source")
    if r.flag("PE.Cfg.FirstSrc"):
        a = _minus(a)
    if b is None:
        if op not in ("add", "sumsq"):
            raise r.error(f"{op} with one operand has no known effect", "PE.Cfg.OpMode")
        return op, a, None
    if r.flag("L2.L2Cfg.Src2ReLU"):
        b = planar.relu(b)
    if second == MINUS_SOURCE_2:
        if op == "add":
            return "sub", a, b
        b = _minus(b)
    return op, a, b


def _elementwise(task: Task, a: np.ndarray, b: np.ndarray | None) -> Computation:
    """Kinds 2 and 3: ``(a op b) * Scale + Bias``, abs, ReLU, at the size of the output."""
    r = task.registers
    op, a, b = _operands(r, a, b)
    scale, bias = _half(r, "PE.BiasScale.Scale"), _half(r, "PE.BiasScale.Bias")
    if scale != 1.0 and bias != 0.0:
        raise r.error("scale and bias together: their order is not known", "PE.BiasScale.Bias")
    absolute, relu = r["PE.Cfg.Cond"] == 1, r.flag("PE.Cfg.ReluEn")
    values = _formula(op, a, b, scale=scale, bias=bias, absolute=absolute, relu=relu)
    rests_on: tuple[str, ...] = ()
    name = ("square" if op == "sumsq" else "copy") if b is None else op
    if b is not None and op == "sumsq":
        rests_on += ("planar-square",)
    if scale != 1.0 or bias != 0.0:
        name += f" * {scale:g}" * (scale != 1.0) + f" + {bias:g}" * (bias != 0.0)
        rests_on += ("planar-scale",)
        if scale != 1.0 and np.isinf(values).any():
            rests_on += ("scalar-exponent-31",)
    name += " + abs" * absolute + " + relu" * relu
    return Computation(np.broadcast_to(values, task.result.extent), name, rests_on)


def _formula(
    op: str, a: np.ndarray, b: np.ndarray | None, *, scale: float, bias: float, absolute: bool, relu: bool
) -> np.ndarray:
    """`planar.formula`, faster where the operation is rounded before anything follows: then the rest has one input."""
    rest = scale != 1.0 or bias != 0.0 or absolute or relu
    if (scale != 1.0 or bias != 0.0) and chosen("planar-scale") == "once":
        return planar.formula(op, a, b, scale=scale, bias=bias, absolute=absolute, relu=relu)
    rounded = a if b is None and op == "add" else elementwise(op, a, np.float16(0) if b is None else b)

    def follow(x: np.ndarray) -> np.ndarray:
        return planar.formula("add", x, scale=scale, bias=bias, absolute=absolute, relu=relu)

    key = ("planar", scale, bias, absolute, relu)
    return pointwise(follow, rounded, *key) if rest or rounded is a else rounded


def _scale_shift(task: Task, a: np.ndarray, b: np.ndarray) -> Computation:
    """Kind 4: ``(src1 + row 0) * row 1``, one value per channel (spec/engine-h13 §8.4)."""
    r = task.registers
    r.one_of("PE.Cfg.OpMode", (ADD,), "scale and shift")
    second = r.one_of("PE.Cfg.SecSrc", (SOURCE_2, MINUS_SOURCE_2), "second source")
    for name, value in {"PE.Cfg.FirstSrc": 0, "PE.Cfg.Cond": 0, "L2.L2Cfg.Src2ReLU": 0, **_UNSCALED}.items():
        r.one_of(name, (value,), "never away from it in scale and shift")
    shift, scale = b[:, :, :, 0:1], b[:, :, :, 1:2]
    subtract = second == MINUS_SOURCE_2
    if chosen("planar-shift-scale") == "each-step":
        values = elementwise("mul", elementwise("sub" if subtract else "add", a, shift), scale)
    else:
        values = planar.shift_scale(a, shift, scale, subtract=subtract)
    if r.flag("PE.Cfg.ReluEn"):
        raise r.error("ReLU behind scale and shift has no known effect", "PE.Cfg.ReluEn")
    plain = not np.any(shift) or np.all(scale == 1)
    name = "(x - shift) * scale" if subtract else "(x + shift) * scale"
    return Computation(np.broadcast_to(values, task.result.extent), name, () if plain else ("planar-shift-scale",))


_UNSCALED = {"PE.BiasScale.Scale": ONE_FP16, "PE.BiasScale.Bias": 0}


def _reduce(task: Task, a: np.ndarray, b: np.ndarray | None) -> Computation:
    """Kinds 5 and 6: over depth, height and width of every channel and group (spec/engine-h13 §8.5)."""
    r = task.registers
    for name, value in {"PE.Cfg.Cond": 0, "PE.Cfg.ReluEn": 0, **_UNSCALED}.items():
        r.one_of(name, (value,), "its place against a reduction is not known")
    mode = {0: "sum", 2: "max"}[r.one_of("PE.Cfg.ReduceMode", (0, 2), "only sum and maximum are known")]
    r.one_of("L2.L2Cfg.PaddingMode", (int(mode == "max"),), "1 in a maximum, 0 in all else")
    nonlinear = {0: None, 1: "reciprocal", 2: "rsqrt"}[r.one_of("PE.Cfg.NonlinearMode", (0, 1, 2), "non-linearity")]
    op, a, b = _operands(r, a, b)
    scale = float(np.uint32(r["PE.FinalScale.FinalScale"]).view(np.float32))
    if not np.isfinite(scale):
        raise r.error("a scale that is no number has no known effect", "PE.FinalScale.FinalScale")
    epsilon = _half(r, "PE.PreScale.Epsilon")
    if nonlinear != "rsqrt":
        r.one_of("PE.PreScale.Epsilon", (0,), "only before a reciprocal square root")
    if mode == "max" and (scale != 1.0 or nonlinear):
        raise r.error("a scale or non-linearity behind a maximum has no known effect", "PE.Cfg.ReduceMode")
    shape = (task.groups, task.depth, task.cin, task.hin, task.win)
    values = reduce(
        np.broadcast_to(a, shape),
        REDUCED_AXES,
        mode,
        op=None if op == "add" and b is None else op,
        other=b,
        scale=scale,
        epsilon=epsilon,
        nonlinear=nonlinear,
        keepdims=True,
    )
    rests_on: tuple[str, ...] = ("reduction-sum",) if mode == "sum" else ("reduction-max",)
    if op == "sumsq":
        rests_on += ("planar-square",)
    if scale != 1.0 or epsilon or nonlinear:
        rests_on += ("reduction-finish",)
    if nonlinear:
        rests_on += ("reciprocal",)
    name = f"reduce {mode}" + (f" of {op}" if op != "add" or b is not None else "")
    name += (
        f" * {scale:g}" * (scale != 1.0) + f" + {epsilon:g}" * bool(epsilon) + (f" -> {nonlinear}" if nonlinear else "")
    )
    return Computation(values, name, rests_on)
