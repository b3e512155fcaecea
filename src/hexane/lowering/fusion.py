"""Epilogue of one task behind its sums: bias, scalar factor, ReLU or table; and which ops run in one task for that.

Fusing changes bits: a factor or a table that rides along meets the sum before or after one rounding less. So the rule
that joins ops stands here once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hexane.errors import UnsupportedError
from hexane.graph import Op, Value
from hexane.isa.numbers import LARGEST_HALF, fp16_value
from hexane.lowering.affine import BYTES, affine_of
from hexane.lowering.functions import FITTED, FUNCTIONS, LIMITED, lookup_table
from hexane.lowering.transformations import Transformations
from hexane.lowering.windows import NATIVE_WIDTH

FUSED = tuple(name for name, function in FUNCTIONS.items() if not function.epsilon)
SUMS = ("conv", "matmul", "linear")
SMALLEST_FACTOR = 2.0**-14
"""Of results that are stored as bytes: what fp16 holds with all its digits."""
CUT_RUNS = "results that end a run of fused ops early"
"""Metadata of a segment's graph: the results of sums behind which the compiler wrote a bias or factor as its own op."""


def follows(op: Op, *types: str) -> Op | None:
    """The only user of the op's result, when it is one of these types."""
    user = op.output.only_user
    return user if user is not None and user.type in types else None


def factor_of(op: Op) -> float | None:
    """The number by which a mul multiplies, None when it is not a number."""
    x, y = op.inputs["x"], op.inputs["y"]
    value = y if not x.is_constant else x
    if not value.is_constant or value.data.size != 1:
        return None
    return float(np.asarray(value.data).reshape(-1)[0])


def channel_constant(op: Op, head: Op) -> np.ndarray | None:
    """Summand of an add per output channel of ``head``, as an fp16 vector; None when it is anything else."""
    x, y = op.inputs["x"], op.inputs["y"]
    if x.is_constant == y.is_constant:
        return None
    data = np.asarray((y if y.is_constant else x).data)
    shape = head.output.shape
    axis = 1 - len(shape) if head.type == "conv" else -1
    others = [extent for i, extent in enumerate(data.shape, -data.ndim) if i != axis]
    if any(extent != 1 for extent in others) or data.ndim < -axis or data.shape[axis] != shape[axis]:
        return None
    return data.astype(np.float16).reshape(-1)


def fused_ops(op: Op, on: Transformations) -> tuple[Op, ...]:
    """The op, then at most one bias, one scalar product and one ReLU or table, each the only user of the one before.

    A convolution also takes the ``quantize`` behind it, where no table stands between.
    """
    run, last = [op], op
    shift = follows(last, "add")
    if shift is not None and op.inputs.get("bias") is None and channel_constant(shift, op) is not None:
        run.append(shift)
        last = shift
    product = follows(last, "mul")
    if product is not None and factor_of(product) is not None:
        run.append(product)
        last = product
    function = follows(last, "relu", *FUSED)
    if function is None and on.table_epilogues:
        function = last.output.only_user
        if function is not None and table_call(function) is None:
            function = None
    if function is not None and not (function.type == "exp" and len(run) > 1):
        run.append(function)
    store = follows(run[-1], "quantize") if on.byte_results and op.type == "conv" else None
    if store is not None and run[-1].type in ("conv", "add", "mul", "relu") and _stores_bytes(run, store):
        run.append(store)
    return tuple(run)


def _stores_bytes(run: Sequence[Op], store: Op) -> bool:
    """True where a dense convolution of stride 1 may store its results as bytes: zero point 0, and one factor
    that fp16 holds."""
    conv = run[0]
    weight = conv.arg("weight")
    if len(weight.shape) != 4 or conv.arg("groups") != 1 or any(step != 1 for step in conv.arg("strides") or (1,)):
        return False
    if max(weight.shape[2:]) > NATIVE_WIDTH or store.output.dtype not in BYTES:
        return False
    try:
        affine = affine_of(store)
    except UnsupportedError:
        return False
    factor = affine.inverse * prod(abs(factor_of(op) or 0.0) for op in run if op.type == "mul")
    return not affine.zero and SMALLEST_FACTOR <= factor <= LARGEST_HALF


