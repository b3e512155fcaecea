"""matplotlib's Figure, which draws into files and needs no backend."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

from hexane.errors import UnsupportedError


def figure(width: float, height: float) -> Any:
    """A new Figure of this size in inches; UnsupportedError where matplotlib (extra ``report``) is not installed.

    MPLBACKEND may name a backend of another environment (Jupyter sets it for every shell command); matplotlib refuses
    it when it is imported, so that import is tried again without.
    """
    try:
        with suppress(ValueError):
            return _figure(width, height)
        for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
            del sys.modules[name]  # halves of the import that failed
        backend = os.environ.pop("MPLBACKEND", None)
        try:
            return _figure(width, height)
        finally:
            if backend is not None:
                os.environ["MPLBACKEND"] = backend
    except ImportError:
        raise UnsupportedError("plots need matplotlib", hint="pip install 'hexane[report]'") from None


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
