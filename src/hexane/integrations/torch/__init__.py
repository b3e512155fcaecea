"""``hexane.torch``: a back end of ``torch.compile``, and what of a module stays off the engine.

Importing it makes ``torch.compile(model, backend="hexane")`` known to torch.
"""

from importlib.util import find_spec

from hexane.errors import UnsupportedError

if find_spec("torch") is None:
    raise UnsupportedError("hexane.torch needs torch, which is not installed", hint="pip install 'hexane[torch]'")

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
