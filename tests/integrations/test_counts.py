"""What docs/coreml-tests.md, torch-opdb.md and torch-families.md count: a fixed sample here, all of it when slow."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
pytest.importorskip("torch", reason="torch is not installed")

OPERATORS = [
    "add", "mul", "sum", "cat", "permute", "matmul", "softmax", "index_select", "nn.functional.linear",
    "nn.functional.conv2d", "nn.functional.layer_norm", "nn.functional.gelu",
]  # fmt: skip


def test_a_sample_of_op_db() -> None:
    pytest.importorskip("expecttest", reason="torch's own test helpers need expecttest")
    import torch_opdb

    found = torch_opdb.counts(torch_opdb.run(1, OPERATORS))
    assert found["wrong"] == found["crash"] == 0, found
    assert found["pass"] >= len(OPERATORS)


def test_what_is_wrong_is_found() -> None:
    """The comparison itself: an error above the tolerance, another shape, a NaN, an integer."""
    import torch

    import torch_opdb

    x = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float16)
    assert torch_opdb.differs(x, x, x.double()) == ""
    assert torch_opdb.differs(x + 0.3, x, x.double())
    assert torch_opdb.differs(x[:2], x, x.double())
    assert torch_opdb.differs(x * float("nan"), x, x.double())
    assert torch_opdb.differs((x + 1).long(), x.long(), x.long())


def test_a_sample_of_the_converter_tests() -> None:
    pytest.importorskip("coremltools")
    import converter_tests

    found = converter_tests.counts(
        converter_tests.run(["test_torch_ops.py::TestBatchNorm"], every=45, units="CPU_AND_NE")
    )
    assert found["wrong"] == found["crash"] == 0, found
    assert found["pass"] >= 4, found


@pytest.mark.slow
def test_all_of_op_db() -> None:
    pytest.importorskip("expecttest", reason="torch's own test helpers need expecttest")
    import torch_opdb

    found = torch_opdb.counts(torch_opdb.run(3, say=True))
    assert found["wrong"] == found["crash"] == 0, found
    assert found["pass"] > 700


@pytest.mark.slow
def test_all_converter_tests() -> None:
    pytest.importorskip("coremltools")
    import converter_tests

    found = converter_tests.counts(converter_tests.run(list(converter_tests.FILES), every=1, units="CPU_AND_NE"))
    assert found["crash"] == 0, found
    assert found["pass"] > 5000, found


@pytest.mark.slow
def test_all_families() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    import torch_families

    rows = torch_families.run(say=True)
    assert not [name for name, row in rows.items() if row["kind"] == "crash"]
    assert sum(row["kind"] == "pass" for row in rows.values()) > 30
