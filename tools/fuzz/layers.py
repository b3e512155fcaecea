"""Networks of 3 to 12 layers on maps and tokens of odd sizes, with several inputs and outputs.

Each layer reads what the one before gives; sums, products and joins also read an earlier result or a new input.
"""

from __future__ import annotations

import random
from math import prod
from typing import Any

from fuzz.shapes import Drawn
from fuzz.sketch import Data, Sketch
from hexane.chips import GENERATIONS

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 19, 23, 29, 31, 32, 33)
WIDTHS = (1, 3, 4, 7, 8, 12, 16, 17, 20, 24, 31, 32, 33, 40, 48, 64)
ELEMENTS = 60_000
"""Of a map, at most: the sizes are odd here, not large."""
ACTIVATIONS = (
    "relu", "relu6", "sigmoid", "tanh", "silu", "gelu", "softplus", "softsign", "erf", "exp2", "abs", "square",
    "sigmoid_hard", "leaky_relu", "elu", "clip", "prelu",
)  # fmt: skip
PARAMETERS: dict[str, dict[str, Any]] = {
    "sigmoid_hard": {"alpha": 0.2, "beta": 0.5},
    "leaky_relu": {"alpha": 0.1},
    "elu": {"alpha": 1.0},
    "clip": {"alpha": -0.5, "beta": 0.75},
}


def network(seed: int, index: int) -> Sketch:
    """The network of a seed and an index, the same in every process."""
    chance = random.Random(f"layers {seed} {index}")
    net = Drawn(chance, GENERATIONS[-1])
    x = net.input(_tokens(chance) if chance.random() < 0.35 else _map(chance))
    for _ in range(chance.randint(3, 12)):
        x = chance.choice(ON_TOKENS if len(net.shapes[x]) == 3 else ON_MAPS)(net, x)
    sketch = net.finished("layers")
    return sketch if sketch.outputs else Sketch()


def _map(chance: random.Random) -> tuple[int, ...]:
    n, c = chance.choice((1, 1, 1, 1, 2, 3)), chance.choice(WIDTHS)
    h, w = chance.choice(SIZES), chance.choice(SIZES)
    return (n, c, h, w) if prod((n, c, h, w)) <= ELEMENTS else (1, c, min(h, 29), min(w, 29))


def _tokens(chance: random.Random) -> tuple[int, ...]:
    return (chance.choice((1, 1, 1, 2)), chance.choice((1, 2, 5, 8, 13, 16, 17, 31, 49, 64)), chance.choice(WIDTHS))


def _numbers(net: Drawn, *shape: int, low: float = -1.0, high: float = 1.0) -> Data:
    return Data(shape, net.dtype, net.chance.randrange(1 << 16), low, high)


