"""Models that were compiled before ML programs: ``model.espresso.net``, ``.shape`` and ``.weights`` in a ``.mlmodelc``.

What is known: both ``.net`` and ``.shape`` are JSON, or the same compressed by LZFSE; ``layers`` have a ``name``, a
``type``, and names of what they take (``bottom``) and give (``top``); ``layer_shapes`` has n, k, h and w of each
(freedomtan, coreml_to_ane_hwx). No source says what a layer's numbers and its weights mean, so hexane reads none.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from hexane.counts import counted
from hexane.files import plain_errors

NET, SHAPE, WEIGHTS = (f"model.espresso.{part}" for part in ("net", "shape", "weights"))
MOST_BYTES = 64 << 20
MOST_NAMED = 8


def described(folder: Path) -> str | None:
    """Contents of the Espresso network of a ``.mlmodelc`` folder, in one line; None where there is none.

    Raises
    ------
    FormatError : a file that cannot be read.
    """
    if not (folder / NET).is_file():
        return None
    net, shapes = _json(folder / NET), _json(folder / SHAPE)
    layers = net.get("layers") if isinstance(net, dict) else None
    if not isinstance(layers, list):
        return f"{NET} is no JSON with layers (compressed by LZFSE, or damaged)"
    rows = [row for row in layers if isinstance(row, dict)]
    kinds = Counter(str(row.get("type")) for row in rows).most_common()
    more = f" and {len(kinds) - MOST_NAMED} other kinds" if len(kinds) > MOST_NAMED else ""
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds[:MOST_NAMED])
    takes = {name for row in rows for name in _names(row.get("bottom"))}
    gives = {name for row in rows for name in _names(row.get("top"))}
    ends = [f"{word} {', '.join(_shape(shapes, name) for name in sorted(names)) or 'none'}"
            for word, names in (("takes", takes - gives), ("gives", gives - takes))]  # fmt: skip
    weights = folder / WEIGHTS
    size = f", {weights.stat().st_size:,} bytes of weights" if weights.is_file() else ""
    return f"{counted(len(rows), 'layer')} ({counts}{more}), {'; '.join(ends)}{size}"


def _json(file: Path) -> Any:
    if not file.is_file():
        return None
    with plain_errors(file, "cannot be read"), file.open("rb") as stream:
        data = stream.read(MOST_BYTES)
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _names(text: Any) -> list[str]:
    return [name for name in text.split(",") if name] if isinstance(text, str) else []


def _shape(shapes: Any, name: str) -> str:
    """A blob's name with its extents n, k, h, w, where they are told."""
    rows = shapes.get("layer_shapes") if isinstance(shapes, dict) else None
    row = rows.get(name) if isinstance(rows, dict) else None
    if not isinstance(row, dict):
        return name
    return f"{name} [{', '.join(str(row.get(axis, 1)) for axis in 'nkhw')}]"
