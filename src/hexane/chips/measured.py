"""Measured constants of the timing model, per chip, with their provenance; ``make calibrate`` writes the numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from hexane.chips.evidence import Evidence
from hexane.chips.names import get
from hexane.chips.table import Chip


@dataclass(frozen=True)
class Constant:
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
    """How the shipped numbers were made: source, rows, method, cross-validated error."""
    return _data()["provenance"]


@cache
def constants(chip: str | Chip) -> dict[str, Constant]:
    """Every constant for a chip, by name: its own, its sibling's, its family's, or all chips'."""
    data, asked = _data(), get(chip)
    found = {
        name: Constant(name, e["value"], e["unit"], e["factor"], e["rows"], Evidence(e["evidence"]), None)
        for name, e in data["shared"].items()
    }
    for name, e in data["families"].get(asked.generation.family, {}).items():
        found[name] = Constant(name, e["value"], e["unit"], e["factor"], e["rows"], Evidence(e["evidence"]), None)
    donor: Chip | None = asked
    while donor is not None:
        own = data["chips"].get(donor.name)
        if own is not None:
            for name, e in own.items():
                mark = Evidence(e["evidence"]) if donor is asked else Evidence.INFERRED
                factor = e["factor"] if donor is asked else max(e["factor"], 1.15)
                found[name] = Constant(name, e["value"], e["unit"], factor, e["rows"], mark, donor.name)
            break
        donor = get(donor.sibling) if donor.sibling else None
    return found


@cache
def values(chip: str | Chip) -> dict[str, float]:
    """The same as plain numbers."""
    return {name: constant.value for name, constant in constants(chip).items()}
