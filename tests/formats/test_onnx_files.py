"""ONNX files as files: external data, open dimensions, control flow, functions, and whatever is broken or hostile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import FormatError, GraphError, HexaneError, UnsupportedError, UsageError

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper, parser  # noqa: E402


def load(model: Any, **options: Any) -> Any:
    from hexane.formats.onnx import load as load_onnx

    return load_onnx(model.SerializeToString() if hasattr(model, "SerializeToString") else model, **options)


def text(body: str, opset: int = 17) -> Any:
    """A model from ONNX's own textual form."""
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {body}')


# --------------------------------------------------------------------------------------------------- external data


def external(
    folder: Path, location: str = "w.bin", offset: int = 0, length: int | None = None, dims: tuple = (16, 600)
) -> Path:
    """A matrix product whose weight lies in another file."""
    data = np.random.default_rng(0).standard_normal((16, 600)).astype(np.float32)
    (folder / "w.bin").write_bytes(b"\0" * 64 + data.tobytes())
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    fields = {"location": location, "offset": str(offset), "length": str(data.nbytes if length is None else length)}
    for key, value in fields.items():
        tensor.external_data.add(key=key, value=value)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 600])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [tensor])
    path = folder / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def test_external_data(tmp_path: Path) -> None:
    path = external(tmp_path, offset=64)
    graph = hexane.load(path, shapes={"x": (2, 16)})
    weight = np.frombuffer((tmp_path / "w.bin").read_bytes()[64:], np.float32).reshape(16, 600)
    x = np.random.default_rng(1).standard_normal((2, 16)).astype(np.float32)
    np.testing.assert_allclose(graph.evaluate({"x": x})["y"], x @ weight, rtol=1e-5, atol=1e-5)
    given = hexane.load(path, shapes={"n": 2}, weights={"w.bin": b"\0" * 64 + (weight * 2).tobytes()})
    np.testing.assert_allclose(given.evaluate({"x": x})["y"], 2 * x @ weight, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "fields",
    [
        {"location": "../w.bin"},
        {"location": "/etc/hostname"},
        {"location": "none.bin"},
        {"location": ""},
        {"offset": 1 << 60},
        {"offset": -1},
        {"length": 4},
        {"dims": (1 << 20, 1 << 20)},
        {"dims": (-1, 600)},
    ],
)
def test_external_data_outside_its_file_are_refused(tmp_path: Path, fields: dict) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(b"\0" * 1_000_000)
    path = external(folder, **fields)
    with pytest.raises(FormatError):
        hexane.load(path, shapes={"x": (2, 16)})


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    path = external(folder, location="link.bin")
    (tmp_path / "secret.bin").write_bytes(b"\0" * 1_000_000)
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(FormatError):
        hexane.load(path, shapes={"x": (2, 16)})


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
def test_a_gigabyte_of_external_data_stays_on_disk(tmp_path: Path) -> None:
    size, layers = 4096, 16
    (tmp_path / "w.bin").touch()
    with open(tmp_path / "w.bin", "r+b") as file:
        file.truncate(size * size * 4 * layers)
    tensors, nodes = [], []
    for i in range(layers):
        tensor = TensorProto(
            name=f"w{i}", data_type=TensorProto.FLOAT, dims=(size, size), data_location=TensorProto.EXTERNAL
        )
        tensor.external_data.add(key="location", value="w.bin")
        tensor.external_data.add(key="offset", value=str(i * size * size * 4))
        tensors.append(tensor)
        nodes.append(helper.make_node("Transpose", [f"w{i}"], [f"t{i}"]))
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"t{i}"], [f"x{i + 1}"]))
    x = helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["n", size])
    y = helper.make_tensor_value_info(f"x{layers}", TensorProto.FLOAT, ["n", size])
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    code = (
        f"import hexane; hexane.load({str(path)!r}, shapes={{'n': 1}})\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": "src"}, check=True
    )
    assert int(done.stdout) < (1024 + 300) << 10


# -------------------------------------------------------------------------------------------------- open dimensions


def test_shapes_bind_inputs_and_symbols() -> None:
    model = text("g (float[n, 3, h, w] x, float[n] s) => (float[n, 3, h, w] y) { y = Relu(x) z = Add(s, s) }")
    for shapes in ({"x": (2, 3, 4, 5), "s": (2,)}, {"n": 2, "h": 4, "w": 5}, {"x": (2, 3, 4, 5)}):
        assert load(model, shapes=shapes).inputs["x"].shape == (2, 3, 4, 5)
    with pytest.raises(UsageError, match="h, w"):
        load(model, shapes={"n": 2})
    with pytest.raises(UsageError, match="'q'"):
        load(model, shapes={"n": 2, "h": 4, "w": 5, "q": (1,)})
    with pytest.raises(UsageError, match="4 dimensions"):
        load(model, shapes={"x": (2, 3)})
    with pytest.raises(UsageError):
        load(model, shapes={"x": (2, 3, -4, 5)})


