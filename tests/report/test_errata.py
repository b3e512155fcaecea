"""Every erratum as a network: check names the op, the number, the remedy and who says so, from any file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.errors import HexaneError
from hexane.passes.apple_forms import applied
from hexane.report.errata import ERRATA, Erratum, errata_page
from hexane.restrictions import RULES
from hexane.restrictions import objections as limits
from hexane.restrictions.remarks import remarks

ROOT = Path(__file__).resolve().parents[2]
TEXT_HOLDS = ("C2", "C3")  # weights that nobody writes into a file here; shapes that only a description holds


def named(rows: tuple[Erratum, ...]) -> list:
    return [pytest.param(row, id=f"{row.rule}-{row.name.replace(' ', '-')}") for row in rows]


@pytest.mark.parametrize("row", named(ERRATA))
def test_check_names_the_op_the_number_and_the_remedy(row: Erratum) -> None:
    graph = row.graph()
    report = hexane.check(graph, row.chip, "apple", row.values(graph)) if row.rule != "C2" else None
    found = [r for line in report.rows if line.op == row.op for r in line.remarks] if report else [row.remark(graph)]
    (remark,) = [r for r in found if r.rule == row.rule][:1]
    assert remark.limit != "" and remark.found not in ("", "not known: give inputs") and remark.remedy and remark.source
    assert remark.status in ("confirmed", "disputed", "inferred") and remark.says and "{" not in remark.says


@pytest.mark.parametrize("ending", ["mil", "onnx", "mlpackage"])
def test_the_same_is_said_of_files(ending: str, tmp_path: Path) -> None:
    """Each rule from each kind of file that can hold its network."""
    if ending == "mlpackage":
        pytest.importorskip("coremltools")
    told, silent = set(), {}
    for number, row in enumerate(ERRATA):
        if row.rule in TEXT_HOLDS:
            continue
        path = tmp_path / f"{number}.{ending}"
        try:
            row.graph().save(path)
            graph = hexane.load(path)
        except HexaneError as error:
            silent[row.name] = error.message
            continue
        graph.metadata.update({} if ending == "onnx" else row.metadata)
        said = remarks(graph, hexane.chips.get(row.chip), row.values(graph))
        if any(remark.rule == row.rule for rows in said.values() for remark in rows):
            told.add(row.name)
        else:
            silent[row.name] = "nothing is said"
    print(ending, silent)
    assert len(told) >= {"mil": 44, "onnx": 30, "mlpackage": 40}[ending], silent


def test_numbers_within_the_limits_are_no_remark() -> None:
    for row in ERRATA:
        if row.inputs and row.rule not in ("N5", "N6", "N19"):
            halves = {name: np.full(np.shape(value), 0.5) for name, value in row.inputs.items()}
            with pytest.raises(KeyError):
                replace(row, inputs=halves).remark()


def test_every_rule_on_numbers_and_compilation_is_an_erratum() -> None:
    named_rules = {row.rule for row in ERRATA}
    assert {rule for rule in RULES if rule[0] in "NC" and rule[1:].isdigit()} <= named_rules
    assert named_rules <= {*RULES, *(rule.name for rule in limits.RULES)} and len(ERRATA) >= 30


def test_those_that_apples_program_computes_are_marked() -> None:
    page = (ROOT / "docs" / "errata.md").read_text()
    assert page == errata_page(), "run `make docs`"
    computed = [
        row for row in ERRATA if any(f.rule == row.rule for f in applied(row.graph(), hexane.chips.get(row.chip)))
    ]
    assert len(computed) >= 5 and page.count("| yes |") == len(computed)
