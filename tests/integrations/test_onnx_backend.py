"""hexane.onnx_backend: ONNX's interface, and a fixed sample of ONNX's own tests through it."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import hexane
from formats.coverage_tool import coverage_tool
from hexane.errors import HexaneError, UsageError
from tool import tool_named

onnx = pytest.importorskip("onnx")
ROOT = Path(__file__).resolve().parents[2]
SAMPLE = 67
"""Every so-many-th test is the sample; a prime, since tests of one op stand together."""


@lru_cache(maxsize=1)
def tool() -> ModuleType:
    module = tool_named("onnx_backend")
    module.all_tests = coverage_tool().all_tests
    return module


def relu_model() -> Any:
    h = onnx.helper
    infos = [h.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in "xy"]
    graph = h.make_graph([h.make_node("Relu", ["x"], ["y"])], "g", infos[:1], infos[1:])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)])


def test_it_is_a_back_end() -> None:
    from onnx.backend.base import Backend, BackendRep

    backend = hexane.onnx_backend
    assert issubclass(backend.HexaneBackend, Backend)
    assert backend.supports_device("CPU") and backend.supports_device("ANE:0") and not backend.supports_device("CUDA")
    assert backend.is_compatible(relu_model())
    prepared = backend.prepare(relu_model(), "CPU", chip="M4")
    assert isinstance(prepared, BackendRep) and prepared.program.chip == "M4"
    x = np.float32([[-1, 0, 1], [2, -3, 4]])
    for inputs in ([x], x, {"x": x}):
        made = prepared.run(inputs)
        np.testing.assert_array_equal(made[0], np.maximum(x, 0))
        np.testing.assert_array_equal(made.y, made["y"])  # type: ignore[attr-defined, call-overload]
    np.testing.assert_array_equal(backend.run_model(relu_model(), [x])[0], np.maximum(x, 0))
    for wrong in (lambda: prepared.run([x, x]), lambda: prepared.run({"q": x}), lambda: prepared.run([x[0]])):
        with pytest.raises(UsageError):
            wrong()
    with pytest.raises(UsageError, match="no device"):
        backend.prepare(relu_model(), "CUDA")


def test_refusals_are_onnx_words_for_it() -> None:
    from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

    model = relu_model()
    model.graph.node[0].op_type = "Asinh"
    assert hexane.onnx_backend.is_compatible(model)
    assert not hexane.onnx_backend.is_compatible(model, strict=True)
    with pytest.raises(BackendIsNotSupposedToImplementIt, match="on the host") as caught:
        hexane.onnx_backend.prepare(model, strict=True)
    assert isinstance(caught.value, HexaneError)
    model.graph.node[0].op_type = "NoSuchOp"
    with pytest.raises(UsageError, match="checker refuses"):
        hexane.onnx_backend.prepare(model)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted"),
    [
        ("Add", [np.float32([1, 2]), np.float32([3, 4])], {}, np.float32([4, 6])),
        ("Reshape", [np.float32([[1, 2]]), np.array([2, 1])], {}, np.float32([[1], [2]])),
        ("Gather", [np.float32([1, 2, 3]), np.array([2, 0])], {"axis": 0}, np.float32([3, 1])),
        ("Clip", [np.float32([-5, 0, 5]), None, np.float32(3)], {}, np.float32([-5, 0, 3])),
    ],
)
def test_one_node(op: str, inputs: list[Any], attributes: dict[str, Any], wanted: np.ndarray) -> None:
    names = ["" if value is None else f"i{i}" for i, value in enumerate(inputs)]
    node = onnx.helper.make_node(op, names, ["out"], **attributes)
    made = hexane.onnx_backend.run_node(node, inputs)
    np.testing.assert_array_equal(made[0], wanted)
    with_info = hexane.onnx_backend.run_node(node, inputs, outputs_info=[(wanted.dtype, wanted.shape)])
    np.testing.assert_array_equal(with_info.out, wanted)  # type: ignore[attr-defined]
    with pytest.raises(UsageError):
        hexane.onnx_backend.run_node(node, [])


@pytest.mark.slow
def test_the_interface_in_onnx_own_runner() -> None:
    from onnx.backend.test.runner import Runner

    cases = Runner(hexane.onnx_backend, __name__).include("^test_relu_cpu$").test_cases  # type: ignore[arg-type]
    case = cases["OnnxBackendNodeModelTest"]
    case("test_relu_cpu").debug()


@pytest.mark.parametrize("strict", [False, True])
def test_a_sample_of_onnx_own_tests(strict: bool) -> None:
    found = list(tool().outcomes(step=SAMPLE, strict=strict))
    counts = Counter(outcome.kind for outcome in found)
    bad = [outcome for outcome in found if outcome.kind in ("wrong", "crash")]
    assert not bad, "\n".join(f"{outcome.name}: {outcome.kind} {outcome.reason}" for outcome in bad)
    assert counts["pass"] >= (5 if strict else 0.75 * len(found)), counts
    if strict:
        assert all(outcome.engine for outcome in found if outcome.kind == "pass")


@pytest.mark.slow
def test_all_of_onnx_own_tests_and_the_document() -> None:
    found = {"default": list(tool().outcomes()), "strict": list(tool().outcomes(strict=True))}
    bad = [outcome for rows in found.values() for outcome in rows if outcome.kind in ("wrong", "crash")]
    assert not bad, "\n".join(f"{outcome.name}: {outcome.kind} {outcome.reason}" for outcome in bad)
    document = (ROOT / "docs" / "onnx-backend.md").read_text()
    if f"onnx {'.'.join(onnx.__version__.split('.')[:2])} " not in document:
        pytest.skip(f"docs/onnx-backend.md was written with another onnx than {onnx.__version__}")
    assert document == tool().render(found), "run tools/onnx_backend.py"
