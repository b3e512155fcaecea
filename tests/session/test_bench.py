"""Times beside predictions, and the row that they make in the format of the timing data."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from facts import fact_files
from hexane.errors import UsageError
from hexane.graph import Graph, GraphBuilder
from hexane.runtime.devices import device_named
from hexane.session.bench import append_row, bench
from hexane.timing.calibrate import read_rows
from hexane.timing.measured import case_of
from hexane.timing.row_of import COLUMNS, columns_of, signature
from hexane.timing.rows import Row, graph_of
from report.networks import command, mixed, saved, small


def _conv(layers: int = 1, **more: Any) -> Graph:
    b = GraphBuilder()
    x = b.input("x", (1, 16, 8, 8), "fp16")
    for _ in range(layers):
        x = b.conv(x=x, weight=np.ones((16, 16, 3, 3), np.float16), strides=(1, 1), pad_type="same",
                   dilations=(1, 1), groups=1)  # fmt: skip
    b.output(x)
    return b.graph


def _bench(graph: Graph, device: str, **more: Any):
    engine = device_named(device)
    program = hexane.compile(graph, chip=engine.chip or "M1")
    inputs = {p.name: np.ones(p.shape, np.float16) for p in program.inputs}
    return bench(program, inputs, engine, model="net", graph=graph, calls=4, warmup=1, **more)


@pytest.mark.parametrize("device", ["emulator", "virtual:eiln", "virtual:omarchy", "virtual:abi2"])
def test_measured_beside_predicted(device: str) -> None:
    steps: list[None] = []
    found = _bench(_conv(), device, on_call=lambda: steps.append(None))
    assert len(found.calls.us) == len(steps) == 4 and found.predicted is not None
    settle = 1000 if device == "virtual:abi2" else 0
    assert found.ratio == pytest.approx(np.median(found.calls.engine_us) / (found.predicted.latency_us + settle))
    assert found.interface == ("evaluate" if device == "emulator" else "linux")
    assert not found.engine and "not a measurement" in found.as_dict()["note"]
    counted = found.calls.busy_us is not None
    assert counted == (device == "virtual:omarchy"), "the first driver counts nothing, and of H14 there is no model"
    if counted:
        assert 0 < found.calls.busy_us < found.predicted.latency_us


def test_host_ops_are_not_the_engine_s() -> None:
    found = _bench(mixed(), "virtual:eiln")
    assert found.host_ops == 1 and found.row()["use"] == "0" and found.row()["includes"] == "call_and_host"
    assert all(part < whole for part, whole in zip(found.calls.engine_us, found.calls.us))


def test_the_row_is_one_of_the_timing_data(tmp_path: Path) -> None:
    found = _bench(_conv(), "virtual:omarchy")
    path = tmp_path / "rows.csv"
    for _ in range(2):
        append_row(found, path)
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 and tuple(rows[0]) == COLUMNS
    row = rows[0]
    assert (row["kind"], row["op"], row["cin"], row["kh"], row["pad"]) == ("conv", "conv", "16", "3", "same")
    assert (row["chip"], row["includes"], row["trust"], row["use"]) == ("M1", "call_driver", "C", "0")
    assert read_rows(path) == [], "no row of an emulated engine is fitted"
    for shipped in fact_files("perf/calibration.csv"):
        assert tuple(shipped.read_text().splitlines()[0].split(",")) == COLUMNS


def test_a_row_of_an_engine_would_be_fitted(tmp_path: Path) -> None:
    device = device_named("virtual:omarchy")
    device.engine = True  # as on a real driver: nothing else decides it
    program = hexane.compile(_conv(2))
    found = bench(program, {"x": np.ones((1, 16, 8, 8))}, device, model="net", graph=_conv(2), calls=2, warmup=0)
    append_row(found, tmp_path / "rows.csv")
    (row,) = read_rows(tmp_path / "rows.csv")
    assert (row["kind"], row["layers"], row["trust"]) == ("conv_chain", "2", "B")
    assert case_of(row) is not None
    assert signature(graph_of(Row(row))) == signature(_conv(2))


def test_columns_say_the_network_or_nothing() -> None:
    assert columns_of(small()) is None and columns_of(mixed()) is None
    rows = [row for path in fact_files("perf/calibration.csv") for row in csv.DictReader(path.open())]
    said: dict[str, int] = {}
    for row in rows[::5]:
        if row["layers"] == "slope" or row["kind"] in ("dispatch", "model", "branches") or row["use"] != "1":
            continue
        graph = graph_of(Row(row))
        columns = columns_of(graph) if len(graph.main.ops) < 100 else None
        if columns is not None:
            said[row["kind"]] = said.get(row["kind"], 0) + 1
            again = {key: str(value) for key, value in columns.items() if row[key] and key not in ("weights", "kind")}
            assert {key: row[key] for key in again if key != "op"} == {k: v for k, v in again.items() if k != "op"}
    assert {"conv", "conv_chain", "eltwise", "linear"} <= set(said)


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="calls"):
        _ = bench(hexane.compile(_conv()), {}, device_named("emulator"), model="net", calls=0)
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="other columns"):
        append_row(_bench(_conv(), "emulator"), other)
    assert other.read_text() == "a,b\n1,2\n"


def test_the_command(tmp_path: Path) -> None:
    path = saved(_conv(), tmp_path)
    rows = tmp_path / "rows.csv"
    found = command("bench", path, "--device", "virtual:abi2", "--calls", 3, "--row", rows, "--json")
    assert found["schema"] == "hexane-bench/1" and found["chip"] == "M2 Max" and found["calls"] == 3
    assert found["ratio"] > 0 and found["row"]["chip"] == "M2 Max" and rows.exists()
    text = command("bench", path, "--device", "virtual:eiln", "--calls", 2)
    assert "predicted" in text and "ratio" not in text and "not a measurement" in text
    program = tmp_path / "net.anec"
    hexane.compile(_conv()).save(program)
    assert command("bench", program, "--device", "virtual:eiln", "--calls", 2, "--json")["row"]["kind"] == "model"
    with pytest.raises(UsageError, match="calls"):
        command("bench", path, "--calls", 0)


def test_no_cell_is_a_formula(tmp_path: Path) -> None:
    class Row:
        def row(self) -> dict[str, object]:
            return dict.fromkeys(COLUMNS, "") | {"series": "=1+cmd", "workload": "-2", "value": -0.5}

    append_row(Row(), tmp_path / "rows.csv")  # type: ignore[arg-type]
    (row,) = csv.DictReader((tmp_path / "rows.csv").open())
    assert (row["series"], row["workload"], row["value"]) == ("'=1+cmd", "'-2", "-0.5")
