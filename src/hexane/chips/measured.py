"""Measured constants of the timing model, per chip, with their provenance; ``make calibrate`` writes the numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from hexane.chips.evidence import Evidence
from hexane.chips.names import get
from hexane.chips.table import Chip


@dataclass(frozen=True)
class ModelConstant:
    """One number of the timing model: value in ``unit``, factor of uncertainty (one sigma), rows it rests on, evidence.

    ``chip`` is the chip whose measurements gave it, None for a number that all chips share; it differs from the asked
    chip where a sibling stands in (evidence INFERRED then).
    """

    name: str
    value: float
    unit: str
    factor: float
    rows: int
    evidence: Evidence
    chip: str | None


@cache
def _data() -> dict:
    return json.loads(files("hexane.chips").joinpath("measured.json").read_text())


def provenance() -> dict:
    """Origin of the shipped numbers: source, rows, method, cross-validated error."""
    return _data()["provenance"]


@cache
def constants(chip: str | Chip) -> dict[str, ModelConstant]:
    """Every constant for a chip, by name: its own, else its sibling's, else its family's, else all chips'."""
    return constants_in(_data(), get(chip))


def language() -> dict[str, Any]:
    """The constants of language models, their scatter, and the table of published rates (``timing.language``)."""
    return _data()["language"]


def constants_in(data: Mapping[str, Any], chip: Chip) -> dict[str, ModelConstant]:
    """The same out of the content of a file like ``measured.json``."""
    constants = {name: _constant(name, entry, None) for name, entry in data["shared"].items()}
    for name, entry in data["families"].get(chip.generation.family, {}).items():
        constants[name] = _constant(name, entry, None)
    line = [chip]
    while line[-1].sibling and get(line[-1].sibling) not in line:
        line.append(get(line[-1].sibling))
    for donor in reversed(line):
        for name, entry in data["chips"].get(donor.name, {}).items():
            constants[name] = _constant(name, entry, donor, own=donor is chip)
    return constants


def _constant(name: str, entry: dict[str, Any], donor: Chip | None, *, own: bool = True) -> ModelConstant:
    mark = Evidence(entry["evidence"]) if own else Evidence.INFERRED
    factor = entry["factor"] if own else max(entry["factor"], 1.15)
    return ModelConstant(
        name, entry["value"], entry["unit"], factor, entry["rows"], mark, donor.name if donor else None
    )


@cache
def values(chip: str | Chip) -> dict[str, float]:
    """The same as plain numbers."""
    return {name: constant.value for name, constant in constants(chip).items()}
