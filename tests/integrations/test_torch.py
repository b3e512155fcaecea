"""``torch.compile(backend="hexane")`` and ``hexane.torch.explain`` against torch itself."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import hexane
from hexane.errors import HexaneError, UsageError

torch = pytest.importorskip("torch", reason="torch is not installed")
import hexane.torch  # noqa: E402


def network() -> torch.nn.Module:
    torch.manual_seed(16)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4),
    ).eval()  # fmt: skip


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def test_a_network_runs_and_follows_its_weights(caplog: pytest.LogCaptureFixture) -> None:
    """Weights are constants of the program until they change; with derivatives everything stays with torch."""
    net, x = network(), torch.randn(2, 3, 16, 16)
    compiled = torch.compile(net, backend="hexane")
    with torch.no_grad(), hexane.torch.backend.collected() as reports:
        torch.testing.assert_close(compiled(x), net(x), atol=5e-3, rtol=5e-3)
        compiled(x)
        assert len(reports) == 1 and len(reports[0].parts) == 1 and not reports[0].left
        assert reports[0].parts[0].tasks > 0 and not reports[0].parts[0].host
        net[5].weight.mul_(-2)
        torch.testing.assert_close(compiled(x), net(x), atol=5e-3, rtol=5e-3)
        assert len(reports) == 2
    with caplog.at_level(logging.WARNING, "hexane.torch"):
        loss = compiled(x).sum()
    loss.backward()
    assert net[5].weight.grad is not None and "derivatives are wanted" in caplog.text


def test_what_stays_with_torch_is_named() -> None:
    def mixed(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x @ x.T)
        torch._dynamo.graph_break()
        return torch.cummax(torch.sigmoid(y), 0).values + y[torch.isfinite(y).all(1)]

    found = hexane.torch.explain(mixed, torch.randn(8, 8))
    assert found.graphs >= 2 and len(found.parts) >= 2 and not found.whole
    assert {left.operator for left in found.left} >= {"cummax.default"}
    assert found.graph_breaks
    assert "left to torch: cummax" in str(found)
    assert hexane.torch.explain(network(), torch.randn(1, 3, 8, 8)).whole


def test_types_strides_and_several_results() -> None:
    def several(x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.transpose(0, 1) * 2
        return y, y.to(torch.bfloat16), y.argmax(1), y.gather(1, index), (y > 0)

    x, index = torch.randn(4, 6), torch.randint(0, 4, (6, 2))
    with torch.no_grad():
        found = torch.compile(several, backend="hexane")(x, index)
    for one, wanted in zip(found, several(x, index)):
        assert one.dtype == wanted.dtype
        torch.testing.assert_close(one, wanted, atol=2e-2, rtol=1e-2)


def test_a_buffer_that_is_written_keeps_its_value() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total += x
            return torch.tanh(self.total)

    module, plain, x = Counter(), Counter(), torch.full((4,), 0.25)
    compiled = torch.compile(module, backend="hexane")
    with torch.no_grad(), hexane.torch.backend.collected() as reports:
        for _ in range(3):
            torch.testing.assert_close(compiled(x), plain(x), atol=2e-3, rtol=2e-3)
    np.testing.assert_allclose(module.total, 0.75)
    assert len(reports) == 1  # what the network writes is no weight: nothing is compiled anew


def test_options_are_checked() -> None:
    with pytest.raises(UsageError, match="no option 'speed'"):
        hexane.torch.explain(network(), torch.randn(1, 3, 8, 8), speed=1)
    with pytest.raises(UsageError, match="is no model"):
        hexane.torch.explain(3, torch.randn(1))
    for wrong, said in (
        ({"chip": "M99"}, "unknown chip 'M99'"), ({"chip": 7}, "named by a string"),
        ({"level": "best"}, "no level 'best'"), ({"device": "gpu"}, "no device 'gpu'"),
    ):  # fmt: skip
        torch._dynamo.reset()
        compiled = torch.compile(network(), backend="hexane", options=wrong)
        with torch.no_grad(), pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=said):
            compiled(torch.randn(1, 3, 8, 8))


def test_a_device_that_does_not_take_the_program_is_no_reason_for_torch() -> None:
    """The drivers of Linux load programs of two generations: another chip's is an error, as everywhere."""
    compiled = torch.compile(network(), backend="hexane", options={"chip": "M4", "device": "virtual:eiln"})
    with torch.no_grad(), pytest.raises(HexaneError, match="the program is for h16"):
        compiled(torch.randn(1, 3, 8, 8))


