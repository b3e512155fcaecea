"""``hexane.coreml``: models with the look of coremltools, predicted on any operating system."""

from hexane.integrations.coreml.features import Feature
from hexane.integrations.coreml.model import (
    CompiledMLModel,
    MLCPUComputeDevice,
    MLModel,
    MLNeuralEngineComputeDevice,
    MLState,
)
from hexane.integrations.coreml.programs import Report, SizeReport

__all__ = [
    "CompiledMLModel",
    "Feature",
    "MLCPUComputeDevice",
    "MLModel",
    "MLNeuralEngineComputeDevice",
    "MLState",
    "Report",
    "SizeReport",
]
