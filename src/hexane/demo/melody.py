"""A melody: synthesising it, and reading the notes again from the maps of a note detector."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np

from hexane.report.figures import figure as new_figure

RATE = 22050
SAMPLES = 43844
LOWEST = 21
"""MIDI number of the detector's first row (A0)."""
FRAME_S = 256 / RATE
TUNE = ((60, 0.05, 0.35), (64, 0.42, 0.35), (67, 0.79, 0.35), (72, 1.16, 0.70), (48, 1.16, 0.70))
"""(MIDI pitch, start, length in seconds): C major upwards, and a bass note under the last."""
ONSET, HOLD, LEAST_FRAMES = 0.5, 0.3, 10
"""The detector's own thresholds, and the shortest note that counts (about 0.12 s)."""
NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")


@dataclass(frozen=True)
class Note:
    """A MIDI pitch with start and end in seconds."""

    pitch: int
    start: float
    end: float

    @property
    def name(self) -> str:
        return f"{NAMES[self.pitch % 12]}{self.pitch // 12 - 1}"


def wanted() -> list[Note]:
    """The notes of the melody."""
    return [Note(pitch, start, start + length) for pitch, start, length in TUNE]


def synthesise() -> np.ndarray:
    """The melody as (1, 43844, 1) float32: six partials per note, plucked."""
    time = np.arange(SAMPLES) / RATE
    sound = np.zeros(SAMPLES)
    for note in wanted():
        local = time - note.start
        inside = (local >= 0) & (local < note.end - note.start)
        envelope = np.where(inside, np.minimum(local / 0.01, 1) * np.exp(-2.5 * np.maximum(local, 0)), 0)
        envelope *= np.clip((note.end - note.start - local) / 0.03, 0, 1)
        pitch = 440 * 2 ** ((note.pitch - 69) / 12)
        for partial in range(1, 7):
            sound += envelope * 0.6**partial * np.sin(2 * np.pi * pitch * partial * local)
    return (0.8 * sound / np.abs(sound).max()).astype(np.float32).reshape(1, SAMPLES, 1)


def notes_in(sounding: np.ndarray, onsets: np.ndarray) -> list[Note]:
    """Notes from the maps (frames, 88) of held notes and of their beginnings, in order of time and pitch."""
    notes = []
    frames = sounding.shape[0]
    for row in range(sounding.shape[1]):
        track = onsets[:, row]
        peaks = [
            t for t in range(1, frames - 1) if track[t] > ONSET and track[t] >= track[t - 1] and track[t] > track[t + 1]
        ]
        for t in peaks:
            end = t
            while end < frames and sounding[end, row] > HOLD and (end == t or end not in peaks):
                end += 1
            if end - t >= LEAST_FRAMES:
                notes.append(Note(row + LOWEST, t * FRAME_S, end * FRAME_S))
    return sorted(notes, key=lambda note: (note.start, note.pitch))


def matched(notes: list[Note], others: list[Note], tolerance: float = 0.08) -> int:
    """Number of the others that have a note of the same pitch that begins at the same time."""
    return sum(any(n.pitch == o.pitch and abs(n.start - o.start) <= tolerance for n in notes) for o in others)


def same(notes: list[Note], others: list[Note]) -> bool:
    """True for as many notes of the same pitches that begin within a frame and a half of the others."""
    return len(notes) == len(others) == matched(notes, others, FRAME_S * 1.5)


def roll(sounding: np.ndarray, notes: list[Note]) -> bytes:
    """The map of held notes with the notes that were found, as PNG."""
    figure = new_figure(7.2, 4.2)
    axes = figure.subplots()
    extent = (0, sounding.shape[0] * FRAME_S, LOWEST - 0.5, LOWEST + sounding.shape[1] - 0.5)
    axes.imshow(
        np.clip(sounding.astype(np.float32).T, 0, 1), origin="lower", aspect="auto", cmap="Blues", extent=extent, vmin=0
    )
    for note in notes:
        axes.plot([note.start, note.end], [note.pitch, note.pitch], color="#c2410c", linewidth=3)
        axes.text(note.start, note.pitch + 1.2, note.name, color="#c2410c", fontsize=10)
    low, high = min(n.pitch for n in wanted()) - 8, max(n.pitch for n in wanted()) + 14
    axes.set(xlabel="seconds", ylabel="MIDI pitch", ylim=(low, high))
    axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
