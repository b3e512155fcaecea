"""Before translation: bind dimensions, infer shapes, inline functions, fold what only computes shapes.

All of this is onnx's and onnxscript's own work, done on a model whose large weights have been taken out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from hexane.errors import FormatError, UnsupportedError
from hexane.formats.arguments import checked_shapes
from hexane.formats.onnx import library
from hexane.formats.onnx.binding import bind_shapes, bind_values
from hexane.formats.onnx.child import OLDEST_OPSET
from hexane.formats.onnx.file import OnnxFile, all_graphs, import_onnx, node_graphs
from hexane.formats.onnx.registry import MAIN, domain_of, translators

MAX_EXPANSIONS = 8
"""How deep ops may be defined by ops that are themselves defined by ops."""

MAX_INLINED = 1_000_000
"""Nodes of a model whose functions are inlined; a few functions that call each other twice can claim any number."""

MAX_CALL_DEPTH = 200
"""How deep a file's functions may call each other."""

Shapes = Mapping[str, "Sequence[int | str] | int"]

_FOLD_WORTHY = {"If", "Loop", "Scan", "SequenceMap"}


def prepare(file: OnnxFile, shapes: Shapes | None = None, bind: Mapping[str, Any] | None = None) -> Any:
    """The file's model with static inputs, known functions inlined and control flow folded where it is constant."""
    model = file.model
    versions = opset_versions(model, file.where)
    bind_values(file, bind or {})
    bind_shapes(file, checked_shapes(shapes))
    if versions.get(MAIN, OLDEST_OPSET) < OLDEST_OPSET:
        model = _raise_opset(model, file.where)
    check_growth(model, file.where)
    model = infer(model, file.where)
    if model.functions:
        model = inline(model, file.where)
    for _ in range(MAX_EXPANSIONS):
        if not expand_functions(model, file.where):
            break
        model = inline(model, file.where)
    if any(node.op_type in _FOLD_WORTHY for graph in all_graphs(model.graph) for node in graph.node):
        model = _fold(model, file.where)
    return model


def opset_versions(model: Any, where: str) -> dict[str, int]:
    """Op set version by domain; UnsupportedError for one newer than the installed onnx knows."""
    onnx = import_onnx()
    versions = {domain_of(entry.domain): entry.version for entry in model.opset_import}
    newest = onnx.defs.onnx_opset_version()
    main = versions.get(MAIN, 1)
    if main > newest:
        raise UnsupportedError(
            f"the model uses op set {main}; the installed onnx {onnx.__version__} knows up to {newest}",
            where=where,
            hint="pip install -U onnx",
        )
    return versions


def infer(model: Any, where: str) -> Any:
    """onnx's shape inference; inconsistent declarations are left as they stand."""
    return _asked("infer", model, FormatError, "shape inference refuses the model", where)


def inline(model: Any, where: str) -> Any:
    """The model with its functions inlined and the new values' types inferred."""
    return infer(_asked("inline", model, FormatError, "its functions cannot be inlined", where), where)


def _asked(action: str, model: Any, kind: type[FormatError | UnsupportedError], what: str, where: str) -> Any:
    """Preparation of a model by onnx, in the process that it has for itself."""
    try:
        return type(model).FromString(library.call(action, model.SerializeToString(), where=where))
    except library.LibraryRefusal as error:
        raise kind(f"{what} ({error})", where=where) from None


def check_growth(model: Any, where: str) -> None:
    """FormatError where functions call themselves, or each other so often that inlining would not end."""
    functions = {(domain_of(f.domain), f.name): f for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}
    active: set[tuple[str, str]] = set()

    def size(nodes: Any) -> int:
        total = 0
        for node in nodes:
            key = domain_of(node.domain), node.op_type
            total += size_of(key) if key in functions else 1
            for graph in node_graphs(node):
                total += size(graph.node)
        return total

    def size_of(key: tuple[str, str]) -> int:
        if key in active or len(active) > MAX_CALL_DEPTH:
            raise FormatError(f"function {'.'.join(key)} calls itself, or calls nest too deeply", where=where)
        if key not in sizes:
            active.add(key)
            sizes[key] = size(functions[key].node)
            active.remove(key)
        return sizes[key]

    if (total := size(model.graph.node)) > MAX_INLINED:
        raise FormatError(
            f"its functions come to {total} nodes when they are inlined",
            where=where,
            hint=f"the limit is {MAX_INLINED}",
        )


