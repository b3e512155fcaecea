"""Try lax operations through hexane.from_jax and write docs/jax-ops.md.

    python tools/jax_ops.py [docs/jax-ops.md]

Each case is a function of jax.lax (or a small network) with arguments. jax on the CPU says what is right; hexane's
float32 reference and the compiled program on the emulated engine have to agree.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from outcomes import ABSOLUTE, RELATIVE, Outcome, difference, table_error

TARGET = Path(__file__).resolve().parents[1] / "docs" / "jax-ops.md"
EXACT = 2e-5
"""Relative to itself and to the largest result: how far the float32 reference may be from jax."""


@dataclass(frozen=True)
class Case:
    """One function with arguments; ``name`` is lax's, a form behind a slash."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def _floats(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float16).astype(np.float32)


def _ints(*shape: int, low: int = -20, high: int = 20, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.int32)


def cases() -> Iterator[Case]:
    """Every case, element-wise ones first."""
    yield from _unary()
    yield from _binary()
    yield from _shape()
    yield from _reductions()
    yield from _linear()
    yield from _indexing()
    yield from _control()
    yield from _networks()


def _unary() -> Iterator[Case]:
    from jax import lax

    x, positive, unit = _floats(4, 8, 6), _floats(4, 8, 6, low=0.1), _floats(4, 8, 6, low=-0.9, high=0.9)
    above = _floats(4, 8, 6, low=1.1, high=4)
    for names, argument in (
        ("abs neg sign exp exp2 expm1 tanh logistic sin cos tan ceil floor round erf erfc sinh cosh asinh atan square "
         "cbrt is_finite integer_pow reduce_precision", x),
        ("log log1p sqrt rsqrt lgamma digamma bessel_i0e bessel_i1e", positive),
        ("asin acos atanh erf_inv", unit),
        ("acosh", above),
    ):  # fmt: skip
        for name in names.split():
            function = {
                "integer_pow": lambda v: lax.integer_pow(v, 3),
                "reduce_precision": lambda v: lax.reduce_precision(v, 5, 10),
            }.get(name) or getattr(lax, name)
            yield Case(name, function, (argument,))
    whole = _ints(4, 8)
    for name in ("abs", "neg", "sign", "bitwise_not", "population_count", "clz"):
        yield Case(f"{name}/int32", getattr(lax, name), (whole,))
    yield Case("convert_element_type", lambda v: lax.convert_element_type(v, np.int32), (x,))
    yield Case("convert_element_type/int32", lambda v: lax.convert_element_type(v, np.float32), (whole,))
    yield Case("bitcast_convert_type", lambda v: lax.bitcast_convert_type(v, np.int32), (x,))
    yield Case("stop_gradient", lambda v: lax.stop_gradient(v) * 2, (x,))
    yield Case("not/bool", lax.bitwise_not, (x > 0,))


def _binary() -> Iterator[Case]:
    from jax import lax

    x, y = _floats(2, 4, 8), _floats(2, 4, 8, seed=1)
    y_off = np.where(np.abs(y) < 0.1, np.float32(0.5), y)
    for name in "add sub mul max min atan2 nextafter".split():
        yield Case(name, getattr(lax, name), (x, y))
    for name in ("div", "rem"):
        yield Case(name, getattr(lax, name), (x, y_off))
    yield Case("pow", lax.pow, (np.abs(x) + np.float32(0.125), y))
    for name in "eq ne lt le gt ge".split():
        yield Case(name, getattr(lax, name), (x, np.where(y > 0, x, y)))
        yield Case(f"{name}/int32", getattr(lax, name), (_ints(4, 8), _ints(4, 8, seed=1)))
    for name in "add sub mul max min bitwise_and bitwise_or bitwise_xor".split():
        yield Case(f"{name}/int32", getattr(lax, name), (_ints(4, 8), _ints(4, 8, seed=1)))
    for name in ("div", "rem"):
        yield Case(f"{name}/int32", getattr(lax, name), (_ints(4, 8), _ints(4, 8, low=1, high=9, seed=1)))
    for name in ("shift_left", "shift_right_logical", "shift_right_arithmetic"):
        yield Case(name, getattr(lax, name), (_ints(4, 8, low=0), _ints(4, 8, low=0, high=4, seed=1)))
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        yield Case(f"{name}/bool", getattr(lax, name), (x > 0, y > 0))
    yield Case("select", lax.select, (x > 0, x, y))
    yield Case("select_n", lax.select_n, (x > 0, x, y))
    yield Case("clamp", lax.clamp, (np.float32(-1), x, np.float32(1)))
    yield Case("igamma", lax.igamma, (np.abs(x) + 1, np.abs(y) + 1))
    yield Case("complex", lambda a, b: lax.real(lax.complex(a, b)), (x, y))


