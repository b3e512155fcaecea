"""``hexane demo``: both networks through the engine, with what they found, checked against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hexane
from hexane.demo import edges, melody, models, text
from hexane.errors import HexaneError, UnsupportedError
from hexane.report.page import Picture, write_report
from hexane.session.network_run import NetworkRun
from hexane.session.run import Progress, run_network

DETECTOR = ("rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer.onnx")
PITCH = ("basic-pitch", "nmp.onnx")


@dataclass(frozen=True)
class Shown:
    """One part of the demonstration: what it found in words, whether float32 found the same, where its report is."""

    name: str
    text: str
    agrees: bool
    report: str
    session: NetworkRun
    found: dict[str, Any]


def demonstrate(
    folder: Path, *, models_folder: Path, fetch: bool, chip: str, progress: Progress
) -> tuple[list[Shown], str | None]:
    """Run every part that can be run and write a report for each below ``folder``.

    The second value says why the real networks are missing, where they are; the small network that comes with hexane
    runs in their place then.
    """
    try:
        paths = [_model(models_folder, *entry, fetch=fetch, progress=progress) for entry in (DETECTOR, PITCH)]
    except HexaneError as error:
        return [_edges(folder / "edges", chip, progress)], error.message
    return [_text(paths[0], folder / "text", chip, progress), _notes(paths[1], folder / "notes", chip, progress)], None


def _model(folder: Path, package: str, name: str, *, fetch: bool, progress: Progress) -> Path:
    path = folder / package / name
    if not path.is_file():
        if not fetch:
            raise UnsupportedError(f"{path} is not there, and fetching is switched off")
        progress.stage(f"fetch {package}")
        try:
            models.fetch(folder, [package])
        except OSError as error:
            raise UnsupportedError(f"{package} cannot be unpacked into {folder}: {error.strerror}") from None
    return path


def _text(model: Path, folder: Path, chip: str, progress: Progress) -> Shown:
    progress.stage("load the text detector")
    picture, lines = text.draw()
    graph = hexane.load(model, shapes={"x": (1, 3, text.SIDE, text.SIDE)})
    name = next(iter(graph.outputs))
    session = run_network(
        graph, {next(iter(graph.inputs)): text.as_input(picture)}, name=model.name, chip=chip, model=model,
        insight=True, notes=("the picture is drawn by the demo; boxes follow the detector's own thresholds",),
        progress=progress,
    )  # fmt: skip
    assert session.wanted is not None
    score, other = (np.asarray(v[name], np.float32)[0, 0] for v in (session.outputs, session.wanted.outputs))
    boxes_seen, expected = text.boxes_in(score), text.boxes_in(other)
    same = text.same(boxes_seen, expected)
    caught = text.matched(boxes_seen, lines, 0.4)
    words = (
        f"{len(boxes_seen)} text boxes found, {caught} of the {len(lines)} lines that were drawn; "
        f"{session.wanted.by} in float32 finds {'the same' if same else len(expected)}"
    )
    pictures = [
        Picture("boxes", "Text found", f"{words}. Frames: the engine; dots: corners by float32.",
                text.drawn(picture, boxes_seen, expected)),
        Picture("map", "The detector's map", "What the last layer of the network gives, from 0 (light) to 1.",
                text.heat(score)),
    ]  # fmt: skip
    boxes = {"boxes": [vars(box) for box in boxes_seen], "expected": [vars(box) for box in expected]}
    return _shown("text detector (rapidocr)", words, same, folder, session, pictures, boxes, progress)


def _notes(model: Path, folder: Path, chip: str, progress: Progress) -> Shown:
    progress.stage("load the note detector")
    graph = hexane.load(model, shapes={"serving_default_input_2:0": (1, melody.SAMPLES, 1)})
    session = run_network(
        graph, {next(iter(graph.inputs)): melody.synthesise()}, name=model.name, chip=chip, model=model, insight=True,
        autoscale=True, progress=progress,
        notes=("the melody is synthesised by the demo; notes follow the detector's own thresholds",),
    )  # fmt: skip
    assert session.wanted is not None
    sounding, onsets = _maps(session.outputs)
    notes_heard, expected = melody.notes_in(sounding, onsets), melody.notes_in(*_maps(session.wanted.outputs))
    same = melody.same(notes_heard, expected)
    tune = melody.wanted()
    words = (
        f"notes found: {' '.join(note.name for note in notes_heard) or 'none'}; "
        f"{melody.matched(notes_heard, tune)} of the {len(tune)} that were played; "
        f"{session.wanted.by} in float32 finds {'the same' if same else len(expected)}"
    )
    pictures = [Picture("notes", "Notes found", f"{words}.", melody.roll(sounding, notes_heard))]
    notes = {
        key: [{"name": n.name, **vars(n)} for n in row] for key, row in (("notes", notes_heard), ("expected", expected))
    }
    return _shown("note detector (basic-pitch)", words, same, folder, session, pictures, notes, progress)


def _maps(outputs: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(held notes, beginnings), each (frames, 88): the file's outputs end in :1 and :2."""
    by_end = {name.rpartition(":")[2]: np.asarray(array, np.float32)[0] for name, array in outputs.items()}
    return by_end["1"], by_end["2"]


def _edges(folder: Path, chip: str, progress: Progress) -> Shown:
    progress.stage("build the edge filter")
    picture, _ = text.draw()
    session = run_network(
        edges.network(), {"picture": edges.as_input(picture)}, name="edges", chip=chip, insight=True,
        notes=(edges.LABEL,), progress=progress,
    )  # fmt: skip
    (row,) = session.agreements
    words = f"edges of the picture, largest error against float32 {row.largest or 0.0:.2g} ({edges.LABEL})"
    brightness = np.asarray(session.outputs["edges"], np.float32)[0, 0]
    pictures = [Picture("edges", "Edges", f"{words}.", text.heat(brightness))]
    return _shown(
        "edge filter", words, (row.cosine or 0.0) > 0.999 and not row.nonfinite, folder, session, pictures, {}, progress
    )


def _shown(
    name: str,
    words: str,
    agrees: bool,
    folder: Path,
    session: NetworkRun,
    pictures: list[Picture],
    figures: dict[str, Any],
    progress: Progress,
) -> Shown:
    progress.stage("write the report")
    write: Callable[..., Any] = write_report
    write(session, folder, title=f"{name[0].upper()}{name[1:]}", pictures=pictures)
    return Shown(name, words, agrees, str(folder / "index.html"), session, figures)
