"""Before translation: bind dimensions, infer shapes, inline functions, fold what only computes shapes.

All of this is onnx's and onnxscript's own work, done on a model whose large weights have been taken out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.formats.arguments import checked_shapes
from hexane.formats.onnx import library
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


def prepare(file: OnnxFile, shapes: Shapes | None = None) -> Any:
    """The file's model with static inputs, known functions inlined and control flow folded where it is constant."""
    model = file.model
    versions = opset_versions(model, file.where)
    bind_shapes(model, checked_shapes(shapes), set(file.weights), file.where)
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


def bind_shapes(model: Any, shapes: Mapping[str, tuple[int, ...]], weights: set[str], where: str) -> None:
    """Give every input a static shape. ``shapes`` holds shapes by input name and extents by symbolic name.

    Declared shapes that a binding contradicts are dropped, so that inference finds the right ones.
    """
    initial = {tensor.name for tensor in model.graph.initializer} | weights
    inputs = {value.name: value for value in model.graph.input if value.name not in initial}
    symbols: dict[str, int] = {}
    overridden = False
    for name, wanted in shapes.items():
        if name in inputs:
            continue
        if len(wanted) == 1 and name in _symbols(model):
            symbols[name] = wanted[0]
        else:
            raise UsageError(
                f"the model has no input {name!r}", where=where, hint=f"inputs: {', '.join(inputs) or 'none'}"
            )
    for name, value in inputs.items():
        if value.type.WhichOneof("value") != "tensor_type":
            continue
        tensor = value.type.tensor_type
        if name in shapes:
            wanted = shapes[name]
            if tensor.HasField("shape") and len(tensor.shape.dim) != len(wanted):
                raise UsageError(
                    f"input {name!r} has {len(tensor.shape.dim)} dimensions, {len(wanted)} were given", where=where
                )
            old = list(tensor.shape.dim)
            for dim, extent in zip(old, wanted):
                if dim.HasField("dim_param") and dim.dim_param:
                    symbols.setdefault(dim.dim_param, extent)
                elif dim.HasField("dim_value") and dim.dim_value > 0 and dim.dim_value != extent:
                    overridden = True
            tensor.ClearField("shape")
            tensor.shape.SetInParent()
            for extent in wanted:
                tensor.shape.dim.add().dim_value = extent
    unknown = sorted({name for name in symbols if name in shapes} - _symbols(model))
    if unknown:
        raise UsageError(
            f"the model has neither an input nor a dimension {unknown[0]!r}",
            where=where,
            hint=f"inputs: {', '.join(inputs) or 'none'}; dimensions: {', '.join(sorted(_symbols(model))) or 'none'}",
        )
    for graph in all_graphs(model.graph):
        for value in [*graph.input, *graph.output, *graph.value_info]:
            if value.type.WhichOneof("value") == "tensor_type":
                for dim in value.type.tensor_type.shape.dim:
                    if dim.dim_param in symbols:
                        dim.dim_value = symbols[dim.dim_param]
    open_inputs = []
    for name, value in inputs.items():
        if value.type.WhichOneof("value") != "tensor_type":
            continue
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            open_inputs.append(f"{name} [rank unknown]")
        elif any(not dim.HasField("dim_value") or dim.dim_value < 0 for dim in tensor.shape.dim):
            extents = ", ".join(
                str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim
            )
            open_inputs.append(f"{name} [{extents}]")
    if open_inputs:
        first = open_inputs[0].split(" ")[0]
        raise UsageError(
            f"the graph is static, and these inputs have open dimensions: {'; '.join(open_inputs)}",
            where=where,
            hint=f'bind them: shapes={{"{first}": (1, ...)}} or --shape {first}=1x...',
        )
    if shapes:
        # Intermediate shapes in the file may be those of other bindings; inference knows better.
        del model.graph.value_info[:]
    if overridden:
        for value in model.graph.output:
            if value.type.WhichOneof("value") == "tensor_type":
                value.type.tensor_type.ClearField("shape")


def _symbols(model: Any) -> set[str]:
    found = set()
    for graph in all_graphs(model.graph):
        for value in [*graph.input, *graph.output, *graph.value_info]:
            if value.type.WhichOneof("value") == "tensor_type":
                found |= {dim.dim_param for dim in value.type.tensor_type.shape.dim if dim.dim_param}
    return found


def infer(model: Any, where: str) -> Any:
    """onnx's shape inference; inconsistent declarations are left as they stand."""
    return _asked("infer", model, FormatError, "shape inference refuses the model", where)


def inline(model: Any, where: str) -> Any:
    """The model with its functions inlined and the new values' types inferred."""
    return infer(_asked("inline", model, FormatError, "its functions cannot be inlined", where), where)


def _asked(action: str, model: Any, kind: type[FormatError | UnsupportedError], what: str, where: str) -> Any:
    """What onnx makes of a model, in the process that it has for itself."""
    try:
        return type(model).FromString(library.call(action, model.SerializeToString(), where=where))
    except library.Refused as error:
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
    known = translators()
    types: dict[str, Any] = {}
    made = 0
    for graph in all_graphs(model.graph):
        for value in [*graph.input, *graph.output, *graph.value_info]:
            types[value.name] = value.type
        for tensor in graph.initializer:
            types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    for graph in all_graphs(model.graph):
        for node in graph.node:
            domain = domain_of(node.domain)
            if (domain, node.op_type) in known:
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
            function.domain, function.name = FUNCTION_DOMAIN, f"{node.op_type}_{made}"
            # The body holds up to the op's next definition, though it names the version that it was written for;
            # the inliner wants the model's.
            others = [entry for entry in function.opset_import if domain_of(entry.domain) not in versions]
            del function.opset_import[:]
            function.opset_import.extend([*model.opset_import, *others])
            node.domain, node.op_type = FUNCTION_DOMAIN, function.name
            made += 1
    if made and all(entry.domain != FUNCTION_DOMAIN for entry in model.opset_import):
        model.opset_import.add(domain=FUNCTION_DOMAIN, version=1)
    return bool(made)


FUNCTION_DOMAIN = "hexane.expanded"


def _definition(schema: Any, node: Any, version: int, types: Mapping[str, Any], where: str) -> Any:
    """ONNX's own definition of a node's op as a FunctionProto, or None."""
    if not (schema.has_function or schema.has_context_dependent_function):
        return None
    onnx = import_onnx()
    given = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
    name, domain = node.op_type.encode(), domain_of(node.domain).encode()
    try:
        made = library.call(
            "definition", name, domain, str(version).encode(), node.SerializeToString(), *given, where=where
        )
    except library.Refused as error:
        raise FormatError(f"{node.op_type} {node.name!r} is not as onnx defines it ({error})", where=where) from None
    function = onnx.FunctionProto.FromString(made)
    return function if function.node else None


def _fold(model: Any, where: str) -> Any:
    """onnxscript's constant folding, which also takes constant branches and empty loops apart.

    A model that it cannot handle is left as it is: what stays open is folded or refused op by op afterwards.
    """
    try:
        return type(model).FromString(library.call("fold", model.SerializeToString(), where=where))
    except library.Refused as error:  # translation then meets the untouched model
        logging.getLogger(__name__).info("onnxscript did not fold the model: %s: %s", error.kind, error)
        return model
