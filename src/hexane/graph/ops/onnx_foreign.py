"""ONNX ops that hexane has no meaning for: the host runs them as they stand, by onnxruntime, one node at a time.

The node is kept as the bytes of a model of its own; its results have the types that the file declares or that
onnxruntime finds. A network with such an op can be checked and compiled; where onnxruntime is missing or does not know
the op, running it says so.
"""

from __future__ import annotations

import base64
import contextlib
import io
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import UnsupportedError
from hexane.graph.parts import FOREIGN
from hexane.graph.registry import op, spec_of, values_of
from hexane.graph.types import DTYPES, TensorType

if TYPE_CHECKING:
    from hexane.graph.ir import Op


def types_text(types: list[TensorType]) -> str:
    """Result types as text: ``fp32:1,8;int64:``."""
    return ";".join(f"{t.dtype}:{','.join(map(str, t.shape))}" for t in types)


def _types(text: str) -> tuple[TensorType, ...]:
    types = []
    for part in text.split(";"):
        dtype, _, extents = part.partition(":")
        types.append(TensorType(dtype, tuple(int(extent) for extent in extents.split(",") if extent)))
    return tuple(types)


@lru_cache(maxsize=32)
def session_of(model: str, kind: str) -> Any:
    """onnxruntime's session for a node kept as text; UnsupportedError where it is missing or refuses the node."""
    return open_session(base64.b64decode(model), f"{kind} is an op that")


def open_session(model: bytes | str, subject: str = "", *, threads: int = 1) -> Any:
    """onnxruntime's session of a file's content, or of its path, on the processor; ``threads`` 0: as many as it likes.

    UnsupportedError where it is missing or refuses the network; ``subject`` says of what only it could run, as "X is an
    op that".
    """
    try:
        import onnxruntime
    except ImportError:
        raise UnsupportedError(
            f"{subject} only onnxruntime could run, which is not installed"
            if subject
            else "onnxruntime is not installed",
            hint="pip install 'hexane[run]'",
        ) from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads, options.inter_op_num_threads = 4, threads, threads
    # Processors without VNNI add two products of bytes in 16 bits, which saturate unless asked not to.
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints some of its errors
            return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises classes of its own that share no base
        what = f"{subject} onnxruntime refuses" if subject else "onnxruntime refuses the network"
        raise UnsupportedError(f"{what}: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


_FLOATS = {"fp32": "float", "fp16": "float16", "fp64": "double"}
RUNTIME_DTYPES = {
    f"tensor({_FLOATS.get(dtype, dtype)})": dtype
    for dtype in (*_FLOATS, *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "bool", "string")
}
"""onnxruntime's names of types -> dtypes."""


def _given(type_: str, value: Any) -> np.ndarray:
    """A value as onnxruntime takes it."""
    array = np.asarray(value)
    dtype = RUNTIME_DTYPES.get(type_)
    return array.astype(object if dtype == "string" else array.dtype if dtype is None else DTYPES[dtype].carrier)


MOST_SECONDS = 60.0
"""After which a node is stopped: a loop that data end may have no end."""


@contextlib.contextmanager
def _limited() -> Iterator[Any]:
    """Options of a run that ends by itself after ``MOST_SECONDS``."""
    import onnxruntime

    options = onnxruntime.RunOptions()
    timer = threading.Timer(MOST_SECONDS, lambda: setattr(options, "terminate", True))
    timer.daemon = True
    timer.start()
    try:
        yield options
    finally:
        timer.cancel()


def run_node(model: str, kind: str, values: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
    """The results of a node kept as text; UnsupportedError where onnxruntime cannot run it."""
    session = session_of(model, kind)
    entries = session.get_inputs()
    for entry in session.get_outputs():
        if entry.type not in RUNTIME_DTYPES:
            raise UnsupportedError(f"{kind}: its result {entry.name!r} is a {entry.type}, no tensor of NumPy's numbers")
    feeds = {e.name: _given(e.type, v) for e, v in zip(entries, values)}
    try:
        with _limited() as options:
            return tuple(np.asarray(array) for array in session.run(None, feeds, options))
    except Exception as error:
        raise UnsupportedError(f"{kind}: onnxruntime refuses to run it: {_first_line(error)}") from None


def _foreign_types(types: str) -> tuple[TensorType, ...]:
    return _types(types)


@op(FOREIGN, "values:any* kind:str model:str types:str", infer=_foreign_types)
def foreign(values, kind, model):
    """One ONNX node, ``kind``, as onnxruntime runs it; ``model`` holds it, ``types`` are those of its results."""
    return run_node(model, kind, values)


CONTROL = frozenset(("If", "Loop", "Scan"))
"""ONNX's ops that hold graphs of their own, and run them as data say."""


def kind_of(op: Op) -> str:
    """Name of an op where it came from: the node's type of one that MIL lacks, ``At`` run time or not."""
    return op.kind.removeprefix("onnx.").removesuffix("At") if op.type.startswith("onnx.") else op.kind


def reason_on_host(op: Op) -> str:
    """Why an op that MIL lacks is on the host: it decides at run time, or has this form in the file only."""
    name = kind_of(op)
    if op.type == FOREIGN:
        return f"{name} is no op of the engine; onnxruntime runs it on the host, and its sums are not counted"
    operands = [(p.name, op.inputs.get(p.name, ())) for p in spec_of(op).params if p.runtime]
    late = [param for param, operand in operands if not all(value.is_constant for value in values_of(operand))]
    if late:
        return f"the engine has no {name} of which run time computes {' and '.join(late)}"
    return f"the engine has no {name} in the form of this file"