def _raise_opset(model: Any, where: str) -> Any:
    what = f"the model is of an op set below {OLDEST_OPSET} and onnx cannot raise it"
    return _asked("raise_opset", model, UnsupportedError, what, where)


def expand_functions(model: Any, where: str) -> bool:
    """Turn ops without a translator that ONNX itself defines by simpler ones into calls of such functions.

    Returns whether there were any; the calls are then inlined as the file's own functions are.
    """
    onnx = import_onnx()
    versions = opset_versions(model, where)
    names_known = translators()
    types: dict[str, Any] = {}
    count = 0
    for graph in all_graphs(model.graph):
        for value in [*graph.input, *graph.output, *graph.value_info]:
            types[value.name] = value.type
        for tensor in graph.initializer:
            types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    for graph in all_graphs(model.graph):
        for node in graph.node:
            domain = domain_of(node.domain)
            if (domain, node.op_type) in names_known:
                continue
            version = versions.get(domain, 1)
            try:
                schema = onnx.defs.get_schema(node.op_type, version, domain)
            except onnx.defs.SchemaError:
                continue
            body = _definition(schema, node, version, types, where)
            if body is None:
                continue
            present = {attribute.name for attribute in node.attribute}
            for name, attribute in schema.attributes.items():
                if name not in present and attribute.default_value.name:
                    node.attribute.append(attribute.default_value)
            function = model.functions.add()
            function.CopyFrom(body)
            function.domain, function.name = FUNCTION_DOMAIN, f"{node.op_type}_{count}"
            # The body holds up to the op's next definition, though it names the version that it was written for;
            # the inliner wants the model's.
            others = [entry for entry in function.opset_import if domain_of(entry.domain) not in versions]
            del function.opset_import[:]
            function.opset_import.extend([*model.opset_import, *others])
            node.domain, node.op_type = FUNCTION_DOMAIN, function.name
            count += 1
    if count and all(entry.domain != FUNCTION_DOMAIN for entry in model.opset_import):
        model.opset_import.add(domain=FUNCTION_DOMAIN, version=1)
    return bool(count)


FUNCTION_DOMAIN = "hexane.expanded"


def _definition(schema: Any, node: Any, version: int, types: Mapping[str, Any], where: str) -> Any:
    """ONNX's own definition of a node's op as a FunctionProto, or None."""
    if not (schema.has_function or schema.has_context_dependent_function):
        return None
    onnx = import_onnx()
    input_types = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
    name, domain = node.op_type.encode(), domain_of(node.domain).encode()
    try:
        definition = library.call(
            "definition", name, domain, str(version).encode(), node.SerializeToString(), *input_types, where=where
        )
    except library.LibraryRefusal as error:
        raise FormatError(f"{node.op_type} {node.name!r} is not as onnx defines it ({error})", where=where) from None
    function = onnx.FunctionProto.FromString(definition)
    return function if function.node else None


def _fold(model: Any, where: str) -> Any:
    """onnxscript's constant folding, which also takes constant branches and empty loops apart.

    A model that it cannot handle is left as it is: what stays open is folded or refused op by op afterwards.
    """
    try:
        return type(model).FromString(library.call("fold", model.SerializeToString(), where=where))
    except library.LibraryRefusal as error:  # translation then meets the untouched model
        logging.getLogger(__name__).info("onnxscript did not fold the model: %s: %s", error.kind, error)
        return model