def _conv(net: Drawn, x: str) -> str:
    chance = net.chance
    n, cin, h, w = net.shapes[x]  # type: ignore[misc]
    cout = chance.choice((None, None, *WIDTHS)) or cin
    groups = chance.choice([g for g in (1, 1, 1, 2, 3, 4) if cin % g == 0 and cout % g == 0])
    k = [chance.choice([k for k in (1, 1, 2, 3, 3, 5, 7) if k <= extent + 2]) for extent in (h, w)]
    dilations = [chance.choice((1, 1, 1, 1, 2)) if 2 * (size - 1) < extent else 1 for size, extent in zip(k, (h, w))]
    steps = [chance.choice((1, 1, 1, 2, 3))] * 2
    more: dict[str, Any] = {"pad_type": "same"}
    out = [-(-extent // step) for extent, step in zip((h, w), steps)]
    spans = [(size - 1) * spread + 1 for size, spread in zip(k, dilations)]
    if chance.random() < 0.4:
        pad = [chance.randint(max(0, span - h), max(span - 1, 0)) if span > 1 else 0 for span in spans for _ in "ab"]
        room = [e + a + b - span for e, a, b, span in zip((h, w), pad[::2], pad[1::2], spans)]
        if min(room) >= 0:
            more, out = {"pad_type": "custom", "pad": pad}, [r // step + 1 for r, step in zip(room, steps)]
    if chance.random() < 0.6:
        more["bias"] = net.data(cout, fan=10)
    fan = cin // groups * k[0] * k[1]
    weight = net.data(cout, cin // groups, *k, fan=fan)
    return net.op(
        "conv", (n, cout, *out), x=x, weight=weight, strides=steps, dilations=dilations, groups=groups, **more
    )


def _depthwise(net: Drawn, x: str) -> str:
    c = net.shapes[x][1]
    k = [net.chance.choice((1, 3, 3, 5)) for _ in "hw"]
    weight = net.data(c, 1, *k, fan=k[0] * k[1])
    return net.op("conv", net.shapes[x], x=x, weight=weight, groups=c, pad_type="same")


def _transposed(net: Drawn, x: str) -> str:
    n, c, h, w = net.shapes[x]  # type: ignore[misc]
    k, step, cout = net.chance.choice((2, 3, 4)), net.chance.choice((1, 2)), net.chance.choice((c, 8, 5))
    out = [(extent - 1) * step + k for extent in (h, w)]
    if n * cout * prod(out) > ELEMENTS:
        return _act(net, x)
    weight = net.data(c, cout, k, k, fan=c * k)
    return net.op("conv_transpose", (n, cout, *out), x=x, weight=weight, strides=[step, step])


def _norm(net: Drawn, x: str) -> str:
    shape = net.shapes[x]
    c, chance = shape[1], net.chance
    scales = {"gamma": _numbers(net, c, low=0.5, high=1.5), "beta": _numbers(net, c)} if chance.random() < 0.7 else {}
    kind = chance.choice(("batch_norm", "instance_norm", "layer_norm", "l2_norm"))
    if kind == "batch_norm":
        scales |= {"mean": _numbers(net, c), "variance": _numbers(net, c, low=0.5, high=2.0)}
    elif kind == "layer_norm":
        return net.op(kind, shape, x=x, axes=[1], **scales, epsilon=1e-3)
    elif kind == "l2_norm":
        scales = {}
    return net.op(kind, shape, x=x, **scales, epsilon=1e-3)


def _pool(net: Drawn, x: str) -> str:
    n, c, h, w = net.shapes[x]  # type: ignore[misc]
    chance = net.chance
    k = [min(chance.choice((2, 3, 3, 5)), extent) for extent in (h, w)]
    step = chance.choice((1, 1, 2, 2, 3))
    kind = chance.choice(("max_pool", "avg_pool"))
    if chance.random() < 0.5:
        pad, out = {"pad_type": "same"}, [-(-extent // step) for extent in (h, w)]
    else:
        pad, out = {"pad_type": "valid"}, [(extent - size) // step + 1 for extent, size in zip((h, w), k)]
    return net.op(kind, (n, c, *out), x=x, kernel_sizes=k, strides=[step, step], **pad)


def _act(net: Drawn, x: str) -> str:
    kind = net.chance.choice(ACTIVATIONS)
    if kind == "prelu":
        return net.op(kind, net.shapes[x], x=x, alpha=_numbers(net, net.shapes[x][1], low=0.0))
    return net.op(kind, net.shapes[x], x=x, **PARAMETERS.get(kind, {}))


def _partner(net: Drawn, x: str) -> str | Data:
    """Another operand of the same shape, or one that is broadcast."""
    shape, chance = net.shapes[x], net.chance
    alike = [name for name, other in net.shapes.items() if other == shape and name != x]
    if alike and chance.random() < 0.6:
        return chance.choice(alike)
    wider = tuple(extent if chance.random() < 0.6 else 1 for extent in shape)
    if chance.random() < 0.5 and len(net.inputs) < 4:
        return net.input(shape if chance.random() < 0.6 else wider)
    return _numbers(net, *wider)


def _binary(net: Drawn, x: str) -> str:
    kind = net.chance.choice(("add", "add", "add", "mul", "sub", "maximum", "minimum"))
    pair = [x, _partner(net, x)]
    if kind != "sub" and net.chance.random() < 0.3:
        pair.reverse()
    return net.op(kind, net.shapes[x], x=pair[0], y=pair[1])


def _concat(net: Drawn, x: str) -> str:
    shape, axis = net.shapes[x], net.chance.choice((1, 1, 1, 2, len(net.shapes[x]) - 1))
    rest = [extent for i, extent in enumerate(shape) if i != axis]
    fits = [
        name
        for name, other in net.shapes.items()
        if len(other) == len(shape) and [extent for i, extent in enumerate(other) if i != axis] == rest
    ]
    names = (x, *net.chance.sample(fits, min(len(fits), net.chance.randint(1, 2))))
    total = sum(net.shapes[name][axis] for name in names)
    out = tuple(total if i == axis else extent for i, extent in enumerate(shape))
    return x if prod(out) > ELEMENTS else net.op("concat", out, values=names, axis=axis)


def _slice(net: Drawn, x: str) -> str:
    shape = net.shapes[x]
    begin = [net.chance.choice((0, 0, 0, extent // 2, extent - 1)) for extent in shape]
    size = [net.chance.randint((extent - b + 1) // 2, extent - b) for extent, b in zip(shape, begin)]
    return net.op("slice_by_size", tuple(size), x=x, begin=begin, size=size)


def _pad(net: Drawn, x: str) -> str:
    shape, pads = net.shapes[x], [net.chance.choice((0, 1, 1, 2, 3)) for _ in range(4)]
    out = (*shape[:-2], shape[-2] + sum(pads[:2]), shape[-1] + sum(pads[2:]))
    return net.op("pad", out, x=x, pad=[0] * (2 * len(shape) - 4) + pads, mode="constant", constant_val=0.0)


def _reduce(net: Drawn, x: str) -> str:
    shape = net.shapes[x]
    axes = net.chance.choice(([2, 3], [1], [3], [2])) if len(shape) == 4 else [net.chance.choice((1, 2))]
    kind = net.chance.choice(("reduce_mean", "reduce_mean", "reduce_max", "reduce_sum"))
    small = tuple(1 if i in axes else extent for i, extent in enumerate(shape))
    y = net.op(kind, small, x=x, axes=axes, keep_dims=True)
    kind = net.chance.choice(("mul", "sub", "add"))
    return net.op(kind, shape, x=x, y=net.op("sigmoid", small, x=y))


def _softmax(net: Drawn, x: str) -> str:
    return net.op("softmax", net.shapes[x], x=x, axis=net.chance.choice((-1, -1, 1)))


def _upsampled(net: Drawn, x: str) -> str:
    n, c, h, w = net.shapes[x]  # type: ignore[misc]
    if 4 * n * c * h * w > ELEMENTS:
        return _pool(net, x)
    kind = net.chance.choice(("upsample_nearest_neighbor", "upsample_bilinear"))
    more = {"align_corners": net.chance.random() < 0.5} if kind == "upsample_bilinear" else {}
    scales = {"scale_factor_height": 2.0, "scale_factor_width": 2.0}
    return net.op(kind, (n, c, 2 * h, 2 * w), x=x, **scales, **more)


def _to_tokens(net: Drawn, x: str) -> str:
    n, c, h, w = net.shapes[x]  # type: ignore[misc]
    x = net.op("reshape", (n, c, h * w), x=x, shape=[n, c, h * w])
    return net.op("transpose", (n, h * w, c), x=x, perm=[0, 2, 1])


def _to_map(net: Drawn, x: str) -> str:
    n, t, c = net.shapes[x]  # type: ignore[misc]
    h = next(h for h in (7, 5, 4, 3, 2, 1) if t % h == 0)
    x = net.op("transpose", (n, c, t), x=x, perm=[0, 2, 1])
    return net.op("reshape", (n, c, h, t // h), x=x, shape=[n, c, h, t // h])


def _linear(net: Drawn, x: str, width: int | None = None) -> str:
    n, t, c = net.shapes[x]  # type: ignore[misc]
    width = width or net.chance.choice((c, *WIDTHS, 4 * c))
    more = {"bias": net.data(width, fan=10)} if net.chance.random() < 0.7 else {}
    return net.op("linear", (n, t, width), x=x, weight=net.data(width, c, fan=c), **more)


def _token_norm(net: Drawn, x: str) -> str:
    c = net.shapes[x][-1]
    more = {"gamma": _numbers(net, c, low=0.5, high=1.5), "beta": _numbers(net, c)}
    return net.op(
        "layer_norm", net.shapes[x], x=x, axes=[-1], epsilon=1e-3, **(more if net.chance.random() < 0.7 else {})
    )


def _attention(net: Drawn, x: str) -> str:
    n, t, c = net.shapes[x]  # type: ignore[misc]
    chance = net.chance
    if t > 200:
        return _token_norm(net, x)
    heads = chance.choice([h for h in (1, 2, 3, 4, 5) if c % h == 0])
    depth, parts = c // heads, []
    for _ in "qkv":
        part = net.op("reshape", (n, t, heads, depth), x=_linear(net, x, c), shape=[n, t, heads, depth])
        parts.append(net.op("transpose", (n, heads, t, depth), x=part, perm=[0, 2, 1, 3]))
    q, k, v = parts
    if chance.random() < 0.5:
        z = net.op("scaled_dot_product_attention", (n, heads, t, depth), query=q, key=k, value=v)
    else:
        scores = net.op("matmul", (n, heads, t, t), x=q, y=k, transpose_y=True)
        scores = net.op("mul", (n, heads, t, t), x=scores, y=depth**-0.5)
        if chance.random() < 0.3:
            scores = net.op("add", (n, heads, t, t), x=scores, y=_numbers(net, 1, 1, t, t))
        scores = net.op("softmax", (n, heads, t, t), x=scores, axis=-1)
        z = net.op("matmul", (n, heads, t, depth), x=scores, y=v)
    z = net.op("transpose", (n, t, heads, depth), x=z, perm=[0, 2, 1, 3])
    z = net.op("reshape", (n, t, c), x=z, shape=[n, t, c])
    return net.op("add", (n, t, c), x=x, y=z) if chance.random() < 0.6 else z


ON_MAPS = (
    *(_conv,) * 6, *(_depthwise,) * 2, *(_norm,) * 2, *(_pool,) * 2, *(_act,) * 4, *(_binary,) * 4, *(_concat,) * 2,
    _transposed, _slice, _pad, _reduce, _softmax, _upsampled, _to_tokens, _to_tokens,
)  # fmt: skip
ON_TOKENS = (
    *(_linear,) * 4, *(_attention,) * 3, *(_token_norm,) * 2, *(_act,) * 2, *(_binary,) * 3, _concat, _softmax, _slice,
    _reduce, *(_to_map,) * 3,
)  # fmt: skip
