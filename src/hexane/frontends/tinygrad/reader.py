"""One walk over a tensor graph of tinygrad: nodes to values of a graph."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from hexane.errors import UnsupportedError
from hexane.formats.compositions import Composer
from hexane.formats.operands import Folder, Operand, type_of
from hexane.formats.quiet import first_line
from hexane.frontends.tinygrad import patterns
from hexane.frontends.tinygrad.contract import NoContraction, contraction, laid_out
from hexane.frontends.tinygrad.elementwise import ELEMENTWISE, FUNCTIONS
from hexane.frontends.tinygrad.pool import pooled
from hexane.frontends.tinygrad.types import carrier_of, dtype_of, is_weak, shape_of
from hexane.frontends.tinygrad.views import MOVES, TooLarge, View, flips, move, numbers, view_of
from hexane.graph import Graph, GraphBuilder
from hexane.graph.types import FLOATS, dtype_name

TRANSPARENT = frozenset({"COPY", "CONTIGUOUS", "CONTIGUOUS_BACKWARD", "DETACH"})
MOST_ELEMENTS = 1 << 24
"""Elements of an intermediate that would be written out though tinygrad never does: beyond it is refused."""


_HINTS = {
    "THREEFRY": "random numbers: draw them outside and hand them in",
    "AFTER": "assignments: give the new value as a result",
    "FUNCTION": "a precompiled function: call it plainly",
}


class Reader(Composer):
    """One walk over one tensor graph. Movements are read when somebody needs what they move."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()
        self.ops = Folder(self.builder)
        self.made: dict[Any, Operand] = {}
        self.inputs: set[Any] = set()

    def input(self, name: str, u: Any) -> None:
        """An input of the graph in the place of a tensor."""
        self.made[u] = self.builder.input(name, u.shape, dtype_of(u))
        self.inputs.add(u)

    def finish(self, results: list[Any]) -> Graph:
        """The graph of these results."""
        order = dict.fromkeys(u for result in results for u in result.toposort())
        for u in order:  # in order, so that no recursion is deep; products wait for the sum that takes them
            if u.op.name in ("REDUCE", "WHERE", "EXP2", "LOG2", "SIN", "SQRT", "POW") and not is_weak(u):
                self.value(u)
        for number, result in enumerate(results):
            value = self.ops.value(self.value(result))
            value = self.builder.op("identity", x=value) if value.op is None or value.is_output else value
            name = "result" if len(results) == 1 else f"result_{number}"
            self.builder.rename(value, name)
            self.builder.output(value)
        graph = self.builder.graph
        graph.metadata["format"] = "tinygrad"
        return graph

    # ---------------------------------------------------------------------------------------------------- values

    def value(self, u: Any) -> Operand:
        """A node as a value of the graph, or as an array where it is constant."""
        if u not in self.made:
            result = self.translated(u)
            shape = shape_of(u, u.op.name)
            if type_of(result).shape != shape:
                result = self.spread(result, shape)
            self.made[u] = result
        return self.made[u]

    def translated(self, u: Any) -> Operand:
        name = u.op.name
        if name in TRANSPARENT:
            return self.value(u.src[0])
        if name == "CONST":
            return np.asarray(u.arg, dtype=carrier_of(u))
        if name == "BUFFER":
            return _data(u)
        if name in MOVES:
            return self.moved(u)
        if name == "PAD":
            return self.padded(u)
        if name == "STACK":
            parts = [self.value(source) for source in u.src]
            return self.ops.stack(values=tuple(self.ops.value(part) for part in parts), axis=0)
        if name == "REDUCE":
            return self.reduced(u)
        if name == "AFTER" and len(u.src) == 2 and u.src[1].op.name == "STORE" and u.src[1].src[0] is u.src[0]:
            return self.reshape(self.value(u.src[1].src[1]), tuple(u.shape))  # a clone: all of it is stored
        if name == "CAST":
            return self.cast(self.value(u.src[0]), dtype_of(u))
        operand = self.known(u)
        if operand is None:
            operand = self.joined(u) if name == "ADD" else self.padded_with(u) if name == "WHERE" else None
        if operand is not None:
            return operand
        if name in ELEMENTWISE:
            operands = self.operands(u)
            if name in FUNCTIONS:
                operands = [self.cast(operands[0], dtype_of(u))]
            return ELEMENTWISE[name](self, u, operands)
        if not self.inputs & set(u.toposort()):
            return _computed(u)
        raise UnsupportedError(f"tinygrad's {name} has no form here", hint=_HINTS.get(name))

    def operands(self, u: Any) -> list[Operand]:
        """The sources of an element-wise op; numbers of Python take the dtype of what they meet."""
        chooses = u.op.name == "WHERE"
        met = [source for place, source in enumerate(u.src) if not (chooses and place == 0)]
        typed = [source for source in met if not is_weak(source)]
        like = np.result_type(*(carrier_of(source) for source in typed or met))
        values: list[Operand] = []
        for place, source in enumerate(u.src):
            if not is_weak(source):
                values.append(self.narrow(source))
                continue
            fixed = patterns.number(source)
            value = self.value(source) if fixed is None else np.asarray(fixed)
            if not isinstance(value, np.ndarray):  # an index that is computed
                values.append(self.cast(value, dtype_name(like)))
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                values.append(value if chooses and place == 0 else value.astype(like))
        return values

    def known(self, u: Any) -> Operand | None:
        """The op that a pattern stands for."""
        for name in ("sigmoid", "tanh", "exp", "log", "relu"):
            argument = getattr(patterns, name)(u)
            if argument is not None and not is_weak(argument) and dtype_of(u) in FLOATS:
                more = {"epsilon": 0.0} if name == "log" else {}
                return self.ops.op(name, x=self.narrow(argument), **more)
        argument = patterns.absolute(u)
        if argument is not None and not is_weak(argument):
            return self.ops.abs(x=self.narrow(argument))
        argument = patterns.negation(u)
        if argument is not None:
            return self.ops.logical_not(x=self.narrow(argument))
        pair = patterns.extremum(u)
        if pair is not None and not is_weak(u):
            name, *sides = pair
            carrier = carrier_of(u)
            a, b = (np.asarray(patterns.number(s)).astype(carrier) if is_weak(s) else self.narrow(s) for s in sides)
            return self.ops.op(name, x=a, y=b)
        if u.op.name == "MUL":
            for x, other in ((u.src[0], u.src[1]), (u.src[1], u.src[0])):
                if other.op.name == "RECIPROCAL" and not is_weak(other) and patterns.sigmoid(other) is None:
                    if is_weak(x):
                        continue
                    dtype = dtype_of(u)
                    return self.ops.real_div(
                        x=self.cast(self.narrow(x), dtype), y=self.cast(self.narrow(other.src[0]), dtype)
                    )
        return None

    def joined(self, u: Any) -> Operand | None:
        """The pieces whose paddings are added: tinygrad's way to join tensors of different sizes."""
        parts, waiting = [], [u]
        while waiting:
            one = waiting.pop()
            if one.op.name == "ADD":
                waiting += one.src
            elif one.op.name == "PAD" and one not in self.inputs:
                parts.append(one)
            else:
                return None
        axes = {a for p in parts for a, (n, m) in enumerate(zip(p.shape, p.src[0].shape)) if n != m}
        if len(axes) != 1:
            return None
        (axis,) = axes
        parts.sort(key=lambda part: numbers(part.src[1])[axis])
        at = 0
        for part in parts:
            if numbers(part.src[1])[axis] != at:
                return None
            at += part.src[0].shape[axis]
        if at != u.shape[axis]:
            return None
        pieces = tuple(self.ops.value(self.value(part.src[0])) for part in parts)
        return self.ops.concat(values=pieces, axis=axis, interleave=False)

    def padded_with(self, u: Any) -> Operand | None:
        """A padding with another number than 0: "the padded tensor where the padded truth holds, else the number"."""
        mask, x, other = u.src
        value = patterns.number(other)
        if mask.op.name != "PAD" or x.op.name != "PAD" or value is None or patterns.number(mask.src[0]) is not True:
            return None
        if numbers(mask.src[1]) != numbers(x.src[1]) or mask.shape != x.shape or mask.src[0].shape != x.src[0].shape:
            return None
        return self.padded(x, float(value)) if dtype_of(u) in FLOATS else None

    # ------------------------------------------------------------------------------------------------- movements

    def narrow(self, u: Any) -> Operand:
        """A value with axes of one element where it is only spread: element-wise ops broadcast by themselves."""
        if u in self.made or u.op.name not in MOVES:
            return self.value(u)
        view = self.view(u)
        result = None if view is None else self.regular(view)
        return self.value(u) if result is None else result

    def view(self, u: Any) -> View | None:
        return view_of(u, ends=self.inputs)

    def regular(self, view: View) -> Operand | None:
        """A view that cuts, reorders and spreads, without the spreading; None for windows and diagonals."""
        moving = [[axis for axis, step in enumerate(steps) if step] for steps in view.steps]
        axes = [candidates[0] for candidates in moving if candidates]
        if any(len(candidates) > 1 for candidates in moving) or len(set(axes)) != len(axes):
            return None
        order: list[tuple[int, ...]] = [(axis,) for axis in sorted(axes)]
        result = laid_out(self.ops, view, self.value(view.source), order, [])
        return self.reshape(result, [n if axis in axes else 1 for axis, n in enumerate(view.shape)])

    def spread(self, operand: Operand, shape: tuple[int, ...]) -> Operand:
        """Broadcast to a shape, written out."""
        if not isinstance(operand, np.ndarray):
            self.bounded(shape)
        return self.broadcast(operand, shape)

    def bounded(self, shape: tuple[int, ...]) -> None:
        if prod(shape) > MOST_ELEMENTS:
            raise UnsupportedError(f"an intermediate of shape {shape} would have to be written out")

    def moved(self, u: Any) -> Operand:
        """A movement written out: at once where it is regular, else step by step."""
        if 0 in u.shape:
            return np.zeros(u.shape, carrier_of(u))
        number = patterns.number(u)
        if number is not None:
            return np.broadcast_to(np.asarray(number).astype(carrier_of(u)), u.shape)
        view = self.view(u)
        operand = None if view is None else self.regular(view)
        if operand is not None:
            return operand
        name, x = u.op.name, self.value(u.src[0])
        if isinstance(x, np.ndarray):
            try:
                return np.asarray(move(u, x))
            except TooLarge as error:
                raise UnsupportedError(f"a constant of shape {u.shape} would have to be written out") from error
        self.bounded(u.shape)
        if name == "RESHAPE":
            return self.reshape(x, u.shape)
        if name == "PERMUTE":
            return self.ops.transpose(x=x, perm=u.arg)
        if name == "EXPAND":
            return x
        if name == "SHRINK":
            begin = numbers(u.src[1])
            return self.ops.slice_by_size(x=x, begin=begin, size=u.shape)
        axes = [axis for axis, flip in enumerate(flips(u)) if flip]
        return self.ops.reverse(x=x, axes=axes)

    def padded(self, u: Any, value: float = 0.0) -> Operand:
        x = self.value(u.src[0])
        before = numbers(u.src[1])
        widths = [(b, n - b - o) for b, n, o in zip(before, u.shape, u.src[0].shape)]
        if isinstance(x, np.ndarray):
            return np.pad(x, widths, constant_values=value)
        if 0 in type_of(x).shape:
            return np.zeros(u.shape, carrier_of(u))
        return self.pad(x, widths, value=value)

    # ------------------------------------------------------------------------------------------------ reductions

    def reduced(self, u: Any) -> Operand:
        """A reduction over the first axes: of products of views, of windows, or of what is there."""
        op, count = u.arg
        kind = op.name
        chain, inner = [], u.src[0]
        while (inner.op.name in MOVES or _widens(inner)) and inner not in self.inputs:
            if inner.op.name in MOVES:
                chain.append(inner)
            inner = inner.src[0]
        if kind == "ADD" and inner.op.name == "MUL" and dtype_of(u) in FLOATS and self.known(inner) is None:
            a, b = inner.src
            if not is_weak(a) and not is_weak(b):
                result = self.contracted(a, b, chain, inner.shape, count)
                if result is not None:
                    return self.cast(result, dtype_of(u))
        if kind in ("ADD", "MAX") and dtype_of(u) in FLOATS and u.src[0] not in self.made:
            for shaped in (False, True):
                view = view_of(u.src[0], None, (), self.inputs, shaped)
                try:
                    if view is not None and view.source is not u.src[0]:
                        return self.cast(pooled(self.ops, view, self.value(view.source), count, kind), dtype_of(u))
                except NoContraction:
                    pass
        return self.plainly(u, kind, count)

    def contracted(self, a: Any, b: Any, chain: list[Any], shape: tuple[int, ...], count: int) -> Operand | None:
        """The sum of a product over the first axes as one op; None where it is none."""
        for one in (False, True):
            for other in (False, True):
                pair = [view_of(u, shape, tuple(chain), self.inputs, how) for u, how in ((a, one), (b, other))]
                if pair[0] is None or pair[1] is None:
                    continue
                try:
                    x, w = ((view, self.value(view.source)) for view in pair if view is not None)
                    return contraction(self.ops, x, w, count)
                except NoContraction:
                    continue
        return None

    def plainly(self, u: Any, kind: str, count: int) -> Operand:
        axes, inner = list(range(count)), u.src[0]
        if inner.op.name == "PERMUTE" and inner not in self.inputs and inner not in self.made:
            rest = inner.arg[count:]
            if list(rest) == sorted(rest):  # the axes are there already, and what is left keeps its order
                axes, inner = sorted(inner.arg[:count]), inner.src[0]
        x = self.value(inner)
        dtype = type_of(x).dtype
        if 0 in type_of(x).shape:
            empty = np.zeros(type_of(x).shape, type_of(x).carrier)
            if kind == "MAX":
                low = -np.inf if empty.dtype.kind == "f" else 0 if dtype == "bool" else np.iinfo(empty.dtype).min
                return np.full(u.shape, low, empty.dtype)
            return (np.sum if kind == "ADD" else np.prod)(empty, axis=tuple(axes)).astype(empty.dtype)
        if not axes:
            return x
        if dtype == "bool":
            x = self.cast(x, "int32")
        name = {"ADD": "reduce_sum", "MAX": "reduce_max", "MUL": "reduce_prod"}[kind]
        result = self.ops.op(name, x=x, axes=axes, keep_dims=False)
        return self.cast(result, dtype_of(u))


