"""The name of a program: of its staging folder, and of its place in the system's cache."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


def identifier(text: bytes, weights: Mapping[str, bytes], options: bytes = b"") -> str:
    """``hexStringIdentifier``: three SHA-256 in hex, of the text, the options and the dictionary of weights."""
    digest = hashlib.sha256()
    for path in sorted(weights):
        digest.update(path.encode() + b"\0" + weights[path])
    return "_".join((hashlib.sha256(text).hexdigest(), hashlib.sha256(options).hexdigest(), digest.hexdigest())).upper()
