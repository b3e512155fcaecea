"""Language models: rates follow weights, cache and batch; heads are met; formats as people spell them."""

from __future__ import annotations

import csv
import math

import pytest

from hexane import chips
from hexane.errors import HexaneError
from hexane.timing.fit import factor
from hexane.timing.language import decode_rate, lm_head_range_us, lm_head_us, stored_as


@pytest.mark.parametrize(
    ("fmt", "bits"),
    [
        ("fp16", 16),
        ("int8", 8),
        ("int4 per output channel", 4),
        ("4-bit palette (mixed)", 4),
        ("4-bit palette", 4),
        ("int4 palette", 4),
        ("6-bit palette", 6),
        ("lut6", 6),
        ("mixed 2/4-bit, fp16 KV", 3),
        ("mixed 2-bit vector LUT 2x16 / LUT4 / int8, int8 V cache", 2),
        ("app default (low-bit)", 4),
    ],
)
def test_formats_as_people_spell_them(fmt, bits):
    assert stored_as(fmt).bits == bits


def test_a_palette_is_a_palette_and_a_cache_through_the_host_is_said():
    plain = decode_rate("M4 Max", 0.49, "palette4")
    assert decode_rate("M4 Max", 0.49, "4-bit palette") == plain
    assert stored_as("4-bit palette, cache through the host").host_cache
    assert stored_as("int8, cache through the host").host_cache and not stored_as("int8, int8 V cache").host_cache
    assert decode_rate("M4 Max", 0.49, "4-bit palette, cache through the host")[0] < plain[0] / 2


@pytest.mark.parametrize("fmt", ["", "?", "gguf", "int99"])
def test_formats_without_a_width_are_refused(fmt):
    with pytest.raises(HexaneError, match="format"):
        stored_as(fmt)


def test_published_rates_are_met(facts):
    """Rows of trust A and B on the engine alone, one token a step; contexts as the programs hold them."""
    from hexane.timing.language_fit import read

    rows = [row for row in read(facts / "perf" / "llm.csv") if row.work is not None and not row.why_not]
    assert len(rows) >= 25
    ratios = []
    for row in rows:
        work = row.work
        rate, low, high = decode_rate(work.chip, work.parameters, row.row["quantisation"], work.context, work.batch)
        assert low < rate < high
        ratios.append(math.log(rate / row.rate))
    assert factor(ratios) <= 1.2


def test_heads_are_met(facts):
    ratios = []
    with open(facts / "perf" / "lm_head.csv", newline="") as file:
        for row in csv.DictReader(file):
            for fmt, column in (("fp16", "fp16_ms"), ("palette6", "lut6_ms")):
                ratios.append(math.log(lm_head_us(row["chip"], fmt) / 1e3 / float(row[column])))
    assert factor(ratios) <= 1.1


@pytest.mark.parametrize("chip", [c.name for c in chips.CHIPS if c.generation_name not in ("h11", "h12")])
def test_every_chip_has_an_answer(chip):
    rate, low, high = decode_rate(chip, 1.0, "fp16")
    assert 0 < low < rate < high
    for fmt in ("fp16", "palette6"):
        us, low_us, high_us = lm_head_range_us(chip, fmt)
        assert 0 < low_us < us < high_us
    assert lm_head_us(chip, "palette6") < lm_head_us(chip, "fp16")


def test_rates_follow_size_context_and_batch():
    rate = decode_rate("M5 Pro", 4, "fp16", 500)[0]
    assert decode_rate("M5 Pro", 4e9, "fp16", 500)[0] == rate
    assert decode_rate("M5 Pro (a laptop)", 4, "fp16", 500)[0] == rate
    assert decode_rate("M5 Pro", 8, "fp16", 500)[0] < rate
    assert decode_rate("M5 Pro", 4, "fp16", 16384)[0] < rate
    assert decode_rate("M5 Pro", 4, "4-bit palette (mixed)", 500)[0] > rate
    assert rate < decode_rate("M5 Pro", 4, "fp16", 500, batch=8)[0] < 8 * rate


def test_one_row_of_the_array_bounds_narrow_weights():
    """On chips before H18 a row costs 64: four bits decode no faster than three."""
    four, three = (decode_rate("M5 Max", 27, fmt, 0)[0] for fmt in ("int4", "int3"))
    assert three == pytest.approx(four)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("M99", 4, "fp16"), "unknown chip"),
        (("M4", -1, "fp16"), "parameters"),
        (("M4", math.nan, "fp16"), "parameters"),
        (("M4", 4, "fp16", -5), "context"),
        (("M4", 4, "fp16", 5, 0), "batch"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(arguments, says):
    with pytest.raises(HexaneError, match=says):
        decode_rate(*arguments)


def test_other_heads_are_refused():
    with pytest.raises(HexaneError, match="no head"):
        lm_head_us("M4", "int8")