def test_a_fixed_shape_may_be_bound_anew() -> None:
    model = text(
        "g (float[1, 3, 8, 8] x) => (float[1, 3, 4, 4] y) { y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }"
    )
    assert load(model, shapes={"x": (2, 3, 16, 8)}).outputs["y"].shape == (2, 3, 8, 4)


# --------------------------------------------------------------------------------------- control flow and functions


def test_control_flow_that_folds_away() -> None:
    model = text(
        """g (float[4] x) => (float[4] y, float[3, 4] s) {
            n = Constant<value: tensor = int64 {3}>()
            go = Constant<value: tensor = bool {1}>()
            size = Size(x)
            four = Constant<value: tensor = int64 {4}>()
            right = Equal(size, four)
            start = If(right) <then_branch = t () => (a) { a = Neg(x) }, else_branch = e () => (b) { b = Exp(x) }>
            y, s = Loop(n, go, start) <body = b (int64 i, bool c, float[4] v) => (bool d, float[4] w, float[4] o) {
                d = Identity(c) f = Cast<to = 1>(i) w = Add(v, f) o = Identity(w) }>
        }"""
    )
    graph = load(model)
    assert {op.type for op in graph.ops} <= {"mul", "add", "concat", "reshape", "expand_dims", "identity"}
    x = np.arange(4, dtype=np.float32)
    made = graph.evaluate({"x": x})
    np.testing.assert_array_equal(made["y"], -x + 3)
    np.testing.assert_array_equal(made["s"], np.stack([-x, -x + 1, -x + 3]))


def test_a_branch_on_data_becomes_a_selection() -> None:
    model = text(
        """g (bool c, float[2] x) => (float[2] y) {
            y = If(c) <then_branch = t () => (a) { a = Neg(x) }, else_branch = e () => (b) { b = Exp(x) }>
        }"""
    )
    graph, x = load(model), np.array([1, 2], np.float32)
    np.testing.assert_allclose(graph.evaluate({"c": np.array(True), "x": x})["y"], -x)
    np.testing.assert_allclose(graph.evaluate({"c": np.array(False), "x": x})["y"], np.exp(x), rtol=1e-6)


def test_an_endless_loop_is_refused() -> None:
    model = text(
        """g (float[2] x) => (float[2] y) {
            go = Constant<value: tensor = bool {1}>()
            y = Loop("", go, x) <body = b (int64 i, bool c, float[2] v) => (bool c, float[2] w) { w = Add(v, v) }>
        }"""
    )
    with pytest.raises(UnsupportedError, match=r"Loop.*more than"):
        load(model)


