"""Lines of text for a recogniser (docs/scale.md): words of Python's licence, drawn in the fonts of matplotlib.

The recogniser lies in the wheel of rapidocr-onnxruntime 1.4.4, beside the networks of `make models`.

python lines.py ch_PP-OCRv4_rec_infer.onnx lines.npz
hexane evaluate ch_PP-OCRv4_rec_infer.onnx --shape x=1x3x48x160 --data lines.npz --metric wer
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from characters import text

HEIGHT, WIDTH, COUNT = 48, 160, 2048
FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSerif", "DejaVuSerif-Italic", "DejaVuSansMono",
         "STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic")  # fmt: skip


def lines(count: int, seed: int = 0, longest: int = 14) -> list[str]:
    """Runs of words of at most ``longest`` characters, from places drawn at random."""
    words, rng = [word for word in text().split() if len(word) <= longest], np.random.default_rng(seed)
    picked = []
    for start in rng.integers(0, len(words) - longest, count):
        line = words[start]
        for word in words[start + 1 : start + longest]:
            if len(line) + 1 + len(word) > longest:
                break
            line += f" {word}"
        picked.append(line)
    return picked


def picture(line: str, rng: np.random.Generator) -> np.ndarray:
    """(3, 48, 160) float32 from -1 to 1: the line on a ground of another grey, a little turned, with noise."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    file, size = folder / f"{rng.choice(FONTS)}.ttf", int(rng.integers(24, 37))
    ink, ground = (rng.integers(0, 90), rng.integers(150, 256))[:: rng.choice([1, -1])]
    while (font := ImageFont.truetype(file, size)).getlength(line) > WIDTH - 8:
        size -= 1
    image = Image.new("L", (WIDTH, HEIGHT), int(ground))
    ImageDraw.Draw(image).text((4, HEIGHT // 2), line, int(ink), font, anchor="lm")
    image = image.rotate(rng.uniform(-2, 2), Image.Resampling.BILINEAR, fillcolor=int(ground))
    grey = np.asarray(image, np.float32) + rng.normal(0, rng.uniform(0, 25), (HEIGHT, WIDTH))
    return np.broadcast_to((np.clip(grey, 0, 255) / 127.5 - 1).astype(np.float32), (3, HEIGHT, WIDTH))


def alphabet(network: str) -> list[str]:
    """What the recogniser's classes stand for, from 1 on: its file says so; a space comes last."""
    import onnx

    properties = {entry.key: entry.value for entry in onnx.load(network).metadata_props}
    return [*properties["character"].splitlines(), " "]


if __name__ == "__main__":
    rng, chosen = np.random.default_rng(1), lines(COUNT)
    pictures = np.stack([picture(line, rng) for line in chosen])
    np.savez(sys.argv[2], x=pictures, label=np.array(chosen), alphabet=np.array(alphabet(sys.argv[1])))
