"""PyTorch modules: exported by PyTorch itself, then translated operator by operator, or read as ONNX.

``torch.export`` traces the module into a graph of ATen operators, which ``hexane.frontends.aten`` translates into MIL
ops as they stand. A module with an operator that has no translation there, or with recurrent layers (ATen unrolls them;
ONNX and MIL have them whole), goes the long way: ``torch.onnx`` (with onnxscript) writes it as ONNX. Which way a graph
came, and why, stands in ``graph.metadata["via"]``. Weights go across as arrays, never through a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hexane.counts import counted
from hexane.errors import UnsupportedError, UsageError
from hexane.formats.quiet import first_line, quiet
from hexane.graph.ir import Graph

WAYS = ("auto", "aten", "onnx")


def from_torch(
    module: Any,
    example_inputs: Any = None,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    via: str = "auto",
) -> Graph:
    """A graph of a PyTorch module, or of an ``ExportedProgram``.

    Parameters
    ----------
    module : a ``torch.nn.Module`` (exported in evaluation mode; each part's mode is put back afterwards) or an
        ``ExportedProgram``.
    example_inputs : a tensor, a tuple of positional arguments, or a dict of keyword arguments; their shapes and dtypes
        are those of the graph. An ``ExportedProgram`` needs none.
    input_names, output_names : names for the graph's inputs and outputs; PyTorch's own by default.
    via : "aten" translates ATen operators, "onnx" goes through ONNX, "auto" takes the first where it can.

    Raises
    ------
    UnsupportedError : PyTorch is not installed, cannot export the module, or uses an op that hexane lacks.
    UsageError : ``module`` or ``example_inputs`` is something else.
    """
    torch = _torch()
    if via not in WAYS:
        raise UsageError(f"via is {via!r}", hint=f"one of {', '.join(WAYS)}")
    exported = isinstance(module, torch.export.ExportedProgram)
    if not exported and not isinstance(module, torch.nn.Module):
        raise UsageError(f"{type(module).__name__} is neither a torch.nn.Module nor an ExportedProgram")
    if example_inputs is None and exported:
        args, kwargs = module.example_inputs or ((), {})
    else:
        args, kwargs = _arguments(torch, example_inputs)
    modes = [] if exported else [(part, part.training) for part in module.modules()]
    if not exported:
        module.eval()
    try:
        with quiet(), torch.no_grad():
            program = module if exported else _exported(torch, module, args, kwargs)
            why = "asked for"
            if via != "onnx":
                try:
                    graph = _translated(program, input_names, output_names)
                    graph.metadata["via"] = "aten"
                    return graph
                except UnsupportedError as error:
                    if via == "aten":
                        raise
                    why = str(error)
            graph = _through_onnx(torch, module, args, kwargs, input_names, output_names)
            graph.metadata["via"] = f"onnx ({why})"
            return graph
    finally:
        for part, training in modes:
            part.training = training


def _exported(torch: Any, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return torch.export.export(module, args, kwargs)
    except Exception as error:  # the exporter's failures come in every type
        raise UnsupportedError(
            f"PyTorch cannot export {type(module).__name__} ({first_line(error)})",
            hint="torch.export.export(module, args) says more",
        ) from error


RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
"""Operators that PyTorch's decompositions unroll step by step."""


def _translated(program: Any, input_names: Sequence[str] | None, output_names: Sequence[str] | None) -> Graph:
    """The exported program's ATen operators as MIL ops. UnsupportedError for one that has no translation."""
    from hexane.frontends.aten import decompositions, translate

    for node in program.graph.nodes:
        name = str(node.target).removeprefix("aten.").partition(".")[0]
        if node.op == "call_function" and name in RECURRENT:
            raise UnsupportedError(f"{name} would be unrolled")
        if node.op == "get_attr" or "higher_order" in type(node.target).__module__:
            raise UnsupportedError("control flow")
    program = program.run_decompositions(decompositions())
    signature = program.graph_signature
    constants, inputs = constants_of(program)
    changed = [spec for spec in signature.output_specs if spec.kind.name not in ("USER_OUTPUT",)]
    if changed:
        raise UnsupportedError(f"it changes {changed[0].target!r} ({changed[0].kind.name.lower()})")
    if input_names and len(input_names) > len(inputs):
        raise UsageError(f"{counted(len(input_names), 'name')} for {counted(len(inputs), 'input')}")
    renamed = dict(zip(inputs, input_names or ()))
    return translate(program.graph, constants, renamed, output_names)[0]


def constants_of(program: Any) -> tuple[dict[str, np.ndarray], list[str]]:
    """Weights, buffers and constants of an exported program by the name of their placeholder, and its user's inputs."""
    constants: dict[str, np.ndarray] = {}
    inputs = []
    for spec in program.graph_signature.input_specs:
        kind, name = spec.kind.name, getattr(spec.arg, "name", "")
        if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            parameter = program.state_dict.get(spec.target)
            tensor = (parameter if parameter is not None else program.constants[spec.target]).detach()
            constants[name] = tensor.float().numpy() if str(tensor.dtype) == "torch.bfloat16" else tensor.numpy()
        elif kind != "USER_INPUT":
            raise UnsupportedError(f"an input of kind {kind}")
        elif type(spec.arg).__name__ == "TensorArgument":
            inputs.append(name)
    return constants, inputs


def _through_onnx(
    torch: Any,
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
) -> Graph:
    try:
        import onnxscript  # noqa: F401  (the exporter needs it)
    except ImportError as error:
        raise UnsupportedError(
            f"from_torch needs {error.name}, which is not installed", hint="pip install 'hexane[onnx]'"
        ) from error
    try:
        program = torch.onnx.export(
            module,
            args,
            kwargs=kwargs,
            dynamo=True,
            verbose=False,
            input_names=list(input_names) if input_names else None,
            output_names=list(output_names) if output_names else None,
        )
    except Exception as error:  # the exporter's failures come in every type
        raise UnsupportedError(
            f"PyTorch cannot export {type(module).__name__} ({first_line(error)})",
            hint="torch.export.export(module, args) says more",
        ) from error
    return _read(program)


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise UnsupportedError(
            f"from_torch needs {error.name}, which is not installed", hint="pip install torch 'hexane[onnx]'"
        ) from error
    return torch


def _arguments(torch: Any, arguments: Any) -> tuple[tuple, dict[str, Any]]:
    """Positional and keyword arguments; arrays become tensors."""

    def tensor(value: Any) -> Any:
        return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value

    if isinstance(arguments, Mapping):
        return (), {name: tensor(value) for name, value in arguments.items()}
    if isinstance(arguments, torch.Tensor | np.ndarray):
        return (tensor(arguments),), {}
    if isinstance(arguments, tuple | list):
        return tuple(tensor(value) for value in arguments), {}
    raise UsageError(
        f"example_inputs is a {type(arguments).__name__}", hint="give a tensor, a tuple of them, or a dict"
    )


def _read(program: Any) -> Graph:
    """The exporter's model as a graph; its initializers are handed over as they lie in memory."""
    import onnx_ir

    from hexane.formats.onnx.file import SMALL_BYTES, OnnxFile
    from hexane.formats.onnx.importer import Importer
    from hexane.formats.onnx.prepare import prepare
    from hexane.formats.operands import known

    model = program.model
    weights: dict[str, np.ndarray] = {}
    for name, value in list(model.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or tensor.nbytes <= SMALL_BYTES:
            continue
        weights[name] = known(tensor.numpy())
        del model.graph.initializers[name]
        value.const_value = None
        model.graph.inputs.append(value)
    file = OnnxFile(onnx_ir.serde.serialize_model(model), weights, where="PyTorch module")
    graph = Importer(file, prepare(file)).run()
    graph.metadata["format"] = "torch"
    return graph
