"""An ``.anec`` package with what it cannot hold: the names, order and layout of its surfaces.

Source: docs/reference/engine-h13.md 3 (the package), docs/reference/devices.md 4.2 (who reads which header).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexane.files import read_text, write_whole
from hexane.image import Image
from hexane.image.anec_parts import HEADER_SIZES, TILE_BYTES, AnecPackage
from hexane.image.packages import in_package_order, package_of
from hexane.isa.channels import FIRST_SURFACE

if TYPE_CHECKING:
    from hexane.image import Surface
    from hexane.program.program import Program

READERS = {0x1000: "omarchy's tools, anecc and hexane", 0x800: "eiln's libane (since June 2023) and hexane"}
"""Who reads a package, by the size of its header."""

SCHEMA = "hexane-anec/1"


def save_anec(program: Program, path: Path, header_size: int | None = None) -> None:
    """Write the package, ``PATH.json`` and ``PATH.h``. Inputs and outputs are counted in the network's order."""
    image = program.images[0]
    order = [port.name for port in (*program.inputs, *program.outputs)]
    package = package_of(image, order=order, header_size=header_size or HEADER_SIZES[0])
    surfaces = described_surfaces(in_package_order(image.surfaces, order), package)
    description = {
        "schema": SCHEMA,
        "package": path.name,
        "chip": program.chip,
        "header_bytes": package.header_size,
        "read_by": READERS[package.header_size],
        "surfaces": surfaces,
    }
    write_whole(path, Image(package).rebuild())
    write_whole(path.with_name(path.name + ".json"), (json.dumps(description, indent=1) + "\n").encode())
    write_whole(path.with_name(path.name + ".h"), c_header(path, surfaces).encode())


def described_surfaces(surfaces: Iterable[Surface], package: AnecPackage) -> list[dict[str, Any]]:
    """A row per surface in the order of the package: name, role, index among its role, channel, shape, layout."""
    indices = {"output": count(), "input": count()}
    rows = []
    for channel, surface in enumerate(surfaces, FIRST_SURFACE):
        n, c, h, w, plane, row = package.header.dimensions(channel)
        rows.append(
            {
                "name": surface.name,
                "role": surface.role,
                "index": next(indices[surface.role]),
                "channel": channel,
                "dtype": surface.dtype,
                "shape": [n, c, h, w],
                "plane_bytes": plane,
                "row_bytes": row,
                "bytes": package.header.tiles[channel] * TILE_BYTES,
            }
        )
    return rows


def written_beside(path: Path) -> dict[str, Any]:
    """Facts written beside a package: ``header_bytes``, ``read_by``, ``surfaces`` (rows)."""
    description: dict[str, Any] = json.loads(read_text(path.with_name(path.name + ".json")))
    return description


def described_header(size: int) -> str:
    """One line for a header of ``size`` bytes: who reads the package, and what the others want."""
    others = [f"{reader}: --anec-header {other:#x}" for other, reader in READERS.items() if other != size]
    return f"header of {size:#x} bytes, for {READERS[size]} ({'; '.join(others)})"


def described(row: dict[str, Any]) -> str:
    """One line for a surface."""
    n, c, h, w = row["shape"]
    return (
        f"{row['role']} {row['index']}: {row['name']}, channel {row['channel']}, {n}x{c}x{h}x{w} {row['dtype']}, "
        f"row {row['row_bytes']:#x}, plane {row['plane_bytes']:#x}, {row['bytes']:#x} bytes in tiles of {TILE_BYTES:#x}"
    )


def c_header(path: Path, surfaces: list[dict[str, Any]]) -> str:
    """Indices and sizes as macros: ``PACKAGE_INPUT_NAME``, ``..._BYTES``, ``..._ROW_BYTES``, ``..._PLANE_BYTES``."""
    prefix = _macro(path.name.removesuffix(".anec"))
    guard = f"{prefix}_ANEC_H"
    lines = [
        f"/* Surfaces of {path.name.replace('*/', '')}, in the order of the package. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
    ]
    names: set[str] = set()
    for row in surfaces:
        name = f"{prefix}_{row['role'].upper()}_{_macro(row['name'])}"
        if name in names:
            name = f"{name}_{row['channel']}"
        names.add(name)
        n, c, h, w = row["shape"]
        lines += [
            f"/* {row['role']} {row['index']}, channel {row['channel']}: {n}x{c}x{h}x{w} {row['dtype']} */",
            f"#define {name} {row['index']}",
            f"#define {name}_BYTES {row['bytes']}",
            f"#define {name}_ROW_BYTES {row['row_bytes']}",
            f"#define {name}_PLANE_BYTES {row['plane_bytes']}",
            "",
        ]
    return "\n".join([*lines, "#endif", ""])


def _macro(name: str) -> str:
    """A name as part of a C macro."""
    return re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_") or "NET"
