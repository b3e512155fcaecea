"""``hexane check`` and ``hexane compile``: places, reasons, advice, exit status."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane import chips
from hexane.arithmetic.hypotheses import assume
from hexane.chips import CHIPS
from hexane.errors import UsageError
from hexane.graph import GraphBuilder
from hexane.program.package import mil_of
from hexane.restrictions.objections import LIMITS, objections, placed_by_apple
from hexane.session.check import CheckReport, CheckRow
from hexane.session.tables import check_title
from report.networks import command, mixed, saved, small


def test_every_op_is_on_the_engine_and_says_by_which_rule() -> None:
    report = hexane.check(small(), chip="M1")
    assert report.fits and report.compiled
    assert [row.op for row in report.rows] == ["conv", "relu", "sigmoid", "add"]
    assert all(row.place == "engine" and row.reason and row.evidence in ("SILICON", "APPLE", "INFERRED")
               for row in report.rows)  # fmt: skip
    assert report.totals["macs_on_engine"] == 1.0
    assert report.advice == []


@pytest.mark.parametrize("chip", ["M1", "M4", "A17 Pro", "m6"])
def test_what_no_engine_has_is_on_the_host_with_advice(chip: str) -> None:
    report = hexane.check(mixed(), chip=chip)
    places = {row.name: row for row in report.rows}
    assert places["c"].place == "host" and "triangular" in places["c"].advice
    assert places["y"].place == places["out"].place == "engine"
    assert not report.fits
    assert report.advice[0]["ops"] == ["c"]


def test_check_agrees_with_the_compiled_program() -> None:
    graph = mixed()
    program = hexane.compile(graph)
    host = {op for segment in program.segments if segment.kind == "host" for op in segment.ops}
    report = hexane.check(graph)
    assert {f"{r.op} {r.name!r}" for r in report.rows if r.place == "host"} == host


def _conv(width: int, *, extent: int = 32):
    b = GraphBuilder()
    x = b.input("x", (1, 1, 1, extent), "fp16")
    b.output(b.conv(x=x, weight=np.ones((1, 1, 1, width), np.float16), strides=(1, 1), pad_type="valid",
                    dilations=(1, 1), groups=1, name="y"))  # fmt: skip
    return b.graph


def test_limits_are_those_of_the_chip() -> None:
    (op,) = _conv(14).ops
    assert [o.rule for o in objections(op, chips.get("M1"))] == ["kernel_width"]
    assert objections(op, chips.get("M4")) == []
    (op,) = _conv(16).ops
    assert [o.rule for o in objections(op, chips.get("M4"))] == ["kernel_width"]


def test_extents_of_the_chip() -> None:
    (op,) = _conv(3, extent=20_000).ops
    (found,) = objections(op, chips.get("M2"))
    assert found.rule == "extent" and "20000" in found.reason and "split the tensor" in found.advice
    assert objections(op, chips.get("M4")) == []


def test_every_rule_says_something_about_every_chip_without_a_gap_left() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 3, 2, 2, 2, 2), "fp16")
    b.output(b.relu(x=x, name="y"))
    (op,) = b.graph.ops
    for chip in CHIPS:
        for found in objections(op, chip):
            assert "{" not in found.reason + found.advice
    assert all(rule.says and rule.source.startswith("docs/reference/") for rule in LIMITS)


def test_unknown_chip_names_the_near_ones() -> None:
    with pytest.raises(UsageError, match="M4"):
        hexane.check(small(), chip="M44")


def test_command_exit_status_and_json(tmp_path: Path) -> None:
    fits, open_ = saved(small(), tmp_path, "a.mil"), saved(mixed(), tmp_path, "b.mil")
    text = command("check", fits)
    assert "4 of 4 ops on the engine" in text
    found = command("check", open_, "--chip", "M1,M4", "--coreml", "--json", status=1)
    assert found["schema"] == "hexane-checks/1"
    assert [report["chip"] for report in found["reports"]] == ["M1", "M4"]
    assert found["reports"][1]["rows"][1]["place"] == "host" and found["reports"][0]["coreml"]
    assert "triangular" in command("check", open_, "--host", status=1)


def test_compile_writes_a_program_and_its_dump(tmp_path: Path) -> None:
    model = saved(small(), tmp_path)
    text = command("compile", model, "-o", tmp_path / "net.hwx", "--stats", "--dump-passes", tmp_path / "dump")
    assert "100.0% of the multiply-accumulates" in text
    assert hexane.open_image(tmp_path / "net.hwx").tasks
    tasks = (tmp_path / "dump" / "tasks.txt").read_text()
    assert ("NE" in tasks and "conv" in tasks) or "sigmoid" in tasks
    assert (tmp_path / "dump" / "00-loaded.mil").read_text().startswith("program")
    found = command("compile", saved(mixed(), tmp_path, "m.mil"), "-o", tmp_path / "net.hexane", "--json")
    assert found["stats"]["host_segments"] == 1
    assert len(hexane.load_program(tmp_path / "net.hexane").segments) == len(found["segments"])


@pytest.mark.parametrize(("dialect", "tables"), [("fast", True), ("default", False), ("apple", False)])
def test_the_dump_is_of_the_compilation_itself(tmp_path: Path, dialect: str, tables: bool) -> None:
    """Hard swish is one table for accuracy fast alone: its pass is in no dump of another form."""
    accuracy = "fast" if dialect == "fast" else "exact"
    dialect = "apple" if dialect == "apple" else "default"
    b = GraphBuilder()
    x = b.input("x", (1, 16, 8, 8), "fp16")
    b.output(b.mul(x=x, y=b.sigmoid_hard(x=x, alpha=1 / 6, beta=0.5), name="y"))
    options = ("--chip", "M4", "--dialect", dialect, "--accuracy", accuracy, "--dump-passes", tmp_path / "dump")
    command("compile", saved(b.graph, tmp_path), *options)
    names = sorted(path.name for path in (tmp_path / "dump").iterdir())
    assert any("single_tables" in name for name in names) == tables
    wanted: list[str] = []
    form = {"dialect": dialect, "accuracy": accuracy}
    program = hexane.compile(b.graph, "M4", on_pass=lambda n, _, changed: wanted.append(n) if changed else None, **form)
    assert [name[3:-4] for name in names if name[:2].isdigit()] == ["loaded", *wanted]
    last = max(name for name in names if name.endswith(".mil"))
    assert (tmp_path / "dump" / last).read_text() == mil_of(program.graph)[0]


def test_compile_refuses_by_name(tmp_path: Path) -> None:
    from hexane.errors import HexaneError

    model = saved(mixed(), tmp_path)
    with pytest.raises(HexaneError, match="cumsum"):
        command("compile", model, "-o", tmp_path / "x.hexane", "--strict", status=None)
    with pytest.raises(HexaneError, match="one engine program"):
        command("compile", model, "-o", tmp_path / "x.hwx", status=None)
    assert not list(tmp_path.glob("x.*"))


def test_a_sum_that_the_passes_rewrote_is_where_its_product_is() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 4, 20_000), "fp32")
    cut = b.slice_by_size(x=x, begin=(0, 0, 0), size=(1, 4, 64), name="cut")
    y = b.conv(x=cut, weight=np.ones((8, 4, 3), np.float32), strides=(1,), pad_type="valid", dilations=(1,), groups=1,
               name="y")  # fmt: skip
    b.output(b.cumsum(x=y, axis=2, name="out"))
    report = hexane.check(b.graph)
    places = {row.name: row.place for row in report.rows}
    assert places["y"] == "engine" and places["out"] == "host"
    program = hexane.compile(b.graph)
    assert report.totals["macs_on_engine"] == program.stats()["macs_on_engine"] == 1.0


@pytest.mark.parametrize("chip", ["M1", "M4", "M6"])
def test_norms_say_for_which_numbers_they_are_right(chip: str, tmp_path: Path) -> None:
    """On the engine squares end at 65504: a row that deviates by more than 255 comes out as 0, which is said."""
    b = GraphBuilder()
    b.output(b.layer_norm(x=b.relu(x=b.input("x", (1, 8, 64), "fp16")), axes=[-1], epsilon=np.float16(1e-3), name="y"))
    report = hexane.check(b.graph, chip)
    assert [row.keeps_to != "" for row in report.rows] == [False, True]
    ((numbers, names),) = report.ranges.items()
    assert "255" in numbers and names == ["y"] and report.as_dict()["ranges"] == {numbers: ["y"]}
    assert numbers in command("check", saved(b.graph, tmp_path), "--chip", chip)


def test_the_range_that_norms_are_said_to_have() -> None:
    b = GraphBuilder()
    b.output(b.layer_norm(x=b.input("x", (1, 8, 64), "fp16"), axes=[-1], epsilon=np.float16(1e-3), name="y"))
    program = hexane.compile(b.graph)
    x = np.zeros((1, 8, 64), np.float16)
    for last, choice, right in ((250, "fp16", True), (270, "fp16", False), (270, "wide", True), (50000, "wide", True)):
        x[..., 0], x[..., 1] = last, -last
        wanted = b.graph.evaluate({"x": x})["y"]
        with assume("reduction-range", choice):
            found, bits = program.run({"x": x})["y"], program.run({"x": x}, level="graph")["y"]
        assert np.allclose(found, wanted, atol=0.02) == right and np.array_equal(found, bits)


def _classifier():
    """A linear layer and a sigmoid behind which the passes turn results around: copies get the names of the ops."""
    b = GraphBuilder()
    rng = np.random.default_rng(0)
    x = b.input("x", (1, 32, 8, 8), "fp16")
    flat = b.reshape(x=b.reduce_mean(x=x, axes=[2, 3], keep_dims=True), shape=[1, 32], name="flat")
    dense = b.linear(x=flat, weight=rng.normal(size=(12, 32)).astype(np.float16), name="dense")
    act = b.sigmoid(x=dense, name="act")
    b.output(b.reshape(x=act, shape=[1, 3, 4], name="out"))
    return b.graph


def test_a_reason_speaks_of_its_own_op() -> None:
    rows = {row.name: row for row in hexane.check(_classifier(), "M1").rows}
    for name in ("dense", "act"):
        assert rows[name].place == "engine"
        assert not any(word in rows[name].reason for word in ("reshape", "copy", "transpose")), rows[name].reason
    assert "conv" in rows["dense"].reason or "matmul" in rows["dense"].reason


def test_on_every_chip_the_weaker_mark_of_both_columns_is_shown() -> None:
    """What --strict refuses as inferred is no APPLE row, on M4 as on M1."""
    for chip in ("M1", "M4"):
        graph = small()
        inferred = {
            label
            for segment in hexane.compile(graph, chip).segments
            for label, mark in segment.evidence.items()
            if mark == "INFERRED"
        }
        rows = {f"{row.op} {row.name!r}": row.evidence for row in hexane.check(graph, chip).rows}
        assert {label for label in inferred if label in rows} == {n for n, m in rows.items() if m == "INFERRED"}
    assert inferred


def test_where_the_two_programs_differ_the_row_says_why_the_other_does() -> None:
    ours, apple = hexane.check(_conv(14), "M1").rows[-1], hexane.check(_conv(16), "M4").rows[-1]
    assert (ours.place, ours.apple) == ("engine", "host")
    assert ours.other == "Apple's compiler leaves it to the host: the kernel is 14 wide, and M1 takes 13"
    assert "Apple" not in ours.reason and not apple.other
    assert (apple.place, apple.apple) == ("host", "host")


def _only(build, chip: str, *, opset: str = "ios18"):
    b = GraphBuilder(opset=opset)
    b.output(build(b))
    return hexane.check(b.graph, chip).rows[-1]


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_what_differs_from_itself_is_no_question_for_an_engine(chip: str) -> None:
    row = _only(lambda b: b.not_equal(x=(x := b.input("x", (1, 8, 4, 4), "fp16")), y=x, name="y"), chip)
    assert row.hexane == "host" and "NaN" in row.keeps_to and "NaN" in row.reason + row.other


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_a_write_at_a_position_that_is_computed_claims_no_evidence(chip: str) -> None:
    def build(b):
        x, u, p = b.input("x", (1, 8, 16, 16), "fp16"), b.input("u", (1, 8, 1, 16), "fp16"), b.input("p", (4,), "int32")
        return b.slice_update(x=x, update=u, begin=p, end=np.array([1, 8, 1, 16], np.int32), name="y")

    row = _only(build, chip)
    assert (row.apple, row.hexane, row.evidence) == ("host", "host", "INFERRED")
    assert "fp16" not in row.advice and "state" in row.advice


@pytest.mark.parametrize("run_time", [False, True])
def test_a_write_into_a_state_is_placed_as_shipped_decoders_are(run_time: bool) -> None:
    b = GraphBuilder(opset="ios18")
    state, update = b.state("s", (1, 8, 64, 32)), b.input("u", (1, 8, 1, 32), "fp16")
    begin = b.input("p", (4,), "int32") if run_time else np.array([0, 0, 3, 0], np.int32)
    held = b.slice_update(x=b.read_state(input=state), update=update, begin=begin,
                          end=np.array([1, 8, 4, 32], np.int32), name="y")  # fmt: skip
    b.write_state(data=held, input=state)
    b.output(b.relu(x=b.read_state(input=state)))
    row = next(row for row in hexane.check(b.graph, "M4").rows if row.name == "y")
    assert row.apple == "engine" and "CoreML-LLM" in row.reason
    assert row.hexane == ("host" if run_time else "engine")


@pytest.mark.parametrize("count", [1, 2])
def test_two_states_that_are_written_are_named_with_a_remedy(count: int) -> None:
    b = GraphBuilder(opset="ios18")
    x = b.input("x", (1, 8, 4, 32), "fp16")
    for number in range(count):
        state = b.state(f"s{number}", (1, 8, 4, 32))
        b.write_state(data=b.add(x=b.read_state(input=state), y=x), input=state)
    b.output(b.read_state(input=state), name="y")
    rules = {remark.rule: remark for row in hexane.check(b.graph, "M4").rows for remark in row.remarks}
    assert ("C13" in rules) == (count == 2)
    if count == 2:
        assert "LFM2" in rules["C13"].source and "one state" in rules["C13"].remedy


@pytest.mark.parametrize("layers", [0, 2])
@pytest.mark.parametrize(("form", "rule"), [("shift", True), ("in place", False), ("mask", False)])
def test_a_cache_that_is_shifted_is_named_with_a_remedy(form: str, rule: bool, layers: int) -> None:
    """The forms of a written cache, of a state alone and of a layer's part of one."""
    b = GraphBuilder(opset="ios18")
    shape = (1, 8, 64, 32)
    state, new = b.state("s", (layers, *shape[1:]) if layers else shape), b.input("x", (1, 8, 1, 32), "fp16")
    whole = part = b.read_state(input=state)
    if layers:
        part = b.slice_by_index(x=whole, begin=[1, 0, 0, 0], end=[2, 8, 64, 32])
    cut = lambda begin, end: b.slice_by_index(x=part, begin=[0, 0, begin, 0], end=[1, 8, end, 32])  # noqa: E731
    if form == "shift":
        part = b.concat(values=(cut(1, 64), new), axis=2)
    elif form == "in place":
        part = b.concat(values=(cut(0, 7), new, cut(8, 64)), axis=2)
    else:
        mask = b.input("m", (1, 1, 64, 1), "fp16")
        part = b.add(x=b.mul(x=part, y=b.sub(x=np.float16(1), y=mask)), y=b.mul(x=new, y=mask))
    if layers:
        part = b.slice_update(x=whole, update=part, begin=np.array([1, 0, 0, 0], np.int32),
                              end=np.array([2, *shape[1:]], np.int32))  # fmt: skip
    b.write_state(data=part, input=state)
    b.output(b.read_state(input=state), name="y")
    rules = {remark.rule: remark for row in hexane.check(b.graph, "M4").rows for remark in row.remarks}
    assert ("C14" in rules) == rule
    if rule:
        assert (
            "1 places" in rules["C14"].says and "slice_update" in rules["C14"].remedy and "-14" in rules["C14"].source
        )


