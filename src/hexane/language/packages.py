"""A decoder as Core ML packages: functions ``decode`` and ``prefill`` over the same weights and state, and an adapter's
constants in a file of their own, which other adapters of the same shapes take the place of.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hexane.errors import UsageError
from hexane.files import make_folder, write_whole
from hexane.formats.mutable import declare_mutable, mutable_constants, mutable_files
from hexane.frontends.networks import load, save
from hexane.graph.functions import joined
from hexane.language.adapters import BESIDE

if TYPE_CHECKING:
    from hexane.graph import Graph
    from hexane.language.decoder import Decoder

DECODE, PREFILL = "decode", "prefill"
FORMS = {".mlpackage": "{}.mlpackage", ".mil": "{}/model.mil"}
"""How a chunk is written: as a package, or as text with weights in a folder of its own, as in a compiled model."""


def chunk_program(decoder: Decoder, number: int, context: int) -> Graph:
    """A chunk as a program of functions ``decode`` (1 row) and, for layers, ``prefill`` (``prefill_rows``); the head
    gives its largest logit and the word. The constants of an adapter beside the base are mutable.
    """
    is_head = decoder.chunks[number].is_head
    rows = {DECODE: 1} if is_head else {DECODE: 1, PREFILL: decoder.prefill_rows}
    forms = {name: replace(decoder.form(n, context), largest_alone=is_head) for name, n in rows.items()}
    graph = joined({name: decoder.graph(number, form) for name, form in forms.items()})
    matrices = decoder.adapter_matrices(number) if decoder.adapter_form == BESIDE else {}
    if matrices:
        declare_mutable(graph, matrices)
    return graph


def save_packages(
    decoder: Decoder, folder: str | os.PathLike[str], context: int, suffix: str = ".mlpackage"
) -> tuple[Path, ...]:
    """Write every chunk for caches of ``context`` positions, named after its layers; the paths, in order."""
    if suffix not in FORMS:
        raise UsageError(f"a decoder cannot be written as {suffix!r}", hint=", ".join(FORMS))
    paths = []
    for number in range(len(decoder.chunks)):
        path = Path(folder) / FORMS[suffix].format(_file_name(decoder, number))
        make_folder(path.parent)
        save(chunk_program(decoder, number, context), path)
        paths.append(path)
    return tuple(paths)


def save_adapter(decoder: Decoder, packages: Sequence[Path], folder: str | os.PathLike[str]) -> tuple[Path | None, ...]:
    """Write a decoder's adapter for packages of another one over the same base: a mutable weight file for each package
    that has mutable constants, None for one that has none. ``hexane.load(package, weights={"adapter.bin": file})``.

    UsageError where its shapes are not those of the packages.
    """
    if decoder.adapter is None or decoder.adapter_form != BESIDE:
        raise UsageError("no adapter beside the base", hint="Decoder.with_adapter(folder, 'beside')")
    if len(packages) != len(decoder.chunks):
        raise UsageError(f"{len(packages)} packages for a decoder of {len(decoder.chunks)} chunks")
    files: list[Path | None] = []
    for number, package in enumerate(packages):
        graph = load(package)
        own = {name: matrix[:, :, None, None] for name, matrix in decoder.adapter_matrices(number).items()}
        missing = sorted(set(mutable_constants(graph)) - set(own))
        if missing:
            raise UsageError(f"the adapter has nothing for {missing[0]!r}", where=str(package))
        path = Path(folder) / f"{_file_name(decoder, number)}.bin"
        for data in mutable_files(graph, own).values():
            make_folder(path.parent)
            write_whole(path, data)
        files.append(path if own else None)
    return tuple(files)


def _file_name(decoder: Decoder, number: int) -> str:
    return decoder.chunks[number].name.replace(" ", "_")
