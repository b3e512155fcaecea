"""Predicted prefill rates beside the published rows that ran whole on the engine."""

from __future__ import annotations

import math

import pytest

from hexane.errors import UsageError
from hexane.timing.language import PREFILL_SCATTER, decode_rate, prefill_rate

ROWS = (
    # chip, billions of parameters, format, context, published tokens per second
    ("M5 Pro", 4, "fp16", 500, 938.5),  # cadamcat/llms-on-apple-neural-engine, Qwen3-4B
    ("M5 Pro", 4, "fp16", 2048, 764.0),
    ("M5 Pro", 4, "fp16", 4096, 543.5),
    ("M5 Pro", 4, "fp16", 16384, 140.6),
    ("M5 Pro", 0.6, "fp16", 128, 10240),  # Qwen3-0.6B, 1918 of 1919 ops
    ("M4", 4, "low-bit", None, 556),  # M6 study, Qwen3.5-4B, of an app
    ("M6", 4, "low-bit", None, 1016),
    ("M6", 27, "mixed 2-bit vector LUT 2x16 / LUT4 / int8, fp16 KV", 7673, 181.8),  # anemll-forge, Qwen3.8-27B
)


def test_the_stated_scatter_is_that_of_the_rows() -> None:
    logs = [math.log(prefill_rate(*row[:4])[0] / row[4]) for row in ROWS]
    scatter = math.sqrt(sum(log * log for log in logs) / len(logs))
    assert scatter == pytest.approx(PREFILL_SCATTER, abs=0.05), [round(math.exp(log), 2) for log in logs]


def test_a_range_lies_around_the_rate_and_more_rows_are_no_slower() -> None:
    rate, low, high = prefill_rate("M4", 1.0, "fp16", 1024, 64)
    assert low < rate < high and rate > decode_rate("M4", 1.0, "fp16", 1024)[0]
    assert prefill_rate("M4", 1.0, "fp16", 1024, 32)[0] < rate < prefill_rate("M4", 1.0, "fp16", 1024, 128)[0]
    with pytest.raises(UsageError):
        prefill_rate("M4", 1.0, "fp16", 1024, 0)