def table_call(op: Op) -> tuple[str, tuple[float, ...]] | None:
    """The table that an op of one operand is, and the numbers that it takes; None for an op that is no table.

    Tables with something in front of them (an epsilon, a factor) are no such op.
    """
    if op.type in FUSED:
        return table_name(op), ()
    if op.type in ("rsqrt", "inverse") and not np.float16(op.arg("epsilon")):
        return table_name(op), ()
    if op.type == "engine.table":
        return (op.arg("function"), (op.arg("scale"), op.arg("shift"))) if op.arg("factor") == 1.0 else None
    if op.type in ("maximum", "minimum"):
        x, y = op.inputs["x"], op.inputs["y"]
        number = factor_of(op)
        same_shape = (y if x.is_constant else x).shape == op.output.shape
        return (op.type, (number,)) if number is not None and same_shape else None
    if op.type == "leaky_relu":
        return op.type, (op.arg("alpha"),)
    if op.type == "clip":
        return (op.type, (op.arg("alpha"), op.arg("beta"))) if op.arg("alpha") <= op.arg("beta") else None
    if op.type == "sigmoid_hard":
        return (op.type, (op.arg("alpha"), op.arg("beta"))) if op.arg("alpha") > 0 else None
    if (op.type in FITTED and op.type not in LIMITED) or (op.type == "elu" and op.arg("alpha") == 1.0):
        return op.type, ()
    return None


def is_epilogue(op: Op | None) -> bool:
    """True where there is an op, of one operand, that a task applies to its sums as ReLU or by a table."""
    return op is not None and (op.type == "relu" or ("y" not in op.inputs and table_call(op) is not None))


def sum_run(op: Op, on: Transformations) -> tuple[Op, ...]:
    """The ops that one task computes; behind a product whose kernel is computed only a factor rides."""
    run = fused_ops(op, on)
    if op.type != "matmul" or not _computed_kernel(op):
        return run
    return run[:2] if len(run) > 1 and run[1].type == "mul" else run[:1]


def cut_runs(units: Iterable[Sequence[Op]], on: Transformations) -> list[str]:
    """Names of the results at which a unit of the compiler leaves the ops that one task could compute (``sum_run``)."""
    names = []
    for unit in units:
        for op in unit:
            if op.type in SUMS:
                run = sum_run(op, on)
                last = [inner for inner in run if inner in unit][-1]
                if last is not run[-1]:
                    names.append(last.output.name)
    return names


def _computed_kernel(op: Op) -> bool:
    """A product whose kernel is a tensor: nothing but a factor rides along (docs/reference/engine-h13.md 9.7, 13.2)."""
    x, y = op.inputs["x"], op.inputs["y"]
    return x.is_constant or not y.is_constant or int(np.prod(y.shape[:-2])) != 1


@dataclass(frozen=True)
class Epilogue:
    """Epilogue behind the sums: ``bias`` (fp16, one per output channel) starts them, then an fp16 factor, then nothing,
    ReLU or a table. ``store``: the format of bytes that the results are stored in."""

    relu: bool = False
    table_name: str | None = None
    scale: float = 1.0
    bias: np.ndarray | None = None
    numbers: tuple[float, ...] = ()  # of the table
    store: str = ""

    @classmethod
    def of(cls, run: Sequence[Op]) -> Epilogue:
        """Epilogue that the first op's own bias and the ops behind it ask for."""
        own = run[0].inputs.get("bias")
        bias = None
        if isinstance(own, Value) and own.is_constant:
            bias = np.asarray(own.data).astype(np.float16).reshape(-1)
        scale, relu, name, numbers = 1.0, False, None, ()  # type: float, bool, str | None, tuple[float, ...]
        store = ""
        for op in run[1:]:
            if op.type == "add":
                bias = channel_constant(op, run[0])
            elif op.type == "mul":
                factor = factor_of(op)
                assert factor is not None  # fused_ops took it for its number
                scale = factor
            elif op.type == "relu":
                relu = True
            elif op.type == "quantize":
                scale, store = scale / affine_of(op).scale, op.output.dtype
            else:
                call = table_call(op)
                assert call is not None  # fused_ops took it for its table
                name, numbers = call
                scale *= fp16_value(FUNCTIONS[op.type].scale) if op.type in FUNCTIONS else 1.0
        return cls(relu, name, scale, bias, numbers, store)

    @property
    def bias_behind_scale(self) -> np.ndarray | None:
        """The bias where it is added behind a scale of each output (hypothesis ``scaled-bias``), rounded to fp16."""
        return None if self.bias is None else (self.bias.astype(np.float32) * np.float32(self.scale)).astype(np.float16)

    @property
    def table(self) -> bytes | None:
        """The 128 bytes of the table."""
        return None if self.table_name is None else lookup_table(self.table_name, *self.numbers)

    @property
    def activation(self) -> str | np.ndarray | None:
        """None, "relu", or the table's 64 halfwords, as ``hexane.arithmetic`` takes it."""
        if self.relu:
            return "relu"
        return None if self.table is None else np.frombuffer(self.table, "<u2")


def table_name(op: Op) -> str:
    """The table of a table function; gelu's exact and tanh forms share one (docs/reference/engine-h13.md 10)."""
    if op.type == "gelu" and op.arg("mode") == "SIGMOID_APPROXIMATION":
        return "gelu_sigmoid"
    return FUNCTIONS[op.type].table
