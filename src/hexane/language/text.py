"""Text to tokens and back, by the ``tokenizer.json`` of a model's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hexane.errors import FormatError, UnsupportedError
from hexane.files import is_file


def tokenizer_of(folder: Path) -> Any:
    """The folder's tokenizer (``encode(text).ids``, ``decode(ids)``); UnsupportedError without library or file."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UnsupportedError(
            "text needs the package tokenizers", hint="pip install tokenizers, or give tokens as numbers (--ids)"
        ) from None
    path = folder / "tokenizer.json"
    if not is_file(path):
        raise UnsupportedError("the folder has no tokenizer.json", where=str(folder), hint="give tokens (--ids)")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises bare Exception for a damaged file
        raise FormatError(f"not a tokenizer ({error})", where=str(path)) from None
