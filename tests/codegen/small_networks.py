"""Small networks by group, and inputs for them: what the record of approved words holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from codegen import small_layers, small_ops, small_sizes
from codegen.small_ops import Row, numbers
from hexane.graph import Graph
from hexane.program import Port
from hexane.studies.probe.examples import network

GROUPS: dict[str, Callable[[], Iterator[Row]]] = {
    "recipes": small_layers.examples,
    "unary": small_ops.unary,
    "binary": small_ops.binary,
    "axes": small_ops.along_axes,
    "convolutions": small_ops.convolutions,
    "pools": small_ops.pools,
    "products": small_ops.products,
    "compressed": small_ops.compressed,
    "moves": small_ops.moves,
    "layers": small_layers.layers,
    "long products": small_sizes.long_products,
    "windows": small_sizes.windows,
    "bytes": small_sizes.in_bytes,
}


def small_networks(group: str) -> dict[str, Callable[[], Graph]]:
    """The networks of a group by name, each built when it is called."""
    return {name: partial(network, build, shapes) for name, build, shapes in GROUPS[group]()}


def inputs_of(ports: Iterable[Port]) -> dict[str, np.ndarray]:
    """Inputs of a program: multiples of 1/8 up to 2, integers up to 2, truths."""
    values = {}
    for order, value in enumerate(ports):
        array = numbers(*value.shape, step=11 + 6 * order, most=16, unit=0.125)
        whole = array if value.dtype.startswith("fp") else np.abs(array).astype(np.int32)
        dtype = {"fp16": "float16", "fp32": "float32"}.get(value.dtype, value.dtype)
        values[value.name] = (whole % 2 if value.dtype == "bool" else whole).astype(dtype)
    return values
