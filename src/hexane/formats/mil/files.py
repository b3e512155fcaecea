"""``.mil`` files with their weight file beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hexane.errors import FormatError
from hexane.files import write_whole
from hexane.formats.mil.printer import WEIGHT_PATH, WeightCollector, to_text
from hexane.formats.mil.reader import parse_mil
from hexane.graph.ir import Graph

SIZE_LIMIT = 512 << 20


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
    ``weights/NAME.bin``. Files appear whole or not at all.
    """
    path = Path(path)
    name = WEIGHT_PATH if path.stem == "model" else f"@model_path/weights/{path.stem}.bin"
    collector = WeightCollector(name)
    text = to_text(graph, weights=collector)
    if len(collector.writer):
        target = path.parent / name.removeprefix("@model_path/")
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, collector.writer.parts())
    write_whole(path, text.encode("utf-8"))
