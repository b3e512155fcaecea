"""The published checksums of data/numerics/dev_oracles.json: seeded inputs, the engine's arithmetic, a float reference.

Each recipe yields the relative error norm2(engine - reference) / norm2(reference); the file states the recipes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from hexane import arithmetic
from hexane.arithmetic import planar, reduction
from hexane.arithmetic.function_tables import function_table

f16, f32, f64 = np.float16, np.float32, np.float64


def error(engine: np.ndarray, reference: np.ndarray) -> float:
    difference = engine.astype(f64) - reference
    return float(np.linalg.norm(difference.ravel()) / np.linalg.norm(reference.astype(f64).ravel()))


def gemm_square(n: int) -> float:
    g = np.random.default_rng(0)
    x = g.standard_normal((n, n)).astype(f32) / f32(np.sqrt(n))
    w = g.standard_normal((n, n)).astype(f32) / f32(np.sqrt(n))
    x = x[: min(n, 256)]
    return error(arithmetic.mac(x.astype(f16), w.astype(f16).T), x.astype(f64) @ w.astype(f64).T)


def gemm_rect(m: int, k: int, n: int) -> float:
    g = np.random.default_rng(0)
    x = g.standard_normal((m, k)).astype(f32) / f32(np.sqrt(k))
    w = g.standard_normal((n, k)).astype(f32) / f32(np.sqrt(k))
    return error(arithmetic.mac(x.astype(f16), w.astype(f16).T), x.astype(f64) @ w.astype(f64).T)


def gemv(k: int, n: int) -> float:
    g = np.random.default_rng(0)
    x = g.standard_normal((1, k)).astype(f32) / np.sqrt(k)
    w = g.standard_normal((n, k)).astype(f32) / np.sqrt(k)
    return error(arithmetic.mac(x.astype(f16), w.astype(f16).T), x @ w.T)


def conv_reference(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """3x3, stride 1, padding 1, one image (C, H, W), in float64."""
    c, h, wide = x.shape
    padded = np.zeros((c, h + 2, wide + 2))
    padded[:, 1:-1, 1:-1] = x
    out = np.zeros((w.shape[0], h * wide))
    for ky in range(3):
        for kx in range(3):
            out += w[:, :, ky, kx].astype(f64) @ padded[:, ky : ky + h, kx : kx + wide].reshape(c, -1)
    return out.reshape(-1, h, wide)


def conv_engine(x: np.ndarray, w: np.ndarray, form: str, relu: bool = False) -> np.ndarray:
    activation = "relu" if relu else None
    return arithmetic.conv2d(x[None], w, pads=(1, 1, 1, 1), form=form, activation=activation)[0]


def conv_sweep(c: int, b: int, form: str) -> float:
    g = np.random.default_rng(1)
    x = g.standard_normal((b, c, 64, 64)).astype(f32)[0]
    w = g.standard_normal((c, c, 3, 3)).astype(f32) * np.sqrt(2 / (9 * c))
    return error(conv_engine(x.astype(f16), w.astype(f16), form), conv_reference(x, w))


def conv_single(form: str) -> float:
    g = np.random.default_rng(1)
    x = g.standard_normal((1, 16, 32, 32)).astype(f32)[0]
    w = g.standard_normal((64, 16, 3, 3)).astype(f32) * np.sqrt(2 / 144)
    return error(conv_engine(x.astype(f16), w.astype(f16), form, relu=True), np.maximum(conv_reference(x, w), 0))


def conv_chain(form: str) -> float:
    g = np.random.default_rng(1)
    reference = g.standard_normal((1, 64, 32, 32)).astype(f32)[0]
    engine, channels = reference.astype(f16), 64
    for _ in range(16):
        w = g.standard_normal((256, channels, 3, 3)).astype(f32) * np.sqrt(2 / (9 * channels))
        reference = np.maximum(conv_reference(reference, w), 0).astype(f32)
        engine = conv_engine(engine, w.astype(f16), form, relu=True)
        channels = 256
    return error(engine, reference)


def dft() -> float:
    x = np.random.default_rng(2).standard_normal(1024)
    n = np.arange(1024)
    a = -2 * np.pi * np.outer(n, n) / 1024
    errors = [error(arithmetic.mac(x[None].astype(f16), m.astype(f16).T)[0], m @ x) for m in (np.cos(a), np.sin(a))]
    return float(np.mean(errors))


def softmax(x: np.ndarray) -> np.ndarray:
    from arithmetic.measured import softmax as engine

    return engine(x)


def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    """Last axis, as the engine's tasks, then gamma and beta as one task of kind 4 each way.

    Source: docs/reference/engine-h13.md 13.
    """
    n = x.shape[-1]
    mean = reduction.reduce(x, -1, scale=1 / n, keepdims=True)
    centred = planar.elementwise_plain("sub", x, mean)
    deviation = reduction.reduce(
        centred, -1, op="sumsq", scale=1 / n, epsilon=epsilon, nonlinear="rsqrt", keepdims=True
    )
    return affine(planar.elementwise_plain("mul", centred, deviation), gamma, beta)


def affine(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None) -> np.ndarray:
    scaled = planar.elementwise_plain("mul", x, gamma.astype(f16))
    return scaled if beta is None else planar.elementwise_plain("add", scaled, beta.astype(f16))


def rms_norm(x: np.ndarray, gamma: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    scale = reduction.reduce(
        x, -1, op="sumsq", scale=1 / x.shape[-1], epsilon=epsilon, nonlinear="rsqrt", keepdims=True
    )
    return affine(planar.elementwise_plain("mul", x, scale), gamma, None)


def reference_gelu(x: np.ndarray) -> np.ndarray:
    c = np.sqrt(2 / np.pi)
    return 0.5 * x * (1 + np.tanh(c * (x + 0.044715 * x**3)))


def reference_softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def reference_layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    x = x.astype(f64)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gamma + beta


def bandwidth(operation: str, sizes: list[int]) -> Iterator[float]:
    h = np.random.default_rng(13)
    gamma, beta = h.standard_normal(4096) * 0.1 + 1, h.standard_normal(4096) * 0.1
    forms: dict[str, tuple[Callable, Callable]] = {
        "relu": (planar.relu, lambda x: np.maximum(x, 0)),
        "gelu": (lambda x: arithmetic.lookup(function_table("gelu"), x), reference_gelu),
        "reduce_sum": (lambda x: reduction.reduce(x, -1), lambda x: x.astype(f64).sum(-1)),
        "softmax": (softmax, lambda x: reference_softmax(x.astype(f64))),
        "layer_norm": (lambda x: layer_norm(x, gamma, beta), lambda x: reference_layer_norm(x, gamma, beta)),
    }
    engine, reference = forms[operation]
    g = np.random.default_rng(11)
    for rows in sizes:
        x = g.standard_normal((rows, 4096)).astype(f32)
        yield error(engine(x.astype(f16)), reference(x))


def norms(operation: str, shape: list[int]) -> float:
    g = np.random.default_rng(7)
    x = g.standard_normal(shape).astype(f32)
    gamma, beta = g.standard_normal(shape[-1]) * 0.1 + 1, g.standard_normal(shape[-1]) * 0.1
    if operation == "layer_norm":
        return error(layer_norm(x.astype(f16), gamma, beta), reference_layer_norm(x, gamma, beta))
    y = x.astype(f64)
    reference = y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5) * gamma
    return error(rms_norm(x.astype(f16), gamma), reference)


def attention(s: int) -> float:
    g = np.random.default_rng(5)
    wq, wk, wv, wo = (g.standard_normal((768, 768)).astype(f32) / np.sqrt(768) for _ in range(4))
    bq, bk, bv, bo = (g.standard_normal(768) * 0.01 for _ in range(4))
    x = g.standard_normal((s, 768))

    def heads(y: np.ndarray) -> np.ndarray:
        return y.reshape(s, 12, 64).transpose(1, 0, 2)

    def engine_linear(y: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        return arithmetic.mac(y.astype(f16), w.astype(f16).T, b.astype(f16))

    q, k, v = (heads(engine_linear(x, w, b)) for w, b in ((wq, bq), (wk, bk), (wv, bv)))
    scores = arithmetic.matmul(q, np.ascontiguousarray(k.transpose(0, 2, 1)), post_scale=0.125)
    mixed = arithmetic.matmul(softmax(scores), np.ascontiguousarray(v)).transpose(1, 0, 2).reshape(s, 768)
    engine = engine_linear(mixed, wo, bo)
    q, k, v = (heads(x @ w.T.astype(f64) + b) for w, b in ((wq, bq), (wk, bk), (wv, bv)))
    mixed = (reference_softmax(q @ k.transpose(0, 2, 1) * 0.125) @ v).transpose(1, 0, 2).reshape(s, 768)
    return error(engine, mixed @ wo.T.astype(f64) + bo)


def evaluate(case: dict, few: bool = False) -> list[float]:
    """What hexane's arithmetic gives for one case: one number, or one per size; `few` takes the first size only."""
    p = case["params"]
    kind, _, operation = case["kind"].partition(":")
    form = "winograd" if "winograd" in case["rule"] else "direct"
    if kind == "bandwidth":
        return list(bandwidth(operation, p["R"][: 1 if few else None]))
    if kind == "norms":
        return [norms(operation, p["shape"])]
    single: dict[str, Callable[[], float]] = {
        "gemm_square": lambda: gemm_square(p["N"]),
        "gemm_rect": lambda: gemm_rect(p["M"], p["K"], p["N"]),
        "gemv": lambda: gemv(p["K"], p["N"]),
        "conv_sweep": lambda: conv_sweep(p["C"], p["B"], form),
        "conv_single": lambda: conv_single(form),
        "conv_chain": lambda: conv_chain(form),
        "dft": dft,
        "attention": lambda: attention(p["S"]),
    }
    return [single[kind]()]