@pytest.mark.parametrize("dynamic", [None, True], ids=["torch's default", "dynamic"])
def test_every_batch_size_is_the_engines(dynamic: bool | None, caplog: pytest.LogCaptureFixture) -> None:
    """torch opens the batch at its second size; each size met has a program, the next call of it the same one."""
    net, generator = network(), torch.Generator().manual_seed(5)
    compiled = torch.compile(net, backend="hexane", dynamic=dynamic)
    with torch.no_grad(), hexane.torch.backend.collected() as reports, caplog.at_level(logging.INFO, "hexane.torch"):
        for batch in (2, 3, 5, 3, 2, 7):
            x = torch.randn(batch, 3, 16, 16, generator=generator)
            found = compiled(x)
            torch.testing.assert_close(found, net(x), atol=5e-3, rtol=5e-3)
            assert not torch.equal(found, net(x)), "float32 to the bit: torch computed this"
    assert "compiled for inputs of the sizes 5x3x16x16" in caplog.text and "left to torch" not in caplog.text
    assert len(reports) == (5 if dynamic is None else 4)  # by default torch captures 2 alone, then an open batch
    assert all(len(one.parts) == 1 and not one.left and not one.parts[0].host for one in reports)


def test_open_sizes_beside_what_depends_on_values() -> None:
    """Extents known by value alone keep their operators with torch, at every size."""

    def picked(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.sigmoid(x @ x.T), x[torch.isfinite(x).all(1)]

    compiled = torch.compile(picked, backend="hexane")
    with torch.no_grad(), torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        for rows in (4, 6, 7):
            x = torch.randn(rows, 8)
            x[1, 2] = torch.inf
            for one, wanted in zip(compiled(torch.nan_to_num(x, posinf=2)), picked(torch.nan_to_num(x, posinf=2))):
                torch.testing.assert_close(one, wanted, atol=1e-2, rtol=1e-2)


def test_sizes_are_kept_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hexane.torch.backend, "SIZES", 2)
    net = network()
    compiled = torch.compile(net, backend="hexane", dynamic=True)
    with torch.no_grad(), hexane.torch.backend.collected() as reports:
        for batch, programs in ((2, 1), (3, 2), (2, 2), (4, 3), (2, 3), (3, 4)):
            compiled(torch.zeros(batch, 3, 16, 16))
            assert len(reports) == programs, batch


def test_attention_with_a_hidden_row_is_the_engines_whole() -> None:
    class Attention(torch.nn.Module):
        def forward(self, q, k, v, m):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=m)

    q, k, v = torch.randn(3, 1, 2, 8, 16, generator=torch.Generator().manual_seed(3))
    mask = torch.ones(8, 8, dtype=torch.bool)
    mask[3:, 3:], mask[5] = False, False
    program = hexane.compile(hexane.from_torch(Attention(), (q, k, v, mask)))
    assert {segment.kind for segment in program.segments} == {"engine"}
    result = program.run({name: value.numpy() for name, value in zip(program.graph.inputs, (q, k, v, mask))})
    truth = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).numpy()
    assert not truth[:, :, 5].any()
    np.testing.assert_allclose(next(iter(result.values())), truth, atol=0.01)


@pytest.mark.parametrize("first", [False, True], ids=["norms behind", "norms first"])
@pytest.mark.parametrize(("activation", "most"), [("relu", 3e-3), ("gelu", 1.3e-2)])
def test_encoder_layers_of_pytorch_s_inference_path(first: bool, activation: str, most: float) -> None:
    """``eval`` without derivatives makes one operator of the whole layer; the engine's table of gelu is off by 6e-3."""
    torch.manual_seed(5)
    how = {"batch_first": True, "norm_first": first, "activation": activation}
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, **how).eval()
    for weight in layer.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    x = torch.randn(2, 5, 16)
    padded = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    for masks in (
        {},
        {"src_mask": causal},
        {"src_key_padding_mask": padded},
        {"src_mask": causal, "src_key_padding_mask": padded},
    ):
        torch._dynamo.reset()
        compiled = torch.compile(layer, backend="hexane")
        with torch.no_grad(), hexane.torch.backend.collected() as reports:
            torch.testing.assert_close(compiled(x, **masks), layer(x, **masks), atol=most, rtol=0)
        assert not [left for report in reports for left in report.left if "fwd" in str(left)]
        assert sum(part.tasks for report in reports for part in report.parts) > 10


def test_attention_of_pytorch_s_inference_path() -> None:
    torch.manual_seed(6)
    layer = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    for needs, averaged in ((False, True), (True, True), (True, False)):
        torch._dynamo.reset()
        compiled = torch.compile(layer, backend="hexane")
        how = {"need_weights": needs, "average_attn_weights": averaged}
        with torch.no_grad(), hexane.torch.backend.collected() as reports:
            for mine, theirs in zip(compiled(x, x, x, **how), layer(x, x, x, **how)):
                torch.testing.assert_close(mine, theirs, atol=5e-4, rtol=0)
        assert not [left for report in reports for left in report.left if "multi_head" in str(left)]
