"""Reshapes that cut or join rows: elements moved by two turned copies (docs/reference/engine-h13.md 6, 8.2)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hexane.codegen.context import Context
from hexane.codegen.fragment import Fragment, Tensor
from hexane.codegen.recipes.columns import LARGEST
from hexane.codegen.recipes.registry import recipe, x_and_result
from hexane.codegen.recipes.shape import AxisWalk, turned
from hexane.errors import Reason, UnsupportedError
from hexane.graph.ir import Op
from hexane.rounding import align


@recipe("reshape", "squeeze", "expand_dims", "flatten2d", rank=20)
def regroup(ops: Sequence[Op], context: Context) -> Fragment:
    """reshape across rows: turned so that every element of a row is a line of its own, and turned back."""
    (op,) = ops
    x, y = x_and_result(op, context)
    fragment = Fragment(context)
    split = _common_prefix(x, y)
    outer = prod(x.shape[: split[0]])
    inner = prod(x.shape[split[0] :])
    line = align(2 * outer, 64)
    if inner * line > LARGEST:
        raise UnsupportedError(f"a reshape through more than {LARGEST >> 20} MiB of scratch", code=Reason.MEMORY)
    buffer = fragment.workspace(inner * line)
    for tensor, cut, back in ((x, split[0], False), (y, split[1], True)):
        a, h, w = _padded(tensor.shape[cut:])
        rows, element = _strides(tensor, cut), tensor.element
        plain = AxisWalk(tensor.buffer, tensor.offset, (a, outer, h, w), (*rows, element), tensor.bytes, element)
        lines = AxisWalk(buffer, 0, (a, w, h, outer), (h * w * line, line, w * line, 2), inner * line)
        turned(fragment, lines if back else plain, (0, 3, 2, 1), plain if back else lines)
    return fragment


def _common_prefix(x: Tensor, y: Tensor) -> tuple[int, int]:
    """Number of leading axes of each with the same number of elements: as many as there are, but not the rows."""
    best = (0, 0)
    for i in range(4):
        for j in range(4):
            if prod(x.shape[:i]) == prod(y.shape[:j]) and _reach(x, i) and _reach(y, j):
                best = max(best, (i, j), key=lambda pair: (prod(x.shape[: pair[0]]), pair))
    if best == (0, 0) and (x.n > 1 or y.n > 1):
        raise UnsupportedError("a reshape across images of a batch", code=Reason.BATCH)
    return best


def _reach(tensor: Tensor, cut: int) -> bool:
    """True where at most three axes behind the cut have more than one element, in the last three places."""
    return all(extent == 1 for extent in tensor.shape[cut : max(cut, 1)])


def _padded(axes: tuple[int, ...]) -> tuple[int, int, int]:
    a, h, w = ((1, 1, 1, *axes))[-3:]
    return a, h, w


def _strides(tensor: Tensor, cut: int) -> tuple[int, int, int]:
    """Byte strides of (the outer one of the last three axes, the joined leading axes, rows)."""
    steps = (tensor.batch, tensor.plane, tensor.row, tensor.element)
    leading = steps[cut - 1] if cut else tensor.bytes
    return (tensor.plane, leading, tensor.row)
