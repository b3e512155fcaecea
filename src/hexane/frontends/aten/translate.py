"""From an FX graph of ATen operators to a graph of MIL ops, node by node.

Every result is held against what PyTorch itself says of it (shape and element type), so that a translation that goes
astray is refused and not wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import getitem
from typing import Any

import numpy as np

from hexane.errors import GraphError, HexaneError, UnsupportedError
from hexane.formats.compositions import Refused
from hexane.formats.operands import Folder, Operand, known, type_of
from hexane.frontends.aten import ops as _ops  # noqa: F401  (registers the translations)
from hexane.frontends.aten.node import TRANSLATORS, AtenNode, mil_type
from hexane.graph import Graph, GraphBuilder
from hexane.graph.types import TensorType

KEPT = (
    "silu", "hardswish", "hardsigmoid", "softplus", "upsample_nearest2d", "upsample_bilinear2d", "pixel_shuffle",
    "pixel_unshuffle", "mish", "addmm", "celu", "hardtanh", "leaky_relu", "elu", "relu6", "linalg_vector_norm",
    "_softmax", "_log_softmax", "native_layer_norm", "native_group_norm", "_native_batch_norm_legit_no_training",
)  # fmt: skip
"""Operators that are not taken apart, although PyTorch's core set has them in parts: they are ops here."""


def decompositions() -> dict[Any, Any]:
    """PyTorch's decompositions into its core operators, without those that have a translation of their own."""
    from torch._decomp import core_aten_decompositions

    from hexane.frontends.aten.fused import fused

    return {op: how for op, how in core_aten_decompositions().items() if _packet(op) not in KEPT} | fused()


def _packet(op: Any) -> str:
    return str(op).partition("::")[2].partition(".")[0] or str(op).removeprefix("aten.").partition(".")[0]


