"""Every kernel that the emulator compiles, made before it is needed: ``hexane doctor --warm``.

For an image that is built once and run by others, or a machine whose first user shall not wait. What to compile is not
a list: small programs are compiled and run that between them reach every kind of task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

import hexane

if TYPE_CHECKING:
    from hexane.graph.ir import Graph

FILES = "arithmetic/fast", "kernels", "studies"
"""Packages with functions that are compiled."""


@dataclass(frozen=True)
class CompiledKernels:
    """Compiled code on disk: where it is written (None: nowhere), and the files that are there for these sources."""

    folder: Path | None
    files: tuple[Path, ...]

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(path.stat().st_size for path in self.files)


def kernels() -> CompiledKernels:
    """Kernels that are compiled on this machine for the sources as they are."""
    from hexane import code_cache

    package = Path(__file__).parents[1]
    paths: list[Path] = []
    for part in FILES:
        paths += code_cache.entries(f"{(package / part).name}.*", package / part)
    return CompiledKernels(code_cache.writable(package / FILES[0]), tuple(dict.fromkeys(paths)))


def warm() -> float:
    """Compile every kernel, or read it where it is compiled; gives the seconds that it took."""
    from hexane import ahead

    begin = perf_counter()
    ahead.begin()
    for chip, graph in _networks():
        program = hexane.compile(graph, chip)
        session = program.on("emulator")
        with np.errstate(all="ignore"):  # zeros divide by zero in some networks; nobody asked for their results
            session.warm()
        session.close()
    _studies()
    import_module("hexane.arithmetic.fast.narrowing")  # for large inputs
    return perf_counter() - begin


def _studies() -> None:
    """The loops that compression and sparse kernels compile."""
    graph = _convolutions()
    for form in ("palette4", "sparse:0.5"):
        hexane.compile(hexane.compress(graph, form), "M4").run({"x": np.zeros((1, 16, 24, 24), np.float16)})


def _networks() -> Iterator[tuple[str, Graph]]:
    """Small networks that reach every kind of task, and the chips on which they do."""
    for chip in ("M1", "M5"):  # M5: Winograd
        yield chip, _convolutions()
        yield chip, _attention()
    yield "M4", _whole_numbers()


def _convolutions() -> Graph:
    from hexane.graph import GraphBuilder

    b, rng = GraphBuilder(), np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return (rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float16)

    x = b.input("x", (1, 16, 24, 24), "fp16")
    dense = b.relu(x=b.conv(x=x, weight=weights(64, 16, 3, 3), pad_type="same"))
    wide = b.sigmoid(x=b.conv(x=dense, weight=weights(64, 64, 3, 3), pad_type="same"))
    deep = b.conv(x=wide, weight=weights(64, 1, 3, 3), pad_type="same", groups=64)
    less = b.max_pool(x=deep, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid")
    mean = b.avg_pool(x=less, kernel_sizes=[3, 3], strides=[1, 1], pad_type="same")
    back = b.conv_transpose(x=mean, weight=weights(64, 16, 2, 2), strides=[2, 2])
    both = b.concat(values=[b.add(x=back, y=x), b.mul(x=back, y=x)], axis=1)
    b.output(b.conv(x=both, weight=weights(8, 32, 1, 1)), name="y")
    b.output(b.reduce_mean(x=dense, axes=[2, 3], keep_dims=True), name="mean")
    return b.graph


def _attention() -> Graph:
    from hexane.graph import GraphBuilder

    b, rng = GraphBuilder(), np.random.default_rng(0)
    x = b.input("x", (1, 4, 48, 32), "fp16")
    scores = b.matmul(x=x, y=x, transpose_y=True)
    attended = b.matmul(x=b.softmax(x=b.mul(x=scores, y=np.float16(0.2)), axis=-1), y=x)
    norm = b.layer_norm(x=attended, axes=[-1], epsilon=np.float16(1e-3))
    flat = b.reshape(x=b.transpose(x=norm, perm=[0, 2, 1, 3]), shape=[48, 128])
    layer = b.linear(x=flat, weight=(rng.normal(size=(64, 128)) / 8).astype(np.float16), bias=np.zeros(64, np.float16))
    b.output(b.gelu(x=layer, mode="EXACT"), name="y")
    b.output(b.reduce_max(x=layer, axes=[-1], keep_dims=True), name="most")
    return b.graph


def _whole_numbers() -> Graph:
    from hexane.graph import GraphBuilder

    b, rng = GraphBuilder(), np.random.default_rng(0)
    x = b.input("x", (1, 16, 16, 16), "fp16")
    scale = np.float16(0.05)
    small = b.dequantize(input=b.quantize(input=x, scale=scale, output_dtype="int8"), scale=scale)
    b.output(b.conv(x=small, weight=rng.normal(size=(16, 16, 3, 3)).astype(np.float16), pad_type="same"), name="y")
    return b.graph
