"""The map of the private interface: one table behind the page, the command and the models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.mil.test_model import FILES, GOOD, INPUT
from typer.testing import CliRunner

from hexane.cli.main import app
from hexane.errors import UsageError
from hexane.mil import Model, RuntimeFault
from hexane.private_api import KINDS, ROWS, find, private_api_page, selector
from hexane.private_api.calls import FAULTS
from hexane.private_api.faults import compile_fault, inference_fault, load_fault

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "private-api.md").read_text() == private_api_page(), "run `make docs`"


def test_every_row_says_who_saw_it_where() -> None:
    for row in ROWS:
        assert row.kind in KINDS
        assert row.text
        assert row.source
        assert any(word in row.systems for word in ("macOS", "iOS")), row.name
    assert {row.kind for row in ROWS} == set(KINDS)
    keys = [(row.kind, row.owner, row.name) for row in ROWS]
    assert len(set(keys)) == len(keys)


def test_a_model_speaks_selectors_of_the_map() -> None:
    with Model(GOOD, FILES) as model:
        model.evaluate({"x": INPUT})
    assert list(model.transcript) == [
        "+modelWithMILText:weights:optionsPlist:",
        "+inMemoryModelWithDescriptor:",
        "compileWithQoS:options:error:",
        "loadWithQoS:options:error:",
        "evaluateWithQoS:options:request:error:",
        "unloadWithQoS:error:",
    ]
    with pytest.raises(KeyError):
        selector("launchWithQoS:")


@pytest.mark.parametrize("fault", [compile_fault(), inference_fault(0x1D), load_fault()])
def test_faults_are_those_of_the_map(fault: RuntimeFault) -> None:
    assert any(row.domain == fault.domain and row.code == fault.code for row in FAULTS)


def test_the_command() -> None:
    run = lambda *words: CliRunner().invoke(app, ["api", *words])  # noqa: E731
    assert "selector" in run().output
    assert "unloadWithQoS:error:" in run("_ANEInMemoryModel").output
    rows = json.loads(run("0x50004", "--json").output)["rows"]
    assert rows[0]["kind"] == "error"
    with pytest.raises(UsageError, match="kinds are"):
        find("nothing of the kind")
