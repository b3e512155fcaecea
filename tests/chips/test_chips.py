"""Chips are found by the names that people use, and their tables say what the specification says."""

from __future__ import annotations

import pytest

from hexane import chips
from hexane.chips import Evidence, weakest
from hexane.errors import UsageError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("M1", "M1"),
        ("m4 max", "M4 Max"),
        ("M4Max", "M4 Max"),
        ("Apple M1", "M1"),
        ("A17", "A17 Pro"),
        ("a14 bionic", "A14"),
        ("T6001", "M1 Max"),
        ("h17s", "M5 Pro"),
        ("h13", "A14"),
    ],
)
def test_names_and_aliases(text, name):
    assert chips.get(text).name == name


def test_unknown_chip_names_the_nearest():
    with pytest.raises(UsageError, match="M4 Max"):
        chips.get("M4 Maxx")
    with pytest.raises(UsageError, match="string"):
        chips.get(7)  # type: ignore[arg-type]


def test_lists():
    assert [c.name for c in chips.parse_list('M1, M4,"A17 Pro"')] == ["M1", "M4", "A17 Pro"]
    assert "A12" not in [c.name for c in chips.parse_list("all")]


@pytest.mark.parametrize("text", ["", " ", ",", '""', "M1,", "M1,,M4"])
def test_a_list_that_names_no_chip_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="names no chip"):
        chips.parse_list(text)


@pytest.mark.parametrize(("name", "tera_flops"), [("M1", 11.7), ("M2 Pro", 15.9), ("M4", 19.4), ("M5", 17.8)])
def test_peak_rates_are_the_published_ones(name, tera_flops):
    assert chips.get(name).peak_macs_per_us * 2 / 1e6 == pytest.approx(tera_flops, rel=0.005)


def test_every_chip_has_a_generation_and_a_living_sibling():
    names = {chip.name for chip in chips.CHIPS}
    assert len(names) == len(chips.CHIPS)
    for chip in chips.CHIPS:
        assert chip.generation.name == chip.generation_name
        assert chip.sibling is None or chip.sibling in names


def test_subtypes_name_generations():
    assert chips.generation_of_subtype(4).name == "h13"
    assert chips.generation_of_subtype(11).name == "h19"
    assert chips.generation_of_subtype(99) is None


def test_a_claim_is_as_good_as_its_weakest_leg():
    assert weakest(Evidence.SILICON, Evidence.INFERRED, Evidence.APPLE) is Evidence.INFERRED
    assert weakest() is Evidence.SILICON


FIRST = {
    "pixel_unit": ("h18", 64, 16),  # the array takes 64 rows at least, from H18 on 16 (docs/timing.md)
    "joins_engines": ("h19", False, True), "caches_maps": ("h19", False, True), "coreml_copies": ("h19", True, False),
    "whole_indices": ("h19", False, True), "wake_us": ("h19", 500.0, 5000.0),
    "shifted_kernels": ("h16", False, True), "max_groups": ("h16", 8191, 131071),
    "reduce_by_transpose": ("h15", 192, 384), "texture_engine": ("h14", False, True),
    "kernel_width_fp16": ("h14", (13, 7), (16, 8)), "kernel_height": ("h14", (29, 15), (32, 16)),
    "max_pool_window": ("h14", 29, 31), "task_alignment_bytes": ("h14", 256, 16), "folds_int8": ("h14", True, False),
}  # fmt: skip


@pytest.mark.parametrize("field", FIRST)
def test_what_changed_with_which_generation(field):
    since, before, after = FIRST[field]
    for generation in chips.GENERATIONS:
        if generation.name >= "h13":
            assert getattr(generation, field) == (after if generation.name >= since else before), generation.name
