"""Functions that MIL has no op for and front ends spell out: found again, so that they can be timed as one."""

from __future__ import annotations

from hexane.graph import Function, Op, Value

_MEANS = ("reduce_mean", "reduce_sum", "reduce_sum_square")


def rms_norms(function: Function) -> tuple[dict[Op, Value], set[Op]]:
    """Root-mean-square norms ``x * rsqrt(mean(x^2) + eps)``: the last op of each with its input, and the ops inside.

    The ops inside are those that the last one stands for; each has no user outside the pattern.
    """
    ends: dict[Op, Value] = {}
    inside: set[Op] = set()
    for op in function.walk():
        if op.type != "mul":
            continue
        for source, factor in ((op.inputs["x"], op.inputs["y"]), (op.inputs["y"], op.inputs["x"])):
            ops = _rsqrt_of_mean_square(factor, source)
            if ops:
                ends[op] = source
                inside.update(ops)
                break
    return ends, inside


def _rsqrt_of_mean_square(factor: Value, source: Value) -> list[Op]:
    root = factor.op
    if root is None or root.type != "rsqrt":
        return []
    chain = [root]
    mean = _maker(root, "x")
    if mean is not None and mean.type == "add":
        chain.append(mean)
        mean = next((value.op for value in mean.operands() if value.op is not None), None)
    if mean is None or mean.type not in _MEANS:
        return []
    chain.append(mean)
    if mean.type == "reduce_sum_square":
        return chain if mean.inputs["x"] is source else []
    square = _maker(mean, "x")
    if square is None or square.type not in ("square", "mul"):
        return []
    if all(value is source for value in square.operands()):
        return [*chain, square]
    return []


def _maker(op: Op, param: str) -> Op | None:
    value = op.inputs.get(param)
    return value.op if isinstance(value, Value) else None
