"""The model against published measurements: every row builds its network and is met within honest bounds."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
from dataclasses import replace

import pytest

from hexane.chips.measured import provenance
from hexane.errors import HexaneError
from hexane.timing.fit import Sample, factor, fit, folds
from hexane.timing.measured import case_of, compact, predict, predict_case


@pytest.fixture(scope="session")
def rows(facts):
    with open(facts / "perf" / "calibration.csv", newline="") as file:
        return [row for row in csv.DictReader(file) if row["use"] == "1"]


@pytest.fixture(scope="session")
def predicted(rows):
    """Predictions of every fourth row: the sweep over all is a slow test."""
    return [(row, predict(row)) for row in rows[::4]]


def test_rows_are_met(predicted):
    ratios = [math.log(us / float(row["fit_us"])) for row, us in predicted]
    assert factor(ratios) < 1.09


@pytest.mark.slow
def test_all_rows_are_met_as_the_shipped_provenance_says(rows):
    ratios = [math.log(predict(row) / float(row["fit_us"])) for row in rows]
    assert factor(ratios) == pytest.approx(provenance()["fitted"]["mean_factor"], abs=0.002)


def test_a_row_may_come_with_nan_for_empty_cells(rows):
    row = {k: (float("nan") if v == "" else v) for k, v in rows[0].items()}
    assert predict(row) == pytest.approx(predict(rows[0]))


def test_medians_are_typical_calls_and_minima_the_best(rows):
    row = next(r for r in rows if r["includes"] == "call_copies" and r["stat"] == "min")
    assert case_of(row).interface == "copies"
    assert case_of({**row, "stat": "median"}).interface == "copies_typical"


def test_the_decoder_has_the_weights_that_its_row_states(rows):
    """100 million multiply-accumulates a token, the products with the cache not counted (the row's note)."""
    row = next(r for r in rows if r["op"] == "decoder4" and r["wfmt"] == "fp16" and r["n"] == "1")
    work = case_of(row).work
    assert sum(x.weight_bytes * x.count for x in work.layers) == pytest.approx(2 * 99.9e6, rel=0.002)


def test_compacting_keeps_the_time(rows):
    row = next(r for r in rows if r["kind"] == "conv_chain" and r["layers"] == "128")
    case = case_of(row)
    assert len(case.work.layers) <= 3
    assert compact(case.work) == case.work


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"chip": "M99"}, "unknown chip"),
        ({"includes": "everything"}, "includes 'everything'"),
        ({"kind": "teleport", "op": ""}, "teleport"),
        ({"k": "", "kind": "linear", "op": "linear", "cin": ""}, "no k"),
    ],
)
def test_rows_that_make_no_sense_are_refused(rows, change, says):
    with pytest.raises(HexaneError, match=says):
        predict({**rows[0], **change})


def test_folds_never_split_a_series(rows):
    samples = [Sample(case, 1.0, r["kind"], r["series"]) for r, case in ((r, None) for r in rows[:300])]  # type: ignore[arg-type]
    parts = folds(samples, 7)
    assert sorted(i for part in parts for i in part) == list(range(300))
    owners: dict[str, set[int]] = {}
    for number, part in enumerate(parts):
        for i in part:
            owners.setdefault(samples[i].series, set()).add(number)
    assert all(len(numbers) == 1 for numbers in owners.values())


def test_a_fit_recovers_what_made_the_data(rows):
    """Times made with known constants on the rows' own cases are fitted back to nearly no error."""
    from hexane.timing.parameters import PARAMETERS

    truth = {p.name: p.start * (1.3 if p.name in ("task_start_us", "weights_gbs") else 1.0) for p in PARAMETERS}
    chosen = [r for r in rows if r["chip"] == "M1 Max"]
    cases = [case_of(r) for r in chosen]
    samples = [Sample(c, predict_case(c, truth), r["kind"], r["series"]) for c, r in zip(cases, chosen)]
    fitted = fit(samples).of(samples[0].case.chip)
    ratios = [math.log(predict_case(s.case, fitted) / s.us) for s in samples]
    assert factor(ratios) < 1.01


def test_a_row_that_contradicts_all_others_has_no_pull(rows):
    """One row off by three moves no constant by a hundredth of that."""
    from hexane.timing.parameters import PARAMETERS

    truth = {p.name: p.start for p in PARAMETERS}
    chosen = [r for r in rows if r["chip"] == "M1 Max"]
    cases = [case_of(r) for r in chosen]
    samples = [Sample(c, predict_case(c, truth), r["kind"], r["series"]) for c, r in zip(cases, chosen)]
    samples[0] = replace(samples[0], us=3 * samples[0].us)
    fitted = fit(samples).of(samples[0].case.chip)
    ratios = [math.log(predict_case(s.case, fitted) / s.us) for s in samples[1:]]
    assert factor(ratios) < 1.01


def test_estimates_never_load_scipy():
    """The fit needs it, a user's estimate does not."""
    code = (
        "import sys, hexane.timing, hexane.timing.language as l; from hexane.timing.measured import predict;"
        "l.decode_rate('M4', 1, 'fp16'); l.lm_head_us('M4'); assert 'scipy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_shipped_numbers_are_held_out_and_their_ranges_hold():
    facts = provenance()
    assert facts["cross_validated"]["mean_factor"] <= 1.08
    one, two, three = facts["coverage_of_rows_left_out"]["known_trust"]
    assert abs(one - 0.6827) <= 0.03 and abs(two - 0.9545) <= 0.03 and abs(three - 0.9973) <= 0.03


def test_two_fits_of_the_same_rows_are_the_same(rows):
    chosen = [r for r in rows if r["chip"] == "M1 Max"]
    samples = [Sample(case_of(r), float(r["fit_us"]), r["kind"], r["series"]) for r in chosen]
    assert fit(samples).log == fit(samples).log


def test_a_second_calibration_writes_the_same_bytes(rows, tmp_path):
    from hexane.timing.calibrate import calibrate

    chosen = [row for row in rows if row["chip"] == "M4 Pro"]
    table = tmp_path / "calibration.csv"
    with open(table, "w", newline="") as file:
        writer = csv.DictWriter(file, chosen[0])
        writer.writeheader()
        writer.writerows(chosen)
    written = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        calibrate(table, tmp_path / name / "measured.json", folds=3)
        written.append([path.read_bytes() for path in sorted((tmp_path / name).iterdir())])
    assert written[0] == written[1]
    assert len(written[0]) == 2
