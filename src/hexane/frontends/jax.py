"""``hexane.from_jax``: trace, lower to StableHLO, read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hexane.errors import UnsupportedError, UsageError
from hexane.formats.quiet import first_line, quiet
from hexane.formats.stablehlo import PACKAGES, from_stablehlo
from hexane.graph.ir import Graph

CARRIED = ("float32", "float16", "int32")
"""Element types that a Core ML program takes and gives; others travel as float32 or int32 and are cast inside."""


def from_jax(function: Callable[..., Any], *examples: Any, input_names: Sequence[str] | None = None) -> Graph:
    """A graph of a JAX function, by way of StableHLO and stablehlo-coreml.

    Parameters
    ----------
    function : what ``jax.jit`` takes, plain or jitted; constants that it closes over (weights) become constants.
    examples : an example of each positional argument: arrays, ``jax.ShapeDtypeStruct``, or trees of them. Their shapes
        and dtypes are those of the graph.
    input_names : names of the graph's inputs, one per array; by default the parameters' own, with the path into a tree
        (``params_w``).

    The graph takes and gives what a Core ML program does, fp32, fp16 and int32, of rank 1 or more: bool and other whole
    numbers travel as int32, bfloat16 and float64 as fp32, a scalar as one element. Results are called
    ``result``, with the path where the function gives a tree (``result_0``, ``result_loss``); one that is
    an argument as it came has that one's name.

    Raises
    ------
    UnsupportedError : jax or stablehlo-coreml is missing, JAX cannot trace the function, or an op has no form in MIL.
    UsageError : ``function`` is not callable, an example is no array, or the names do not fit.
    """
    jax = _jax()
    if not callable(function):
        raise UsageError(f"a {type(function).__name__} is no function", hint="hexane.from_jax(function, *examples)")
    leaves, tree = jax.tree_util.tree_flatten_with_path(examples)
    declared_leaves = [_described(jax, leaf, jax.tree_util.keystr(path)) for path, leaf in leaves]
    names = _names(function, [path for path, _ in leaves], input_names)
    results: list[str] = []

    def flat(*arguments: Any) -> tuple[Any, ...]:
        restored = [a.astype(wanted.dtype).reshape(wanted.shape) for a, wanted in zip(arguments, declared_leaves)]
        made, _ = jax.tree_util.tree_flatten_with_path(function(*jax.tree_util.tree_unflatten(tree, restored)))
        results[:] = ["_".join(["result", *_words(path)]) for path, _ in made]
        arrays = [jax.numpy.asarray(leaf) for _, leaf in made]
        return tuple(array.astype(_carrier(array.dtype)).reshape(array.shape or (1,)) for array in arrays)

    flat.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # StableHLO's arguments are named after it
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    )
    carried = [jax.ShapeDtypeStruct(entry.shape or (1,), _carrier(entry.dtype)) for entry in declared_leaves]
    try:
        with quiet():
            from jax import export

            module = export.export(jax.jit(flat, keep_unused=True), platforms=["cpu"])(*carried).mlir_module()
    except Exception as error:  # JAX's errors and the function's own
        raise UnsupportedError(
            f"JAX cannot trace or export the function ({first_line(error)})",
            hint="jax.export.export(jax.jit(function))(*examples) says more",
        ) from error
    graph = from_stablehlo(module, where=getattr(function, "__name__", "function"))
    graph.metadata["format"] = "jax"
    _name_outputs(graph, results)
    return graph


def _name_outputs(graph: Graph, names: Sequence[str]) -> None:
    """``result``, ``result_0``, ``result_loss``: as the function's own tree has them."""
    outputs = graph.main.outputs
    if len(outputs) == len(names):
        for value, name in zip(outputs, names):
            if value.op is not None:
                value.name = graph.main.names.unique(name)


def _words(path: Any) -> list[str]:
    """A place in a tree as words: keys, attributes, numbers."""
    return [word for part in path if (word := re.sub(r"\W+", "_", str(part)).strip("_"))]


def _jax() -> Any:
    try:
        import jax
    except ImportError as error:
        raise UnsupportedError(f"from_jax needs {error.name}, which is not installed", hint=PACKAGES) from error
    return jax


def _described(jax: Any, leaf: Any, place: str) -> Any:
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        described = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    else:
        try:
            array = jax.numpy.asarray(leaf)
        except (TypeError, ValueError) as error:
            raise UsageError(f"the example at {place} is a {type(leaf).__name__} ({first_line(error)})") from None
        described = jax.ShapeDtypeStruct(array.shape, array.dtype)
    if not all(isinstance(extent, int) for extent in described.shape):
        raise UsageError(f"the example at {place} has open extents", hint="the graph is static: give numbers")
    if np.dtype(described.dtype).kind == "c":
        raise UnsupportedError(f"the example at {place} is complex, which the graph has not")
    return described


def _carrier(dtype: Any) -> str:
    if str(dtype) in CARRIED:
        return str(dtype)
    return "int32" if np.dtype(dtype).kind in "biu" else "float32"


def _names(function: Any, paths: list[Any], explicit: Sequence[str] | None) -> list[str]:
    """One name per array: as wanted, or the parameter's with the path into its tree."""
    if explicit is not None:
        if len(explicit) != len(paths) or len(set(explicit)) != len(paths):
            raise UsageError(f"{list(explicit)} are no {len(paths)} different names")
        explicit = [str(name) for name in explicit]
        if not all(name.isidentifier() for name in explicit):
            raise UsageError(f"input names are words: {list(explicit)}")
        return list(explicit)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for path in paths:
        index = path[0].idx
        plain = index < len(parameters) and parameters[index].kind in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
        base = parameters[index].name if plain else f"x{index}"
        name = "_".join([base, *_words(path[1:])])
        while name in names:
            name += "_"
        names.append(name)
    return names
