"""Products, norms, sums and functions of matrices in a row in dialect apple: right bits, everything in L2."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import hexane
from codegen.levels import agreed
from hexane.codegen.recipes.chain_steps import MOST_ROWS
from hexane.emulator.static import check_program
from hexane.graph import GraphBuilder

STEPS = ("product", "bias", "function", "norm", "sum", "constant")


def grown(seed: int):
    """A network of two to seven layers on a matrix, each on one of the last three results; all results are used."""
    rng = np.random.default_rng(seed)
    b = GraphBuilder(opset="ios18")
    m, k = (int(v) for v in (rng.choice([8, 16, 24, 64, 136]), rng.choice([32, 64, 256, 520])))
    values = [b.input("x", (1, m, k), "fp16")]

    def of(width=None):
        found = [v for v in values[-3:] if width is None or v.shape[-1] == width]
        return found[rng.integers(len(found))]

    for _ in range(rng.integers(2, 8)):
        kind, x = STEPS[rng.integers(len(STEPS))], of()
        width = x.shape[-1]
        if kind in ("product", "bias"):
            n = int(rng.choice([width, 32, 64, 192]))
            weight = (rng.standard_normal((n, width)) / np.sqrt(width)).astype(np.float16)
            made = b.matmul(x=x, y=weight, transpose_y=True)
            if kind == "bias":
                made = b.gelu(x=b.add(x=made, y=rng.standard_normal(n).astype(np.float16)))
            values.append(made)
        elif kind == "function":
            values.append(b.op(str(rng.choice(["gelu", "sigmoid", "tanh", "relu"])), x=x))
        elif kind == "norm":
            values.append(b.layer_norm(x=x, axes=[-1], epsilon=np.float16(1e-5)))
        elif kind == "sum":
            values.append(b.add(x=x, y=of(width)))
        else:
            values.append(b.add(x=x, y=rng.standard_normal(x.shape).astype(np.float16)))
    unread = [v for v in values[1:] if not v.users]
    b.output(*unread)
    return b.graph, {"x": rng.standard_normal((1, m, k)).astype(np.float16)}


def is_chain(program) -> bool:
    return any("in a row: all results in L2" in segment.reason for segment in program.segments)


@pytest.mark.parametrize("seed", range(12))
def test_random_chains_have_the_graphs_bits(seed):
    graph, inputs = grown(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = hexane.compile(graph, ("M1", "M2", "M3", "M4", "M5", "A19")[seed % 6], dialect="apple")
    assert [segment.kind for segment in program.segments] == ["engine"]
    check_program(program.images[0])
    agreed(program, inputs)


def block(b: GraphBuilder, x, rng, hidden: int = 128):
    """A residual feed-forward layer behind a norm."""
    k = x.shape[-1]
    first, second = (rng.standard_normal(s).astype(np.float16) / 8 for s in ((hidden, k), (k, hidden)))
    normed = b.layer_norm(x=x, axes=[-1], epsilon=np.float16(1e-5))
    return b.add(x=x, y=b.matmul(x=b.gelu(x=b.matmul(x=normed, y=first, transpose_y=True)), y=second, transpose_y=True))


@pytest.mark.parametrize("chip", ["M1", "M2", "A19"])
@pytest.mark.parametrize("first", ["softmax", "layer_norm"])
def test_softmax_and_long_norms_of_an_input(first, chip):
    rng = np.random.default_rng(0)
    b = GraphBuilder(opset="ios18")
    m = 64 if first == "softmax" else 400
    x = b.input("x", (1, m, 256), "fp16")
    y = b.softmax(x=x, axis=-1) if first == "softmax" else b.layer_norm(x=x, axes=[-1], epsilon=np.float16(1e-5))
    b.output(b.matmul(x=y, y=rng.standard_normal((256, 64)).astype(np.float16)))
    program = hexane.compile(b.graph, chip, dialect="apple")
    assert is_chain(program)
    agreed(program, {"x": rng.standard_normal((1, m, 256)).astype(np.float16)})


@pytest.mark.parametrize("chip", ["M1", "M2", "M4"])
def test_only_the_ends_of_a_chain_meet_memory(chip):
    rng = np.random.default_rng(0)
    b = GraphBuilder(opset="ios18")
    x = b.input("x", (1, 64, 64), "fp16")
    b.output(block(b, block(b, x, rng), rng))
    program = hexane.compile(b.graph, chip, dialect="apple")
    assert is_chain(program) and program.images[0].scratch_bytes == 0
    plans = program.segments[0].plans
    assert [i for i, plan in enumerate(plans) if plan.result.transfer is not None] == [len(plans) - 1]
    agreed(program, {"x": rng.standard_normal((1, 64, 64)).astype(np.float16)})


@pytest.mark.parametrize(
    ("chip", "rows", "projected"),
    [("M2", 64, "qkv"), ("M2", 32, ""), ("M1", 64, "qk"), ("M4", 208, "qkv"), ("A19", 256, "v"), ("M3", 48, "q")],
)
def test_attention_in_a_chain(chip, rows, projected):
    """Only its kernels meet memory, whichever of its matrices are projected, and it gives the graph's bits."""
    rng = np.random.default_rng(0)
    b = GraphBuilder(opset="ios18")
    x = b.input("x", (1, rows, 64), "fp16")
    normed = b.layer_norm(x=x, axes=[-1], epsilon=np.float16(1e-5))
    weights = {name: (rng.standard_normal((64, 64)) / 8).astype(np.float16) for name in projected}
    q, k, v = (b.matmul(x=normed, y=weights[n], transpose_y=True) if n in weights else normed for n in "qkv")
    scores = b.mul(x=b.matmul(x=q, y=k, transpose_y=True), y=np.float16(0.125))
    y = b.add(x=x, y=b.matmul(x=b.softmax(x=scores, axis=-1), y=v))
    b.output(block(b, y, rng) if rows <= MOST_ROWS else y)
    program = hexane.compile(b.graph, chip, dialect="apple")
    (segment,) = program.segments
    assert "Attention among products" in segment.reason
    assert len([plan for plan in segment.plans if plan.result.dma is not None and plan.result.dma.interleave > 1]) == 2
    check_program(program.images[0])
    agreed(program, {"x": rng.standard_normal((1, rows, 64)).astype(np.float16)})


def test_a_recipe_of_its_own_comes_before_a_chain():
    rng = np.random.default_rng(0)
    b = GraphBuilder(opset="ios18")
    x = b.input("x", (1, 128, 64), "fp16")
    hidden = b.gelu(x=b.matmul(x=x, y=rng.standard_normal((64, 64)).astype(np.float16)))
    b.output(b.matmul(x=hidden, y=rng.standard_normal((64, 64)).astype(np.float16)))
    assert not is_chain(hexane.compile(b.graph, dialect="apple"))
    assert not is_chain(hexane.compile(b.graph))
