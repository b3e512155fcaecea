"""The partitioner for ExecuTorch, where executorch is installed: a delegate's bytes run and give torch's numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hexane

pytest.importorskip("executorch.exir", reason="executorch is not installed")
torch = pytest.importorskip("torch")


def test_a_delegate_is_a_program(tmp_path: Path) -> None:
    from executorch.exir import to_edge_transform_and_lower

    from hexane.integrations.torch.executorch import HexanePartitioner

    torch.manual_seed(16)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4),
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 16, 16)
    edge = to_edge_transform_and_lower(torch.export.export(net, (x,)), partitioner=[HexanePartitioner(chip="M1")])
    module = edge.exported_program().graph_module
    (lowered,) = (getattr(module, str(node.target)) for node in module.graph.nodes if node.op == "get_attr")
    path = tmp_path / "part.hexane"
    path.write_bytes(lowered.processed_bytes)
    program = hexane.load_program(path)
    (found,) = program.run({program.inputs[0].name: x.numpy()}).values()
    np.testing.assert_allclose(found, net(x).detach().numpy(), atol=5e-3)
    assert len(edge.to_executorch().buffer) > 1000
