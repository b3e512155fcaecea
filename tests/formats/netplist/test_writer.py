"""Networks written to net.plist: recorded ones come back, others give what onnxruntime gives, the rest is named."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import hexane
from facts import fact_folder, fact_params, packed
from hexane.cli.main import app
from hexane.errors import UnsupportedError
from hexane.formats.netplist import save
from hexane.graph import GraphBuilder

IMAGES = packed("networks.json")["images"]


def values(graph: hexane.Graph, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(0, 5, type_.shape).astype(type_.dtype)
        if "int" in type_.dtype
        else rng.uniform(0.1, 3, type_.shape).astype(np.float16)
        for name, type_ in graph.inputs.items()
    }


@pytest.mark.parametrize("path", fact_params("plists/*/*.plist"))
def test_recorded_networks_come_back(path: Path, tmp_path: Path) -> None:
    weights = {"model.espresso.weights": bytes(1 << 16), "net.additional.weights": bytes(1 << 16), "": bytes(1 << 21)}
    weights |= {name: fact_folder() / "hwx" / name for name in ("twos.weights", "min.weights")}
    graph = hexane.load(path, weights=weights)
    graph.save(tmp_path / "net.plist")
    again = hexane.load(tmp_path / "net.plist")
    assert again.inputs == graph.inputs and again.outputs == graph.outputs
    given = values(graph)
    for name, expected in graph.evaluate(given).items():
        assert np.array_equal(again.evaluate(given)[name], expected)


def test_an_onnx_network_is_what_onnxruntime_computes(tmp_path: Path) -> None:
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    helper, numbers = onnx.helper, {}

    def constant(name: str, *shape: int) -> str:
        numbers[name] = rng.uniform(0.2, 1, shape).astype(np.float32)
        return name

    nodes = [
        helper.make_node("Conv", ["x", constant("w", 8, 3, 3, 3), constant("b", 8)], ["c"], pads=[1, 0, 1, 2]),
        helper.make_node("BatchNormalization", ["c", *(constant(f"n{i}", 8) for i in range(4))], ["n"], epsilon=1e-3),
        helper.make_node("Sigmoid", ["n"], ["s"]),
        helper.make_node("Mul", ["n", "s"], ["m"]),
        helper.make_node("MaxPool", ["m"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", constant("v", 8, 4, 1, 1)], ["d"], group=2),
        helper.make_node("Concat", ["d", "p"], ["k"], axis=1),
        helper.make_node("AveragePool", ["k"], ["a"], kernel_shape=[4, 4]),
        helper.make_node("Flatten", ["a"], ["f"]),
        helper.make_node("Gemm", ["f", constant("g", 5, 16), constant("h", 5)], ["e"], transB=1),
        helper.make_node("Tanh", ["e"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "net", [info("x", 1, (2, 3, 8, 8))], [info("y", 1, (2, 5))],
        [onnx.numpy_helper.from_array(array / 20, name) for name, array in numbers.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "a.onnx")
    result = CliRunner().invoke(app, ["convert", str(tmp_path / "a.onnx"), str(tmp_path / "net.plist")])
    assert result.exit_code == 0, result.output
    x = rng.normal(size=(2, 3, 8, 8)).astype(np.float32)
    (expected,) = runtime.InferenceSession(tmp_path / "a.onnx").run(None, {"x": x})
    again = hexane.load(tmp_path / "net.plist")
    (made,) = again.evaluate({"x": x.astype(np.float16)}).values()
    assert np.allclose(made.reshape(2, 5), expected, atol=2e-3)
    program = hexane.compile(again, chip="M1")
    assert [segment.kind for segment in program.segments] == ["engine"]


def test_weights_have_names_of_their_own(tmp_path: Path) -> None:
    for value in (2.0, 3.0):
        b = GraphBuilder()
        weight = np.full((3, 3, 1, 1), value, np.float16)
        b.output(b.conv(x=b.input("x", (1, 3, 1, 1), "fp16"), weight=weight, pad_type="valid", name="y"))
        save(b.graph, tmp_path / "net.plist")
        (out,) = hexane.load(tmp_path / "net.plist").evaluate({"x": np.ones((1, 3, 1, 1), np.float16)}).values()
        assert np.all(out == 3 * value) and len(list(tmp_path.glob("*.weights"))) == 1


def refusals() -> dict[str, hexane.Graph]:
    graphs = {}
    for name in ("softmax", "clip", "row", "big"):
        b = GraphBuilder()
        x = b.input("x", (1, 4, 1, 8), "fp16")
        y = {
            "softmax": lambda b=b, x=x: b.softmax(x=x, axis=1),
            "clip": lambda b=b, x=x: b.clip(x=x, alpha=0.0, beta=6.0),
            "row": lambda b=b, x=x: b.add(x=x, y=np.arange(8, dtype=np.float16)),
            "big": lambda b=b, x=x: b.conv(
                x=b.cast(x=x, dtype="fp32"), weight=np.full((4, 4, 1, 1), 1e6, np.float32), pad_type="valid"
            ),
        }[name]()
        b.output(y)
        graphs[name] = b.graph
    return graphs


@pytest.mark.parametrize("name", refusals())
def test_what_a_plist_does_not_say_names_the_op(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"is not written to net\.plist"):
        save(refusals()[name], tmp_path / "net.plist")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", IMAGES)
def test_samples_from_the_command_line(name: str, tmp_path: Path) -> None:
    """The early compiler's seven files, byte for byte, from their plists."""
    said = IMAGES[name]["ident"]
    options = [f"--ident={key}={said[key]}" for key in ("input_path", "output_path") if key in said]
    options += ["--kernel-names", ",".join(said.get("kernel_names", ()))] if said.get("kernel_names") else []
    for path, size in IMAGES[name]["zeros"].items():
        (tmp_path / "zeros").write_bytes(bytes(size))
        options += ["--weights", f"{path}={tmp_path / 'zeros'}"]
    plist, out = fact_folder() / "hwx" / f"{name}.plist", tmp_path / "out.hwx"
    line = ["compile", str(plist), "--dialect", "zin4", "--target-arch", "h13", *options, "-o", str(out)]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    assert hashlib.sha256(out.read_bytes()).hexdigest() == IMAGES[name]["sha256"]


