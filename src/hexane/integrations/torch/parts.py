"""An ATen graph cut into parts for the engine and what is left to torch, each with its reason."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

import hexane
from hexane import chips
from hexane.counts import counted
from hexane.errors import HexaneError, UsageError
from hexane.formats.compositions import Refused
from hexane.frontends.aten.node import mil_type
from hexane.frontends.aten.translate import NodeRefused, Translation, name_of, translate
from hexane.program import Program
from hexane.runtime.devices import LEVELS, device_named


@dataclass(frozen=True)
class PartOptions:
    """Options for parts of a module: ``torch.compile(..., options={"chip": "M2"})``."""

    chip: str = "M1"
    device: Any = "emulator"
    level: str = "engine"

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> PartOptions:
        """From torch's ``options``; UsageError for an option, chip, device or level that there is not."""
        unknown = set(options or {}) - set(cls.__dataclass_fields__)
        if unknown:
            hint = f"the options are {', '.join(cls.__dataclass_fields__)}"
            raise UsageError(f"there is no option {sorted(unknown)[0]!r}", hint=hint)
        return cls(**dict(options or {}))

    def __post_init__(self) -> None:
        chips.get(self.chip)
        if self.level not in LEVELS:
            raise UsageError(f"there is no level {self.level!r}", hint=" or ".join(LEVELS))
        if isinstance(self.device, str):
            device_named(self.device)


@dataclass(frozen=True)
class Left:
    """Operators that torch keeps, and why."""

    operator: str
    reason: str
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        count = f" ({len(self.nodes)} times)" if len(self.nodes) > 1 else ""
        return f"{self.operator}{count}: {self.reason}"


@dataclass(frozen=True)
class PartReport:
    """One part that hexane runs: ops on the engine, ops on its host with their reasons, tasks."""

    nodes: int
    engine_ops: int
    tasks: int
    host: dict[str, str]
    macs_on_engine: float

    def __str__(self) -> str:
        engine = f"{counted(self.engine_ops, 'op')} on the engine in {counted(self.tasks, 'task')}"
        head = f"{counted(self.nodes, 'operator')}: {engine}"
        return "\n".join([head, *(f"    on the host: {op}: {why}" for op, why in self.host.items())])


@dataclass
class GraphReport:
    """One captured graph: its parts, and what torch keeps."""

    parts: list[PartReport] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)


class Part(torch.nn.Module):
    """A program in the place of a subgraph: tensors in, tensors out."""

    def __init__(
        self,
        program: Program,
        inputs: Mapping[int, str],
        outputs: Sequence[str | None],
        values: Any,
        options: PartOptions,
    ) -> None:
        super().__init__()
        self.program = program
        self.inputs = dict(inputs)
        self.outputs = list(outputs)
        self.values = values
        self.session = program.on(options.device, level=options.level)

    def forward(self, *args: Any) -> Any:
        """The subgraph's results, in their declared types and strides."""
        arrays = {name: to_numpy(args[number]) for number, name in self.inputs.items()}
        outputs = self.session.run(arrays)
        many = isinstance(self.values, tuple | list)
        values = self.values if many else (self.values,)
        results = tuple(
            None if name is None else to_torch(outputs[name], value) for name, value in zip(self.outputs, values)
        )
        return results if many else results[0]


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's numbers; bfloat16 widened to float32."""
    tensor = tensor.detach()
    return tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.contiguous().numpy()


