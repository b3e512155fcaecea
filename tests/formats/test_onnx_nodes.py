"""The ONNX project's own node tests through import and reference evaluation, and the document that counts them."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("onnx")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("onnx_coverage", ROOT / "tools" / "onnx_coverage.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["onnx_coverage"] = module
    spec.loader.exec_module(module)
    return module


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
