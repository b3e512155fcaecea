"""A library of coremltools' interface: what hexane asks of it, answered by hexane's own float32 reference."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from types import SimpleNamespace as Record
from typing import Any

import numpy as np

import hexane
from hexane.formats.coreml.files import model_file
from hexane.formats.coreml.protos import protos
from hexane.formats.mil.names import encode


class ComputeUnit(Enum):
    ALL, CPU_AND_GPU, CPU_ONLY, CPU_AND_NE = range(4)


class MLNeuralEngineComputeDevice:
    total_core_count = 16


class MLCPUComputeDevice:
    pass


class MLModel:
    """Loads the package that was written, as Core ML reads it."""

    made: list[MLModel] = []  # noqa: RUF012 - tests look at it
    fails = ""

    def __init__(self, path: str, compute_units: ComputeUnit = ComputeUnit.ALL) -> None:
        if MLModel.fails == "load":
            raise RuntimeError("Error compiling model: compiler error: ...")
        self.path, self.units = path, compute_units
        self.graph = hexane.load(path)
        self.spec = protos().model.Model()
        self.spec.ParseFromString(model_file(Path(path)).read_bytes())
        MLModel.made.append(self)

    def get_spec(self) -> Any:
        return self.spec

    def predict(self, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if MLModel.fails == "predict":
            raise RuntimeError("")
        names = {encode(v.name): v.name for v in (*self.graph.main.inputs, *self.graph.main.outputs)}
        found = self.graph.evaluate({names[name]: array for name, array in given.items()})
        return {encode(name): array for name, array in found.items()}

    def get_compiled_model_path(self) -> str:
        return self.path


class MLComputePlan:
    """Everything on the engine but cumsum, which Core ML cannot place there."""

    def __init__(self, path: str) -> None:
        graph = hexane.load(path)
        operations = [Record(operator_name="const", outputs=[Record(name="w")], blocks=[])]
        operations += [
            Record(
                operator_name=f"ios17.{op.type}", outputs=[Record(name=encode(v.name)) for v in op.outputs], blocks=[]
            )
            for op in graph.main.walk()
        ]
        functions = {"main": Record(block=Record(operations=operations))}
        self.model_structure = Record(program=Record(functions=functions))

    @classmethod
    def load_from_path(cls, path: str, compute_units: ComputeUnit = ComputeUnit.ALL) -> MLComputePlan:
        return cls(path)

    def get_compute_device_usage_for_mlprogram_operation(self, operation: Any) -> Any:
        cpu = [MLCPUComputeDevice()]
        if operation.operator_name.endswith("cumsum"):
            return Record(preferred_compute_device=cpu[0], supported_compute_devices=cpu)
        engine = MLNeuralEngineComputeDevice()
        return Record(preferred_compute_device=engine, supported_compute_devices=[*cpu, engine])

    def get_estimated_cost_for_mlprogram_operation(self, operation: Any) -> Any:
        return Record(weight=0.25)


models = Record(MLModel=MLModel, compute_plan=Record(MLComputePlan=MLComputePlan))
