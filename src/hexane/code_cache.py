"""Folders of compiled kernels on disk: those that are read, the one that is written.

``HEXANE_CACHE`` names a folder (``NUMBA_CACHE_DIR`` does too); otherwise it is ``__pycache__`` beside the sources. A
folder that this user cannot write to is read all the same: made while an image is built, or by the owner of a shared
installation. What is compiled then goes to the user's own folder, if there is one. Code is found by its sources'
digest, the versions of its compilers, its signature and the processor, never by a date.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

SUFFIX = ".nbc"
VARIABLES = ("HEXANE_CACHE", "NUMBA_CACHE_DIR")


def named_by_user() -> Path | None:
    """The folder of the environment, if one is set."""
    return next((Path(os.environ[name]) for name in VARIABLES if os.environ.get(name)), None)


def own_folder() -> Path | None:
    """This user's folder for caches, by the custom of the system; None for a user without a home."""
    home = os.path.expanduser("~")
    if home == "~" or not os.path.isdir(home):
        return None
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    elif sys.platform == "darwin":
        base = os.path.join(home, "Library", "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    return Path(base, "hexane")


def folders(sources: Path) -> list[Path]:
    """The folders for code of sources, first the one that is preferred."""
    first = named_by_user() or sources / "__pycache__"
    own = own_folder()
    return [first] if own is None or can_write(first) else [first, own]


def can_write(folder: Path) -> bool:
    """True where files can be written to a folder, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def is_trusted(folder: Path, sources: Path) -> bool:
    """True where nobody else can put code into a folder: whoever can write to it, or owns it, runs what they like here.

    Root, this user and the owner of the sources can do that anyway. Where nothing is known of owners, it is trusted.
    """
    if not hasattr(os, "geteuid"):
        return True
    try:
        place, source = folder.stat(), sources.stat()
    except OSError:
        return False
    open_to_all = place.st_mode & 0o002 and not source.st_mode & 0o002
    return not open_to_all and place.st_uid in (0, os.geteuid(), source.st_uid)


@cache
def digest_of(sources: Path) -> str:
    """Of all source files in a folder: compiled functions hold what they call, and numbers from their neighbours."""
    digest = sha256()
    for source in sorted(sources.glob("*.py")):
        content = source.read_bytes()
        digest.update(f"{source.name} {len(content)} ".encode() + content)
    return digest.hexdigest()[:16]


def name_of(source: Path, function: str) -> str:
    """Prefix of files with code of a function: its package's folder, its file, its name."""
    return f"{source.parent.name}.{source.stem}.{function}"


def readable(sources: Path) -> list[Path]:
    """The folders whose code for these sources is run."""
    return [folder for folder in folders(sources) if is_trusted(folder, sources)]


def writable(sources: Path) -> Path | None:
    """The folder that new code for these sources goes to; None where there is none."""
    return next(filter(can_write, folders(sources)), None)


def entries(function: str, sources: Path) -> list[Path]:
    """The files with code of a function (``name_of``) of the sources as they are, for any signature and processor."""
    pattern = f"{function}.{digest_of(sources)}.*{SUFFIX}"
    return [path for folder in readable(sources) for path in folder.glob(pattern)]


def stale(function: str, sources: Path, folder: Path) -> list[Path]:
    """The files that other sources left of a function in a folder."""
    current = f"{function}.{digest_of(sources)}."
    return [path for path in folder.glob(f"{function}.*{SUFFIX}") if not path.name.startswith(current)]
