"""A network by way of coremltools, and the same given to hexane directly: Apple's program of both has the same bits.

coremltools is run here, so that what it makes of a network before Apple's compiler has it is observed, not believed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.graph import Graph, GraphBuilder
from hexane.numerics import evaluate
from hexane.session.fix import fixed
from hexane.session.form import Form

ct = pytest.importorskip("coremltools")

F = np.float32
SHAPE = (1, 8, 16, 32)
RNG = np.random.default_rng(0)
WEIGHT = (RNG.standard_normal((8, 8, 1, 1)) * 0.1).astype(F)
ABOVE = np.triu(np.ones((16, 32), bool), 1)


def gelu_by_tanh(b: Any, x: Any) -> Any:
    cube = b.mul(x=b.pow(x=x, y=F(3)), y=F(0.044715))
    gate = b.tanh(x=b.mul(x=b.add(x=x, y=cube), y=F((2 / np.pi) ** 0.5)))
    return b.mul(x=b.mul(x=x, y=F(0.5)), y=b.add(x=gate, y=F(1)))


def gelu_by_erf(b: Any, x: Any) -> Any:
    gate = b.erf(x=b.mul(x=x, y=F(2**-0.5)))
    return b.mul(x=b.mul(x=x, y=F(0.5)), y=b.add(x=gate, y=F(1)))


def norm(b: Any, x: Any) -> Any:
    centred = b.sub(x=x, y=b.reduce_mean(x=x, axes=[1], keep_dims=True))
    variance = b.reduce_mean(x=b.square(x=centred), axes=[1], keep_dims=True)
    return b.mul(x=centred, y=b.rsqrt(x=b.add(x=variance, y=F(1e-5)), epsilon=F(1e-12)))


def conv(b: Any, x: Any, weight: np.ndarray = WEIGHT) -> Any:
    return b.conv(x=x, weight=weight, pad_type="valid")


def batch_norm(b: Any, x: Any) -> Any:
    mean, variance = np.linspace(-1, 1, 8).astype(F), np.linspace(0.5, 2, 8).astype(F)
    return b.batch_norm(x=conv(b, x), mean=mean, variance=variance, gamma=np.ones(8, F), beta=np.zeros(8, F))


def masked(number: float) -> Any:
    return lambda b, x: b.softmax(x=b.add(x=x, y=np.where(ABOVE, F(number), F(0))), axis=-1)


NETWORKS = {
    "silu": lambda b, x: b.mul(x=x, y=b.sigmoid(x=x)),
    "gelu by erf": gelu_by_erf,
    "gelu by tanh": gelu_by_tanh,
    "division": lambda b, x: b.real_div(x=x, y=F(3)),
    "a factor below fp16": lambda b, x: b.mul(x=b.mul(x=x, y=F(1000)), y=F(1e-9)),
    "a sum below fp16": lambda b, x: b.rsqrt(x=b.add(x=b.relu(x=x), y=F(1e-12)), epsilon=F(1e-12)),
    "weights below fp16": lambda b, x: conv(b, x, np.where(np.arange(64) % 2, F(1e-9), F(1)).reshape(8, 8, 1, 1)),
    "norm": norm,
    "epsilon": lambda b, x: b.layer_norm(x=x, axes=[1], epsilon=F(1e-12)),
    "hard swish": lambda b, x: b.mul(x=x, y=b.real_div(x=b.relu6(x=b.add(x=x, y=F(3))), y=F(6))),
    "mean": lambda b, x: b.real_div(x=b.reduce_sum(x=x, axes=[2, 3], keep_dims=True), y=F(512)),
    "conv times 3": lambda b, x: b.mul(x=conv(b, x), y=F(3)),
    "batch norm": batch_norm,
    "mask of -1e9": masked(-1e9),
    "mask of -3.4e38": masked(-3.4028e38),
    "times 70000": lambda b, x: b.mul(x=x, y=F(70000)),
    "leaky": lambda b, x: b.maximum(x=x, y=b.mul(x=x, y=F(0.1))),
    "softplus": lambda b, x: b.softplus(x=x),
    "log-sum-exp": lambda b, x: b.sub(x=x, y=b.reduce_log_sum_exp(x=x, axes=[1], keep_dims=True)),
    "linear": lambda b, x: b.matmul(x=x, y=np.linspace(-1, 1, 128).reshape(32, 4).astype(F)),
    "select": lambda b, x: b.softmax(x=b.select(cond=ABOVE, a=F(-np.inf), b=x), axis=-1),
}
IN_FLOAT32 = ("mask of -1e9", "times 70000")


def converted(build: Any, folder: Path) -> Graph:
    """The package that coremltools makes of the network."""
    builder = ct.converters.mil.Builder
    program = builder.program(input_specs=[builder.TensorSpec(shape=SHAPE)], opset_version=ct.target.iOS18)(
        lambda x: build(builder, x)
    )
    model = ct.convert(program, minimum_deployment_target=ct.target.iOS18, skip_model_load=True)
    model.save(str(folder / "m.mlpackage"))
    return hexane.load(folder / "m.mlpackage")


def given(build: Any) -> Graph:
    """The network itself, as a file of another framework gives it."""
    b = GraphBuilder()
    b.output(build(b, b.input("x", SHAPE, "fp32")))
    b.graph.metadata["format"] = "onnx"
    return b.graph


@pytest.mark.parametrize("name", list(NETWORKS))
def test_apples_program_is_the_same_with_and_without_the_converter(name: str, tmp_path: Path) -> None:
    x = (np.random.default_rng(1).standard_normal(SHAPE) * 3).astype(F)
    x[0, 0, 0, :4] = 0, 1e-4, -1e-5, 2e-3
    programs = [
        hexane.compile(graph, chip="M1", as_="apple")
        for graph in (converted(NETWORKS[name], tmp_path), given(NETWORKS[name]))
    ]
    package, direct = (next(iter(program.run({"x": x}).values())) for program in programs)
    assert np.array_equal(np.float16(package), np.float16(direct))
    places = [[segment.kind for segment in program.segments] for program in programs]
    assert places[0] == places[1] and ("host" in places[0]) == (name in IN_FLOAT32)


@pytest.mark.parametrize("chip", ["M1", "M6"])
@pytest.mark.parametrize("spelled", [False, True])
def test_silu_near_0_gives_the_published_halfword(chip: str, spelled: bool) -> None:
    """M6 study: silu(-1.5 * 2^-16) is 28560 units in the last place off, halfword 9705; ane-guide (M1): not 0 at 0."""
    build = NETWORKS["silu"] if spelled else lambda b, x: b.silu(x=x)
    x = np.full(SHAPE, -1.5 * 2.0**-16, F)
    x[..., 0] = 0
    target = hexane.chips.get(chip)
    (y,) = evaluate(Form("apple").canonical(given(build), target), {"x": x}, target).values()
    assert np.all(np.float16(y[..., 1:]).view(np.uint16) == 0x9705) and np.all(np.abs(y[..., 0] + 0.0017042) < 1e-6)
    answer = fixed(given(lambda b, x: b.silu(x=x)), chip, {"x": x})
    assert answer.before is not None and answer.after is not None and answer.before > 1 > 3e-3 > answer.after


def test_only_the_node_log_softmax_is_written_back(tmp_path: Path) -> None:
    """What the remedy of N3 advises stays right in Apple's program, also where it came from an ONNX file."""
    x = np.zeros((1, 8), F)
    x[0, 3] = 50
    b = GraphBuilder()
    value = b.input("x", (1, 8), "fp32")
    low = b.sub(x=value, y=b.reduce_max(x=value, axes=[1], keep_dims=True))
    b.output(b.sub(x=low, y=b.log(x=b.reduce_sum(x=b.exp(x=low), axes=[1], keep_dims=True))))
    for ending in ("onnx", "mlpackage"):
        b.graph.save(tmp_path / f"m.{ending}")
        graph = hexane.load(tmp_path / f"m.{ending}")
        (y,) = hexane.compile(graph, chip="M1", as_="apple").run({"x": x}).values()
        assert np.array_equal(y[0], x[0] - 50)