@pytest.mark.parametrize(
    "options", [["--target-arch", "ane_v5"], ["--target-arch", "h13", "--chip", "M4"], ["--ident", "colour=red"]]
)
def test_options_that_mean_nothing(options: list[str], tmp_path: Path) -> None:
    plist = fact_folder() / "hwx/relu_w77.plist"
    result = CliRunner().invoke(app, ["compile", str(plist), "-o", str(tmp_path / "a.hwx"), *options])
    assert result.exit_code != 0 and not (tmp_path / "a.hwx").exists()


RNG = np.random.default_rng(2)
NUMBERS = RNG.uniform(0.5, 2, 4).astype(np.float16)
CHANNELS = NUMBERS.reshape(4, 1, 1)
X = ("x", (2, 4, 6, 5))
WRITTEN = {
    "conv": lambda b, x: b.conv(
        x=x, weight=RNG.normal(size=(6, 2, 3, 2)).astype(np.float16) / 4, bias=NUMBERS[[0, 1, 2, 3, 0, 1]], groups=2,
        strides=[2, 2], pad_type="custom", pad=[1, 0, 2, 1],
    ),
    "linear": lambda b, x: b.linear(
        x=b.reshape(x=b.avg_pool(x=x, kernel_sizes=[6, 5], pad_type="valid"), shape=[2, 4]),
        weight=RNG.normal(size=(3, 4)).astype(np.float16), bias=NUMBERS[:3],
    ),
    "conv of rows": lambda b, x: b.conv(
        x=b.squeeze(x=b.max_pool(x=x, kernel_sizes=[6, 1], pad_type="valid"), axes=[2]),
        weight=RNG.normal(size=(3, 4, 3)).astype(np.float16), pad_type="same",
    ),
    "max_pool": lambda b, x: b.max_pool(
        x=x, kernel_sizes=[2, 3], strides=[2, 2], pad_type="custom", pad=[1, 0, 0, 1]
    ),
    "avg_pool": lambda b, x: b.avg_pool(
        x=x, kernel_sizes=[3, 2], strides=[3, 3], pad_type="custom", pad=[1, 1, 0, 1]
    ),
    "add": lambda b, x: b.add(x=x, y=CHANNELS),
    "add first": lambda b, x: b.add(x=np.float16(0.5), y=x),
    "mul": lambda b, x: b.mul(x=CHANNELS, y=x),
    "sub": lambda b, x: b.sub(x=x, y=CHANNELS),
    "sub first": lambda b, x: b.sub(x=CHANNELS, y=x),
    "real_div": lambda b, x: b.real_div(x=x, y=CHANNELS),
    "two values": lambda b, x: b.add(x=b.mul(x=x, y=b.relu(x=x)), y=b.maximum(x=x, y=b.tanh(x=x))),
    "silu": lambda b, x: b.silu(x=x),
    "log": lambda b, x: b.log(x=x, epsilon=np.float16(0)),
    "batch_norm": lambda b, x: b.batch_norm(x=x, mean=NUMBERS, variance=NUMBERS[::-1].copy(), epsilon=np.float16(0.5)),
    "scaled batch_norm": lambda b, x: b.batch_norm(
        x=x, mean=NUMBERS, variance=NUMBERS, gamma=NUMBERS, beta=-NUMBERS, epsilon=np.float16(0.25)
    ),
    "concat": lambda b, x: b.concat(values=(b.concat(values=(x, x), axis=-1), b.concat(values=(x, x), axis=3)), axis=1),
    "tile": lambda b, x: b.tile(x=b.max_pool(x=x, kernel_sizes=[1, 5], pad_type="valid"), reps=[1, 1, 1, 3]),
    "slice_by_size": lambda b, x: b.slice_by_size(x=x, begin=[0, 1, 2, 0], size=[2, 2, -1, 4]),
    "slice_by_index": lambda b, x: b.slice_by_index(x=x, begin=[1, 0, 1, 2], end=[2, 4, 5, 5]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_computes_the_same(name: str, tmp_path: Path) -> None:
    b = GraphBuilder()
    b.output(WRITTEN[name](b, b.input(*X, "fp16")), name="y")
    save(b.graph, tmp_path / "net.plist")
    given = values(b.graph)
    (expected,), (made,) = (graph.evaluate(given).values() for graph in (b.graph, hexane.load(tmp_path / "net.plist")))
    assert made.size == expected.size
    np.testing.assert_allclose(made.reshape(expected.shape), expected, rtol=4e-3, atol=4e-3)


UNWRITTEN = {
    "dilations": lambda b, x: b.conv(x=x, weight=np.ones((1, 4, 2, 2), np.float16), dilations=[1, 2], pad_type="valid"),
    "strides": lambda b, x: b.max_pool(x=x, kernel_sizes=[2, 2], strides=[2, 1], pad_type="valid"),
    "leaves out its padding": lambda b, x: b.avg_pool(
        x=x, kernel_sizes=[2, 2], pad_type="custom", pad=[1, 0, 0, 0], exclude_padding_from_average=True
    ),
    "reaches beyond the padding": lambda b, x: b.l2_pool(
        x=x, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid", ceil_mode=True
    ),
    "different ranks": lambda b, x: b.add(x=x, y=b.input("z", (6, 5), "fp16")),
    "quotient of two values": lambda b, x: b.real_div(x=x, y=b.relu(x=x)),
    "constant operand": lambda b, x: b.real_div(x=CHANNELS, y=x),
    "constant enlarges": lambda b, x: b.add(x=b.slice_by_size(x=x, begin=[0] * 4, size=[2, 1, 6, 5]), y=CHANNELS),
    "differs within a channel": lambda b, x: b.mul(x=x, y=np.arange(5, dtype=np.float16)),
    "interleaved": lambda b, x: b.concat(values=(x, x), axis=1, interleave=True),
}


@pytest.mark.parametrize("says", UNWRITTEN)
def test_what_is_not_written_says_why(says: str, tmp_path: Path) -> None:
    b = GraphBuilder()
    b.output(UNWRITTEN[says](b, b.input(*X, "fp16")), name="y")
    with pytest.raises(UnsupportedError, match=says):
        save(b.graph, tmp_path / "net.plist")
