"""Moves of data that cancel or join."""

from __future__ import annotations

from hexane.graph.builder import GraphBuilder
from hexane.graph.ir import Function, Op, Value
from hexane.graph.registry import has, with_trait
from hexane.graph.traits import RESHAPES
from hexane.passes.rewriting import in_place_of, is_static, known, sweep

ENGINE_AXES = 4


def cancel_moves(function: Function) -> int:
    """Join transpositions and reshapes that follow each other; each one left is a pass over memory."""
    return sweep(function, {"transpose": _transpose} | dict.fromkeys(with_trait(RESHAPES), _reshape))


def _transpose(op: Op, b: GraphBuilder) -> Value | None:
    x, perm = op.inputs["x"], op.arg("perm")
    if not known(perm) or not is_static(x):
        return None
    rank = len(perm)
    perm = [p % rank for p in perm]
    inner = x.op
    if inner is not None and inner.type == "transpose" and known(inner.arg("perm")):
        first = [p % rank for p in inner.arg("perm")]
        joined = [first[p] for p in perm]
        source = inner.inputs["x"]
        if joined == list(range(rank)):
            return in_place_of(op, source)
        return b.transpose(x=source, perm=joined)
    long = [p for p in perm if x.shape[p] != 1]
    if rank > ENGINE_AXES and long == sorted(long):  # only axes of one element move
        return b.reshape(x=x, shape=list(op.output.shape))
    return None


def _reshape(op: Op, b: GraphBuilder) -> Value | None:
    x = op.inputs["x"]
    if not is_static(x) or not is_static(op.output):
        return None
    inner = x.op
    if inner is None or not has(inner, RESHAPES) or not is_static(inner.inputs["x"]):
        return None
    source = inner.inputs["x"]
    if source.shape == op.output.shape:
        return in_place_of(op, source)
    return b.reshape(x=source, shape=list(op.output.shape))
