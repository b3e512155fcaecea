"""Folders of results: there whole or not at all, and with everything in them that somebody else put there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hexane.errors import UsageError
from hexane.files import as_of, folder_beside, plain_errors, replace_folder, take_back, umask

INDEX = "report.json"
"""Every folder of results has this file: its ``schema`` says that it is one, its ``files`` what belongs to it."""

ALWAYS = frozenset({INDEX, "index.html", "errors.png", "memory.png"})
"""Files of a report that an old version did not list."""

MOST_BYTES = 1 << 30


def written_by_hexane(folder: Path) -> set[str] | None:
    """The names in a folder of results that belong to them; None where the folder holds no results."""
    try:
        index = folder / INDEX
        if index.is_symlink() or index.stat().st_size > MOST_BYTES:
            return None
        data = json.loads(index.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not str(data.get("schema", "")).startswith("hexane-"):
        return None
    listed = data.get("files", [])
    names = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()
    return {name for name in names | ALWAYS if "/" not in name and os.sep not in name and name not in (".", "..")}


def require_replaceable(target: Path) -> None:
    """Refuse a place for a report that is a file, or a folder that holds other things and no report."""
    with plain_errors(target):
        if target.exists() and not target.is_dir():
            raise UsageError("is a file", where=str(target), hint="choose another folder")
        if target.is_dir() and any(target.iterdir()) and written_by_hexane(target) is None:
            raise UsageError("is a folder with other things in it", where=str(target), hint="choose another folder")


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A folder to fill; it takes the place of ``target`` at the end, and nothing is left of it after an error.

    A folder that is there already is replaced only when it is empty or a report. Of an old report only what hexane
    wrote goes; whatever else lies in the folder is in the new one too. Killed at any moment, the process leaves the old
    report or the new one, under its name or (between two renamings, on systems that cannot exchange folders) beside
    it, from where the next call takes it back.
    """
    target = Path(os.path.realpath(target))  # a link is followed
    with plain_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        take_back(target)
        require_replaceable(target)
        new_folder = folder_beside(target, "new")
        try:
            new_folder.chmod(target.stat().st_mode & 0o777 if target.is_dir() else 0o777 & ~umask())
            with as_of(target, new_folder):
                yield new_folder
            if target.is_dir() and any(target.iterdir()):
                _keep_foreign(target, new_folder)
                _replace(target, new_folder)
            else:
                os.replace(new_folder, target)
        except BaseException:
            shutil.rmtree(new_folder, ignore_errors=True)
            raise


def _keep_foreign(old: Path, new_folder: Path) -> None:
    """Give the new folder what others put into the old one: links to the same files, which are not copied."""
    ours = written_by_hexane(old)
    if ours is None:
        raise UsageError("is a folder with other things in it", where=str(old), hint="choose another folder")
    for entry in sorted(old.iterdir()):
        if entry.name in ours:
            continue
        place = new_folder / entry.name
        if os.path.lexists(place):
            raise UsageError(
                f"has a file {entry.name!r} that no report wrote, and the new one has one too",
                where=str(old),
                hint="move it, or choose another folder",
            )
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, place, symlinks=True, copy_function=_link)
        else:
            _link(str(entry), str(place))


def _link(source: str, place: str) -> None:
    try:
        os.link(source, place, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, place, follow_symlinks=False)


def _replace(target: Path, new_folder: Path) -> None:
    """Put the new folder in place of the old one, and remove what hexane wrote into that."""
    old = replace_folder(target, new_folder)
    _rescue(old, target)
    shutil.rmtree(old)


def _rescue(old: Path, target: Path) -> None:
    """Move what others put into the old folder in the last moment."""
    ours = written_by_hexane(old) or set()
    for entry in sorted(old.iterdir()):
        if entry.name not in ours and not os.path.lexists(target / entry.name):
            os.replace(entry, target / entry.name)
