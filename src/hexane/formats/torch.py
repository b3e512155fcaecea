"""PyTorch modules: exported by PyTorch itself, then read as ONNX.

``torch.export`` traces the module into a graph of ATen operators and ``torch.onnx`` (with onnxscript) writes that as
ONNX; both follow PyTorch's own changes, which a translation of ATen kept here could not. Weights go across as arrays,
never through a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hexane.errors import UnsupportedError, UsageError
from hexane.formats.quiet import first_line, quiet
from hexane.graph.ir import Graph


def from_torch(
    module: Any,
    example_inputs: Any,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Graph:
    """A graph of a PyTorch module, or of an ``ExportedProgram``.

    Parameters
    ----------
    module : a ``torch.nn.Module`` (exported in evaluation mode; each part's mode is put back afterwards) or an
        ``ExportedProgram``.
    example_inputs : a tensor, a tuple of positional arguments, or a dict of keyword arguments; their shapes and dtypes
        are those of the graph.
    input_names, output_names : names for the graph's inputs and outputs; PyTorch's own by default.

    Raises
    ------
    UnsupportedError : PyTorch is not installed, cannot export the module, or uses an op that hexane lacks.
    UsageError : ``module`` or ``example_inputs`` is something else.
    """
    torch = _torch()
    args, kwargs = _arguments(torch, example_inputs)
    exported = isinstance(module, torch.export.ExportedProgram)
    if not exported and not isinstance(module, torch.nn.Module):
        raise UsageError(f"{type(module).__name__} is neither a torch.nn.Module nor an ExportedProgram")
    modes = [] if exported else [(part, part.training) for part in module.modules()]
    if not exported:
        module.eval()
    try:
        with quiet(), torch.no_grad():
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
    finally:
        for part, training in modes:
            part.training = training
    return _read(program)


def _torch() -> Any:
    try:
        import onnxscript  # noqa: F401  (the exporter needs it)
        import torch
    except ImportError as error:
        raise UnsupportedError(
            f"from_torch needs {error.name}, which is not installed", hint="pip install torch 'hexane[onnx]'"
        ) from error
    return torch


def _arguments(torch: Any, given: Any) -> tuple[tuple, dict[str, Any]]:
    """Positional and keyword arguments; arrays become tensors."""

    def tensor(value: Any) -> Any:
        return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value

    if isinstance(given, Mapping):
        return (), {name: tensor(value) for name, value in given.items()}
    if isinstance(given, torch.Tensor | np.ndarray):
        return (tensor(given),), {}
    if isinstance(given, tuple | list):
        return tuple(tensor(value) for value in given), {}
    raise UsageError(f"example_inputs is a {type(given).__name__}", hint="give a tensor, a tuple of them, or a dict")


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
