"""``hexane.torch``: a back end of ``torch.compile``, and what of a module stays off the engine.

Importing it makes ``torch.compile(model, backend="hexane")`` known to torch.
"""

from hexane.integrations.torch import backend
from hexane.integrations.torch.backend import hexane_backend, register
from hexane.integrations.torch.explanation import Explanation, explain
from hexane.integrations.torch.parts import GraphReport, Left, Part, PartOptions, PartReport

__all__ = [
    "Explanation",
    "GraphReport",
    "Left",
    "Part",
    "PartOptions",
    "PartReport",
    "backend",
    "explain",
    "hexane_backend",
    "register",
]

register()
