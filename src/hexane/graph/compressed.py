"""Constants that a file packs, seen in the network as it was given: what is constant, and along what it is packed.

Read off shapes alone. Passes fold such ops into constants with a coding (``graph.coding``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hexane.graph.registry import has
from hexane.graph.traits import MOVES, SAME_VALUES

if TYPE_CHECKING:
    from hexane.graph.ir import Op, Value

_KERNELS = {"conv": "weight", "linear": "weight", "matmul": "y"}
_MOVED = MOVES | SAME_VALUES


def is_fixed(value: Value) -> bool:
    """True where a value is known when the network is compiled: a constant, or one that ``constexpr`` ops unpack."""
    if value.is_constant:
        return True
    op = value.op
    if op is None or not (op.type.startswith("constexpr_") or op.type == "dequantize" or has(op, _MOVED)):
        return False
    return all(is_fixed(operand) for operand in op.operands())


def kernel_of(op: Op) -> tuple[Value, int] | None:
    """The fixed operand that an op of sums takes as its kernel, and the axis of its outputs; None where it has none."""
    value = op.inputs.get(_KERNELS.get(op.type, ""))
    if value is None or isinstance(value, tuple) or not is_fixed(value):
        return None
    return value, 1 if op.type == "matmul" and not op.arg("transpose_y") and value.rank == 2 else 0


def changes_along_inputs(value: Value, outputs: int) -> bool:
    """True where a kernel's scales or tables are several along another axis than that of its outputs."""
    op = value.op
    if op is None:
        coding = None if value.constant is None else value.constant.coding
        return coding is not None and coding.changes_along_inputs(outputs)
    if has(op, _MOVED):
        source = next(iter(op.operands()))
        return changes_along_inputs(source, 1 - outputs if op.type == "transpose" and source.rank == 2 else outputs)
    if op.type in ("constexpr_lut_to_dense", "constexpr_lut_to_sparse"):
        packed = op.inputs.get("lut")
        shape = packed.shape[:-2] if packed is not None and not isinstance(packed, tuple) else ()
    else:
        packed = op.inputs.get("scale")
        shape = packed.shape if packed is not None and not isinstance(packed, tuple) else ()
        if len(shape) == 1 and "axis" in op.inputs:
            shape = (1,) * (op.arg("axis") % max(value.rank, 1)) + shape
    if any(extent != 1 for axis, extent in enumerate(shape) if axis != outputs):
        return True
    inner = [v for v in op.operands() if v.op is not None]
    return any(changes_along_inputs(v, outputs) for v in inner)
