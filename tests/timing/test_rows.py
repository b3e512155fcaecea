"""Rows of measurements as cases: ops before kinds, formats by name, N calls, slopes as differences of two calls."""

from __future__ import annotations

import pytest

from hexane.errors import HexaneError
from hexane.timing.measured import case_of, predict, predict_range
from hexane.timing.row_formats import Format, format_of

CONV = {"chip": "M4", "kind": "conv_chain", "op": "conv", "cin": "256", "cout": "256", "h": "1", "w": "64",
        "layers": "8", "weights": "distinct", "includes": "call_eval", "stat": "mean"}  # fmt: skip
MAP = {"chip": "M6", "kind": "eltwise", "m": "256", "k": "1024", "includes": "task", "engines": "1"}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("fp16", Format()),
        ("w8", Format(int8=True)),
        ("p4", Format(palette=4)),
        ("p6", Format(palette=6)),
        ("lut6", Format(palette=6)),
        ("p1", Format(palette=1)),
        ("int4", Format(palette=4)),
        ("s50", Format(kept=0.5)),
        ("s90", Format(kept=0.1)),
        ("nm34", Format(kept=0.25)),
        ("s50p4", Format(palette=4, kept=0.5)),
        ("s75w8", Format(int8=True, kept=0.25)),
        ("ch50", Format()),
        ("w8a16", Format(int8=True)),
        ("p4_g32", Format(palette=4)),
    ],
)
def test_formats_by_name(name, form):
    found = format_of(name)
    assert (found.palette, found.int8, found.kept) == (form.palette, form.int8, pytest.approx(form.kept))


@pytest.mark.parametrize("name", ["p9", "fp4x", "q"])
def test_formats_that_nobody_knows_are_refused(name):
    with pytest.raises(HexaneError, match="weight format"):
        format_of(name)


@pytest.mark.parametrize(
    ("name", "share"), [("fp16", 1), ("w8", 1 / 2), ("p8", 1 / 2), ("p6", 3 / 8), ("p4", 1 / 4), ("p2", 1 / 8)]
)
def test_a_format_stores_its_share(name, share):
    stored = case_of({**CONV, "wfmt": name}).work.layers[0].weight_bytes
    palette = 16 * max(64, 2 << int(name[1:])) if name.startswith("p") else 0  # every core has its own
    assert stored == share * 256 * 256 * 2 + palette


def test_the_op_comes_before_the_kind():
    assert case_of({**MAP, "op": "softmax", "includes": "call_eval"}).work.layers[0].unit == "softmax"
    assert case_of({**CONV, "kind": "linear"}).work.layers[0].op == "conv"


@pytest.mark.parametrize(
    ("op", "unit"),
    [
        ("add", "binary"),
        ("add_same", "binary"),
        ("mul_const", "unary"),
        ("add_scalar", "unary"),
        ("scalar_mul", "unary"),
    ],
)
def test_element_wise_ops_with_a_constant_read_one_tensor(op, unit):
    (layer,) = case_of({**MAP, "op": op}).work.layers
    assert layer.unit == unit
    assert layer.in_bytes == 256 * 1024 * 2 * (2 if unit == "binary" else 1)


def test_n_dispatches_are_n_calls():
    one = {"chip": "M4 Max", "kind": "dispatch", "op": "copy", "includes": "call_eval", "layers": "1"}
    assert predict({**one, "layers": "25"}) == pytest.approx(25 * predict(one))
    assert predict({**one, "op": "conv", "workload": "25 dispatches"}) == pytest.approx(
        25 * predict({**one, "op": "conv"}), rel=0.02
    )


def test_one_of_many_dispatches_is_one():
    row = {"chip": "M4 Max", "kind": "dispatch", "op": "", "includes": "call_eval", "workload": "one of 216 dispatches"}
    assert case_of(row).calls == 1


def test_layers_of_one_program_are_one_call():
    tiny = {
        "chip": "M6",
        "kind": "dispatch",
        "op": "conv",
        "includes": "call_coreml",
        "engines": "1",
        "weights": "shared",
    }
    assert predict({**tiny, "layers": "128"}) < 1.2 * predict({**tiny, "layers": "1"})


def test_a_slope_is_the_difference_of_two_calls():
    note = "slope over layers 16-32"
    slope = predict({**CONV, "layers": "slope", "includes": "layer_slope_call", "note": note, "api": "evaluate"})
    deep, shallow = (predict({**CONV, "layers": str(layers)}) for layers in (32, 16))
    assert slope == pytest.approx((deep - shallow) / 16)


def test_chains_are_counted_as_they_are_built():
    for depth in (5, 6, 9):
        long = case_of({**CONV, "layers": str(depth)}).work
        assert long.layer_count == depth
        assert sum(layer.reads_input for layer in long.layers) == sum(layer.writes_output for layer in long.layers) == 1


def test_ranges_widen_with_distrust_and_with_formats_that_nobody_timed():
    def width(row):
        us, low, high = predict_range(row)
        assert low < us < high
        assert us / low == pytest.approx(high / us)
        return high / us

    trusted, doubtful = ({**CONV, "trust": trust} for trust in "AC")
    assert width(trusted) < width(doubtful)
    assert width({**trusted, "wfmt": "p2", "layers": "64"}) > width({**trusted, "wfmt": "p4", "layers": "64"})
    one, two = (predict_range(CONV, sigmas)[2] / predict_range(CONV)[0] for sigmas in (1, 2))
    assert two == pytest.approx(one**2)


def test_a_borrowed_chip_has_a_wider_range():
    rows = ({**CONV, "chip": chip, "includes": "call_copies", "stat": "min"} for chip in ("M4", "A14"))
    known, borrowed = (predict_range(row) for row in rows)
    assert borrowed[2] / borrowed[0] > 1.1 * known[2] / known[0]


def test_what_the_text_says_of_a_constant_counts():
    (layer,) = case_of({**MAP, "op": "add", "workload": "a + constant"}).work.layers
    assert layer.unit == "unary"


def test_a_layer_may_state_only_what_it_stores():
    row = {
        "chip": "M3 Max",
        "kind": "gemv",
        "op": "linear",
        "m": "1",
        "wbytes_layer": "13107200",
        "includes": "call_eval",
    }
    (layer,) = case_of(row).work.layers
    assert (layer.cin, layer.cout, layer.weight_bytes) == (2560, 2560, 13107200)