def name_of(target: Any) -> str:
    """``add.Tensor`` for ``aten.add.Tensor``; the plain name of anything else."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return str(getattr(target, "__name__", target))
    space, _, name = schema.name.partition("::")
    overload = schema.overload_name or "default"
    return f"{name}.{overload}" if space == "aten" else f"{space}::{name}.{overload}"


def is_known(target: Any) -> bool:
    """True where an operator has a translation at all."""
    return target is getitem or name_of(target) in TRANSLATORS


class NodeRefused(UnsupportedError):
    """A node that cannot be translated; ``node`` is the FX node."""

    def __init__(self, node: Any, error: HexaneError) -> None:
        super().__init__(error.message, where=name_of(node.target), hint=error.hint)
        self.node = node


class Translation:
    """One run over one FX graph."""

    def __init__(self, constants: Mapping[str, np.ndarray], names: Mapping[str, str]) -> None:
        self.builder = GraphBuilder(opset="ios18")
        self.folder = Folder(self.builder)
        self.constants = constants
        self.names = names
        self.values: dict[Any, Any] = {}

    def placeholder(self, node: Any) -> None:
        if node.name in self.constants:
            self.values[node] = known(self.constants[node.name])
            return
        type_ = mil_type(node.meta["val"])
        if not all(type_.shape):
            raise Refused("an empty tensor")
        self.values[node] = self.builder.typed_input(self.names.get(node.name, node.name), type_)

    def operand(self, argument: Any) -> Any:
        """A node's value; anything else as it is."""
        if isinstance(argument, list | tuple):
            return type(argument)(self.operand(item) for item in argument)
        if type(argument).__name__ == "Node":
            if argument not in self.values:
                raise Refused(f"it takes {argument.name}, which is no tensor")
            return self.values[argument]
        if type(argument).__name__ in ("SymInt", "SymFloat", "SymBool"):
            raise Refused("it depends on a shape that is known at run time only")
        return argument

    def call(self, node: Any) -> None:
        if node.target is getitem:
            outcome = self.values[node.args[0]][node.args[1]]
            if outcome is None:
                raise Refused(f"result {node.args[1]} of {name_of(node.args[0].target)} is not computed")
            self.values[node] = outcome
            return
        translate_ = TRANSLATORS.get(name_of(node.target))
        if translate_ is None:
            raise Refused("it has no translation")
        c = AtenNode(node, self.folder, self.operand)
        several = isinstance(node.meta["val"], tuple | list)
        for number, value in enumerate(c.results):
            if hasattr(value, "shape") and not all(mil_type(value).shape) and (not several or c.used(number)):
                raise Refused("an empty tensor")
        outcome = translate_(c)
        results = [
            None if one is None else self.checked(c, one, mil_type(meta))
            for one, meta in zip(outcome if several else (outcome,), c.results)
        ]
        self.values[node] = results if several else results[0]

    def checked(self, c: AtenNode, value: Operand, torch_type: TensorType) -> Operand:
        """A result in the element type that PyTorch declares; GraphError for another shape."""
        own = type_of(value)
        if tuple(own.shape) != tuple(torch_type.shape):
            raise GraphError(f"its result is {tuple(own.shape)} where PyTorch has {tuple(torch_type.shape)}")
        return value if own.dtype == torch_type.dtype else c.cast(value, torch_type.dtype)

    def node(self, node: Any) -> None:
        """One node; NodeRefused where it cannot be translated."""
        try:
            if node.op == "placeholder":
                self.placeholder(node)
            elif node.op == "call_function":
                self.call(node)
            elif node.op == "get_attr":
                self.values[node] = known(_array(_attribute(node)))
            elif node.op != "output":
                raise Refused(f"an FX node of kind {node.op}")
        except NodeRefused:
            raise
        except HexaneError as error:
            raise NodeRefused(node, error) from error
        except (ValueError, IndexError, TypeError, OverflowError, KeyError, AttributeError) as error:
            raise NodeRefused(node, GraphError(f"its translation fails ({type(error).__name__}: {error})")) from error

    def output(self, operand: Any, name: str) -> str:
        """Declare an output; its name in the graph."""
        value = self.folder.value(operand)
        if value.op is None or value.is_output:
            value = self.builder.identity(x=value)
        if value.name != name:
            if name in self.builder.names:
                name = self.builder.names.unique(name)
            else:
                self.builder.names.take(name)
            value.name = name
        self.builder.output(value)
        return name


def _attribute(node: Any) -> Any:
    owner = node.graph.owning_module
    for part in node.target.split("."):
        owner = getattr(owner, part)
    return owner


def _array(tensor: Any) -> np.ndarray:
    """A tensor's numbers; bfloat16 widened."""
    tensor = tensor.detach().cpu()
    return tensor.float().numpy() if str(tensor.dtype) == "torch.bfloat16" else tensor.numpy()


def translate(
    graph: Any,
    constants: Mapping[str, np.ndarray],
    input_names: Mapping[str, str] | None = None,
    output_names: Sequence[str] | None = None,
) -> tuple[Graph, list[str | None]]:
    """A graph of an FX graph of ATen operators, and the name of each of its results (None for one that is None).

    ``constants`` are placeholders that are known (weights), by the node's name; ``input_names`` renames others.
    NodeRefused (an UnsupportedError) for a node that has no translation.
    """
    run = Translation(constants, input_names or {})
    names: list[str | None] = []
    for node in graph.nodes:
        if node.op == "output":
            results = node.args[0]
            results = results if isinstance(results, list | tuple) else (results,)
            for number, result in enumerate(results):
                if result is None:
                    names.append(None)
                    continue
                name = output_names[number] if output_names and number < len(output_names) else result.name
                if not isinstance(result.meta.get("val"), object) or result not in run.values:
                    raise NodeRefused(node, Refused("a result that is no tensor"))
                names.append(run.output(run.values[result], name))
        else:
            run.node(node)
    if not run.builder.function.outputs:
        raise UnsupportedError("the graph has no result that is a tensor")
    run.builder.graph.metadata["format"] = "torch"
    return run.builder.graph, names
