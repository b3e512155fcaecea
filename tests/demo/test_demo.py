"""The demonstration's own parts, its honest way without networks, and (with the networks) what it finds."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hexane.demo import melody, text
from report.networks import command

MODELS = Path(__file__).resolve().parents[2] / "models"


def test_boxes_of_a_map() -> None:
    found = np.zeros((64, 96), np.float32)
    found[10:20, 8:50] = 0.9
    found[40:46, 30:80] = 0.8
    found[60:62, 0:2] = 0.9  # too small
    found[30:36, 5:15] = 0.4  # not sure enough
    first, second = text.boxes_in(found)
    assert first.overlap(text.Box(8, 10, 50, 20)) > 0.3 and first.left < 8 and first.bottom > 20
    assert second.top < 40 and second.right > 80
    assert text.boxes_in(np.zeros((8, 8), np.float32)) == []


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(pytest.importorskip("PIL.Image").open(io.BytesIO(data)))


def test_boxes_are_drawn_where_they_are_and_dots_around_their_corners() -> None:
    picture = np.full((40, 60, 3), 200, np.uint8)
    image = pixels(text.drawn(picture, [text.Box(10, 8, 50, 20)], [text.Box(5, 25, 40, 35)]))
    assert image.shape == (120, 180, 3) and (image[2, 2] == 200).all()
    rows, columns = np.nonzero((image == (11, 114, 133)).all(-1))
    assert (columns.min(), rows.min(), columns.max(), rows.max()) == (30, 24, 150, 60)
    rows, columns = np.nonzero((image == (194, 65, 12)).all(-1))
    for x, y in ((15, 75), (120, 75), (15, 105), (120, 105)):
        near = (abs(columns - x) < 10) & (abs(rows - y) < 10)
        assert near.sum() > 50 and columns[near].mean() == x and rows[near].mean() == y


def test_a_map_is_dark_where_it_is_sure() -> None:
    image = pixels(text.heat(np.float32([[0, 1], [np.nan, 7]])))
    assert image.shape == (6, 6, 3)
    assert image[[0, 0, 5, 5], [0, 5, 0, 5]].tolist() == [[251, 250, 247], [11, 114, 133]] * 2


def test_parts_touch_by_their_corners_and_may_wind() -> None:
    mask = np.zeros((9, 9), bool)
    mask[0, :] = mask[:, 8] = mask[8, :] = mask[2:9, 0] = mask[2, 0:7] = True
    mask[4, 4] = mask[5, 5] = True
    assert sorted(rows.size for rows, _ in text._parts(mask)) == [2, int(mask.sum()) - 2]


def test_notes_of_a_map() -> None:
    held, onsets = np.zeros((172, 88)), np.zeros((172, 88))
    held[20:60, 39] = 0.8
    onsets[20, 39] = 0.9
    held[70:75, 50] = 0.8  # too short
    onsets[70, 50] = 0.9
    (note,) = melody.notes_in(held, onsets)
    assert note.name == "C4" and abs(note.start - 20 * melody.FRAME_S) < 1e-9
    assert melody.matched([note], [note]) == 1


def test_when_two_lists_of_notes_or_boxes_are_the_same() -> None:
    """As many on both sides, each of them met; a frame later or one pixel more is the same."""
    notes = [melody.Note(60, 0.5, 1.0), melody.Note(64, 1.0, 1.5)]
    later, higher = replace(notes[1], start=1.0 + melody.FRAME_S), replace(notes[1], pitch=65)
    boxes = [text.Box(0, 0, 100, 20), text.Box(0, 40, 100, 60)]
    wider, half = replace(boxes[1], right=101), replace(boxes[1], right=50)
    for same, both, alike, other in ((melody.same, notes, later, higher), (text.same, boxes, wider, half)):
        assert same(both, both) and same([both[0], alike], both) and same([], [])
        assert not same([both[0], other], both) and not same(both[:1], both) and not same(both, both[:1])
        assert not same([], both) and not same([*both, other], both) and not same([both[0]] * 2, both)


def test_the_melody_has_its_pitches() -> None:
    sound = melody.synthesise()[0, :, 0]
    for note in melody.wanted()[:3]:
        part = sound[int((note.start + 0.05) * melody.RATE) : int((note.end - 0.05) * melody.RATE)]
        spectrum = np.abs(np.fft.rfft(part * np.hanning(part.size)))
        peak = np.argmax(spectrum) * melody.RATE / part.size
        assert abs(peak - 440 * 2 ** ((note.pitch - 69) / 12)) < 5


def test_without_the_networks_it_says_so_and_runs_its_own(tmp_path: Path) -> None:
    arguments = ("demo", "-o", tmp_path / "demo", "--models", tmp_path / "none", "--no-fetch")
    printed = command(*arguments)
    assert "The real networks are missing" in printed and "not a trained network" in printed
    data = json.loads((tmp_path / "demo" / "edges" / "report.json").read_text())
    assert data["run"]["agreement"][0]["cosine"] > 0.999
    assert data["placement"]["fits"]
    assert (tmp_path / "demo" / "edges" / "edges.png").stat().st_size


@pytest.mark.slow
@pytest.mark.skipif(not MODELS.is_dir(), reason="the networks are not fetched (make models)")
def test_the_demonstration_finds_what_float32_finds(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = command("demo", "-o", tmp_path / "demo", "--models", MODELS, "--no-fetch", "--json")
    words, notes = found["parts"]
    assert found["missing"] is None
    assert words["agrees"] and len(words["found"]["boxes"]) == len(text.LINES)
    assert notes["agrees"] and {n["name"] for n in notes["found"]["notes"]} >= {"C4", "E4", "G4", "C5", "C3"}
