"""A network as the columns of a row of measurements: the way back from ``hexane.timing.rows.graph_of``.

A network that the columns can say is checked by making it again: the row is believed only where the same ops with the
same shapes come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hexane.errors import HexaneError
from hexane.graph import Graph
from hexane.graph.ir import Op
from hexane.rounding import ceil_div
from hexane.timing.rows import BINARY_OPS, Row, graph_of

COLUMNS = (
    "id", "chip", "arch", "machine", "os", "kind", "source", "series", "workload", "op", "n", "cin", "h", "w", "cout",
    "kh", "kw", "stride", "dilation", "groups", "pad", "layers", "m", "k", "nn", "heads", "seq", "dhead", "axis", "act",
    "weights", "dtype", "wfmt", "wbytes_layer", "engines", "concurrency", "clock_mhz", "api", "value", "unit",
    "value_us", "stat", "alt_value", "alt_stat", "fit_us", "includes", "power_ane_w", "trust", "use", "note",
)  # fmt: skip
"""The columns of ``calibration.csv``, in its order."""
ACTIVATIONS = ("relu", "sigmoid", "tanh", "silu")
UNARY = (*ACTIVATIONS, "abs", "gelu", "exp", "sqrt", "rsqrt")
SETTINGS = ("strides", "dilations", "groups", "kernel_sizes", "axes", "axis", "transpose_x", "transpose_y")
"""Parameters that a time depends on; padding shows in the result's shape."""
Signature = list[tuple[Any, ...]]
Columns = dict[str, Any]


def columns_of(graph: Graph) -> Columns | None:
    """``kind``, ``op`` and the shape columns of a network; None for one that the columns cannot say."""
    ops = [op for op in graph.main.ops if op.type != "const"]
    for guess in (_conv, _linear, _matmul, _elementwise, _plain):
        try:
            columns = guess(ops)
            if columns is not None and signature(graph_of(Row(columns))) == signature(graph):
                return columns
        except (HexaneError, ValueError, IndexError, KeyError, TypeError):  # this guess does not fit
            continue
    return None


def signature(graph: Graph) -> Signature:
    """Ops in order with the shapes of their operands and result: what a time depends on, apart from weights' values."""
    columns: Signature = []
    for op in graph.main.ops:
        if op.type == "const" or op.type.startswith("constexpr"):
            continue
        shapes = tuple(tuple(v.shape) for v in _tensors(op))
        settings = tuple(str(op.arg(name)) for name in SETTINGS if name in op.inputs)
        columns.append((op.type, shapes, tuple(op.outputs[0].shape), settings))
    return columns


def _tensors(op: Op) -> list[Any]:
    """Operands that are tensors: data and weights, not strides or axes."""
    names = ("x", "y", "weight", "values", "query", "key", "value")
    operands = [op.inputs[name] for name in names if name in op.inputs]
    return [value for value in operands if hasattr(value, "shape") and len(value.shape) > 0]


def _steps(ops: list[Op]) -> list[tuple[Op, str]]:
    """Ops with the activation behind each."""
    steps: list[tuple[Op, str]] = []
    for op in ops:
        if op.type in ACTIVATIONS and steps and not steps[-1][1] and steps[-1][0].type in ("conv", "linear"):
            steps[-1] = (steps[-1][0], op.type)
        else:
            steps.append((op, ""))
    return steps


def _one(op: Op, name: str) -> int:
    """A parameter that is the same along both axes."""
    numbers = {int(n) for n in np.asarray(op.arg(name)).ravel()}
    if len(numbers) != 1:
        raise ValueError(name)
    return numbers.pop()


def _sets(ops: list[Op]) -> str:
    """The word for weights: "shared" by the layers, or "distinct"."""
    return "shared" if len(ops) > 1 and len({id(op.inputs["weight"]) for op in ops}) == 1 else "distinct"


def _conv(ops: list[Op]) -> Columns | None:
    steps = _steps(ops)
    if not steps or any(op.type != "conv" for op, _ in steps) or len({act for _, act in steps}) != 1:
        return None
    first, act = steps[0]
    (n, cin, h, w), (cout, _, kh, kw) = first.inputs["x"].shape, first.inputs["weight"].shape
    pad = (
        "same" if first.outputs[0].shape[2:] == tuple(ceil_div(n, _one(first, "strides")) for n in (h, w)) else "valid"
    )
    return {
        "kind": "conv" if len(steps) == 1 else "conv_chain", "op": "conv", "n": n, "cin": cin, "h": h, "w": w,
        "cout": cout, "kh": kh, "kw": kw, "stride": _one(first, "strides"),
        "dilation": _one(first, "dilations"), "groups": _one(first, "groups"), "pad": pad,
        "layers": len(steps), "act": act, "weights": _sets([op for op, _ in steps]), "wfmt": "fp16",
    }  # fmt: skip


def _linear(ops: list[Op]) -> Columns | None:
    if not ops or any(op.type != "linear" for op in ops):
        return None
    m, k = ops[0].inputs["x"].shape
    nn = ops[0].inputs["weight"].shape[0]
    kind = "gemv" if m == 1 else "linear"
    return {"kind": kind, "op": "linear", "m": m, "k": k, "nn": nn, "layers": len(ops), "weights": _sets(ops),
            "wfmt": "fp16"}  # fmt: skip


def _matmul(ops: list[Op]) -> Columns | None:
    if len(ops) != 1 or ops[0].type != "matmul":
        return None
    (m, k), (_, nn) = ops[0].inputs["x"].shape, ops[0].inputs["y"].shape
    return {"kind": "matmul_rt", "op": "matmul", "m": m, "k": k, "nn": nn, "layers": 1, "weights": "runtime"}


def _shape(shape: tuple[int, ...]) -> Columns:
    if len(shape) == 4:
        return dict(zip(("n", "cin", "h", "w"), shape))
    m, k = shape
    return {"m": m, "k": k}


def _elementwise(ops: list[Op]) -> Columns | None:
    kinds = {op.type for op in ops}
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    if kind not in (*BINARY_OPS, *UNARY):
        return None
    x = ops[0].inputs["x"]
    second = ops[0].inputs.get("y")
    suffix = "" if second is None or len(second.shape) else "_const"
    if second is not None and second is x:
        suffix = "_same"
    form = "eltwise" if len(ops) == 1 else "eltwise_chain"
    return {"kind": form, "op": kind + suffix, **_shape(tuple(x.shape)), "layers": len(ops), "weights": "none"}


def _plain(ops: list[Op]) -> Columns | None:
    kinds: Mapping[str, str] = {"softmax": "softmax", "layer_norm": "layer_norm", "reduce_sum": "reduce",
                                "avg_pool": "pool", "pixel_shuffle": "shuffle", "reduce_argmax": "topk"}  # fmt: skip
    if len(ops) != 1 or ops[0].type not in kinds:
        return None
    op = {"reduce_argmax": "argmax"}.get(ops[0].type, ops[0].type)
    shape = _shape(tuple(ops[0].inputs["x"].shape))
    return {"kind": kinds[ops[0].type], "op": op, **shape, "layers": 1, "weights": "none"}
