"""``.hexane`` packages: a zip of a manifest, engine images and host parts; and single engine programs as files."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexane.codegen.program import ENGINE, HOST, Port, Program, Segment
from hexane.errors import FormatError, UsageError

if TYPE_CHECKING:
    from hexane.graph.ir import Graph

MANIFEST = "manifest.json"
FORMAT = "hexane-program/1"
WEIGHTS = "@model_path/weights/weight.bin"
STAMP = (1980, 1, 1, 0, 0, 0)  # the same bytes for the same program
MOST_BYTES = 8 << 30


def save(program: Program, path: Path) -> None:
    """Write a program; the suffix names the format."""
    suffix = path.suffix
    if suffix == ".hexane":
        _write_package(program, path)
    elif suffix in (".hwx", ".anec"):
        if len(program.segments) != 1 or program.segments[0].kind != ENGINE:
            raise UsageError(
                f"{suffix} holds one engine program; this one has {len(program.segments)} segments",
                hint="save it as .hexane",
            )
        program.images[0].save(path)
    else:
        raise UsageError(f"no program is saved as {suffix!r}", hint=".hwx, .anec or .hexane")


def _port(port: Port) -> dict[str, Any]:
    return {"name": port.name, "shape": list(port.shape), "dtype": port.dtype}


def _write_package(program: Program, path: Path) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent or Path("."), prefix=f".{path.name}.")
    os.close(handle)
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            entries = []
            for i, segment in enumerate(program.segments):
                entries.append(_write_segment(archive, i, segment))
            manifest = {
                "format": FORMAT,
                "chip": program.chip,
                "dialect": program.dialect,
                "inputs": [_port(p) for p in program.inputs],
                "outputs": [_port(p) for p in program.outputs],
                "segments": entries,
            }
            _put(archive, MANIFEST, json.dumps(manifest, indent=1).encode())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _put(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, STAMP), data)


def _write_segment(archive: zipfile.ZipFile, index: int, segment: Segment) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "kind": segment.kind,
        "reason": segment.reason,
        "ops": list(segment.ops),
        "reasons": dict(segment.reasons),
        "evidence": dict(segment.evidence),
        "inputs": [_port(p) for p in segment.inputs],
        "outputs": [_port(p) for p in segment.outputs],
        "macs": segment.macs,
    }
    if segment.image is not None:
        entry["file"] = f"segment{index}.hwx"
        _put(archive, entry["file"], segment.image.to_bytes())
        return entry
    assert segment.graph is not None
    text, weights = mil_of(segment.graph)
    entry["file"], entry["weights"] = f"segment{index}.mil", f"segment{index}.weights"
    _put(archive, entry["file"], text.encode())
    _put(archive, entry["weights"], weights)
    return entry


def mil_of(graph: Graph) -> tuple[str, bytes]:
    """A graph as MIL text and the bytes of its weight file."""
    from hexane.formats.mil import WeightCollector, to_text

    weights = WeightCollector(WEIGHTS)
    return to_text(graph, weights=weights), weights.writer.to_bytes()


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
    from hexane.image.files import open_image

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
    return tuple(Port(str(r["name"]), tuple(int(v) for v in r["shape"]), str(r["dtype"])) for r in rows)


def _read_package(archive: zipfile.ZipFile, where: str) -> Program:
    from hexane.formats.mil import parse_mil
    from hexane.image.files import open_image

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
    )
