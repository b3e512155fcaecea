"""Every command's JSON answer against its schema, which is a file (``hexane schema``)."""

from __future__ import annotations

import json
import re
import sys
from itertools import zip_longest
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hexane.cli.main import app
from hexane.errors import FormatError, UsageError
from hexane.formats.json_schema import problems
from hexane.report.compare import read_report
from hexane.report.schema import check_answer, names, schema
from report.answers import CALLS, answer, called, prepare
from tool import tool_named

pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("answers")
    prepare(place)
    called("probe --device emulator --only post-scale -o answers.json", place)
    return place


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in CALLS.items() for line in lines])
def test_an_answer_is_as_its_schema_says(name: str, line: str, folder: Path) -> None:
    result = answer(line, folder)
    full = f"hexane-{name}/1"
    assert not isinstance(result, dict) or result["schema"] == full
    assert check_answer(result, full) == []
    if isinstance(result, dict):  # the schema says something: without any of its members an answer is wrong
        for member in schema(full)["required"]:
            assert check_answer({key: value for key, value in result.items() if key != member}, full)


NUMBER = re.compile(r"[-+]?(\d[\d,.]*(e[-+]?\d+)?|inf|nan)%?")
TABLES = [
    line for name in ("train", "estimates", "llm", "bench", "show", "evaluate", "compress") for line in CALLS[name]
]


@pytest.mark.parametrize("line", TABLES)
def test_columns_of_numbers_end_together_and_of_words_begin_together(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: list[tuple[list[list[str]], tuple[int, ...]]] = []
    for name, module in tuple(sys.modules.items()):
        if name.startswith("hexane.cli.") and hasattr(module, "print_rows"):
            monkeypatch.setattr(module, "print_rows", lambda rows, head=None, right=(): tables.append((rows, right)))
    called(line, folder)
    for rows, right in tables:
        columns = [list(map(str, cells)) for cells in zip_longest(*rows, fillvalue="")]
        assert set(right) <= set(range(len(columns))) or not columns
        for place, column in enumerate(columns):
            cells = set(column) - {""}
            if len(rows) > 1 and cells and all(map(NUMBER.fullmatch, cells)):
                assert place in right, f"numbers begin together: {cells}"
            if cells and all(cell.isalpha() and not NUMBER.fullmatch(cell) for cell in cells):
                assert place not in right, f"words end together: {cells}"


def test_every_command_that_answers_in_json_is_called() -> None:
    """Sweep has calls of its own (test_sweep.py)."""
    asked = {line.split()[0] for lines in CALLS.values() for line in lines}
    with_json = {c.name or c.callback.__name__ for c in app.registered_commands
                 if "json" in c.callback.__annotations__ or "as_json" in c.callback.__annotations__}  # fmt: skip
    assert with_json - asked == {"sweep"}
    assert {f"hexane-{name}/1" for name in CALLS} <= set(names())


def test_a_draft_keeps_the_references_of_the_committed_schema() -> None:
    draft = {"type": "object", "properties": {"run": {"type": "object"}, "name": {"type": "string"}}}
    committed = {"properties": {"run": {"$ref": "hexane-run/1", "required": ["schema"]}}}
    kept = tool_named("schemas").with_references(draft, committed)
    assert kept["properties"] == {"run": committed["properties"]["run"], "name": {"type": "string"}}


def test_the_command_prints_and_checks(folder: Path) -> None:
    run = CliRunner().invoke
    listed = run(app, ["schema"]).stdout.split()
    assert "hexane-checks/1" in listed and "hexane-run/1" in listed
    assert json.loads(run(app, ["schema", "check"]).stdout) == json.loads(
        run(app, ["schema", "hexane-checks/1"]).stdout
    )
    file = folder / "answer.json"
    file.write_text(called("check net.mil --json", folder))
    assert run(app, ["schema", "check", str(file)]).exit_code == 0
    file.write_text(file.read_text().replace('"place": "engine"', '"place": 7'))
    wrong = run(app, ["schema", "check", str(file)])
    assert wrong.exit_code == 1 and "rows[0].place: is integer, not string" in wrong.stdout
    with pytest.raises(UsageError, match="no schema 'letters'"):
        schema("letters")
    with pytest.raises(FormatError, match="does not name its schema"):
        check_answer([])


def test_an_error_has_a_schema_too() -> None:
    said = {"error": {"code": "usage", "message": "no", "where": None, "hint": None}}
    assert check_answer(said) == [] and check_answer({"error": {"code": 1}})


@pytest.mark.parametrize(("value", "rule", "wrong"), [
    (1, {"type": "integer"}, 0), (True, {"type": "integer"}, 1), (1, {"type": "number"}, 0),
    (1.5, {"type": "integer"}, 1),
    (None, {"type": ["string", "null"]}, 0), ({"a": 1}, {"required": ["b"]}, 1),
    ({"a": 1}, {"additionalProperties": {"type": "string"}}, 1), ({"a": 1}, {"properties": {"a": True}}, 0),
    ([1, "x"], {"items": {"type": "integer"}}, 1), ("x", {"enum": ["y"]}, 1), (2, {"const": 2}, 0),
    ("x", {"anyOf": [{"type": "null"}, {"type": "string"}]}, 0), ({"a": 1}, {"additionalProperties": False}, 1),
])  # fmt: skip
def test_the_words_of_json_schema(value: object, rule: dict, wrong: int) -> None:
    """Draft 2020-12, by the meaning that its text gives each word."""
    assert len(list(problems(value, rule))) == wrong


def test_a_schema_of_other_words_is_refused() -> None:
    with pytest.raises(FormatError, match="oneOf"):
        list(problems(1, {"oneOf": []}))


@pytest.mark.parametrize(
    "text", ["{}", '{"schema": "hexane-report/1"}', '{"schema": "hexane-report/1", "title": 1, "run": []}']
)
def test_a_report_that_is_none_is_said_so(text: str, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(FormatError, match="report"):
        read_report(tmp_path)
