"""Text on a picture: drawing it, and finding it again in the detector's map."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexane.errors import UnsupportedError

SIDE = 320
LINES = (("hexane", 40, (30, 24)), ("tasks, tiles, tables", 23, (34, 92)), ("bit for bit", 30, (96, 140)),
         ("2 097 152 bytes of L2", 20, (40, 204)), ("no engine here", 27, (70, 258)))  # fmt: skip
THRESHOLD, SCORE, GROW, LEAST = 0.3, 0.6, 1.6, 3
"""The detector's own settings: pixels count from 0.3, boxes from a mean of 0.6, and grow by 1.6 area / perimeter."""


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels, right and bottom excluded, with the mean of the detector's map inside."""

    left: int
    top: int
    right: int
    bottom: int
    score: float = 1.0

    def overlap(self, other: Box) -> float:
        """Intersection over union."""
        w = min(self.right, other.right) - max(self.left, other.left)
        h = min(self.bottom, other.bottom) - max(self.top, other.top)
        if w <= 0 or h <= 0:
            return 0.0
        union = self.area + other.area - w * h
        return w * h / union

    @property
    def area(self) -> int:
        return (self.right - self.left) * (self.bottom - self.top)


def _pillow() -> Any:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise UnsupportedError("pictures need pillow", hint="pip install 'hexane[report]'") from None
    return Image, ImageDraw, ImageFont


def draw() -> tuple[np.ndarray, list[Box]]:
    """A picture (320, 320, 3) uint8 with five lines of text, and where they stand."""
    Image, ImageDraw, ImageFont = _pillow()
    down, across = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32) / SIDE
    ground = np.stack([228 - 26 * down, 222 - 14 * across, 206 + 24 * down * across], axis=-1)
    image = Image.fromarray(ground.astype(np.uint8))
    pen = ImageDraw.Draw(image)
    pen.ellipse((222, 16, 300, 94), outline=(176, 150, 120), width=3)
    boxes = []
    for text, size, at in LINES:
        font = ImageFont.load_default(size=size)
        pen.text(at, text, fill=(38, 44, 52), font=font)
        boxes.append(Box(*(int(v) for v in pen.textbbox(at, text, font=font))))
    return np.asarray(image), boxes


def as_input(picture: np.ndarray) -> np.ndarray:
    """The picture as the detector wants it: (1, 3, H, W) float32, blue first, -1 to 1."""
    scaled = picture[:, :, ::-1].astype(np.float32) / 127.5 - 1
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None])


def boxes_in(score_map: np.ndarray) -> list[Box]:
    """Boxes around the connected parts of a probability map (H, W), from top to bottom."""
    boxes = []
    for rows, columns in _parts(score_map > THRESHOLD):
        left, top, right, bottom = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        if min(right - left, bottom - top) < LEAST:
            continue
        score = float(score_map[top:bottom, left:right].astype(np.float64).mean())
        if float(score_map[rows, columns].astype(np.float64).mean()) < SCORE:
            continue
        grow = round((right - left) * (bottom - top) * GROW / (2 * (right - left + bottom - top)))
        height, width = score_map.shape
        boxes.append(
            Box(int(max(0, left - grow)), int(max(0, top - grow)), int(min(width, right + grow)),
                int(min(height, bottom + grow)), score)
        )  # fmt: skip
    return sorted(boxes, key=lambda box: (box.top, box.left))


def _parts(mask: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    """Rows and columns of the 8-connected parts of a mask: labels sink to the lowest of their neighbourhood."""
    size = mask.size
    labels = np.where(mask, np.arange(1, size + 1).reshape(mask.shape), size + 1)
    while True:
        around = np.pad(labels, 1, constant_values=size + 1)
        lowest = labels
        for dy in (0, 1, 2):
            for dx in (0, 1, 2):
                lowest = np.minimum(lowest, around[dy : dy + mask.shape[0], dx : dx + mask.shape[1]])
        lowest = np.where(mask, lowest, size + 1)
        flat = np.append(np.arange(size + 1), size + 1)
        flat[labels[mask]] = lowest[mask]
        lowest = np.where(mask, flat[lowest], size + 1)
        if np.array_equal(lowest, labels):
            break
        labels = lowest
    return [np.nonzero(labels == label) for label in np.unique(labels[mask])]


def matched(boxes: list[Box], expected: list[Box], least: float = 0.5) -> int:
    """Number of the wanted boxes that one of the others overlaps."""
    return sum(any(box.overlap(other) >= least for other in boxes) for box in expected)


def same(boxes: list[Box], expected: list[Box]) -> bool:
    """True for as many boxes that overlap those expected almost wholly."""
    return len(boxes) == len(expected) == matched(boxes, expected, 0.9)


def drawn(picture: np.ndarray, engine: list[Box], other: list[Box] | None = None, scale: int = 3) -> bytes:
    """The picture with the engine's boxes (solid) and float32's (dotted corners) as PNG."""
    Image, ImageDraw, _ = _pillow()
    size = (picture.shape[1] * scale, picture.shape[0] * scale)
    image = Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS)
    pen = ImageDraw.Draw(image)
    for box in engine:
        corners = [v * scale for v in (box.left, box.top, box.right, box.bottom)]
        pen.rectangle(corners, outline=(11, 114, 133), width=4)
    for box in other or ():
        for x in (box.left, box.right):
            for y in (box.top, box.bottom):
                pen.ellipse((x * scale - 5, y * scale - 5, x * scale + 5, y * scale + 5), fill=(194, 65, 12))
    return png(image)


def heat(score_map: np.ndarray, scale: int = 3) -> bytes:
    """A probability map as PNG, dark teal for 1."""
    Image, _, _ = _pillow()
    level = np.clip(np.nan_to_num(score_map.astype(np.float32)), 0, 1)[..., None]
    colours = (1 - level) * np.array([251, 250, 247]) + level * np.array([11, 114, 133])
    image = Image.fromarray(colours.astype(np.uint8))
    return png(image.resize((score_map.shape[1] * scale, score_map.shape[0] * scale), Image.Resampling.BILINEAR))


def png(image: Any) -> bytes:
    """A picture as PNG bytes."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
