"""``hexane chips``: figures that follow from each other, and evidence that follows the chip."""

from __future__ import annotations

import pytest

from hexane.chips import CHIPS
from hexane.errors import UsageError
from report.networks import command


def _facts(name: str) -> dict:
    (row,) = command("chips", name, "--json")["chips"]
    return row


def test_every_chip_is_there_once() -> None:
    found = command("chips", "--json")
    assert found["schema"] == "hexane-chips/1"
    assert [row["name"] for row in found["chips"]] == [chip.name for chip in CHIPS]
    text = command("chips")
    assert all(chip.name in text for chip in CHIPS)


def test_the_origins_table() -> None:
    """Cores and advertised operations per second; on M4 that number is of 8 bits."""
    table = {"A12": (8, 5), "A13": (8, 5), "A14": (16, 11), "M1": (16, 11), "M2": (16, 15.8), "M4": (16, 38)}
    for name, (cores, tops) in table.items():
        row = _facts(name)
        assert (row["cores"], row["tops_advertised"]) == (cores, tops)
        assert row["advertised_means"] == ("int8" if name == "M4" else "fp16")
        assert row[f"tops_{row['advertised_means']}"] == pytest.approx(tops, rel=0.2)
    m1 = _facts("M1")
    assert m1["tops_fp16"] == pytest.approx(16 * 256 * 2 * 1428e6 / 1e12, abs=0.01)


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_what_nobody_measured_claims_no_measurement(chip) -> None:
    row = _facts(chip.name)
    entries = [e for e in (*row["dram"].values(), *row["dispatch"].values()) if isinstance(e, dict)]
    for entry in entries:
        if entry["measured_on"] not in (chip.name, None):
            assert entry["evidence"] == "INFERRED"
    if chip.name in ("A12", "A13"):
        assert entries == [] and row["l2_bytes"] is None and row["tops_int8"] is None
    else:
        assert row["l2_bytes"] == 2 << 20 if chip.engines == 1 else 4 << 20
    for name in ("weights_gbs", "activations_gbs"):
        entry = row["dram"][name]
        assert entry is None or entry["measured_on"] in (chip.name, None) or entry["value"] <= (chip.dram_gbs or 1e9)
    assert chip.name in command("chips", chip.name)


def test_an_unknown_chip_is_an_error() -> None:
    with pytest.raises(UsageError, match="unknown chip 'M44'"):
        command("chips", "M44", status=None)
