"""Weight formats by the names that rows of measurements give them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hexane.errors import UsageError

_PALETTE = re.compile(r"(?:p|lut|pal|palette|int|w|u?int)([1-8])(?:bit)?")
_SPARSE = re.compile(r"(?:s(\d\d)|nm(\d)(\d))(.*)")

_GROUP = re.compile(r"p[1-8]g(\d+)")
_SUFFIX = re.compile(r"(?:a(?:8|16)|[_-]?[gvx]\d+)+$")
"""What follows a width and does not change what is stored: activations, group and vector sizes."""


@dataclass(frozen=True)
class Format:
    """A row's name of a weight format.

    ``palette`` bits (0: none), ``int8``, the share of weights ``kept``, and the outputs that share a table (``group``,
    0: all).
    """

    palette: int = 0
    int8: bool = False
    kept: float = 1.0
    group: int = 0

    @property
    def name(self) -> str:
        """The same by the name that ``hexane.lowering.formats.WeightFormat`` gives it."""
        table = f"palette{self.palette}" if self.palette else ""
        if self.kept < 1:
            return f"sparse:{1 - self.kept:.3f}" + (f"+{table}" if table else "")
        if self.int8:
            return "int8"
        return f"{table}:{self.group}" if self.group else table or "fp16"


def format_of(name: str) -> Format:
    """``fp16``, ``w8``, ``p4``, ``lut6`` (palettes), ``s50`` (half zeros), ``nm24`` (2 of 4 zero), ``s50p4``, ``ch50``.

    Whole zero channels (``ch``) are stored like all others; int4 with one scale per output goes through the palette
    decoder, as far as anybody has measured.
    """
    sparse = _SPARSE.fullmatch(name)
    if sparse:
        percent, zeros, group, rest = sparse.groups()
        density = 1 - int(percent) / 100 if percent else 1 - int(zeros) / int(group)
        inner = format_of(rest) if rest else Format()
        return Format(inner.palette, inner.int8, density if name != "s68" else 0.317)
    plain = _SUFFIX.sub("", name)
    if plain in ("w8", "int8", "uint8", "fp8", "e4m3"):
        return Format(int8=True)
    palette = _PALETTE.fullmatch(plain)
    if palette:
        group = _GROUP.fullmatch(name)
        return Format(palette=int(palette.group(1)), group=int(group.group(1)) if group else 0)
    if name in ("", "fp16", "f16", "w16", "fp32") or name.startswith("ch"):
        return Format()
    raise UsageError(f"unknown weight format {name!r}", hint="fp16, w8, p1 to p8 (palettes), s50 (zeros), s50p4")
