"""The back end of ``torch.compile`` and its explanations (``hexane.integrations.torch``)."""

from importlib.util import find_spec as _find_spec

from hexane.errors import UnsupportedError as _UnsupportedError

if _find_spec("torch") is None:
    raise _UnsupportedError("hexane.torch needs torch, which is not installed", hint="pip install 'hexane[torch]'")

from hexane.integrations.torch import *  # noqa: F403
