"""hexane.InferenceSession beside onnxruntime's: the same answers, the same refusals."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from formats.zoo import settled_model
from hexane.errors import FormatError, HexaneError, UnsupportedError, UsageError

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


def small(batch: Any = "batch", other: Any = 8) -> bytes:
    """y = relu(conv(x)) + b, z = sum of y: two inputs, two outputs, an open batch."""
    h, t = onnx.helper, onnx.TensorProto
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32) / 5
    graph = h.make_graph(
        [
            h.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            h.make_node("Relu", ["c"], ["r"]),
            h.make_node("Add", ["r", "b"], ["y"]),
            h.make_node("ReduceSum", ["y"], ["z"], keepdims=0),
        ],
        "small",
        [
            h.make_tensor_value_info("x", t.FLOAT, [batch, 3, 8, other]),
            h.make_tensor_value_info("b", t.FLOAT, [batch, 4, 8, other]),
        ],
        [h.make_tensor_value_info("y", t.FLOAT, [batch, 4, 8, other]), h.make_tensor_value_info("z", t.FLOAT, [])],
        [onnx.numpy_helper.from_array(weight, "w")],
        doc_string="about the graph",
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], producer_name="me", ir_version=10)
    model.model_version, model.doc_string, model.domain = 7, "about the model", "org.me"
    h.set_model_props(model, {"key": "value"})
    return bytes(model.SerializeToString())


def feed(batch: int = 1) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    return {
        "x": draw.standard_normal((batch, 3, 8, 8)).astype(np.float32),
        "b": draw.standard_normal((batch, 4, 8, 8)).astype(np.float32),
    }


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    return hexane.InferenceSession(small()), ort.InferenceSession(small())


def test_what_it_says_of_the_model(pair: tuple[Any, Any]) -> None:
    ours, theirs = pair
    for method in ("get_inputs", "get_outputs"):
        assert [(a.name, a.shape, a.type) for a in getattr(ours, method)()] == [
            (a.name, a.shape, a.type) for a in getattr(theirs, method)()
        ]
    assert ours.get_overridable_initializers() == []
    mine, other = ours.get_modelmeta(), theirs.get_modelmeta()
    for name in ("producer_name", "graph_name", "domain", "description", "graph_description", "version"):
        assert getattr(mine, name) == getattr(other, name), name
    assert mine.custom_metadata_map == other.custom_metadata_map == {"key": "value"}
    assert ours.get_providers() == ["HexaneExecutionProvider", "CPUExecutionProvider"]
    assert ours.get_provider_options()["HexaneExecutionProvider"]["chip"] == "M1"


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("names", [None, [], ["z"], ["z", "y"]])
def test_the_same_answers(pair: tuple[Any, Any], batch: int, names: list[str] | None) -> None:
    ours, theirs = (session.run(names, feed(batch)) for session in pair)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs):
        assert mine.dtype == other.dtype and mine.shape == np.shape(other)
        np.testing.assert_allclose(mine, other, rtol=4e-3, atol=4e-3 * max(1, np.abs(other).max()))


@pytest.mark.parametrize(
    ("names", "change", "says"),
    [
        (["nope"], {}, "invalid output name: 'nope'"),
        ("y", {}, "output_names is a str"),
        (None, {"x": None}, r"required inputs \(\['x'\]\) are missing"),
        (None, {"extra": np.zeros(1)}, "invalid input name: 'extra'"),
        (None, {"x": np.zeros((1, 3, 8, 8))}, r"tensor\(double\) where the model has tensor\(float\)"),
        (None, {"x": np.zeros((1, 3, 8, 8), np.int64)}, r"tensor\(int64\) where"),
        (None, {"x": np.zeros((3, 8, 8), np.float32)}, "invalid rank 3, expected 4"),
        (None, {"x": np.zeros((1, 3, 9, 8), np.float32)}, "9 at index 2 where 8 is expected"),
        (None, {"b": np.zeros((2, 4, 8, 8), np.float32)}, "2 at index 0 where 1 is expected as in 'x'"),
        (None, {"x": [[1, 2], [3]]}, "is no array"),
        (None, {"x": [["a"]]}, "does not fit"),
    ],
)
def test_wrong_calls(pair: tuple[Any, Any], names: Any, change: dict[str, Any], says: str) -> None:
    given = {name: value for name, value in {**feed(), **change}.items() if value is not None}
    with pytest.raises(UsageError, match=says):
        pair[0].run(names, given)
    if says.startswith(("invalid output", "required", "invalid input", "tensor", "invalid rank", "9 at", r"tensor\(")):
        with pytest.raises(Exception):  # noqa: B017  (its classes share no base)
            pair[1].run(names, given)


def test_a_feed_that_is_none(pair: tuple[Any, Any]) -> None:
    with pytest.raises(UsageError, match="input_feed is a list"):
        pair[0].run(None, [1])


def test_lists_are_arrays(pair: tuple[Any, Any]) -> None:
    given = feed()
    lists = {name: array.tolist() for name, array in given.items()}
    np.testing.assert_array_equal(pair[0].run(["z"], lists)[0], pair[0].run(["z"], given)[0])


def test_a_call_that_does_not_wait(pair: tuple[Any, Any]) -> None:
    """onnxruntime's own ``run_async`` beside ours: outputs, the caller's datum, and an error instead of outputs."""
    answers: list[dict[str, Any]] = []
    for session in pair:
        for given in (feed(), {"x": np.zeros(3, np.float32), "b": feed()["b"]}):
            done, answer = threading.Event(), {}

            def over(outputs: Any, datum: Any, error: str, done: Any = done, answer: dict = answer) -> None:
                answer.update(outputs=outputs, datum=datum, error=error)
                done.set()

            session.run_async(["z"], given, over, 7)
            assert done.wait(60)
            answers.append(answer)
    ours, wrong, theirs, theirs_wrong = answers
    assert ours["datum"] == theirs["datum"] == 7 and ours["error"] == theirs["error"] == ""
    np.testing.assert_allclose(ours["outputs"][0], theirs["outputs"][0], atol=0.05)
    assert "shape" in wrong["error"] and not wrong["outputs"] and theirs_wrong["error"] and not theirs_wrong["outputs"]


def test_a_provider_that_is_not_here_is_said(caplog: pytest.LogCaptureFixture) -> None:
    session = hexane.InferenceSession(small(1), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert [record.message for record in caplog.records] == ["there is no CUDAExecutionProvider here: it is left out"]
    assert repr(session).startswith("<InferenceSession x tensor(float) [1, 3, 8, 8], b tensor(float)")


def test_binding(pair: tuple[Any, Any]) -> None:
    ours, _ = pair
    given = feed()
    wanted = ours.run(["y", "z"], given)
    binding = ours.io_binding()
    with pytest.raises(UsageError, match="no output is bound"):
        ours.run_with_iobinding(binding)
    for name, array in given.items():
        binding.bind_cpu_input(name, array)
    mine = np.zeros((1, 4, 8, 8), np.float32)
    binding.bind_ortvalue_output("y", hexane.onnx_backend.OrtValue.ortvalue_from_numpy(mine))
    binding.bind_output("z")
    ours.run_with_iobinding(binding)
    np.testing.assert_array_equal(mine, wanted[0])
    assert [value.data_type() for value in binding.get_outputs()] == ["tensor(float)", "tensor(float)"]
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[1], wanted[1])
    given["x"][...] = 0  # bound, not copied
    ours.run_with_iobinding(binding)
    assert not np.array_equal(mine, wanted[0])
    binding.bind_ortvalue_output("y", hexane.onnx_backend.OrtValue(np.zeros((2, 4, 8, 8), np.float32)))
    with pytest.raises(UsageError, match="what is bound is"):
        ours.run_with_iobinding(binding)
    for wrong in (lambda: binding.bind_cpu_input("q", mine), lambda: binding.bind_output("q")):
        with pytest.raises(UsageError, match="invalid"):
            wrong()
    with pytest.raises(UsageError, match="cannot be bound"):
        binding.bind_output("y", "cuda")


def test_options() -> None:
    both = [("HexaneExecutionProvider", {"chip": "M4", "strict": "1"}), "CPUExecutionProvider"]
    session = hexane.InferenceSession(small(1), ort.SessionOptions(), providers=both)
    assert session.program().chip == "M4" and session.get_providers() == ["HexaneExecutionProvider"]
    assert session.program().stats()["host_segments"] == 0
    for wrong, says in (
        ({"chp": "M1"}, "no option 'chp'"),
        ({"providers": ["Bogus"]}, "unknown provider"),
        ({"providers": "CPUExecutionProvider"}, "providers is a list"),
        ({"provider_options": [{}]}, "one entry for each"),
    ):
        with pytest.raises(UsageError, match=says):
            hexane.InferenceSession(small(1), **wrong)  # type: ignore[arg-type]


def test_strict_names_what_the_host_would_do() -> None:
    h, t = onnx.helper, onnx.TensorProto
    info = [h.make_tensor_value_info(name, t.FLOAT, [1, 4]) for name in "xy"]
    nodes = [h.make_node("Relu", ["x"], ["r"]), h.make_node("Asinh", ["r"], ["y"])]
    model = h.make_model(h.make_graph(nodes, "g", info[:1], info[1:]), opset_imports=[h.make_opsetid("", 18)])
    data = model.SerializeToString()
    x = np.float32([[0.5, -1, 2, 3]])
    np.testing.assert_allclose(
        hexane.InferenceSession(data).run(None, {"x": x})[0], np.arcsinh(np.maximum(x, 0)), rtol=2e-3, atol=1e-3
    )
    with pytest.raises(UnsupportedError, match="strict: 1 of 2 ops would run on the host"):
        hexane.InferenceSession(data, strict=True)


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        hexane.InferenceSession(tmp_path / "no.onnx")
    with pytest.raises(HexaneError):
        hexane.InferenceSession(b"xx")


def test_a_default_stays(caplog: pytest.LogCaptureFixture) -> None:
    h, t = onnx.helper, onnx.TensorProto
    infos = [h.make_tensor_value_info(name, t.FLOAT, [2]) for name in "xky"]
    graph = h.make_graph(
        [h.make_node("Mul", ["x", "k"], ["y"])],
        "g",
        infos[:2],
        infos[2:],
        [onnx.numpy_helper.from_array(np.float32([300, 2]), "k")],
    )
    session = hexane.InferenceSession(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)]).SerializeToString())
    assert [a.name for a in session.get_inputs()] == ["x"]
    assert [a.name for a in session.get_overridable_initializers()] == ["k"]
    with pytest.raises(UsageError, match="constant of the compiled"):
        session.run(None, {"x": np.ones(2, np.float32), "k": np.ones(2, np.float32)})
    with caplog.at_level(logging.WARNING):
        (y,) = session.run(None, {"x": np.float32([300, 3])})
    assert np.isinf(y[0]) and y[1] == 6
    assert "1 of 2 numbers are infinite" in caplog.text


def test_a_network_of_the_zoo() -> None:
    model = settled_model("squeezenet").SerializeToString()
    ours, theirs = hexane.InferenceSession(model), ort.InferenceSession(model)
    shown = [(a.name, a.type, len(a.shape)) for a in theirs.get_inputs()]
    assert [(a.name, a.type, len(a.shape)) for a in ours.get_inputs()] == shown
    given = {shown[0][0]: np.random.default_rng(0).uniform(-1, 1, (1, 3, 224, 224)).astype(np.float32)}
    for mine, other in zip(ours.run(None, given), theirs.run(None, given)):
        assert mine.shape == other.shape and mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, atol=2e-2 * np.abs(other).max())


def test_values_and_bindings_as_onnxruntime_has_them(pair: tuple[Any, Any]) -> None:
    """The same calls on both: values of zeros, changed in place, bound as inputs and outputs, cleared."""
    seen = []
    for session, value_of in ((pair[0], hexane.onnx_backend.OrtValue), (pair[1], ort.OrtValue)):
        zeros = value_of.ortvalue_from_shape_and_type([1, 3, 8, 8], np.float32)
        facts: list[Any] = [zeros.shape(), zeros.data_type(), zeros.device_name(), zeros.is_tensor(), zeros.has_value()]
        zeros.update_inplace(feed()["x"])
        facts.append(zeros.numpy().tobytes() == feed()["x"].tobytes())
        values = {"x": zeros, "b": value_of.ortvalue_from_numpy(feed()["b"])}
        facts += [value.numpy() for value in session.run_with_ort_values(["z", "y"], values)]
        binding, target = session.io_binding(), value_of.ortvalue_from_numpy(np.zeros((1, 4, 8, 8), np.float32))
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output("y", target)
        binding.bind_output("z")
        binding.synchronize_inputs()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        facts += [target.numpy(), *(value.numpy() for value in binding.get_outputs())]
        binding.clear_binding_outputs()
        binding.bind_output("z")
        session.run_with_iobinding(binding)
        facts += binding.copy_outputs_to_cpu()
        binding.clear_binding_inputs()
        with pytest.raises(Exception):  # noqa: B017 - of another class in onnxruntime
            session.run_with_iobinding(binding)
        seen.append(facts)
    assert len(seen[0]) == len(seen[1]) == 12
    assert seen[0][:6] == seen[1][:6] == [[1, 3, 8, 8], "tensor(float)", "cpu", True, True, True]
    for one, other in zip(seen[0][6:], seen[1][6:]):
        np.testing.assert_allclose(one, other, rtol=5e-3, atol=2e-2)


def test_what_cannot_be_bound(pair: tuple[Any, Any]) -> None:
    binding = pair[0].io_binding()
    assert not hexane.onnx_backend.OrtValue.ortvalue_from_shape_and_type((2, 3), np.float16).numpy().any()
    value = hexane.onnx_backend.OrtValue.ortvalue_from_numpy(np.zeros(3, np.float32))
    with pytest.raises(UsageError, match="not by address"):
        binding.bind_input("x", "cpu", 0, np.float32, [1, 3, 8, 8], 0x1000)
    with pytest.raises(UsageError, match="not by address"):
        binding.bind_output("y", "cpu", 0, np.float32, [1, 4, 8, 8], 0x1000)
    with pytest.raises(UsageError, match="memory of 'cuda'"):
        binding.bind_output("y", "cuda")
    for other in (np.zeros(4, np.float32), np.zeros((1, 3), np.float32), np.zeros(3, np.float64)):
        with pytest.raises(UsageError, match="into a value of float32"):
            value.update_inplace(other)
