"""The ONNX project's own node tests through import and reference evaluation, and the document that counts them."""

from __future__ import annotations

from collections import Counter
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
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


MOST_OF_AN_OP = 4
"""Node tests of an operator that are run with their operands in the file."""


def not_floats(value: Any) -> bool:
    """True of an operand of whole numbers or conditions."""
    import onnx

    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    return dtype.kind in "biu" and value.type.WhichOneof("value") == "tensor_type"


def with_constants(test: Any) -> SimpleNamespace:
    """A node test whose inputs but for the first stand in the file."""
    import onnx

    (inputs, outputs), *_ = test.data_sets
    model = onnx.ModelProto()
    model.CopyFrom(test.model)
    for value, array in list(zip(model.graph.input, inputs))[1:]:
        tensor = array if isinstance(array, onnx.TensorProto) else onnx.numpy_helper.from_array(np.asarray(array))
        model.graph.initializer.append(tensor)
        model.graph.initializer[-1].name = value.name
    del model.graph.input[1:]
    return SimpleNamespace(
        name=test.name, model=model, data_sets=[(inputs[:1], outputs)], rtol=test.rtol, atol=test.atol
    )


def test_operands_in_the_file_give_the_same(tool: ModuleType) -> None:
    """Indices, extents and conditions beside the first operand; what they decide about shapes is known then."""
    tests = [test for test in tool.all_tests() if tool.in_scope(test) and len(test.model.graph.node) == 1]
    several = [test for test in tests if any(not_floats(value) for value in test.model.graph.input[1:])]
    by_op: dict[str, list[Any]] = {}
    for test in several:
        by_op.setdefault(test.model.graph.node[0].op_type, []).append(test)
    found = [tool.run(with_constants(test)) for tests in by_op.values() for test in tests[:MOST_OF_AN_OP]]
    bad = [outcome for outcome in found if outcome.kind in ("wrong", "crash")]
    assert not bad, "\n".join(f"{outcome.name}: {outcome.reason}" for outcome in bad)
    refused = [outcome.name for outcome in found if outcome.kind == "refused"]
    assert len(found) > 100 and len(refused) < 0.05 * len(found), refused