@pytest.mark.parametrize(("rank", "stride"), [(3, 2), (3, 16), (4, 16)])
def test_no_op_that_the_engine_has_is_said_to_be_missing(rank: int, stride: int) -> None:
    def build(b):
        x = b.input("x", (1, 8, *(16,) * (rank - 2)), "fp16")
        weight = np.ones((8, 8, *(2,) * (rank - 2)), np.float16)
        return b.conv_transpose(x=x, weight=weight, strides=(stride,) * (rank - 2), pad_type="valid", name="y")

    row = _only(build, "M1")
    assert "the engine has no" not in row.reason
    assert row.hexane == "engine" or ("this form" in row.reason and "two axes" in row.advice)


def test_an_update_of_a_state_is_called_what_its_author_called_it() -> None:
    b = GraphBuilder()
    x, state = b.input("x", (1, 8, 4, 4), "fp16"), b.state("s", (1, 8, 4, 4), "fp16")
    b.op("write_state", data=b.add(x=b.read_state(input=state, name="before"), y=x, name="sum"), input=state)
    b.output(b.relu(x=b.read_state(input=state, name="after"), name="y"))
    rows = {row.name: row.op for row in hexane.check(b.graph, "M4").rows}
    assert (rows["before"], rows["after"]) == ("read_state", "coreml_update_state")


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_work_on_indices_is_not_sent_through_fp16(chip: str) -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 64), "fp16")
    values, indices = b.topk(x=x, k=5, axis=-1)
    b.output(values)
    b.output(b.floor_div(x=indices, y=np.int32(8), name="y"))
    row = hexane.check(b.graph, chip).rows[-1]
    assert row.place == "host" and "2048" in row.advice and "leave work on indices" in row.advice


