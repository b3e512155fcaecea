"""The derivatives that PyTorch has too, ties and edges included."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder

torch = pytest.importorskip("torch")
F = torch.nn.functional

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(8)


def normal(*shape):
    return RNG.normal(size=shape)


def with_ties(*shape):
    return RNG.integers(-2, 3, size=shape).astype(np.float64)


def attention(query, key, value, attn_mask):
    return F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)


CASES = {
    "relu": (lambda x: F.relu(x), {"x": with_ties(3, 5)}, {}),
    "abs": (lambda x: x.abs(), {"x": with_ties(3, 5)}, {}),
    "relu6": (lambda x: F.relu6(x), {"x": 3 * with_ties(3, 5)}, {}),
    "gelu": (lambda x: F.gelu(x), {"x": normal(3, 5)}, {}),
    "silu": (lambda x: F.silu(x), {"x": normal(3, 5)}, {}),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.1), {"x": with_ties(3, 5)}, {"alpha": 0.1}),
    "elu": (lambda x: F.elu(x, 1.3), {"x": normal(3, 5)}, {"alpha": 1.3}),
    "clip": (lambda x: x.clamp(-1, 2), {"x": with_ties(3, 5)}, {"alpha": -1.0, "beta": 2.0}),
    "prelu": (lambda x, alpha: F.prelu(x, alpha), {"x": normal(2, 3, 4), "alpha": normal(3)}, {}),
    "maximum": (lambda x, y: torch.maximum(x, y), {"x": with_ties(4, 5), "y": with_ties(5)}, {}),
    "minimum": (lambda x, y: torch.minimum(x, y), {"x": with_ties(4, 5), "y": with_ties(4, 1)}, {}),
    "softmax": (lambda x: F.softmax(x, 1), {"x": normal(2, 5, 3)}, {"axis": 1}),
    "reduce_max": (lambda x: x.amax(1), {"x": with_ties(4, 6)}, {"axes": [1]}),
    "reduce_min": (lambda x: x.amin((0, 1)), {"x": with_ties(4, 6)}, {"axes": [0, 1]}),
    "reduce_prod": (lambda x: x.prod(1), {"x": with_ties(5, 3)}, {"axes": [1]}),
    "reduce_log_sum_exp": (lambda x: x.logsumexp(1), {"x": normal(4, 6)}, {"axes": [1]}),
    "linear": (
        lambda x, weight, bias: F.linear(x, weight, bias),
        {"x": normal(2, 3, 4), "weight": normal(5, 4), "bias": normal(5)},
        {},
    ),
    "matmul": (lambda x, y: x @ y, {"x": normal(2, 1, 3, 4), "y": normal(3, 4, 2)}, {}),
    "conv": (
        lambda x, weight, bias: F.conv2d(x, weight, bias, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        {"x": normal(2, 4, 9, 8), "weight": normal(6, 2, 3, 2), "bias": normal(6)},
        {"strides": [2, 1], "pad_type": "custom", "pad": [1, 1, 2, 2], "dilations": [1, 2], "groups": 2},
    ),
    "conv_transpose": (
        lambda x, weight, bias: F.conv_transpose2d(x, weight, bias, stride=(2, 3), padding=(1, 0), groups=2),
        {"x": normal(2, 4, 4, 3), "weight": normal(4, 3, 3, 2), "bias": normal(6)},
        {"strides": [2, 3], "pad_type": "custom", "pad": [1, 1, 0, 0], "groups": 2},
    ),
    "max_pool": (
        lambda x: F.max_pool2d(x, 3, 2, 1),
        {"x": with_ties(2, 3, 7, 8)},
        {"kernel_sizes": [3, 3], "strides": [2, 2], "pad_type": "custom", "pad": [1, 1, 1, 1]},
    ),
    "avg_pool": (
        lambda x: F.avg_pool2d(x, 3, 2, 1),
        {"x": normal(2, 3, 7, 8)},
        {"kernel_sizes": [3, 3], "strides": [2, 2], "pad_type": "custom", "pad": [1, 1, 1, 1]},
    ),
    "layer_norm": (
        lambda x, gamma, beta: F.layer_norm(x, (4,), gamma, beta, 1e-3),
        {"x": normal(2, 3, 4), "gamma": normal(4), "beta": normal(4)},
        {"axes": [-1], "epsilon": 1e-3},
    ),
    "instance_norm": (
        lambda x, gamma, beta: F.instance_norm(x, weight=gamma, bias=beta, eps=1e-3),
        {"x": normal(2, 3, 4, 2), "gamma": normal(3), "beta": normal(3)},
        {"epsilon": 1e-3},
    ),
    "batch_norm": (
        lambda x, mean, variance, gamma, beta: F.batch_norm(x, mean, variance, gamma, beta, eps=1e-3),
        {"x": normal(2, 3, 4), "mean": normal(3), "variance": abs(normal(3)), "gamma": normal(3), "beta": normal(3)},
        {"epsilon": 1e-3},
    ),
    "scaled_dot_product_attention": (
        attention,
        {"query": normal(2, 3, 4), "key": normal(2, 5, 4), "value": normal(2, 5, 3), "attn_mask": normal(3, 5)},
        {},
    ),
    "cumsum": (lambda x: x.cumsum(1), {"x": normal(2, 5)}, {"axis": 1}),
    "topk": (lambda x: x.topk(3, 1).values, {"x": normal(2, 6)}, {"k": 3, "axis": 1}),
}
NO_GRADIENT = {"batch_norm": ("mean", "variance")}
"""Operands that PyTorch takes as buffers."""


@pytest.mark.parametrize("op", CASES)
def test_as_pytorch(op):
    function, operands, params = CASES[op]
    wrt = [name for name in operands if name not in NO_GRADIENT.get(op, ())]
    b = GraphBuilder()
    values = {name: b.input(name, array.shape, "fp64") for name, array in operands.items()}
    results = b.op(op, **values, **params)
    b.output(b.identity(x=results[0] if isinstance(results, tuple) else results), name="result")
    tensors = {name: torch.tensor(array, requires_grad=name in wrt) for name, array in operands.items()}
    wanted = function(**tensors)
    seed = normal(*wanted.shape)
    wanted.backward(torch.tensor(seed))
    got = hexane.grad(b.graph, of="result", wrt=wrt).evaluate({**operands, "d_result": seed})
    np.testing.assert_allclose(got["result"], wanted.detach().numpy(), rtol=1e-9, atol=1e-9)
    for name in wrt:
        np.testing.assert_allclose(got[f"d_{name}"], tensors[name].grad.numpy(), rtol=1e-8, atol=1e-8, err_msg=name)
