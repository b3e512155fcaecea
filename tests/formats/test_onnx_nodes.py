"""The ONNX project's own node tests through import and reference evaluation, and the document that counts them."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

import pytest

from formats.coverage_tool import ROOT, coverage_tool

pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return coverage_tool()


@pytest.fixture(scope="module")
def found(tool: ModuleType) -> list:
    return list(tool.outcomes())


def test_no_answer_is_wrong_and_no_exception_is_bare(found: list) -> None:
    bad = [outcome for outcome in found if outcome.kind in ("wrong", "crash")]
    assert not bad, "\n".join(f"{outcome.name}: {outcome.reason}" for outcome in bad)


def test_most_node_tests_pass(found: list) -> None:
    counts = Counter(outcome.kind for outcome in found)
    assert counts["pass"] >= 0.95 * len(found), counts


def test_the_document_is_current(tool: ModuleType, found: list) -> None:
    import onnx

    document = (ROOT / "docs" / "onnx-coverage.md").read_text()
    if f"onnx {'.'.join(onnx.__version__.split('.')[:2])}," not in document:
        pytest.skip(f"docs/onnx-coverage.md was written with another onnx than {onnx.__version__}")
    assert document == tool.render(found, len(tool.all_tests())), "run tools/onnx_coverage.py"
