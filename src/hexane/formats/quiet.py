"""Other packages, kept off the user's terminal, and their errors in one line."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep other packages' progress, log lines and warnings off the user's terminal."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its type."""
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__