def _shape() -> Iterator[Case]:
    from jax import lax

    x = _floats(2, 4, 6)
    yield Case("reshape", lambda v: lax.reshape(v, (4, 12)), (x,))
    yield Case("transpose", lambda v: lax.transpose(v, (2, 0, 1)), (x,))
    yield Case("broadcast", lambda v: lax.broadcast(v, (3,)), (x,))
    yield Case("broadcast_in_dim", lambda v: lax.broadcast_in_dim(v, (2, 3, 4, 6), (0, 2, 3)), (x,))
    yield Case("expand_dims", lambda v: lax.expand_dims(v, (1,)), (x,))
    yield Case("squeeze", lambda v: lax.squeeze(v, (1,)), (x[:, :1],))
    yield Case("rev", lambda v: lax.rev(v, (0, 2)), (x,))
    yield Case("slice", lambda v: lax.slice(v, (0, 1, 2), (2, 3, 6)), (x,))
    yield Case("slice/strides", lambda v: lax.slice(v, (0, 0, 1), (2, 4, 6), (1, 2, 2)), (x,))
    yield Case("slice_in_dim", lambda v: lax.slice_in_dim(v, 1, 3, axis=1), (x,))
    yield Case("split", lambda v: lax.split(v, (1, 3), axis=1), (x,))
    yield Case("concatenate", lambda a, b: lax.concatenate([a, b], 1), (x, _floats(2, 3, 6, seed=1)))
    yield Case("pad", lambda v: lax.pad(v, np.float32(0.5), ((0, 0, 0), (1, 2, 0), (0, 1, 0))), (x,))
    yield Case("pad/interior", lambda v: lax.pad(v, np.float32(0), ((0, 0, 0), (1, 2, 1), (0, 1, 2))), (x,))
    yield Case("pad/negative", lambda v: lax.pad(v, np.float32(0), ((0, 0, 0), (-1, 2, 0), (0, -1, 0))), (x,))
    yield Case("iota", lambda v: v + lax.iota(np.float32, 6), (x,))
    yield Case("broadcasted_iota", lambda v: v + lax.broadcasted_iota(np.float32, (4, 6), 0), (x,))
    yield Case("tile", lambda v: lax.tile(v, (1, 2, 3)), (x,))
    yield Case("collapse", lambda v: lax.collapse(v, 0, 2), (x,))
    yield Case("full_like", lambda v: v + lax.full_like(v, 3), (x,))