def _widens(u: Any) -> bool:
    """A cast between floats: sums are kept wide by the engine as it is."""
    return bool(u.op.name == "CAST") and all(str(x.dtype) in ("dtypes.float", "dtypes.half") for x in (u, u.src[0]))


def _computed(u: Any) -> np.ndarray:
    """Values of a tensor that depends on no input, by tinygrad: random weights, assignments, bits."""
    from tinygrad import Tensor

    try:
        return np.ascontiguousarray(Tensor(u).numpy())
    except Exception as error:  # its device may lack a compiler, or the op
        raise UnsupportedError(
            f"tinygrad cannot compute a constant of the function ({type(error).__name__}: {first_line(error)})"
        ) from error


def _data(u: Any) -> np.ndarray:
    """The values of a realised buffer."""
    from tinygrad.dtype import _to_np_dtype

    dtype = _to_np_dtype(u.dtype)
    buffer = u.buffer
    if dtype is None or not buffer.is_allocated():
        raise UnsupportedError(
            f"a tensor of {str(u.dtype).removeprefix('dtypes.')} that the function uses holds no values",
            hint="realize() weights before; random tensors and Tensor.empty have none",
        )
    array: np.ndarray = np.frombuffer(bytes(buffer.as_memoryview()), dtype)
    return array.reshape(tuple(u.shape))
