"""``hexane.from_tinygrad``: a function's tensor graph, read before kernels are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hexane.errors import HexaneError, UnsupportedError, UsageError
from hexane.formats.quiet import first_line
from hexane.frontends.tinygrad.reader import Reader
from hexane.frontends.tinygrad.types import shape_of
from hexane.graph import Graph


def from_tinygrad(function: Callable[..., Any], *tensors: Any, input_names: Sequence[str] | None = None) -> Graph:
    """A graph of a function of tinygrad tensors.

    The function is called once with empty tensors of the given shapes and dtypes; what it returns is never computed by
    tinygrad. Sums of products of views become products of matrices and convolutions, reductions over windows pooling;
    tensors that the function closes over (weights) become constants.

    Parameters
    ----------
    function : takes the tensors, gives a tensor or a tuple or list of them.
    tensors : ``tinygrad.Tensor``; their values do not matter.
    input_names : names of the graph's inputs, ``x0``, ``x1`` ... by default. Results are ``result`` or ``result_0`` ...

    tinygrad 0.14 asks a device for kernels that are already cut (its ``Device`` has a renderer, a compiler and a
    runtime, and the schedule none of its own), so a device of that name could not see a convolution; hence a function.

    Raises
    ------
    UnsupportedError : tinygrad is missing, or an op has no form here (random numbers, assignments, symbolic shapes).
    UsageError : the arguments are something else.
    """
    try:
        from tinygrad import Tensor
    except ImportError as error:
        raise UnsupportedError(
            f"from_tinygrad needs {error.name}, which is not installed", hint="pip install 'hexane[tinygrad]'"
        ) from error
    if not callable(function):
        raise UsageError(f"a {type(function).__name__} is no function", hint="hexane.from_tinygrad(function, *tensors)")
    for number, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise UsageError(f"argument {number} is a {type(tensor).__name__}, not a tinygrad.Tensor")
    names = [str(name) for name in (input_names if input_names is not None else [f"x{i}" for i in range(len(tensors))])]
    if len(names) != len(tensors) or len(set(names)) != len(names):
        raise UsageError(f"{names} are no {len(tensors)} different names")
    reader = Reader()
    places = []
    for name, tensor in zip(names, tensors):
        shape = shape_of(tensor.uop, f"argument {name}")
        # A tensor of its own memory, so that no two arguments, and no constant, are one node.
        empty = Tensor.empty(*shape, dtype=tensor.dtype, device=tensor.device)
        places.append(empty)
        reader.input(name, empty.uop)
    try:
        values = function(*places)
    except HexaneError:
        raise
    except Exception as error:  # the function's own, and tinygrad's where it wants a value of an empty tensor
        raise UnsupportedError(
            f"the function cannot be traced ({type(error).__name__}: {first_line(error)})",
            hint="it is called with empty tensors: their values cannot be looked at",
        ) from error
    if looked := [name for name, place in zip(names, places) if _is_read(place)]:
        raise UnsupportedError(
            f"the function looks at the values of {', '.join(looked)} while it is traced",
            hint="shapes and branches that depend on values (nonzero, item) have no place in a static graph",
        )
    results = list(values) if isinstance(values, tuple | list) else [values]
    for result in results:
        if not isinstance(result, Tensor):
            raise UsageError(f"the function gives a {type(result).__name__}, not a tensor")
    _draw(results, {place.uop for place in places})
    return reader.finish([result.uop for result in results])


def _draw(results: Sequence[Any], inputs: set[Any]) -> None:
    """Random tensors that the function closes over (weights nobody used yet) get their values now, and keep them.

    tinygrad draws when it computes: a graph that computed them for itself would have other weights than the caller's.
    """
    from tinygrad import Tensor
    from tinygrad.tensor import all_tensors

    random: set[Any] = set()
    fed = set(inputs)
    for node in dict.fromkeys(node for result in results for node in result.uop.toposort()):
        if node.op.name == "THREEFRY" or not random.isdisjoint(node.src):
            random.add(node)
        if not fed.isdisjoint(node.src):
            fed.add(node)
    drawn = [t for ref in list(all_tensors) if (t := ref()) is not None and t.uop in random and t.uop not in fed]
    if drawn:
        Tensor.realize(*drawn)


def _is_read(place: Any) -> bool:
    """True where somebody gave an empty tensor memory, which only happens where its values are wanted."""
    base = place.uop.base
    return bool(base.op.name == "BUFFER" and base.buffer.is_allocated())