def _reductions() -> Iterator[Case]:
    from jax import lax

    of = vars(lax)

    x, image = _floats(2, 4, 8), _floats(1, 8, 8, 3)
    for name in "reduce_sum reduce_max reduce_min reduce_prod".split():
        yield Case(name, lambda v, f=of[name]: f(v, axes=(1,)), (x,))
    for name in ("reduce_and", "reduce_or", "reduce_xor"):
        yield Case(f"{name}/bool", lambda v, f=of[name]: f(v, axes=(1,)), (x > 0,))
    yield Case("reduce", lambda v: lax.reduce(v, np.float32(0), lax.add, (0, 2)), (x,))
    for name in ("argmax", "argmin"):
        yield Case(name, lambda v, f=of[name]: f(v, 2, np.int32), (x,))
    for name in "cumsum cumprod cummax cummin cumlogsumexp".split():
        yield Case(name, lambda v, f=of[name]: f(v, axis=2), (x / 2,))
    window = ((1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    yield Case("reduce_window/max", lambda v: lax.reduce_window(v, -np.inf, lax.max, *window), (image,))
    yield Case("reduce_window/sum", lambda v: lax.reduce_window(v, 0.0, lax.add, *window), (image,))
    same = ((1, 3, 3, 1), (1, 1, 1, 1), "SAME")
    yield Case("reduce_window/max, same", lambda v: lax.reduce_window(v, -np.inf, lax.max, *same), (image,))
    yield Case("sort", lambda v: lax.sort(v, dimension=2), (x,))
    yield Case("sort_key_val", lambda k, v: lax.sort_key_val(k, v), (x, _ints(2, 4, 8)))
    yield Case("top_k", lambda v: lax.top_k(v, 3), (x,))
    yield Case("approx_max_k", lambda v: lax.approx_max_k(v, 3), (x,))


def _linear() -> Iterator[Case]:
    import jax
    from jax import lax

    a, b = _floats(4, 8), _floats(8, 6, seed=1)
    yield Case("dot", lax.dot, (a, b))
    yield Case("dot/vectors", lax.dot, (a[0], b[:, 0]))
    batched = (((2,), (1,)), ((0,), (0,)))
    yield Case("dot_general", lambda p, q: lax.dot_general(p, q, batched), (_floats(3, 4, 8), _floats(3, 8, 5, seed=1)))
    outer = (((), ()), ((), ()))
    yield Case("dot_general/outer", lambda p, q: lax.dot_general(p, q, outer), (a, b[:3]))
    yield Case("batch_matmul", lax.batch_matmul, (_floats(3, 4, 8), _floats(3, 8, 5, seed=1)))
    image, kernel = _floats(1, 4, 9, 9), _floats(6, 4, 3, 3, seed=1) / 4
    yield Case("conv", lambda v, w: lax.conv(v, w, (1, 1), "SAME"), (image, kernel))
    yield Case("conv/constant kernel", lambda v: lax.conv(v, kernel, (2, 2), "VALID"), (image,))
    form = ("NHWC", "HWIO", "NHWC")
    moved = (_floats(1, 9, 9, 4), _floats(3, 3, 4, 6, seed=1) / 4)
    yield Case(
        "conv_general_dilated",
        lambda v, w: lax.conv_general_dilated(v, w, (1, 1), "SAME", dimension_numbers=form),
        moved,
    )
    yield Case(
        "conv_general_dilated/dilated",
        lambda v: lax.conv_general_dilated(v, kernel, (1, 1), ((2, 2), (2, 2)), rhs_dilation=(2, 2)),
        (image,),
    )
    yield Case(
        "conv_general_dilated/groups",
        lambda v: lax.conv_general_dilated(v, kernel[:4, :1], (1, 1), "SAME", feature_group_count=4),
        (image,),
    )
    yield Case("conv_transpose", lambda v: lax.conv_transpose(v, moved[1], (2, 2), "SAME"), (moved[0],))
    yield Case("conv/1d", lambda v: lax.conv(v, kernel[:, :, 0], (1,), "SAME"), (image[:, :, 0],))
    yield Case(
        "conv_general_dilated_patches", lambda v: lax.conv_general_dilated_patches(v, (3, 3), (1, 1), "VALID"), (image,)
    )
    yield Case("linalg.triangular_solve", lambda p, q: lax.linalg.triangular_solve(p, q, lower=True, left_side=True),
               (np.tril(_floats(4, 4)) + 3 * np.eye(4, dtype=np.float32), _floats(4, 2, seed=1)))  # fmt: skip
    yield Case("linalg.cholesky", lax.linalg.cholesky, (a @ a.T + 4 * np.eye(4, dtype=np.float32),))
    yield Case("fft", lambda v: jax.numpy.abs(lax.fft(v, "RFFT", (8,))), (a,))


def _indexing() -> Iterator[Case]:
    from jax import lax

    of = vars(lax)

    x, at = _floats(6, 8), np.array([[4], [0], [2]], np.int32)
    yield Case("dynamic_slice", lambda v, i: lax.dynamic_slice(v, (i, 0), (2, 8)), (x, np.int32(3)))
    yield Case("dynamic_index_in_dim", lambda v, i: lax.dynamic_index_in_dim(v, i), (x, np.int32(2)))
    yield Case(
        "dynamic_update_slice",
        lambda v, u, i: lax.dynamic_update_slice(v, u, (i, 1)),
        (x, _floats(2, 3, seed=1), np.int32(2)),
    )
    rows = lax.GatherDimensionNumbers((1,), (0,), (0,))
    yield Case("gather", lambda v, i: lax.gather(v, i, rows, (1, 8)), (x, at))
    yield Case("index_take", lambda v, i: lax.index_take(v, (i,), (0,)), (x, at[:, 0]))
    into = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    for name in "scatter scatter_add scatter_mul scatter_max scatter_min".split():
        yield Case(name, lambda v, i, u, f=of[name]: f(v, i, u, into), (x, at, _floats(3, 8, seed=1)))


def _control() -> Iterator[Case]:
    import jax.numpy as jnp
    from jax import lax

    x = _floats(4, 8)
    yield Case("cond", lambda v, p: lax.cond(p > 0, jnp.sin, jnp.exp, v), (x, np.float32(1)))
    yield Case("switch", lambda v, i: lax.switch(i, [jnp.sin, jnp.exp, jnp.tanh], v), (x, np.int32(2)))
    yield Case("fori_loop", lambda v: lax.fori_loop(0, 3, lambda i, c: c * 0.5 + v, v), (x,))
    yield Case(
        "while_loop", lambda v: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 0.5), (0, v))[1], (x,)
    )
    yield Case("scan", lambda v: lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(8), v), (x,))
    yield Case("map", lambda v: lax.map(lambda r: r * 2 + 1, v), (x,))
    yield Case("associative_scan", lambda v: lax.associative_scan(jnp.add, v), (x,))