def test_the_look_up_of_a_label_is_no_failure() -> None:
    b = GraphBuilder()
    x = b.input("x", (4,), "fp16")
    label, probabilities = b.op("classify", probabilities=b.relu(x=x), classes=np.array(["a", "b", "c", "d"]))
    b.output(label)
    b.output(probabilities)
    report = hexane.check(b.graph, "M4")
    assert report.fits and report.rows[-1].place == "host"
    assert "nothing to do" in report.rows[-1].advice


@pytest.mark.parametrize("chip", ["M1", "M4", "M5"])
def test_linear_takes_constant_weights_only(chip: str) -> None:
    b = GraphBuilder()
    x, w = b.input("x", (1, 64), "fp16"), b.input("w", (32, 64), "fp16")
    b.output(b.linear(x=x, weight=w), name="y")
    b.output(b.matmul(x=x, y=w, transpose_y=True), name="z")
    rows = {row.op: row for row in hexane.check(b.graph, chip=chip).rows}
    assert (rows["linear"].apple, rows["matmul"].apple) == ("host", "engine")
    assert rows["linear"].hexane == "host"


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize("kind", ["greater", "equal", "add"])
def test_indices_are_never_to_be_converted_and_doubles_are(chip: str, kind: str) -> None:
    for dtype in ("int64", "fp64"):
        b = GraphBuilder()
        x, y = b.input("x", (1, 64), dtype), b.input("y", (1, 64), dtype)
        b.output(b.op(kind, x=x, y=y))
        (op,) = [op for op in b.graph.main.ops if op.type == kind]
        for said in (placed_by_apple(op, chips.get(chip)).advice, hexane.check(b.graph, chip).rows[-1].advice):
            assert ("convert" in said) == (dtype == "fp64") and ("2048" in said) == (dtype == "int64"), said


