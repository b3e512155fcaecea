"""The page of an evaluation: figures of every chip and format, the samples that changed, the spread of every layer."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from hexane.errors import UsageError
from hexane.files import write_whole
from hexane.report.page import _data_uri, render
from hexane.session.pictures import layout_of
from hexane.studies.evaluation import Assessment
from hexane.studies.evaluation.data import Data

MOST_SHOWN = 24


def write_page(evaluation: Assessment, path: Path) -> None:
    """Write an evaluation as one self-contained file. Needs jinja2 (extra ``report``): UnsupportedError without."""
    indices = sorted({sample["index"] for row in evaluation.rows for sample in row.worst[:MOST_SHOWN]})
    pictures = {} if evaluation.samples is None else _pictures(evaluation.samples, indices)
    text = render("evaluate.html", found=evaluation, pictures=pictures, most=MOST_SHOWN)
    write_whole(path, text.encode())


def _pictures(data: Data, indices: list[int]) -> dict[int, str]:
    """Samples as PNG, by index, where an input is a picture and Pillow is there."""
    try:
        from PIL import Image
    except ImportError:
        return {}
    for port in data.ports:
        try:
            axes, channels, height, width = layout_of(port)
        except UsageError:
            continue
        pictures = {}
        for index, array in zip(indices, data.take(np.array(indices, np.int64)).inputs[port.name] if indices else ()):
            pixels = np.asarray(array, np.float32)
            shape = (channels, height, width) if axes == "CHW" else (height, width, channels)
            pixels = pixels.reshape(shape)
            pixels = pixels.transpose(1, 2, 0) if axes == "CHW" else pixels
            low, high = float(np.nanmin(pixels)), float(np.nanmax(pixels))
            grey = np.clip(255 * (pixels - low) / ((high - low) or 1.0), 0, 255).astype(np.uint8)
            out = io.BytesIO()
            Image.fromarray(grey[..., 0] if channels == 1 else grey[..., :3]).save(out, "PNG")
            pictures[index] = _data_uri(out.getvalue())
        return pictures
    return {}
