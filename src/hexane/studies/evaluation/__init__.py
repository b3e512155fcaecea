"""A network over a data set: float32 and the engine side by side."""

from hexane.studies.evaluation.evaluate import evaluate
from hexane.studies.evaluation.figures import Evaluation, Row, Side

__all__ = ["Evaluation", "Row", "Side", "evaluate"]
