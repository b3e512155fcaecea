"""The engine's arithmetic on a graph, for any chip, without making tasks."""

from hexane.numerics.evaluate import EngineEvaluation, evaluate

__all__ = ["EngineEvaluation", "evaluate"]
