"""Tensors of more than four axes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hexane.passes.reshapes import ENGINE_AXES, RESHAPES
from hexane.passes.rewriting import is_static, known, sweep

if TYPE_CHECKING:
    from hexane.graph.builder import GraphBuilder
    from hexane.graph.ir import Function, Op, Value


UNARY = ("relu", "relu6", "clip", "sigmoid", "tanh", "silu", "gelu", "leaky_relu", "sigmoid_hard", "exp", "sqrt", "abs")
BINARY = ("add", "sub", "mul", "maximum", "minimum")


def legalise_views(function: Function) -> int:
    """See transpositions and elementwise ops on five and more axes as ones on four: the engine has no more."""
    rules = {"transpose": _transpose} | dict.fromkeys(UNARY, _unary) | dict.fromkeys(BINARY, _binary)
    return sweep(function, rules)


def _transpose(op: Op, b: GraphBuilder) -> Value | None:
    """Axes of one element dropped, axes that stay neighbours joined."""
    x, perm = op.inputs["x"], op.arg("perm")
    if not known(perm) or not is_static(x) or len(perm) <= ENGINE_AXES:
        return None
    rank = len(perm)
    runs = [[p % rank] for p in perm if x.shape[p] != 1]
    at = 1
    while len(runs) > ENGINE_AXES and at < len(runs):  # rows stay whole as long as other axes can be joined
        if runs[at - 1][-1] == _before(runs[at][0], x.shape):
            runs[at - 1 : at + 1] = [runs[at - 1] + runs[at]]
        else:
            at += 1
    if len(runs) > ENGINE_AXES:
        return None
    by_source = sorted(runs)
    shape = [prod(x.shape[a] for a in run) for run in by_source]
    turned = b.transpose(x=b.reshape(x=x, shape=shape), perm=[by_source.index(run) for run in runs])
    return b.reshape(x=turned, shape=list(op.output.shape))


def _before(axis: int, shape: tuple[int, ...]) -> int:
    """The next axis to the left that has more than one element."""
    axis -= 1
    while axis >= 0 and shape[axis] == 1:
        axis -= 1
    return axis


def _flat(shape: tuple[int, ...]) -> list[int] | None:
    """The shape on four axes, leading ones joined; None where it needs no change."""
    if len(shape) <= ENGINE_AXES or all(extent == 1 for extent in shape[: len(shape) - ENGINE_AXES]):
        return None
    lead = len(shape) - ENGINE_AXES + 1
    return [1, prod(shape[:lead]) * shape[lead], *shape[lead + 1 :]] if len(shape) > lead + 1 else None


def _between_reshapes(op: Op) -> bool:
    """Whether a reshape makes an operand and reshapes alone take the result: then two more cost nothing."""
    users = op.output.users
    made = any(v.op is not None and v.op.type in RESHAPES for v in op.operands())
    return made and bool(users) and not op.output.is_output and all(user.type in RESHAPES for user in users)


def _unary(op: Op, b: GraphBuilder) -> Value | None:
    x = op.inputs["x"]
    flat = _flat(x.shape) if is_static(x) and _between_reshapes(op) else None
    if flat is None or x.shape != op.output.shape:
        return None
    rest = {name: value for name, value in op.inputs.items() if name != "x"}
    made = b.op(op.type, opset=op.opset, **rest, x=b.reshape(x=x, shape=flat))
    return b.reshape(x=made, shape=list(op.output.shape))


def _binary(op: Op, b: GraphBuilder) -> Value | None:
    x, y = op.inputs["x"], op.inputs["y"]
    if not is_static(x) or not is_static(y) or x.shape != op.output.shape or x.dtype not in ("fp16", "fp32"):
        return None
    flat = _flat(x.shape) if _between_reshapes(op) else None
    if flat is None or (y.shape != x.shape and prod(y.shape) != 1):
        return None
    other = b.reshape(x=y, shape=flat if y.shape == x.shape else [1, 1, 1, 1])
    made = b.op(op.type, opset=op.opset, x=b.reshape(x=x, shape=flat), y=other)
    return b.reshape(x=made, shape=list(op.output.shape))