def test_functions_are_inlined() -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "mine": 1]>
        g (float[2] x) => (float[2] y) { y = mine.twice<by: float = 3.0>(x) }
        <domain: "mine", opset_import: ["": 17]>
        twice <by: float = 2.0> (a) => (b) { f = Constant<value_float: float = @by>() c = mine_inner(a) b = Mul(c, f) }
        """.replace("mine_inner(a)", "Neg(a)")
    )
    np.testing.assert_array_equal(load(model).evaluate({"x": np.array([1, 2], np.float32)})["y"], [-3, -6])


# ---------------------------------------------------------------------------------------------------- older op sets


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 15, 18, 21, 23])
def test_one_network_in_many_op_sets(opset: int) -> None:
    """The same network, converted by onnx itself, means the same."""
    import onnx.version_converter

    model = text(
        """g (float[1, 4, 8, 8] x) => (float[1, 6] y) <float[6, 64] w> {
            a = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
            b = BatchNormalization(a, s, s, m, s)
            d = Softmax<axis = 1>(b)
            e = Flatten<axis = 1>(d)
            y = Gemm<transB = 1>(e, w)
        }""",
        opset=9,
    )
    rng = np.random.default_rng(0)
    for name, shape in (("w", (6, 64)), ("s", (4,)), ("m", (4,))):
        model.graph.initializer.append(numpy_helper.from_array(rng.uniform(0.5, 1, shape).astype(np.float32), name))
    del model.graph.value_info[:]
    converted = model if opset == 9 else onnx.version_converter.convert_version(model, opset)
    x = rng.standard_normal((1, 4, 8, 8)).astype(np.float32)
    wanted = load(model).evaluate({"x": x})["y"]
    np.testing.assert_allclose(load(converted).evaluate({"x": x})["y"], wanted, rtol=1e-5)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool<count_include_pad=1>", "LpPool<p=3>", "LpPool"])
@pytest.mark.parametrize("window", ["[3,4]", "[2,4]", "[7,2]"])
def test_a_window_larger_than_the_padded_input_in_ceiling_mode(kind: str, window: str) -> None:
    """The first window begins in the input and reaches beyond it, whatever its size, up to a stride."""
    runtime = pytest.importorskip("onnxruntime")
    name, _, own = kind.rstrip(">").partition("<")
    attributes = f"kernel_shape={window}, strides=[4,4], pads=[1,1,0,0], ceil_mode=1" + (own and f", {own}")
    model = text(f"g (float[1, 3, 5, 1] x) => (float[1, 3, h, w] y) {{ y = {name}<{attributes}>(x) }}", opset=19)
    x = np.random.default_rng(3).standard_normal((1, 3, 5, 1)).astype(np.float32)
    (expected,) = runtime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(load(model).evaluate({"x": x})["y"], expected, rtol=1e-5, atol=1e-6)


def test_an_op_set_of_the_future_is_named() -> None:
    model = text("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.opset_import[0].version = 999
    with pytest.raises(UnsupportedError, match="999"):
        load(model)


# ------------------------------------------------------------------------------------------------ broken and hostile


@pytest.mark.parametrize(
    "data", [b"", b"\x08", b"not an onnx file", b"\x00" * 100, b"PK\x03\x04zip", bytes(range(256))]
)
def test_what_is_no_model_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(FormatError):
        hexane.load(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("g (float[2] x) => (float[2] y) { y = Add(x, z) z = Relu(y) }", "nothing before it"),
        ("g (float[2] x) => (float[2] y) { y = Relu(y) }", "nothing before it"),
        ("g (float[2] x) => (float[2] q) { y = Relu(x) }", "made by no node"),
        ("g (float[2] x) => (float[2] y) { y = Relu(x) y = Exp(x) }", "second time"),
    ],
)
def test_graphs_that_are_none(body: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        load(text(body))


@pytest.mark.parametrize(
    "body",
    [
        "g (float[2] x) => (float[n] y) { s = Constant<value_ints = [1000000000, 1000000000]>() y = Expand(x, s) }",
        "g (float[2] x) => (float[n, m] y) { s = Constant<value_ints = [100000, 100000]>() y = ConstantOfShape(s) }",
        "g (float[2] x) => (float[n] y) { s = Constant<value_ints = [1000000000]>() y = Tile(x, s) }",
        "g (float[2] x) => (float[n] y) { s = Constant<value_ints = [0, 2000000000]>() y = Pad(x, s) }",
        """g (float[2] x) => (int64[n] y) { a = Constant<value_int = 0>() b = Constant<value_int = 1000000000000>()
           c = Constant<value_int = 1>() y = Range(a, b, c) }""",
        "g (float[1000000000] x) => (float[1000000000] y) { y = Relu(x) }",
        """g (float[1, 1, 8, 8] x) => (float[a, b, c, d] y) {
           s = Constant<value_floats = [1.0, 1.0, 1e6, 1e6]>() y = Resize(x, , s) }""",
    ],
)
def test_giants_are_refused_before_they_take_memory(body: str) -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(HexaneError):
        load(text(body))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10


def test_wrong_types_name_the_node() -> None:
    with pytest.raises(GraphError, match="MatMul 'y'"):
        load(text("g (float[2, 3] x, float[4, 5] w) => (float[2, 5] y) { y = MatMul(x, w) }"))


def base_model() -> bytes:
    rng = np.random.default_rng(0)
    model = text(
        """g (float[1, 3, 8, 8] x) => (float[1, 10] y) {
            a = Conv<pads = [1, 1, 1, 1]>(x, w) b = Relu(a) s = Shape(b)
            i = Constant<value_ints = [0]>() n = Gather(s, i) m = Constant<value_ints = [-1]>()
            t = Concat<axis = 0>(n, m)
            d = Reshape(b, t) e = Gemm(d, v, c)
            z = If(q) <then_branch = p () => (f) { f = Neg(e) }, else_branch = r () => (h) { h = Exp(e) }>
            y = Softmax(z) }"""
    )
    for name, shape in (("w", (4, 3, 3, 3)), ("v", (256, 10)), ("c", (10,))):
        model.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "q"))
    return model.SerializeToString()


def mutated(good: bytes, rng: np.random.Generator) -> bytes:
    data = bytearray(good)
    # Most bytes are weights, whose change says nothing: aim at the structure.
    limit = len(data) if rng.random() < 0.2 else min(len(data), 1200)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(limit))
        kind = rng.random()
        if kind < 0.2:
            del data[at : at + int(rng.integers(1, 30))]
        elif kind < 0.3:
            data[at:at] = bytes(rng.integers(0, 256, int(rng.integers(1, 10))).astype(np.uint8))
        else:
            data[at % len(data)] = int(rng.integers(256))
    return bytes(data)


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_mutated_models_never_crash(count: int) -> None:
    good, rng = base_model(), np.random.default_rng(0)
    graph = load(good)
    assert graph.outputs["y"].shape == (1, 10)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(count):
        try:
            load(mutated(good, rng))
            outcomes["read"] += 1
        except HexaneError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > count // 20, outcomes


def test_a_stale_shape_is_noted() -> None:
    graph = load(text("g (float[2, 3] x) => (float[2, 3] y) <float[7, 7] a> { a = Relu(x) y = Exp(a) }"))
    assert graph.outputs["y"].shape == (2, 3)
