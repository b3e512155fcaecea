"""The page of plots draws every panel from measured rows."""

from __future__ import annotations

import pytest

from tool import tool_named


def test_the_page_is_drawn(facts, tmp_path):
    pytest.importorskip("matplotlib")
    from hexane.timing.calibrate import read_rows

    plots = tool_named("timing_plots")
    path = plots.save_page(read_rows(facts / "perf" / "calibration.csv"), tmp_path / "timing.png")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(plots.PANELS) == 6


WORDS = dict.fromkeys(("chip", "series", "includes", "wfmt"), "") | dict.fromkeys(
    ("cin", "cout", "h", "w", "kw", "layers", "wbytes_layer", "fit_us"), "1"
)


def test_what_stands_where(monkeypatch):
    """Measured points of rows made by hand, in the units of the labels; the model says 50 us of everything."""
    figures = pytest.importorskip("matplotlib.figure")
    timing_plots = tool_named("timing_plots")
    monkeypatch.setattr(timing_plots, "predict", lambda row: 50.0)

    def drawn(panel, *rows):
        axes = figures.Figure().subplots()
        panel(axes, [WORDS | row for row in rows])
        return axes, [list(zip(line.get_xdata(), line.get_ydata())) for line in axes.lines]

    row = {"chip": "M4 Max", "series": "de_sram", "cin": "4096", "cout": "4096", "h": "8", "w": "8", "fit_us": "100"}
    axes, (dots, line) = drawn(timing_plots.cliff, row, row | {"chip": "M4"}, row | {"series": "other"})
    assert dots == [(32.0, pytest.approx(21474.8, rel=1e-5))]  # MiB; 2 x 4096 x 4096 x 64 operations in 100 us
    assert line == [(32.0, pytest.approx(2 * 21474.8, rel=1e-5))]
    assert axes.get_xlabel() == "weights, MiB" and axes.get_ylabel() == "GFLOP/s"

    call = {"chip": "M1", "includes": "call_eval"}
    rows = [call | {"fit_us": us} for us in ("120", "90", "300")]
    rows += [{"chip": "M4", "includes": "call_copies", "fit_us": "260"}, {"chip": "M5", "fit_us": "7"}]
    _, (dots, marks) = drawn(timing_plots.floors, *rows)
    assert dots == [(90.0, "M1")] and marks == [(50.0, "M1")]

    row = {"series": "m6_kshape_4x32_e1_row", "kw": "9", "fit_us": "12"}
    _, lines = drawn(timing_plots.slopes, row, row | {"kw": "3", "fit_us": "8"})
    assert lines == [[(9.0, 12.0), (3.0, 8.0)], [(3.0, 50.0), (9.0, 50.0)], [], []]

    row = {"series": "m6_wfmt_M4_m2048_r1", "wfmt": "fp16", "wbytes_layer": "10", "fit_us": "20"}
    axes, (dots, marks) = drawn(timing_plots.formats, row, row | {"wfmt": "int4", "wbytes_layer": "9", "fit_us": "5"})
    assert dots == [(0, 5.0), (1, 20.0)] and marks == [(0, 50.0), (1, 50.0)]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["int4", "fp16"]

    row = {"series": "m6_stages_c512_s0", "includes": "submit_to_task_end", "layers": "8", "fit_us": "30"}
    _, lines = drawn(timing_plots.chains, row, row | {"layers": "4"}, row | {"includes": "call_eval"})
    assert lines[2:4] == [[(4.0, 30.0), (8.0, 30.0)], [(4.0, 50.0), (8.0, 50.0)]]

    row = {"series": "m6_call_D_k1x1_c256_h1w2048", "layers": "96", "w": "2048", "fit_us": "70"}
    _, lines = drawn(timing_plots.tiles, row, row | {"layers": "95"})
    assert lines == [[(2048.0, 70.0)], [(2048.0, 50.0)]]
