"""Options that several commands share, and what their texts mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from hexane.cli.console import print_rows
from hexane.errors import UsageError

Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", help="Shape of an input (x=1x3x224x224) or an extent by name (height=320); repeatable."),
]
Bind = Annotated[
    list[str] | None,
    typer.Option("--bind", metavar="NAME=VALUE", help="Make a constant of an input: sr=16000, or an .npy; repeatable."),
]
OnDevice = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        help="emulator, linux, macos, coreml, virtual[:FLAVOUR] or auto; `hexane doctor` says which are here.",
    ),
]
Dialect = Annotated[
    str, typer.Option("--dialect", help="default, apple (Apple's forms only) or zin4 (compiler v4.2.1).")
]
As = Annotated[
    str | None,
    typer.Option("--as", metavar="WHOSE", help="Whose program: hexane, or apple (what a phone runs, as far as known)."),
]
AsOrBy = Annotated[
    str | None,
    typer.Option("--as", "--by", metavar="WHOSE", help="Who places the ops: hexane, or apple (what a phone runs)."),
]
Baseline = Annotated[
    Path | None,
    typer.Option("--baseline", metavar="OLD.JSON", help="An older JSON answer: exit status 1 if this one is worse."),
]


def _listed(names: list[str] | None) -> list[str] | None:
    """``--without help``: the transformations and what each does, then the end."""
    if names and "help" in names:
        from hexane.lowering.transformations import TRANSFORMATIONS

        print_rows([[name, row.does] for name, row in TRANSFORMATIONS.items()], ["transformation", "what it does"])
        raise typer.Exit
    return names


Without = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="NAME", callback=_listed, is_eager=True,
                 help="Leave out a transformation; repeatable; help: list them (docs/transformations.md)."),
]  # fmt: skip
Accuracy = Annotated[
    str,
    typer.Option("--accuracy", help="exact, or fast: also forms that enlarge an error beyond fp16 rounding."),
]
Function = Annotated[str | None, typer.Option("--function", help="Which function, of a program with several.")]

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Write over a file that is also read.")]


def refuse_overwriting(output: Path | None, read: Iterable[Path | str | None], *, overwrite: bool) -> None:
    """UsageError, before anything is written, where the output is one of the files that are read.

    A text ``NAME=FILE`` stands for its file; links are followed.
    """
    if output is None or overwrite:
        return
    for source in read:
        names = [] if source is None else [str(source), str(source).rpartition("=")[2]]
        if any(_is_same_file(output, Path(name)) for name in names if name):
            raise UsageError(
                "the output is a file that is read", where=str(output), hint="name another one, or give --overwrite"
            )


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.exists() and one.samefile(other)
    except (OSError, ValueError):  # no such file, or a name that none can have
        return False


def parse_shapes(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """``x=1x3x640x640`` and ``height=320`` as shapes by name; UsageError for another text."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, extents = text.rpartition("=")
        if not equals or not name or not re.fullmatch(r"\d+([x,]\d+)*", extents):
            raise UsageError(f"--shape {text!r} is no shape", hint="write NAME=1x3x224x224, or DIMENSION=320")
        shapes[name] = tuple(int(extent) for extent in re.split("[x,]", extents))
    return shapes


def parse_bindings(texts: Iterable[str]) -> dict[str, Any]:
    """``sr=16000``, ``flags=1,0,1``, ``on=true``, ``mask=mask.npy`` as values by input name."""
    from hexane.formats.npy import read_array

    bindings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"--bind {text!r} binds nothing", hint="write NAME=VALUE, such as sr=16000")
        if value.lower().endswith(".npy"):
            bindings[name] = read_array(Path(value))
            continue
        numbers = [_number(part, text) for part in value.split(",")]
        bindings[name] = numbers[0] if len(numbers) == 1 else numbers
    return bindings


def weight_files(texts: Iterable[str]) -> dict[str, Path] | None:
    """``NAME=FILE`` by the name in the network, ``FILE`` by its own name (and, alone, as the only weight file)."""
    files: dict[str, Path] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        file = Path(path if equals else text)
        if not file.is_file():
            raise UsageError("there is no such file", where=str(file))
        files[name if equals else file.name] = file
        if not equals:
            files[""] = file
    return files or None


IDENT_KEYS = ("input_path", "output_path", "target")


def ident_options(texts: Iterable[str], kernel_names: str | None) -> dict[str, Any] | None:
    """``--ident KEY=TEXT`` and ``--kernel-names`` as `hexane.compile` takes them; None where nothing is said."""
    ident: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or key not in (*IDENT_KEYS, "kernel_names"):
            raise UsageError(f"--ident {text!r}", hint=f"KEY=TEXT with {', '.join(IDENT_KEYS)} or kernel_names")
        ident[key] = value
    names = ident.pop("kernel_names", None) if kernel_names is None else kernel_names
    if names is not None:
        ident["kernel_names"] = tuple(name.strip() for name in names.split(",") if name.strip())
    return ident or None


def _number(text: str, option: str) -> int | float | bool:
    lowered = text.strip().lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(lowered)
        except ValueError:
            continue
    raise UsageError(f"--bind {option!r}: {text!r} is no number", hint="a number, numbers with commas, or an .npy file")


def asked_as(choice: str | None, model: Path, dialect: str, *, own: bool) -> str:
    """The dialect that is meant: of a Core ML model Apple's, of others hexane's, unless the user said so.

    ``own``: other options ask for hexane's own program.
    """
    from hexane.codegen.driver import dialect_as
    from hexane.report.job import CORE_ML

    if choice is None and model.suffix.lower() in CORE_ML and dialect == "default" and not own:
        choice = "apple"
    return dialect_as(choice or "", dialect)