def to_torch(array: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    """An array as a tensor of the type and strides that the graph declares."""
    tensor = torch.from_numpy(np.array(array)).to(like.dtype).reshape(tuple(like.shape))
    shared = any(stride == 0 and extent > 1 for stride, extent in zip(like.stride(), like.shape))
    if tensor.stride() == like.stride() or shared:  # an expanded view has no memory of its own to fill
        return tensor
    return torch.empty_strided(tuple(like.shape), like.stride(), dtype=like.dtype).copy_(tensor)


class Supported(OperatorSupportBase):
    """Nodes of these names."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
        return node.name in self.names


def survey(graph: torch.fx.Graph, constants: Mapping[str, np.ndarray]) -> tuple[set[str], dict[str, tuple[str, str]]]:
    """Nodes that can be translated, and for the others the operator and the reason."""
    run = Translation(constants, {})
    supported: set[str] = set()
    refused: dict[str, tuple[str, str]] = {}
    for node in graph.nodes:
        if node.op == "output":
            continue
        try:
            _on_cpu(node)
            run.node(node)
        except (NodeRefused, Refused) as error:
            if node.op == "call_function":
                refused[node.name] = (name_of(node.target), error.message)
            _as_input(run, node)
            continue
        if node.op == "call_function":
            supported.add(node.name)
    # The parts of a result that torch keeps are torch's too.
    for node in graph.nodes:
        if node.target is operator.getitem and node.args[0].name in refused:
            supported.discard(node.name)
    return supported, refused


def _on_cpu(node: torch.fx.Node) -> None:
    value = node.meta.get("val")
    for one in value if isinstance(value, tuple | list) else (value,):
        if isinstance(one, torch.Tensor) and one.device.type != "cpu":
            raise Refused(f"a tensor on {one.device}")


def _as_input(run: Translation, node: torch.fx.Node) -> None:
    """A value that torch makes is an input to what follows it."""

    def one(value: Any) -> Any:
        try:
            type_ = mil_type(value)
        except (HexaneError, AttributeError):
            return None
        if not all(type_.shape):
            return None
        return run.builder.typed_input(f"{node.name}.{len(run.builder.function.inputs)}", type_)

    value = node.meta.get("val")
    if isinstance(value, tuple | list):
        run.values[node] = [one(item) for item in value]
    elif (value_in := one(value)) is not None:
        run.values[node] = value_in


def cut(
    module: torch.fx.GraphModule, constants: Mapping[str, np.ndarray], options: PartOptions
) -> tuple[torch.fx.GraphModule, GraphReport]:
    """The module with programs in the place of what the engine takes. ``constants``: placeholders that are known."""
    report = GraphReport()
    supported, refused = survey(module.graph, constants)
    left: dict[tuple[str, str], list[str]] = {}
    for name, why in refused.items():
        left.setdefault(why, []).append(name)
    partitioner = CapabilityBasedPartitioner(module, Supported(supported), allows_single_node_partition=True)
    fused = partitioner.fuse_partitions(partitioner.propose_partitions(), prefix="hexane_part_")
    for node in list(fused.graph.nodes):
        if node.op != "call_module" or not str(node.target).startswith("hexane_part_"):
            continue
        inner = fused.get_submodule(str(node.target))
        assert isinstance(inner, torch.fx.GraphModule)
        calls = [one for one in inner.graph.nodes if one.op == "call_function"]
        try:
            pieces, row = _program(inner, node, constants, len(calls), options)
        except HexaneError as error:
            left.setdefault((", ".join(dict.fromkeys(name_of(c.target) for c in calls)), error.message), []).extend(
                c.name for c in calls
            )
            continue
        setattr(fused, str(node.target), Part(*pieces, options))
        report.parts.append(row)
    report.left = [Left(op, why, tuple(names)) for (op, why), names in left.items()]
    return fused, report


def _program(
    inner: torch.fx.GraphModule,
    node: torch.fx.Node,
    constants: Mapping[str, np.ndarray],
    calls: int,
    options: PartOptions,
) -> tuple[tuple[Program, dict[int, str], Sequence[str | None], Any], PartReport]:
    """A submodule as a program, its inputs, outputs and their values. HexaneError where the engine has none."""
    holes = [one for one in inner.graph.nodes if one.op == "placeholder"]
    stand_ins = {
        hole.name: constants[argument.name]
        for hole, argument in zip(holes, node.args)
        if isinstance(argument, torch.fx.Node) and argument.name in constants
    }
    graph, names = translate(inner.graph, stand_ins)
    program = hexane.compile(graph, chip=options.chip)
    stats = program.stats()
    if not stats["engine_segments"]:
        reasons = "; ".join(dict.fromkeys(stats["host_reasons"].values())) or "it is a constant"
        raise Refused(f"nothing of it is for the engine ({reasons})")
    declared = graph.inputs
    inputs = {number: hole.name for number, hole in enumerate(holes) if hole.name in declared}
    (result,) = (one.args[0] for one in inner.graph.nodes if one.op == "output")
    if isinstance(result, tuple | list):
        values: Any = tuple(None if one is None else one.meta["val"] for one in result)
    else:
        values = result.meta["val"]
    host = sum(stats["host_ops"].values())
    row = PartReport(
        calls, stats["ops"] - host, stats["tasks"], dict(stats["host_reasons"]), stats["macs_on_engine"]
    )  # fmt: skip
    return (program, inputs, names, values), row