def _networks() -> Iterator[Case]:
    import jax
    import jax.numpy as jnp

    x, w1, w2 = _floats(4, 16), _floats(16, 32, seed=1) / 4, _floats(32, 8, seed=2) / 4
    yield Case("network/mlp", lambda v: jax.nn.softmax(jax.nn.gelu(v @ w1) @ w2), (x,))
    kernel = _floats(8, 3, 3, 3, seed=1) / 4

    def convolutional(v: Any) -> Any:
        v = jax.nn.relu(jax.lax.conv(v, kernel, (1, 1), "SAME"))
        v = jax.lax.reduce_window(v, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return v.mean((2, 3)) @ w2[:8]

    yield Case("network/convolutional", convolutional, (_floats(1, 3, 16, 16),))

    def attention(q: Any, k: Any, v: Any) -> Any:
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4.0, axis=-1)
        return jnp.einsum("bhqk,bkhd->bqhd", weights, v)

    yield Case("network/attention", attention, tuple(_floats(1, 8, 2, 16, seed=s) for s in range(3)))

    def layer_norm(v: Any) -> Any:
        return (v - v.mean(-1, keepdims=True)) / jnp.sqrt(v.var(-1, keepdims=True) + 1e-3)

    yield Case("network/layer norm", layer_norm, (x,))
    for name in "relu6 silu elu leaky_relu softplus hard_swish mish log_softmax glu".split():
        yield Case(f"jax.nn.{name}", getattr(jax.nn, name), (x,))


