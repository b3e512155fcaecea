"""Write ``.hexane`` packages (a zip of a manifest, engine images and host parts) and single engine programs."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexane.errors import UsageError
from hexane.files import whole_file
from hexane.program.anec import save_anec
from hexane.program.manifest import FORMAT, MANIFEST
from hexane.program.segment import ENGINE, Port, Segment

if TYPE_CHECKING:
    from hexane.graph.ir import Graph
    from hexane.program.program import Program

WEIGHTS = "@model_path/weights/weight.bin"
STAMP = (1980, 1, 1, 0, 0, 0)  # the same bytes for the same program


ENDINGS = (".hwx", ".anec", ".hexane")


def require_ending(path: Path) -> None:
    """Refuse, before the work begins, a file name that says no format of a program."""
    if path.suffix not in ENDINGS:
        raise UsageError(
            "the name of a program ends in .hwx or .anec (one engine program) or .hexane (a package)",
            where=str(path),
            hint=f"for example {path.with_suffix('.hexane').name}" if path.name else None,
        )


def save(program: Program, path: Path, *, anec_header: int | None = None) -> None:
    """Write a program; the suffix names the format, ``anec_header`` the size of the header of an ``.anec`` package."""
    require_ending(path)
    suffix = path.suffix
    if anec_header is not None and suffix != ".anec":
        raise UsageError(f"{suffix} has no header of a chosen size", where=str(path), hint="anec_header is for .anec")
    if suffix == ".hexane":
        _write_package(program, path)
    else:
        if len(program.segments) != 1 or program.segments[0].kind != ENGINE:
            raise UsageError(
                f"{suffix} holds one engine program; this one has {len(program.segments)} segments",
                hint="save it as .hexane",
            )
        if suffix == ".anec":
            save_anec(program, path, anec_header)
        else:
            program.images[0].save(path)


def _port(port: Port) -> dict[str, Any]:
    row: dict[str, Any] = {"name": port.name, "shape": list(port.shape), "dtype": port.dtype}
    return {**row, "image": port.image} if port.image else row


def _write_package(program: Program, path: Path) -> None:
    with whole_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        entries = [_write_segment(archive, i, segment) for i, segment in enumerate(program.segments)]
        manifest = {
            "format": FORMAT,
            "chip": program.chip,
            "dialect": program.dialect,
            "inputs": [_port(p) for p in program.inputs],
            "outputs": [_port(p) for p in program.outputs],
            "states": [_port(p) for p in program.states],
            **({"state_results": dict(program.state_results)} if program.state_results else {}),
            "segments": entries,
        }
        _put(archive, MANIFEST, json.dumps(manifest, indent=1).encode())


def _put(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, STAMP), data)


def _write_segment(archive: zipfile.ZipFile, index: int, segment: Segment) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "kind": segment.kind,
        "reason": segment.reason,
        "ops": list(segment.ops),
        "reasons": dict(segment.reasons),
        "evidence": dict(segment.evidence),
        "codes": dict(segment.codes),
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
