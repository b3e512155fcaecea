"""Networks of other frameworks in the trainer, from their files or modules to weights that have learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.graph import Graph, GraphBuilder
from hexane.train import SGD, Trainer

RNG = np.random.default_rng(0)
BATCH = RNG.standard_normal((4, 2, 6, 6)).astype(np.float32), RNG.integers(0, 5, 4)
RATE = 0.1


def learns(graph: Graph) -> Trainer:
    """Five steps with the engine's arithmetic on one batch; the network that comes of it has the trained weights."""
    trainer = Trainer(graph, optimizer=SGD(RATE), level="graph", loss_scale="auto", chip="M4")
    losses = [trainer.step(BATCH) for _ in range(5)]
    assert losses[-1] < 0.8 * losses[0]
    outputs = trainer.network().evaluate({next(iter(graph.inputs)): BATCH[0]})
    given = next(iter(outputs.values())).astype(np.float64)
    shares = np.exp(given) / np.exp(given).sum(1, keepdims=True)
    assert -np.log(shares[np.arange(4), BATCH[1]]).mean() < losses[-1] + 0.02
    return trainer


def test_onnx(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, arrays = onnx.helper, {"w1": (8, 2, 3, 3), "b1": (8,), "w2": (288, 5), "b2": (5,)}
    weights = [
        onnx.numpy_helper.from_array((RNG.standard_normal(s) / 4).astype(np.float32), n) for n, s in arrays.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["h"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]), helper.make_node("Gemm", ["f", "w2", "b2"], ["y"]),
    ]  # fmt: skip
    ports = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", (4, 2, 6, 6)), ("y", (4, 5)))]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "net.onnx")
    trainer = learns(hexane.load(tmp_path / "net.onnx"))
    assert sorted(array.size for array in trainer.weights.values()) == [5, 8, 144, 1440]


def test_core_ml(tmp_path: Path) -> None:
    pytest.importorskip("coremltools")
    b = GraphBuilder()
    x = b.input("x", (4, 2, 6, 6), "fp32")
    h = b.relu(x=b.conv(x=x, weight=(RNG.standard_normal((8, 2, 3, 3)) / 4).astype(np.float32), pad_type="same"))
    h = b.reshape(x=h, shape=[4, 288])
    b.output(b.linear(x=h, weight=(RNG.standard_normal((5, 288)) / 4).astype(np.float32)), name="y")
    b.graph.save(tmp_path / "net.mlpackage")
    assert len(learns(hexane.load(tmp_path / "net.mlpackage")).weights) >= 2


def test_torch_takes_the_same_first_step() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(2, 8, 3, padding=1), torch.nn.GELU(), torch.nn.Flatten(), torch.nn.Linear(288, 5)
    )
    x, labels = (torch.tensor(array) for array in BATCH)
    graph = hexane.from_torch(module.eval(), (x,))
    trainer = Trainer(graph, optimizer=SGD(RATE), level="float32")
    loss = trainer.step(BATCH)
    exact = torch.nn.functional.cross_entropy(module(x), labels)
    exact.backward()
    assert loss == pytest.approx(float(exact.detach()), rel=1e-5)
    with torch.no_grad():
        wanted = sorted((p - RATE * p.grad).numpy().ravel().tolist() for p in module.parameters())
    given = sorted(array.ravel().tolist() for array in trainer.weights.values())
    for one, other in zip(sorted(map(sorted, given)), sorted(map(sorted, wanted))):
        np.testing.assert_allclose(one, other, atol=2e-6)
    learns(graph)
