"""A network over a data set: float32 and the engine side by side."""

from hexane.studies.evaluation.evaluate import evaluate
from hexane.studies.evaluation.figures import Assessment, FigureRow, Side

__all__ = ["Assessment", "FigureRow", "Side", "evaluate"]
