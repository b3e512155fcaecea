"""Process for onnx's own C++: reads requests from its input, writes answers.

It stands alone, since it is started by its path, without site-packages: with the bare extension module it is there in
a twentieth of a second. Messages are a length, a JSON header and byte strings (see `send` and `receive`): an empty one
when the process is there, then for each request an empty one when its work, and its time, begins, and the answer.
"""

from __future__ import annotations

import contextlib
import json
import struct
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, BinaryIO

OLDEST_OPSET = 7
"""Models of an older op set are raised to this one."""


def send(stream: BinaryIO, header: dict[str, Any], blobs: list[bytes]) -> None:
    """Write a message."""
    text = json.dumps({**header, "sizes": [len(blob) for blob in blobs]}).encode()
    stream.write(struct.pack("<I", len(text)) + text)
    for blob in blobs:
        stream.write(blob)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[dict[str, Any], list[bytes]]:
    """Read a message; EOFError where the other side is gone."""
    header = json.loads(_exactly(stream, struct.unpack("<I", _exactly(stream, 4))[0]))
    return header, [_exactly(stream, size) for size in header["sizes"]]


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError
    return data


def extension() -> Any:
    """onnx's compiled part, without the rest of the package where that can be."""
    name = "onnx.onnx_cpp2py_export"
    if name not in sys.modules:
        from importlib.machinery import PathFinder
        from importlib.util import module_from_spec

        try:
            package = PathFinder.find_spec("onnx")
            assert package is not None
            binary = PathFinder.find_spec("onnx_cpp2py_export", package.submodule_search_locations)
            assert binary is not None and binary.loader is not None and binary.origin is not None
            spec = type(binary)(name, type(binary.loader)(name, binary.origin), origin=binary.origin)  # type: ignore[call-arg]
            module = module_from_spec(spec)
            spec.loader.exec_module(module)  # type: ignore[union-attr]
            sys.modules[name] = module
        except (AssertionError, AttributeError, ImportError, TypeError):
            __import__(name)
    return sys.modules[name]


def infer(model: bytes) -> bytes:
    """The types of a model's values.

    Without data propagation: that keeps a record per element of every vector, up to its 10^9 elements, and what is
    computed from shapes folds during translation anyway.
    """
    return extension().shape_inference.infer_shapes(model, False, False, False)


def check(model: bytes) -> bytes:
    """Nothing, where onnx's checker takes the model."""
    extension().checker.check_model(model)
    return b""


def inline(model: bytes) -> bytes:
    """A model with its functions inlined."""
    return extension().inliner.inline_local_functions(model, True)


def raise_opset(model: bytes) -> bytes:
    """A model of an old op set in that of `OLDEST_OPSET`."""
    return extension().version_converter.convert_version(model, OLDEST_OPSET)


def definition(name: bytes, domain: bytes, version: bytes, node: bytes, *types: bytes) -> bytes:
    """onnx's own definition of a node's op by simpler ones as a FunctionProto; empty where it has none."""
    highest = int(version)
    schema = extension().defs.get_schema(name.decode(), highest, domain.decode())
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= highest]
        if versions:
            return schema.get_function_with_opset_version(max(versions))
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= highest]
        if versions:
            return schema.get_context_dependent_function_with_opset_version(max(versions), node, list(types))
    return b""


def fold(model: bytes) -> bytes:
    """onnxscript's constant folding, which also takes constant branches and empty loops apart.

    Folding alone: the rewriting rules of ``optimize`` need not end on a graph that is broken.
    """
    import onnx
    import onnx_ir
    from onnxscript import optimizer

    folded = onnx_ir.serde.deserialize_model(onnx.ModelProto.FromString(model))
    optimizer.fold_constants(folded, onnx_shape_inference=True)
    return onnx_ir.serde.serialize_model(folded).SerializeToString()


ACTIONS: dict[str, Callable[..., bytes]] = {
    action.__name__: action for action in (infer, check, inline, raise_opset, definition, fold)
}

LIBRARIES = {"fold": ("onnx", "onnx_ir", "onnxscript.optimizer")}
"""What actions import. Where no bytecode of it lies on the disk, that takes longer than any model may."""


def load(action: str) -> None:
    """Import what an action needs; where that fails, the action says so."""
    for name in LIBRARIES.get(action, ()):
        with contextlib.suppress(Exception):
            import_module(name)


def answer(action: str, blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Result of an action, or its error in words."""
    try:
        return {}, [ACTIONS[action](*blobs)]
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}, []


def limit(seconds: int | None = None, memory: int | None = None) -> None:
    """End this process when it takes more time of the processor from now on, refuse it more memory; None: as it was.

    A crash leaves no core file.
    """
    try:
        import resource
    except ImportError:  # Windows: the caller's clock alone
        return
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    time = None if seconds is None else int(used) + 1 + seconds
    for kind, most in ((resource.RLIMIT_CPU, time), (resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        if most is None:
            most = hard
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main() -> None:
    """Answer until nobody asks any more."""
    import os
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.path[:] = json.loads(sys.argv[1])
    extension()
    send(answers, {}, [])
    while True:
        try:
            header, blobs = receive(requests)
            load(header["action"])
            send(answers, {}, [])
            limit(header["seconds"], header["memory"])
            reply = answer(header["action"], blobs)
            limit()
            send(answers, *reply)
        except (EOFError, BrokenPipeError, MemoryError):
            os._exit(0)


if __name__ == "__main__":
    main()
