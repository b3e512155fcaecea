"""``.mil`` files with their weight file beside them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from hexane.errors import FormatError
from hexane.files import make_folder, read_bytes, write_whole, write_with_weights
from hexane.formats.mil.printer import WEIGHT_PATH, WeightCollector, to_text
from hexane.formats.mil.reader import parse_mil
from hexane.formats.mutable import mutable_files
from hexane.formats.weight_files import file_name
from hexane.graph.ir import Graph

SIZE_LIMIT = 512 << 20
FOLDER = "@model_path/weights/"


def load(path: str | Path, *, function: str | None = None, weights: Mapping[str, Any] | None = None) -> Graph:
    """A graph from a ``.mil`` file; ``@model_path`` is the folder of the file, ``weights`` comes first."""
    path = Path(path)
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise FormatError(
                f"{path.stat().st_size} bytes of text", where=str(path), hint=f"the limit is {SIZE_LIMIT}"
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise FormatError("is no UTF-8 text", offset=error.start, where=str(path)) from None
    graph = parse_mil(text, weights, name=path.name, folder=path.parent)
    if function is not None:
        graph.entry = function
        _ = graph.main
    return graph


def save(graph: Graph, path: str | Path) -> None:
    """Write ``path`` and, for constants of 10 elements and more, a weight file in ``weights/`` beside it.

    A file called ``model.mil`` gets ``weights/weight.bin`` as in a compiled model, another ``NAME.mil`` gets
    ``weights/NAME.bin``; mutable constants stand in files of their own (``hexane.formats.mutable``). Files appear whole
    or not at all, and the text never stands beside weights of another one, whenever the process ends: where such a file
    is there with other bytes, the new one has a digest in its name, the text follows, and what it no longer names goes
    last. Mutable files, whose values are no text's own, are written first, under their names.
    """
    path = Path(path)
    stem = Path(WEIGHT_PATH).stem if path.stem == "model" else path.stem
    others = mutable_files(graph)
    collector = WeightCollector(f"{FOLDER}{stem}.bin", tuple(others))
    text = to_text(graph, weights=collector)
    plain = target = path.parent / "weights" / f"{stem}.bin"
    if len(collector.writer):
        digest = _digest(collector.writer.parts())
        if plain.exists() and _digest([read_bytes(plain)]) != digest:
            target = plain.with_name(f"{stem}-{digest}.bin")
            collector = WeightCollector(f"{FOLDER}{target.name}", tuple(others))
            text = to_text(graph, weights=collector)
    weights = collector.writer.parts() if len(collector.writer) else None
    for name, data in others.items():
        file = path.parent / "weights" / file_name(name)
        if name != f"{FOLDER}{file.name}" or file == target:
            raise FormatError(f"the mutable weights stand in {name!r}", hint=f"a file of their own in {FOLDER}")
        make_folder(file.parent)
        write_whole(file, [data])
    write_with_weights(path, text.encode("utf-8"), target, weights, _named_weights(path, stem))


def _digest(parts: Iterable[bytes]) -> str:
    digest = sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


def _named_weights(path: Path, stem: str) -> set[Path]:
    """Weight files that an earlier ``save`` made for the text of this name, and that the text names."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return set()
    names = re.findall(rf"{re.escape(FOLDER)}({re.escape(stem)}(?:-[0-9a-f]{{16}})?\.bin)\"", text)
    return {path.parent / "weights" / name for name in names}
