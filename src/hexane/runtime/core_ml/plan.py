"""Core ML's own plan: for every op the device that it prefers, those that could, and its share of the cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hexane.errors import HexaneError, UnsupportedError
from hexane.formats.mil.names import decode
from hexane.graph.ir import Graph
from hexane.runtime.core_ml.package import Package, asked
from hexane.timing.placement import CPU, ENGINE, Placement

GPU, UNKNOWN = "gpu", "not said"
_KINDS = {"MLNeuralEngineComputeDevice": ENGINE, "MLGPUComputeDevice": GPU, "MLCPUComputeDevice": CPU}


@dataclass(frozen=True)
class PlannedOp:
    """An op of the plan by the name of its first result; ``cost`` is its estimated share of the whole, 0 to 1."""

    name: str
    op: str
    preferred: str
    supported: tuple[str, ...]
    cost: float | None


@dataclass(frozen=True)
class Compared:
    """An op where Core ML puts it, and where it was predicted to."""

    name: str
    op: str
    predicted: str
    planned: str
    supported: tuple[str, ...]
    cost: float | None

    @property
    def agrees(self) -> bool:
        return self.predicted == self.planned


def plan_of(package: Package) -> tuple[PlannedOp, ...]:
    """MLComputePlan of a network (macOS 14.4 and later), constants left out."""
    path = asked("compile the network", package.model.get_compiled_model_path)
    plans = package.library.models.compute_plan
    plan = asked("plan the network", plans.MLComputePlan.load_from_path, path=str(path), compute_units=package.units)
    program = plan.model_structure.program
    if program is None:
        raise UnsupportedError("Core ML made no program of the network")
    functions = program.functions
    main = functions.get(package.graph.main.name) or next(iter(functions.values()))
    return tuple(_planned(plan, operation) for operation in _operations(main.block))


def _operations(block: Any) -> Iterator[Any]:
    for operation in block.operations:
        if operation.operator_name.rpartition(".")[2] != "const":
            yield operation
        for inner in getattr(operation, "blocks", ()) or ():
            yield from _operations(inner)


def _planned(plan: Any, operation: Any) -> PlannedOp:
    usage = asked("plan an op", plan.get_compute_device_usage_for_mlprogram_operation, operation)
    cost = asked("weigh an op", plan.get_estimated_cost_for_mlprogram_operation, operation)
    name = operation.outputs[0].name if operation.outputs else ""
    kinds = tuple(_kind(device) for device in usage.supported_compute_devices) if usage is not None else ()
    return PlannedOp(
        decode(name),
        operation.operator_name.rpartition(".")[2],
        UNKNOWN if usage is None else _kind(usage.preferred_compute_device),
        kinds,
        None if cost is None else float(cost.weight),
    )


def _kind(device: Any) -> str:
    return next((_KINDS[kind.__name__] for kind in type(device).__mro__ if kind.__name__ in _KINDS), UNKNOWN)


def compared(placement: Placement, plan: Sequence[PlannedOp]) -> tuple[Compared, ...]:
    """The plan beside the prediction, op by op; ops that only one of the two has are "not said" in the other."""
    planned = {op.name: op for op in plan}
    rows = []
    for predicted in placement.ops:
        op = planned.pop(predicted.name, None)
        where = (op.preferred, op.supported, op.cost) if op is not None else (UNKNOWN, (), None)
        rows.append(Compared(predicted.name, predicted.op, predicted.place, *where))
    rows += [Compared(op.name, op.op, UNKNOWN, op.preferred, op.supported, op.cost) for op in planned.values()]
    return tuple(rows)


def asked_here(graph: Graph, placement: Placement) -> tuple[tuple[Compared, ...], str]:
    """The plan of this Mac beside a prediction; nothing and the reason where Core ML cannot be asked."""
    try:
        with Package(graph) as package:
            return compared(placement, plan_of(package)), ""
    except HexaneError as error:
        return (), error.message
