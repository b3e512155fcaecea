"""The measured and decoded facts of ``tests/data`` as files: one pack per kind there, one file per fact here.

Packs are unpacked once, into ``tests/data/unpacked/<digest>``. The seven files of Apple's early compiler are no facts
but binaries: hexane compiles them from their networks, and each must have the SHA-256 that is recorded.
"""

from __future__ import annotations

import atexit
import functools
import gzip
import hashlib
import json
import plistlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DATA = Path(__file__).resolve().parent / "data"
UNPACKED = DATA / "unpacked"
PACKS = ("programs.json.gz", "mil.json.gz", "networks.json")
PLAIN = ("numerics", "perf")


@functools.cache
def fact_folder() -> Path:
    """The folder with ``apple/``, ``mil/``, ``plists/``, ``hwx/``, ``numerics/`` and ``perf/``."""
    sources = [
        Path(__file__),
        *(DATA / name for name in PACKS),
        *(p for kind in PLAIN for p in sorted((DATA / kind).iterdir())),
    ]
    digest = hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in sources)).hexdigest()[:16]
    place = UNPACKED / digest
    if place.is_dir():
        return place
    try:
        UNPACKED.mkdir(exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=UNPACKED))
    except OSError:  # a checkout that cannot be written
        work = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, work, ignore_errors=True)
        unpack(work)
        return work
    unpack(work)
    try:
        work.rename(place)
    except OSError:  # another process was first
        shutil.rmtree(work)
    for old in UNPACKED.iterdir():
        if len(old.name) == len(digest) and old != place:
            shutil.rmtree(old, ignore_errors=True)
    return place


def fact_files(pattern: str) -> list[Path]:
    """The files that match a glob, sorted; LookupError where there is none."""
    paths = sorted(fact_folder().glob(pattern))
    if not paths:
        raise LookupError(f"no file of tests/data matches {pattern}")
    return paths


def fact_params(pattern: str) -> list:
    """The same as parameters of a test."""
    return [pytest.param(path, id=path.stem) for path in fact_files(pattern)]


def packed(name: str) -> Any:
    """The content of a pack."""
    data = (DATA / name).read_bytes()
    return json.loads(gzip.decompress(data) if name.endswith(".gz") else data)


def unpack(target: Path) -> None:
    for place, record in packed("programs.json.gz").items():
        for task in record["tasks"]:
            words = task["words"]
            task["words"] = [words[i : i + 8] for i in range(0, len(words), 8)]
        _write(target / "apple" / f"{place}.json", json.dumps(record).encode())
    mil = packed("mil.json.gz")
    _write(target / "mil" / "index.json", json.dumps(mil["records"]).encode())
    for name, text in mil["texts"].items():
        _write(target / "mil" / name, text.encode())
    networks = packed("networks.json")
    for place, content in networks["weights"].items():
        _write(target / place, weight_bytes(content))
    for place, content in networks["networks"].items():
        _write(target / f"{place}.plist", plistlib.dumps(content, sort_keys=False))
    for kind in PLAIN:
        shutil.copytree(DATA / kind, target / kind)
    for name, image in networks["images"].items():
        _write(target / "hwx" / f"{name}.hwx", image_bytes(target / "hwx" / f"{name}.plist", image))


def weight_bytes(content: dict[str, Any]) -> bytes:
    """A weight file from what it holds: a value again and again, numbers in a row, or 32-bit words."""
    if "words" in content:
        return np.array([int(word, 16) for word in content["words"]], "<u4").tobytes()
    start, step, count = content["start"], content["step"], content["count"]
    return (start + step * np.arange(count)).astype(np.dtype(content["dtype"]).newbyteorder("<")).tobytes()


def image_bytes(network: Path, image: dict[str, Any]) -> bytes:
    """A file of the early compiler anew, from its network and what it says of the call that wrote it."""
    import hexane

    weights = {path: bytes(size) for path, size in image["zeros"].items()}
    graph = hexane.load(network, weights=weights or None)
    data = hexane.compile(graph, dialect="zin4", ident=image["ident"]).images[0].to_bytes()
    if hashlib.sha256(data).hexdigest() != image["sha256"]:
        raise AssertionError(
            f"{network.stem}.hwx: hexane does not give Apple's bytes; see docs/reference/engine-h13.md 2"
        )
    return data


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
