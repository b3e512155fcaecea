"""Engine programs on the command line: ``.hwx`` and ``.anec`` files, and the segments of a ``.hexane`` package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hexane.counts import counted
from hexane.errors import UsageError

if TYPE_CHECKING:
    from hexane.image import Image
    from hexane.program import Program

FILE_HELP = "An engine program: .hwx, .anec, or a segment of a .hexane package."
SegmentNumber = Annotated[
    int | None,
    typer.Option("--segment", metavar="N", help="Of a .hexane package: which segment; `hexane info` lists them."),
]


def package_of(file: Path) -> Program | None:
    """The package that a file is, None for a file that is none."""
    from hexane.program.load import load_program

    try:
        with file.open("rb") as stream:
            is_archive = stream.read(4) == b"PK\x03\x04"
    except OSError:  # said better where the file is read
        return None
    return load_program(file) if is_archive else None


def engine_program(file: Path, segment: int | None = None, *, lenient: bool = False) -> Image:
    """The engine program of a file.

    Raises
    ------
    UsageError : a package of several engine segments where none is chosen, a segment that is none of the engine's, or
        a segment of a file that is no package.
    """
    from hexane.image.files import open_image

    package = package_of(file)
    if package is None:
        if segment is not None:
            raise UsageError(f"{file} is no .hexane package, it has no segments", hint="leave --segment out")
        return open_image(file, lenient=lenient)
    on_engine = [i for i, part in enumerate(package.segments) if part.image is not None]
    choices = ", ".join(map(str, on_engine))
    if segment is None and len(on_engine) != 1:
        count = f"{counted(len(on_engine), 'segment')} on the engine" if on_engine else "no segment on the engine"
        raise UsageError(f"{file} has {count}", hint=f"--segment {choices}" if on_engine else "`hexane info` lists all")
    number = on_engine[0] if segment is None else segment
    if number not in on_engine:
        raise UsageError(f"{file} has no engine segment {number}", hint=f"one of {choices or 'none'}")
    image = package.segments[number].image
    assert image is not None
    return image
