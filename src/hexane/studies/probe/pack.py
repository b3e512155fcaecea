"""The questions as a folder that a Mac without hexane answers: networks, inputs, and the bits of each hypothesis.

``DIR/run.py`` (a copy of ``runner``) needs Python, NumPy and coremltools; the file that it writes is read by
``hexane probe --read``. Core ML takes networks, so that what is asked is the arithmetic: the tasks are those of Apple's
compiler.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hexane import __version__ as VERSION
from hexane import chips
from hexane.errors import HexaneError, UsageError
from hexane.files import write_whole
from hexane.frontends import networks
from hexane.graph import Graph
from hexane.graph.types import DTYPES
from hexane.studies.probe import runner
from hexane.studies.probe.questions import Question, questions
from hexane.studies.probe.read import combinations, compiled, predicted
from hexane.studies.probe.runner import digest_of, entry_of

SCHEMA = "hexane-conformance/1"
CHIPS = ("M1", "M2", "M3", "M4", "M5")
"""One chip of each generation of Macs."""

OnQuestion = Callable[[int, int], None]


def networks_of(names: Sequence[str]) -> dict[str, Question]:
    """The questions of several chips that are networks, by name."""
    return {q.name: q for name in names for q in questions(name) if not q.is_edited}


def write_pack(folder: Path, names: Sequence[str] = CHIPS, on_question: OnQuestion | None = None) -> dict[str, Any]:
    """Write the folder; returns the content of its ``pack.json``.

    Parameters
    ----------
    folder : a new or empty folder.
    names : chips whose bits are written; a question that none of them has is left out.
    on_question : called with number and count after every network.

    Raises
    ------
    UsageError : the folder holds something, or a chip does not exist.
    """
    targets = [chips.get(name).name for name in names]
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("is not an empty folder", where=str(folder), hint="name a new one")
    selection = networks_of(targets)
    rows: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    bits: dict[str, Any] = {}
    for number, question in enumerate(selection.values()):
        try:
            graph = question.graph()
            for suffix in ("mlpackage", "mil"):
                networks.save(graph, folder / "networks" / f"{question.name}.{suffix}")
        except HexaneError as error:
            left_out[question.name] = error.message
        else:
            rows.append(_row(question, graph, targets, bits))
        if on_question is not None:
            on_question(number + 1, len(selection))
    content = {"chips": targets, "networks": rows, "bits": bits, "left_out": left_out}
    data = {"schema": SCHEMA, "version": VERSION, **content}
    write_whole(folder / "pack.json", (json.dumps(data, indent=1) + "\n").encode())
    shutil.copyfile(runner.__file__, folder / "run.py")
    return data


def _row(question: Question, graph: Graph, names: Sequence[str], bits: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": question.name,
        "kind": question.kind,
        "about": question.about,
        "asks": list(question.asks),
        "digest": question.digest(),
        "inputs": {name: entry_of(array) for name, array in question.inputs().items()},
        "outputs": {value.name: DTYPES[value.dtype].carrier.name for value in graph.main.outputs},
        "expected": {name: _expected(question, name, bits) for name in names},
    }


def _expected(question: Question, chip: str, bits: dict[str, Any]) -> list[dict[str, Any]]:
    """The outputs under every choice of what is asked, by digest, the defaults first and whole in ``bits``."""
    rows: list[dict[str, Any]] = []
    try:
        program = compiled(question, chip)
        for assumed in combinations(question):
            outputs = predicted(question, chip, assumed, program)
            digests = {name: digest_of(array) for name, array in outputs.items()}
            if not rows:
                bits.update({digests[name]: entry_of(array) for name, array in outputs.items()})
            rows.append({"assumed": dict(assumed), "outputs": digests})
    except HexaneError as error:
        return [{"assumed": {}, "outputs": {}, "why": error.message.splitlines()[0]}]
    return rows