def test_advice_for_work_on_indices_is_about_the_indices() -> None:
    """``mod`` of int64 indices written with other ops would have int64 indices still."""
    b = GraphBuilder()
    b.output(b.op("mod", x=b.input("i", (1, 8), "int32"), y=np.int32(4)))
    for chip in ("M1", "M4"):
        (row,) = hexane.check(b.graph, chip).rows
        assert row.place == "host" and "indices" in row.advice and "floor_div" not in row.advice
    b = GraphBuilder()
    b.output(b.op("mod", x=b.input("x", (1, 8), "fp16"), y=np.float16(4)))
    assert "floor_div" in hexane.check(b.graph, "M4").rows[-1].advice


def test_products_of_an_op_in_two_parts_are_said_to_be():
    """No op is on the engine as a whole, and all products are: the sentence says why both are so."""
    rows = [
        CheckRow(f"y{i}", "linear", "host", "", "APPLE", macs=macs, apple="engine", hexane="host", partly=True)
        for i, macs in enumerate((64, 0, 64))
    ]
    report = CheckReport("M1", "h13", True, tuple(rows))
    assert report.totals["macs_on_engine"] == 1 and report.totals["engine_ops"] == 0
    assert report.totals["partly_ops"] == 2
    said, _ = check_title(report)
    assert "0 of 3 ops on the engine, 100.0% of the multiply-accumulates" in said
    assert "(2 ops of the host have products there)" in said
    apple = CheckReport("M1", "h13", False, tuple(rows))
    assert apple.totals["macs_on_engine"] == apple.totals["partly_ops"] == 0