def run(case: Case) -> Outcome:
    """One case against jax, first in float32, then compiled."""
    import jax

    import hexane
    from hexane.errors import HexaneError

    made = case.function(*map(jax.numpy.asarray, case.arguments))
    wanted = [np.atleast_1d(np.asarray(leaf)) for leaf in jax.tree_util.tree_leaves(made)]
    try:
        graph = hexane.from_jax(case.function, *case.arguments)
        given = {
            name: value.astype(type_.carrier).reshape(type_.shape)
            for (name, type_), value in zip(graph.inputs.items(), case.arguments)
        }
        places = list(graph.outputs)
        if len(places) != len(wanted):
            return Outcome(case.name, "wrong", f"{len(places)} results for {len(wanted)}")
        made = graph.evaluate(given)
        for place, theirs in zip(places, wanted):
            if why := difference(made[place], theirs, EXACT, EXACT):
                return Outcome(case.name, "wrong", f"float32 reference: {why}")
        program = hexane.compile(graph)
        made = program.run(given)
        stats = program.stats()
        share = 1 - sum(stats["host_ops"].values()) / max(stats["ops"], 1)
        error = table_error(program, apples=False)
        for place, theirs in zip(places, wanted):
            if why := difference(made[place], theirs, RELATIVE, ABSOLUTE, error):
                return Outcome(case.name, "wrong", f"compiled: {why}", share)
    except HexaneError as problem:
        return Outcome(case.name, "refused", problem.message)
    except Exception as problem:
        return Outcome(case.name, "crash", f"{type(problem).__name__}: {problem}")
    return Outcome(case.name, "pass", engine=share)


def render(found: list[Outcome]) -> str:
    """The document."""
    import jax
    import stablehlo_coreml

    counts = Counter(outcome.kind for outcome in found)
    alone = sum(outcome.kind == "pass" and outcome.engine == 1 for outcome in found)
    lines = [
        "# JAX operations, measured",
        "",
        "Written by `tools/jax_ops.py`. How to use `hexane.from_jax`: [frameworks](frameworks.md).",
        "",
        f"jax {jax.__version__}, stablehlo-coreml {stablehlo_coreml.__version__}; compiled for M1, emulated engine.",
        f"jax on the CPU says what is right. The float32 reference has to agree to {EXACT:g} of a result and of the",
        f"largest one; the compiled program, in fp16, to {RELATIVE:g} of a result and {ABSOLUTE:g} of the largest (at",
        "least of 1), and to the stated error of a fitted table where one is read ([tables](lookup-tables.md)).",
        "Whole numbers and truth values have to be equal.",
        "",
        "| cases | pass | of these on the engine alone | refused | wrong | crash |",
        "|---:|---:|---:|---:|---:|---:|",
        f"| {len(found)} | {counts['pass']} | {alone} | {counts['refused']} | {counts['wrong']} | {counts['crash']} |",
        "",
        "## Pass",
        "",
        "On the engine alone: " + ", ".join(f"`{o.name}`" for o in found if o.kind == "pass" and o.engine == 1) + ".",
        "",
        "With ops on the host: " + ", ".join(f"`{o.name}`" for o in found if o.kind == "pass" and o.engine < 1) + ".",
    ]
    for kind in ("refused", "wrong", "crash"):
        groups: dict[str, list[str]] = defaultdict(list)
        for outcome in found:
            if outcome.kind == kind:
                groups[" ".join(outcome.reason.split())[:240]].append(outcome.name)
        if groups:
            lines += ["", f"## {kind.capitalize()}", ""]
            lines += [f"* {reason}: {', '.join(f'`{n}`' for n in names)}" for reason, names in sorted(groups.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    found = []
    for case in cases():
        found.append(run(case))
        print(found[-1].kind, found[-1].name, found[-1].reason[:160], flush=True)
    target.write_text(render(found))
    print(dict(Counter(outcome.kind for outcome in found)))


if __name__ == "__main__":
    main()
