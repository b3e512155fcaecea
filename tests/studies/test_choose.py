"""The order in which layers get smaller formats: least squared error for each byte saved."""

from __future__ import annotations

from hexane.lowering.formats import WeightFormat
from hexane.studies.choose import FormatChoice, steps


def test_errors_add_up_as_squares() -> None:
    plain, small = WeightFormat.of("fp16"), WeightFormat.of("int8")
    choices = [
        FormatChoice("a", plain, 20, 0.0, 0.0), FormatChoice("a", small, 10, 0.0, 0.3),  # 0.09 for 10 bytes
        FormatChoice("b", plain, 20, 0.0, 0.0), FormatChoice("b", small, 15, 0.0, 0.2),  # 0.04 for 5
    ]  # fmt: skip
    order = [{layer: choice.form.kind for layer, choice in step.items()} for step in steps(choices, "bytes")]
    assert order == [
        {"a": "fp16", "b": "fp16"},
        {"a": "fp16", "b": small.kind},
        {"a": small.kind, "b": small.kind},
    ]
