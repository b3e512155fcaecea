"""What the recorded networks compute, op by op, apart from hexane: NumPy only, nothing of hexane imported.

`evaluate` is in float64. `engine_bits` follows docs/reference/numerics.md (through engine_numerics) and is meant for
networks whose tasks all rest on measured rules; of large products it computes a sample of the outputs and says which.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from emulator import engine_numerics as engine

Arrays = dict[str, np.ndarray]
ERF = np.vectorize(__import__("math").erf, otypes=[float])
LARGEST_EXACT = 1_500_000  # products; larger ones are sampled


def evaluate(network: dict, values: Arrays) -> Arrays:
    """All outputs in float64 from inputs and constants by name (any shape with the right number of elements)."""
    state = _start(network, values, np.float64)
    for operation in network["operations"]:
        arguments = {key: state[name] for key, name in operation["inputs"].items()}
        result = _FLOAT[operation["op"]](operation["parameters"], **arguments)
        state[operation["output"]["name"]] = result.reshape(operation["output"]["shape"])
    return {row["name"]: state[row["name"]] for row in network["outputs"]}


def _start(network: dict, values: Arrays, dtype: type) -> Arrays:
    state = {}
    for row in (*network["inputs"], *network["constants"]):
        state[row["name"]] = values[row["name"]].reshape(row["shape"]).astype(dtype)
    return state


def _matmul(p: dict, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x.swapaxes(-1, -2) if p["transpose_x"] else x) @ (y.swapaxes(-1, -2) if p["transpose_y"] else y)


def _linear(p: dict, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | float = 0.0) -> np.ndarray:
    return x @ weight.T + bias


def conv_geometry(p: dict, x: tuple[int, ...], w: tuple[int, ...]) -> tuple[list[tuple[int, int]], list[int]]:
    """Padding (before, after) and output size along H and W, by MIL's rules."""
    pads, sizes = [], []
    for axis in (0, 1):
        size, kernel, stride = x[2 + axis], w[2 + axis], p["strides"][axis]
        if p["pad_type"] == "same":
            out = -(-size // stride)
            total = max(0, (out - 1) * stride + kernel - size)
            pads.append((total // 2, total - total // 2))
        elif p["pad_type"] == "custom":
            pads.append((p["pad"][2 * axis], p["pad"][2 * axis + 1]))
        else:
            pads.append((0, 0))
        sizes.append((size + sum(pads[-1]) - kernel) // stride + 1)
    return pads, sizes


def _conv(p: dict, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    pads, (oh, ow) = conv_geometry(p, x.shape, weight.shape)
    groups, (sy, sx) = p["groups"], p["strides"]
    padded = np.pad(x, ((0, 0), (0, 0), *pads))
    out = np.zeros((x.shape[0], groups, weight.shape[0] // groups, oh, ow))
    w = weight.reshape(groups, -1, *weight.shape[1:])
    for ky in range(weight.shape[2]):
        for kx in range(weight.shape[3]):
            part = padded[:, :, ky : ky + (oh - 1) * sy + 1 : sy, kx : kx + (ow - 1) * sx + 1 : sx]
            part = part.reshape(x.shape[0], groups, -1, oh * ow)
            out += (w[:, :, :, ky, kx] @ part).reshape(out.shape)
    out = out.reshape(x.shape[0], -1, oh, ow)
    return out if bias is None else out + bias.reshape(1, -1, 1, 1)


def _softmax(p: dict, x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(p["axis"], keepdims=True))
    return e / e.sum(p["axis"], keepdims=True)


def _layer_norm(p: dict, x: np.ndarray) -> np.ndarray:
    axes = tuple(p["axes"])
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + p["epsilon"])


def _reduce(function: Callable) -> Callable:
    return lambda p, x: function(x, axis=tuple(p["axes"]), keepdims=p["keep_dims"])


def _slice(p: dict, x: np.ndarray) -> np.ndarray:
    return x[tuple(slice(b, b + n) for b, n in zip(p["begin"], p["size"]))]


def _gelu(mode: str, x: np.ndarray) -> np.ndarray:
    if mode == "EXACT":
        return 0.5 * x * (1 + ERF(x / np.sqrt(2)))
    if mode == "SIGMOID_APPROXIMATION":
        return x / (1 + np.exp(-1.702 * x))
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


_FLOAT: dict[str, Callable[..., np.ndarray]] = {
    "abs": lambda p, x: np.abs(x),
    "add": lambda p, x, y: x + y,
    "cast": lambda p, x: x,
    "conv": _conv,
    "exp": lambda p, x: np.exp(x),
    "gelu": lambda p, x: _gelu(p.get("mode", "EXACT"), x),
    "layer_norm": _layer_norm,
    "inverse": lambda p, x: 1 / x,
    "leaky_relu": lambda p, x: np.where(x < 0, p["alpha"] * x, x),
    "linear": _linear,
    "matmul": _matmul,
    "maximum": lambda p, x, y: np.maximum(x, y),
    "minimum": lambda p, x, y: np.minimum(x, y),
    "mul": lambda p, x, y: x * y,
    "pow": lambda p, x, y: x**y,
    "real_div": lambda p, x, y: x / y,
    "reduce_max": _reduce(np.max),
    "reduce_mean": _reduce(np.mean),
    "reduce_sum": _reduce(np.sum),
    "relu": lambda p, x: np.maximum(x, 0),
    "rsqrt": lambda p, x: 1 / np.sqrt(x + p["epsilon"]),
    "select": lambda p, a, b, cond: np.where(cond != 0, a, b),
    "sigmoid": lambda p, x: 1 / (1 + np.exp(-x)),
    "silu": lambda p, x: x / (1 + np.exp(-x)),
    "slice_by_size": _slice,
    "softmax": _softmax,
    "sqrt": lambda p, x: np.sqrt(x),
    "square": lambda p, x: x * x,
    "sub": lambda p, x, y: x - y,
    "tanh": lambda p, x: np.tanh(x),
    "tile": lambda p, x: np.tile(x, p["reps"]),
    "transpose": lambda p, x: x.transpose(p["perm"]),
}


# ---- the engine's bits -------------------------------------------------------------------------------------------


class NoMeasuredRule(Exception):
    """The operation rests on an open question of docs/reference/numerics.md; only float64 can judge it."""


def engine_bits(network: dict, values: Arrays, tables: Arrays) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Outputs as float16, and a mask of the elements that were computed. ``tables``: halfwords by function name."""
    state = _start(network, values, np.float16)
    known = {name: np.ones(array.shape, bool) for name, array in state.items()}
    rng = np.random.default_rng(0)
    for operation in network["operations"]:
        names = operation["inputs"]
        arguments = {key: state[name] for key, name in names.items()}
        if operation["op"] not in _ENGINE:
            raise NoMeasuredRule(operation["op"])
        result, mask = _ENGINE[operation["op"]](operation["parameters"], rng, tables, **arguments)
        shape = operation["output"]["shape"]
        whole = all(known[name].all() for name in names.values())
        if not whole:
            if operation["op"] != "relu":
                raise NoMeasuredRule(f"{operation['op']} of a sample")
            mask = known[next(iter(names.values()))]
        state[operation["output"]["name"]] = result.reshape(shape)
        known[operation["output"]["name"]] = mask.reshape(shape)
    return {row["name"]: (state[row["name"]], known[row["name"]]) for row in network["outputs"]}


def _all(result: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return result, np.ones(result.shape, bool)


def _elementwise(function: Callable) -> Callable:
    def run(p: dict, rng, tables, x: np.ndarray, y: np.ndarray):
        return _all(engine.half_away(function(x.astype(np.float64), y.astype(np.float64))))

    return run


def _move(function: Callable) -> Callable:
    return lambda p, rng, tables, **arguments: _all(np.asarray(function(p, **arguments), np.float16))


def _table(name: str) -> Callable:
    def run(p: dict, rng, tables, x: np.ndarray):
        return _all(_look_up(tables[name], x))

    return run


def _look_up(table: np.ndarray, x: np.ndarray) -> np.ndarray:
    """One evaluation per distinct input."""
    distinct, inverse = np.unique(x.view(np.uint16), return_inverse=True)
    return engine.table(table, distinct.view(np.float16))[inverse].reshape(x.shape)


def _real_div(p: dict, rng, tables, x: np.ndarray, y: np.ndarray):
    inverse = _look_up(tables["recip"], y)
    return _all(engine.half_away(x.astype(np.float64) * inverse.astype(np.float64)))


def _engine_conv(p: dict, rng, tables, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None):
    pads, (oh, ow) = conv_geometry(p, x.shape, weight.shape)
    groups, (sy, sx), (kh, kw) = p["groups"], p["strides"], weight.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), *pads))
    each, per_group = weight.shape[0] // groups, weight.shape[1]
    taps = per_group * kh * kw
    pixels, chosen_groups, outputs = _sample(rng, oh * ow, groups, each, taps)
    out = np.zeros((1, groups, each, oh * ow), np.float16)
    mask = np.zeros(out.shape, bool)
    rows = pixels // ow * sy
    columns = pixels % ow * sx
    for g in chosen_groups:
        channels = slice(g * per_group, (g + 1) * per_group)
        terms = np.stack(
            [padded[0, channels][:, rows + ky, columns + kx] for ky in range(kh) for kx in range(kw)], 1
        ).reshape(taps, -1)
        mine = g * each + outputs
        block = engine.matmul(weight[mine].reshape(len(mine), taps), terms, None if bias is None else bias[mine])
        out[0, g, outputs[:, None], pixels] = block
        mask[0, g, outputs[:, None], pixels] = True
    shape = (1, weight.shape[0], oh, ow)
    return out.reshape(shape), mask.reshape(shape)


def _sample(rng, pixels: int, groups: int, each: int, taps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which pixels, groups and outputs of a group to compute: all while that is cheap, else a random part."""
    budget = max(1, LARGEST_EXACT // taps)
    if pixels * groups * each <= budget:
        return np.arange(pixels), np.arange(groups), np.arange(each)
    some_groups = _some(rng, groups, 4 if each > 1 else max(4, budget // 64))
    some_outputs = _some(rng, each, max(2, round((budget / len(some_groups)) ** 0.5)))
    return _some(rng, pixels, max(2, budget // (len(some_groups) * len(some_outputs)))), some_groups, some_outputs


def _some(rng, count: int, wanted: int) -> np.ndarray:
    if count <= wanted:
        return np.arange(count)
    return np.unique([0, count - 1, *rng.choice(count, wanted, replace=False)])


def _engine_matmul(p: dict, rng, tables, x: np.ndarray, y: np.ndarray):
    a = x.swapaxes(-1, -2) if p["transpose_x"] else x
    b = y.swapaxes(-1, -2) if p["transpose_y"] else y
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = np.broadcast_to(a, (*batch, *a.shape[-2:])), np.broadcast_to(b, (*batch, *b.shape[-2:]))
    out = np.zeros((*batch, a.shape[-2], b.shape[-1]), np.float16)
    mask = np.zeros(out.shape, bool)
    for index in np.ndindex(*batch):
        columns, _, rows = _sample(rng, b.shape[-1], int(np.prod(batch, dtype=int)), a.shape[-2], a.shape[-1])
        block = engine.matmul(np.ascontiguousarray(a[index][rows]), np.ascontiguousarray(b[index][:, columns]))
        out[index][rows[:, None], columns] = block
        mask[index][rows[:, None], columns] = True
    return out, mask


def _engine_linear(p: dict, rng, tables, x: np.ndarray, weight: np.ndarray):
    return _engine_matmul({"transpose_x": False, "transpose_y": True}, rng, tables, x, weight)


_ENGINE: dict[str, Callable] = {
    "abs": _move(_FLOAT["abs"]),
    "add": _elementwise(np.add),
    "cast": _move(_FLOAT["cast"]),
    "conv": _engine_conv,
    "linear": _engine_linear,
    "matmul": _engine_matmul,
    "maximum": _move(_FLOAT["maximum"]),
    "minimum": _move(_FLOAT["minimum"]),
    "mul": _elementwise(np.multiply),
    "real_div": _real_div,
    "relu": _move(_FLOAT["relu"]),
    "select": _move(_FLOAT["select"]),
    "sigmoid": _table("sigmoid"),
    "silu": _table("silu"),
    "slice_by_size": _move(_FLOAT["slice_by_size"]),
    "sqrt": _table("sqrt"),
    "sub": _elementwise(np.subtract),
    "tanh": _table("tanh"),
    "tile": _move(_FLOAT["tile"]),
    "transpose": _move(_FLOAT["transpose"]),
}
