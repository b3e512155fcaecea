"""Read ``.hexane`` packages and single engine programs."""

from __future__ import annotations

import zipfile
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from hexane.chips import of_generation
from hexane.errors import FormatError
from hexane.files import archive
from hexane.graph.types import dtype_name
from hexane.image import open_image
from hexane.program.manifest import MANIFEST, MOST_MANIFEST_BYTES, ManifestEntry, read_manifest
from hexane.program.package import WEIGHTS
from hexane.program.program import Program
from hexane.program.segment import ENGINE, HOST, Port, Segment

if TYPE_CHECKING:
    from hexane.graph.ir import Graph
    from hexane.image import Image


def load_program(path: str | Path) -> Program:
    """Read a ``.hexane`` package, or a single ``.hwx`` or ``.anec`` program.

    Raises
    ------
    UsageError : the file cannot be read.
    FormatError : it is no such file, or says what cannot be.
    """
    place = Path(path)
    if place.suffix in (".hwx", ".anec"):
        return _single(place)
    with archive(place, "not a hexane program") as package:
        return _read_package(package, str(place))


def _single(place: Path) -> Program:
    return program_of(open_image(place), place.name)


def program_of(image: Image, name: str) -> Program:
    """An engine program as one that runs on any device."""
    ports = {
        role: tuple(Port(s.label, s.shape, dtype_name(s.dtype)) for s in image.surfaces if s.role == role)
        for role in ("input", "output")
    }
    segment = Segment(ENGINE, name, (), ports["input"], ports["output"], image=image)
    return Program((segment,), ports["input"], ports["output"], of_generation(image.generation).name, "default")


def _read_package(package: zipfile.ZipFile, where: str) -> Program:
    packed = [info.filename for info in package.infolist() if info.compress_type != zipfile.ZIP_STORED]
    if packed:
        raise FormatError(f"its {packed[0]!r} is compressed", where=where, hint="packages are stored as they are")
    if MANIFEST not in package.namelist():
        raise FormatError(f"not a hexane program: it has no {MANIFEST}", where=where)
    if package.getinfo(MANIFEST).file_size > MOST_MANIFEST_BYTES:
        raise FormatError(f"its {MANIFEST} is larger than any", where=where)
    manifest = read_manifest(package.read(MANIFEST), where)
    return Program(
        tuple(_segment(package, entry, f"{where}: segment {i}") for i, entry in enumerate(manifest.segments)),
        manifest.inputs,
        manifest.outputs,
        manifest.chip,
        manifest.dialect,
        states=manifest.states,
        state_results=manifest.state_results,
    )


def _segment(package: zipfile.ZipFile, entry: ManifestEntry, where: str) -> Segment:
    from hexane.formats.mil import parse_mil

    data = _part(package, entry.file, where)
    image = graph = None
    if entry.kind == HOST:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"{entry.file} is not UTF-8 text", offset=error.start, where=where) from None
        graph = parse_mil(text, weights={WEIGHTS: _part(package, entry.weights, where)})
        _check_graph(entry, graph, where)
    else:
        image = open_image(data)
        _check_image(entry, image, where)
    return Segment(
        entry.kind,
        entry.reason,
        entry.ops,
        entry.inputs,
        entry.outputs,
        image=image,
        graph=graph,
        reasons=entry.reasons,
        evidence=entry.evidence,
        codes=entry.codes,
        macs=entry.macs,
    )


def _part(package: zipfile.ZipFile, name: str, where: str) -> bytes:
    if name not in package.namelist():
        raise FormatError(f"the package has no {name!r}", where=where)
    return package.read(name)


def _check_graph(entry: ManifestEntry, graph: Graph, where: str) -> None:
    """Ports of a host part are its graph's inputs and outputs."""
    for role, ports, values in (
        ("input", entry.inputs, graph.main.inputs),
        ("output", entry.outputs, graph.main.outputs),
    ):
        shapes = {value.name: value.shape for value in values}
        for port in ports:
            if shapes.get(port.name) != port.shape:
                raise FormatError(f"its {role} {port.name!r} {list(port.shape)} is none of its graph", where=where)


def _check_image(entry: ManifestEntry, image: Image, where: str) -> None:
    """Ports of an engine segment are surfaces of its image, with as many elements."""
    sizes = {(s.role, s.label): prod(s.shape) for s in image.surfaces}
    for role, ports in (("input", entry.inputs), ("output", entry.outputs)):
        for port in ports:
            label = port.name if role == "input" else port.name.removesuffix("@output")
            if sizes.get((role, label)) != prod(port.shape):
                raise FormatError(
                    f"its {role} {port.name!r} {list(port.shape)} is no surface of its image", where=where
                )
