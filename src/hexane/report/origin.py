"""Origin of an answer: version and digest of hexane, the call, and the digest of the network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import hexane

CHUNK = 1 << 20


def origin(call: Sequence[str], read: Path | None = None) -> dict[str, Any]:
    """``hexane`` (version), ``sources`` (a digest of its Python files), ``call`` (the words of the command line),
    ``file`` and ``sha256`` of the network or program, if one was read.

    Two equal calls give the same. A network of several files has the digest of the file that is named (of a folder:
    of all in it), so weights in files beside an .onnx or .mil are not part of it.
    """
    facts: dict[str, Any] = {"hexane": hexane.__version__, "sources": sources_digest(), "call": list(call)}
    if read is not None:
        facts["file"], facts["sha256"] = str(read), digest_of(read)
    return facts


def digest_of(path: Path) -> str | None:
    """SHA-256 of a file, or of a folder's files with their names in order; None where it cannot be read."""
    try:
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        whole = sha256()
        for file in files:
            if path.is_dir():
                whole.update(f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}\0".encode())
            with file.open("rb") as stream:
                while part := stream.read(CHUNK):
                    whole.update(part)
    except OSError:
        return None
    return whole.hexdigest()


@cache
def sources_digest() -> str:
    """The first 12 digits of the digest of hexane's own Python files: it tells two commits of one version apart."""
    package = Path(hexane.__file__).parent
    whole = sha256()
    for file in sorted(package.rglob("*.py")):
        whole.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    return whole.hexdigest()[:12]
