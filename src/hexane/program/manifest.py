"""The manifest of a ``.hexane`` package: one schema, which a reader holds it against before it believes anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from hexane import chips
from hexane.errors import FormatError, HexaneError
from hexane.graph.types import DTYPES, MAX_ELEMENTS, MAX_RANK
from hexane.image.dialect import CONTAINER_OF, DIALECTS
from hexane.program.segment import ENGINE, HOST, Port

MANIFEST = "manifest.json"
FORMAT = "hexane-program/1"
MOST_MANIFEST_BYTES = 64 << 20


@dataclass(frozen=True)
class ManifestEntry:
    """A segment as the manifest states it; ``weights`` names the host part's constants."""

    kind: str
    file: str
    weights: str
    reason: str
    ops: tuple[str, ...]
    reasons: Mapping[str, str]
    evidence: Mapping[str, str]
    codes: Mapping[str, str]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    macs: int


@dataclass(frozen=True)
class Manifest:
    """The whole of it."""

    chip: str
    dialect: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[Port, ...]
    state_results: Mapping[str, str]
    segments: tuple[ManifestEntry, ...]


class _Wrong(Exception):
    """Places that do not fit the schema, put together on the way up."""

    def __init__(self, what: str, place: str = "") -> None:
        super().__init__(what)
        self.what, self.place = what, place


Read = Callable[[Any], Any]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Wrong(f"is {_shown(value)}, not a text")
    return value


def _name(value: Any) -> str:
    if not _text(value):
        raise _Wrong("is an empty text")
    return value


def _one_of(choices: Any) -> Read:
    def read(value: Any) -> str:
        if _text(value) not in choices:
            raise _Wrong(f"is {_shown(value)}, not one of {', '.join(choices)}")
        return value

    return read


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise _Wrong(f"is {_shown(value)}, not a whole number from 0 on")
    return value


def _chip(value: Any) -> str:
    try:
        chips.get(_text(value))
    except HexaneError as error:
        raise _Wrong(f"is {_shown(value)}: {error.message}") from None
    return value


def _many(read: Read) -> Read:
    def read_all(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _Wrong(f"is {_shown(value)}, not a list")
        return tuple(_at(f"[{i}]", read, item) for i, item in enumerate(value))

    return read_all


def _texts_by_name(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _Wrong(f"is {_shown(value)}, not an object")
    return {key: _at(f"[{_shown(key)}]", _text, item) for key, item in value.items()}


_PORT: dict[str, Read] = {
    "name": _name,
    "shape": _many(lambda value: None if value is None else _count(value)),
    "dtype": _one_of(DTYPES),
    "image": _text,
}


def _port(value: Any) -> Port:
    port = Port(**_object(value, _PORT, {"image": ""}))
    if len(port.shape) > MAX_RANK or prod(extent or 1 for extent in port.shape) > MAX_ELEMENTS:
        raise _Wrong(f"has the shape {_shown(list(port.shape))}, which no tensor has")
    return port


def _ports(value: Any) -> tuple[Port, ...]:
    ports = _many(_port)(value)
    if len({port.name for port in ports}) != len(ports):
        raise _Wrong("names a tensor twice")
    return ports


_ENTRY: dict[str, Read] = {
    "kind": _one_of((ENGINE, HOST)),
    "file": _name,
    "weights": _text,
    "reason": _text,
    "ops": _many(_text),
    "reasons": _texts_by_name,
    "evidence": _texts_by_name,
    "codes": _texts_by_name,
    "inputs": _ports,
    "outputs": _ports,
    "macs": _count,
}
_MANIFEST: dict[str, Read] = {
    "chip": _chip,
    "dialect": _one_of((*DIALECTS, *(name for name in CONTAINER_OF if name not in DIALECTS))),
    "inputs": _ports,
    "outputs": _ports,
    "states": _ports,
    "state_results": _texts_by_name,
    "segments": _many(
        lambda value: ManifestEntry(**_object(value, _ENTRY, {"weights": "", "evidence": {}, "codes": {}}))
    ),
}


def _object(value: Any, fields: Mapping[str, Read], absent: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The fields of an object; ``absent`` holds those that may be missing."""
    if not isinstance(value, dict):
        raise _Wrong(f"is {_shown(value)}, not an object")
    merged = {**(absent or {}), **value}
    missing = [name for name in fields if name not in merged]
    if missing:
        raise _Wrong(f"has no {missing[0]!r}")
    return {name: _at(f".{name}", read, merged[name]) for name, read in fields.items()}


def _at(place: str, read: Read, value: Any) -> Any:
    try:
        return read(value)
    except _Wrong as error:
        raise _Wrong(error.what, place + error.place) from None


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def read_manifest(data: bytes, where: str) -> Manifest:
    """A manifest that fits the schema, and whose segments take only what is there before them.

    Raises `FormatError` with the place in it.
    """
    place = f"{where}: {MANIFEST}"
    try:
        document = json.loads(data)
    except RecursionError:
        raise FormatError("is nested too deeply", where=place) from None
    except ValueError as error:
        raise FormatError(f"is no JSON ({error})", where=place) from None
    stated = document.get("format") if isinstance(document, dict) else None
    if stated != FORMAT:
        raise FormatError(f"states the format {_shown(stated)}, not {FORMAT!r}", where=place)
    try:
        manifest = Manifest(**_object(document, _MANIFEST, {"states": [], "state_results": {}}))
        _check_flow(manifest)
    except _Wrong as error:
        raise FormatError(f"{error.place.lstrip('.') or 'it'} {error.what}", where=place) from None
    return manifest


def _check_flow(manifest: Manifest) -> None:
    ports = {port.name: port for port in (*manifest.inputs, *manifest.states)}
    for i, segment in enumerate(manifest.segments):
        for port in segment.inputs:
            if ports.get(port.name, port).shape != port.shape:
                raise _Wrong(f"takes {port.name!r} in another shape than it has", f"segments[{i}]")
            if port.name not in ports:
                raise _Wrong(f"takes {port.name!r}, which nothing before it makes", f"segments[{i}]")
        ports.update({port.name: port for port in segment.outputs})
    states = {port.name: port.shape for port in manifest.states}
    for name, result in manifest.state_results.items():
        if name not in states or result not in ports or ports[result].shape != states[name]:
            raise _Wrong(f"name {result!r} for the state {name!r}, which does not fit", "state_results")
    for port in manifest.outputs:
        if port.name not in ports or ports[port.name].shape != port.shape:
            raise _Wrong(f"name {port.name!r} {list(port.shape)}, which nothing makes", "outputs")
