"""Read ``.hexane`` packages and single engine programs."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from hexane.errors import FormatError
from hexane.image import open_image
from hexane.program.package import FORMAT, MANIFEST, WEIGHTS
from hexane.program.program import Program
from hexane.program.segment import ENGINE, HOST, Port, Segment

MOST_BYTES = 8 << 30


def load_program(path: str | Path) -> Program:
    """Read a ``.hexane`` package, or a single ``.hwx`` or ``.anec`` program."""
    place = Path(path)
    if place.suffix in (".hwx", ".anec"):
        return _single(place)
    try:
        with zipfile.ZipFile(place) as archive:
            if sum(info.file_size for info in archive.infolist()) > MOST_BYTES:
                raise FormatError("the package is larger than any program", where=str(place))
            return _read_package(archive, str(place))
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise FormatError(f"not a hexane program: {error}", where=str(place)) from None


def _single(place: Path) -> Program:
    image = open_image(place)
    ports = {
        role: tuple(
            Port(s.label, s.shape, "fp16" if s.dtype == "float16" else "bool") for s in image.surfaces if s.role == role
        )
        for role in ("input", "output")
    }
    segment = Segment(ENGINE, place.name, (), ports["input"], ports["output"], image=image)
    return Program((segment,), ports["input"], ports["output"], "M1", "default")


def _ports(rows: list[dict[str, Any]]) -> tuple[Port, ...]:
    return tuple(
        Port(str(r["name"]), tuple(int(v) for v in r["shape"]), str(r["dtype"]), str(r.get("image", ""))) for r in rows
    )


def _read_package(archive: zipfile.ZipFile, where: str) -> Program:
    from hexane.formats.mil import parse_mil

    manifest = json.loads(archive.read(MANIFEST))
    if manifest.get("format") != FORMAT:
        raise FormatError(f"the package's format is {manifest.get('format')!r}, not {FORMAT!r}", where=where)
    segments = []
    for entry in manifest["segments"]:
        data = archive.read(entry["file"])
        image = graph = None
        if entry["kind"] == HOST:
            graph = parse_mil(data.decode(), weights={WEIGHTS: archive.read(entry["weights"])})
        else:
            image = open_image(data)
        segments.append(
            Segment(
                entry["kind"],
                entry["reason"],
                tuple(entry["ops"]),
                _ports(entry["inputs"]),
                _ports(entry["outputs"]),
                image=image,
                graph=graph,
                reasons=entry["reasons"],
                evidence=entry.get("evidence", {}),
                macs=int(entry["macs"]),
            )
        )
    return Program(
        tuple(segments),
        _ports(manifest["inputs"]),
        _ports(manifest["outputs"]),
        str(manifest["chip"]),
        str(manifest["dialect"]),
        states=_ports(manifest.get("states", [])),
    )
