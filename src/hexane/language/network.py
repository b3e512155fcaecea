"""The graphs of a decoder, in the form that people ship to the engine: features as channels, positions as columns.

A row of the model is a column of [1, features, 1, rows]; products are 1x1 convolutions; RMSNorm is ``layer_norm`` of
[x, -x], whose squares are not stored (rule N4 of docs/restrictions.md). The cache of a chunk is one state, because two
written ones are published to fail (rule C13); its last extent is the context, a multiple of 32 (C9). Factors of norms
and of scores stand in the products beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import frexp
from typing import Any

import numpy as np

from hexane.errors import UnsupportedError, UsageError
from hexane.graph import Graph, GraphBuilder, Value
from hexane.language.architecture import Architecture
from hexane.language.checkpoint import Weights

MASKED = -30000.0
"""Added to scores that are not looked at: finite in fp16, and no exponential is left of it."""
MOST_DECODED = 8
"""Rows at any position; more go to positions that are a multiple of their number."""
PIECE = 16384
"""Words of the head in one product: the most channels of a map (docs/reference/limits.md)."""
CONTEXT_STEP = 32
BLOCK = 128
"""Words to a block of a piece: the numbers of a block and of a place in it are whole numbers that fp16 holds."""
LARGEST = ("largest", "block", "place")
"""What a piece of the head gives of its largest logit, each [1, 1, 1, rows]."""


@dataclass(frozen=True)
class StepForm:
    """Size of a program: ``rows`` at a time over a cache of ``context`` positions, in a dtype.

    ``scale``: the residual stream is carried times this power of two, which no norm sees.
    ``divided_gates``: silu as x / (1 + exp(-x)), since the engine's own comes from a table (rule N9).
    ``adapter_inputs``: the matrices of an adapter are inputs, not constants (``adapter_matrices``).
    ``largest_alone``: pieces of the head give their largest logit and where it stands, not all logits (``LARGEST``).
    """

    rows: int
    context: int
    dtype: str = "fp16"
    scale: float = 1.0
    divided_gates: bool = False
    adapter_inputs: bool = False
    largest_alone: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1 or frexp(self.scale)[0] != 0.5:
            raise UsageError(f"a scale of {self.scale}", hint="a power of two, at most 1")
        if self.context < CONTEXT_STEP or self.context % CONTEXT_STEP:
            hint = "the last extent of a state: 270 fails on an engine, 256 runs (coremltools 2631)"
            raise UsageError(f"a context of {self.context} is no multiple of {CONTEXT_STEP}", hint=hint)
        if not 1 <= self.rows <= self.context or (self.is_aligned and self.context % self.rows):
            raise UsageError(f"{self.rows} rows over a context of {self.context}", hint="1 to 8, or a divisor of it")

    @property
    def numpy(self) -> type:
        """The dtype for NumPy."""
        return np.float16 if self.dtype == "fp16" else np.float32

    @property
    def is_aligned(self) -> bool:
        """True where rows go to whole blocks of the cache."""
        return self.rows > MOST_DECODED

    @property
    def place(self) -> tuple[int, int, int, int]:
        """The shape of the input that says where new keys and values go."""
        if self.rows == 1:
            return 1, 1, 1, self.context
        blocks = self.context // self.rows
        return (1, 1, blocks, 1) if self.is_aligned else (1, 1, self.rows, self.context)


def layers_graph(
    a: Architecture, form: StepForm, layers: dict[int, Weights], *, taps: bool = False, first: str = "x"
) -> Graph:
    """A chunk of layers: residual stream in, residual stream out, cache updated.

    Inputs: ``x`` [1, hidden, 1, rows]; ``cos``, ``sin`` [1, 1, head_dim, rows] and ``mask`` [1, 1, group x rows,
    context], with ``_near`` behind the name for layers with a window; ``here``, ``keep`` of ``form.place`` ([1, 1, 1,
    context] for ``keep`` of several rows). State ``cache`` [1, 2 x layers x kv_heads, head_dim, context]. ``taps``: the
    stream behind every half of a layer is an output, too.
    """
    return _Layers(a, form, len(layers)).build(layers, taps, first)


def head_graph(a: Architecture, form: StepForm, head: np.ndarray, norm: Weights) -> Graph:
    """The last norm and the head in pieces: ``x`` [1, hidden, 1, rows] to ``logits_0``... [1, words, 1, rows].

    With ``form.largest_alone`` to ``largest_0``, ``block_0``, ``place_0`` ..., of which `best_words` makes tokens.
    """
    b = _Ops(a, form)
    x = b.residual_norm(b.b.input("x", (1, a.hidden, 1, form.rows), form.dtype))
    for number, begin in enumerate(range(0, len(head), PIECE)):
        part = np.asarray(head[begin : begin + PIECE], np.float32)
        weight, bias = folded(part, None, norm["norm"], norm.get("norm.bias"))
        logits = b.product(f"head_{number}", x, weight, bias)
        if not form.largest_alone:
            b.b.output(logits, name=f"logits_{number}")
            continue
        for name, value in zip(LARGEST, b.largest(logits)):
            b.b.output(value, name=f"{name}_{number}")
    return b.b.graph


def best_words(results: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The first of the words with the largest logit and that logit, of all pieces: int64 and float32 [rows]."""
    pieces = range(len(results) // len(LARGEST))
    values, blocks, places = (
        np.stack([np.asarray(results[f"{name}_{i}"], np.float32).reshape(-1) for i in pieces]) for name in LARGEST
    )
    best = values.argmax(0)
    rows = np.arange(values.shape[1])
    words = (PIECE // BLOCK - blocks) * BLOCK + BLOCK - places
    return best * PIECE + words[best, rows].astype(np.int64), values[best, rows]


def fold_of(a: Architecture, scale: float, name: str) -> tuple[str, float]:
    """Parts of a product beside its weights: the norm before it ("" for none) and a factor; ``scale`` is the
    stream's."""
    if name in ("o", "down"):
        return "", 1.0 if a.norms_behind else scale
    if name in ("gate", "up"):
        return "feed_norm", 1.0
    return "attention_norm", 1.0 if name != "q" or a.head_norms else query_scale(a)


def query_scale(a: Architecture) -> float:
    """The factor of scores, which queries carry."""
    return a.attention_scale / (a.score_cap or 1.0)


def adapter_matrices(a: Architecture, scale: float, number: int, weights: Weights) -> dict[str, np.ndarray]:
    """An adapter's two matrices beside each product of a layer, [rank, inputs] and [outputs, rank], by the names that
    constants and inputs have: norm and factor of the product stand in them, too."""
    matrices = {}
    for name in [key.removesuffix(".lora_A") for key in weights if key.endswith(".lora_A")]:
        norm, factor = fold_of(a, scale, name)
        low, high = weights[name + ".lora_A"], weights[name + ".lora_B"] * np.float32(factor)
        matrices[f"layer{number}_{name}_lora_A"] = low * weights[norm] if norm else low
        matrices[f"layer{number}_{name}_lora_B"] = high
    return matrices


def folded(
    weight: np.ndarray, bias: np.ndarray | None, gamma: np.ndarray, beta: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """A product [outputs, inputs] of ``gamma * x + beta`` as a product of x."""
    shift = None if beta is None else weight @ beta
    both = shift if bias is None else bias if shift is None else bias + shift
    return weight * gamma, both


class _Ops:
    """Parts that layers and head share: products and norms."""

    def __init__(self, a: Architecture, form: StepForm) -> None:
        self.a, self.form, self.b = a, form, GraphBuilder()
        self.small = form.scale

    def const(self, array: Any, what: str) -> np.ndarray:
        with np.errstate(over="ignore"):
            values: np.ndarray = np.asarray(array, self.form.numpy)
        if not np.isfinite(values).all():
            raise UnsupportedError(f"weights of {what} are no finite fp16 numbers")
        return values

    def product(self, name: str, x: Value, weight: np.ndarray, bias: np.ndarray | None) -> Value:
        own = {} if bias is None else {"bias": self.const(bias, name)}
        return self.b.conv(x=x, weight=self.const(weight[:, :, None, None], name), name=name, **own)

    def largest(self, logits: Value) -> tuple[Value, Value, Value]:
        """The largest of [1, words, 1, rows], and where the first such one stands: no op of an engine gives an index,
        so maps of ones and zeros by comparison carry two digits, both counted from behind.
        """
        b, here = self.b, np.arange(logits.shape[1])
        digits = (PIECE // BLOCK - here // BLOCK, BLOCK - here % BLOCK)
        most, numbers = logits, list[Value]()
        for digit in (None, *digits):
            if digit is not None:
                same = b.cast(x=b.equal(x=most, y=numbers[-1]), dtype=self.form.dtype)
                most = b.mul(x=same, y=self.const(digit.reshape(1, -1, 1, 1), "head"))
            numbers.append(b.reduce_max(x=most, axes=[1], keep_dims=True))
        value, block, place = numbers
        return value, block, place

    def residual_norm(self, x: Value) -> Value:
        """The norm of the stream, without factor and bias, which stand in the products behind it."""
        return self.norm(x, 1, self.a.epsilon * self.small**2)

    def norm(self, x: Value, axis: int, epsilon: float) -> Value:
        b = self.b
        if self.a.norm == "layer":
            return b.layer_norm(x=x, axes=[axis], epsilon=epsilon)
        pair = b.concat(values=[x, b.mul(x=x, y=self.const(-1, "norm"))], axis=axis)
        return b.slice_by_size(x=b.layer_norm(x=pair, axes=[axis], epsilon=epsilon), begin=[0] * 4, size=list(x.shape))

    def scaled_norm(self, name: str, x: Value, axis: int, factor: np.ndarray) -> Value:
        shape = [1] * 4
        shape[axis] = -1
        y = self.norm(x, axis, self.a.epsilon)
        return self.b.mul(x=y, y=self.const(factor.reshape(shape), name), name=name)


class _Layers(_Ops):
    """Layers over one cache."""

    def __init__(self, a: Architecture, form: StepForm, count: int) -> None:
        super().__init__(a, form)
        self.inputs: dict[str, Value] = {}
        self.cache = self.b.state("cache", (1, 2 * count * a.kv_heads, a.head_dim, form.context), form.dtype)
        self.parts: list[Value] = []
        self.matrices: dict[str, np.ndarray] = {}

    def build(self, layers: dict[int, Weights], taps: bool, first: str) -> Graph:
        b, form = self.b, self.form
        x = b.input(first, (1, self.a.hidden, 1, form.rows), form.dtype)
        self.cached = b.read_state(input=self.cache)
        for number, weights in layers.items():
            self.matrices = adapter_matrices(self.a, self.small, number, weights)
            for half, change in (("attention", self.attention), ("feed", self.feed)):
                x = b.add(x=x, y=change(number, weights, self.residual_norm(x)), name=f"layer{number}_{half}")
                if taps:
                    b.output(x)
        if not taps:
            b.output(x, name="y")
        b.write_state(data=b.concat(values=self.parts, axis=1), input=self.cache)
        return b.graph

    def input(self, name: str, shape: tuple[int, ...], near: bool = False) -> Value:
        name += "_near" if near else ""
        if name not in self.inputs:
            self.inputs[name] = self.b.input(name, shape, self.form.dtype)
        return self.inputs[name]

    def into(self, number: int, name: str, weights: Weights, x: Value) -> Value:
        """A product behind a norm of the stream."""
        norm, factor = fold_of(self.a, self.small, name)
        weight, bias = folded(weights[name], weights.get(name + ".bias"), weights[norm], weights.get(norm + ".bias"))
        bias = None if bias is None else bias * factor
        return self.adapted(f"layer{number}_{name}", x, self.product(f"layer{number}_{name}", x, weight * factor, bias))

    def back(self, number: int, name: str, weights: Weights, x: Value, behind: str) -> Value:
        """A product whose result is added to the stream."""
        label, bias, factor = f"layer{number}_{name}", weights.get(name + ".bias"), fold_of(self.a, self.small, name)[1]
        y = self.product(label, x, weights[name] * factor, None if bias is None else bias * factor)
        y = self.adapted(label, x, y)
        if not self.a.norms_behind:
            return y
        return self.scaled_norm(f"layer{number}_{behind}", y, 1, weights[behind] * self.small)

    def adapted(self, label: str, x: Value, y: Value) -> Value:
        """Product of ``x``, with the summand of an adapter where there is one."""
        if label + "_lora_A" not in self.matrices:
            return y
        for half in "AB":
            x = self.low_product(f"{label}_lora_{half}", x)
        return self.b.add(x=y, y=x)

    def low_product(self, name: str, x: Value) -> Value:
        """A matrix of an adapter times ``x``: a 1x1 convolution by a constant, or a product of two inputs."""
        b, matrix, rows = self.b, self.matrices[name], self.form.rows
        outputs, inputs = matrix.shape
        if not self.form.adapter_inputs:
            weight = b.const(self.const(matrix[:, :, None, None], name), self.form.dtype, name=name)
            return b.conv(x=x, weight=weight, name=f"{name}_product")
        factor = b.input(name, (1, 1, outputs, inputs), self.form.dtype)
        columns = b.reshape(x=x, shape=[1, 1, inputs, rows])
        return b.reshape(x=b.matmul(x=factor, y=columns), shape=[1, outputs, 1, rows])

    def feed(self, number: int, weights: Weights, x: Value) -> Value:
        b = self.b
        part = self.into(number, "gate" if self.a.gated else "up", weights, x)
        if self.a.activation.startswith("gelu"):
            mode = "TANH_APPROXIMATION" if self.a.activation == "gelu_tanh" else "EXACT"
            part = b.gelu(x=part, mode=mode)
        elif self.a.activation == "silu" and self.form.divided_gates:
            inverse = b.exp(x=b.mul(x=part, y=self.const(-1, "gate")))
            part = b.real_div(x=part, y=b.add(x=inverse, y=self.const(1, "gate")))
        else:
            part = b.op(self.a.activation, x=part)
        if self.a.gated:
            part = b.mul(x=part, y=self.into(number, "up", weights, x))
        return self.back(number, "down", weights, part, "feed_behind")

    def attention(self, number: int, weights: Weights, x: Value) -> Value:
        a, b, rows, dim = self.a, self.b, self.form.rows, self.a.head_dim
        near = a.windows[number] > 0
        q = self.heads(number, "q", a.heads, weights, x, query_scale(a))
        k = self.heads(number, "k", a.kv_heads, weights, x)
        v = self.into(number, "v", weights, x)
        q = b.reshape(x=b.transpose(x=q, perm=[0, 1, 3, 2]), shape=[1, a.kv_heads, a.group * rows, dim])
        keys, values = self.update(k), self.update(v)
        scores = b.matmul(x=q, y=keys)
        if a.score_cap:
            scores = b.mul(x=b.tanh(x=scores), y=self.const(a.score_cap, "cap"))
        mask = self.input("mask", (1, 1, a.group * rows, self.form.context), near)
        shares = b.softmax(x=b.add(x=scores, y=mask), axis=-1)
        y = b.reshape(x=b.matmul(x=shares, y=values, transpose_y=True), shape=[1, a.heads, rows, dim])
        y = b.reshape(x=b.transpose(x=y, perm=[0, 1, 3, 2]), shape=[1, a.heads * dim, 1, rows])
        return self.back(number, "o", weights, y, "attention_behind")

    def heads(self, number: int, name: str, count: int, weights: Weights, x: Value, scale: float = 1.0) -> Value:
        """Queries or keys, [1, heads, head_dim, rows], normalised, turned, times ``scale``."""
        a, b, rows, turn = self.a, self.b, self.form.rows, self.a.rotations[number]
        y = self.into(number, name, weights, x)
        y = b.reshape(x=y, shape=[1, count, a.head_dim, rows])
        if a.head_norms:
            y = self.scaled_norm(f"layer{number}_{name}_norm", y, 2, weights[name + "_norm"] * scale)
        if turn is None:
            return y
        half, near = turn.width // 2, a.windows[number] > 0
        cos, sin = (self.input(table, (1, 1, a.head_dim, rows), near) for table in ("cos", "sin"))
        ends = [(half, half), (0, half), (turn.width, a.head_dim - turn.width)]
        parts = [
            b.slice_by_size(x=y, begin=[0, 0, begin, 0], size=[1, count, size, rows]) for begin, size in ends if size
        ]
        return b.add(x=b.mul(x=y, y=cos), y=b.mul(x=b.concat(values=parts, axis=2), y=sin))

    def update(self, new: Value) -> Value:
        """The next part of the cache with new rows at their positions, [1, kv_heads, head_dim, context]."""
        a, b, form = self.a, self.b, self.form
        whole = [1, a.kv_heads, a.head_dim, form.context]
        begin = [0, len(self.parts) * a.kv_heads, 0, 0]
        part = b.slice_by_size(x=self.cached, begin=begin, size=whole)
        here = self.input("here", form.place)
        if form.is_aligned:  # a block of the cache for all rows
            columns = a.kv_heads * a.head_dim
            part = b.reshape(x=part, shape=[1, columns, form.context // form.rows, form.rows])
            part = b.mul(x=part, y=self.input("keep", form.place))
            part = b.add(x=part, y=b.mul(x=b.reshape(x=new, shape=[1, columns, 1, form.rows]), y=here))
        else:
            new = b.reshape(x=new, shape=[1, a.kv_heads, a.head_dim, form.rows])
            part = b.mul(x=part, y=self.input("keep", (1, 1, 1, form.context)))
            part = b.add(x=part, y=b.mul(x=new, y=here) if form.rows == 1 else self.placed(new, here))
        self.parts.append(b.reshape(x=part, shape=whole) if form.is_aligned else part)
        return self.parts[-1]

    def placed(self, new: Value, here: Value) -> Value:
        """Columns of [1, heads, head_dim, rows] at any positions: a product with a matrix of zeros and ones."""
        a, rows, context = self.a, self.form.rows, self.form.context
        flat = self.b.reshape(x=new, shape=[1, 1, a.kv_heads * a.head_dim, rows])
        spread = self.b.matmul(x=flat, y=here)
        return self.b.reshape(x=spread, shape=[1, a.kv_heads, a.head_dim, context])


def host_inputs(a: Architecture, form: StepForm, start: int) -> dict[str, np.ndarray]:
    """Values that the host computes for rows at positions ``start`` on: tables of rotations, masks, places."""
    positions = start + np.arange(form.rows)
    columns = np.arange(form.context)
    values: dict[str, np.ndarray] = {}
    for near, window in {(width > 0, width) for width in a.windows}:
        visible = columns <= positions[:, None]
        if window:
            visible &= columns > positions[:, None] - window
        tail = "_near" if near else ""
        mask = np.where(visible, 0.0, MASKED)
        values["mask" + tail] = np.tile(mask, (a.group, 1))[None, None]
        turns = [turn for turn, width in zip(a.rotations, a.windows) if turn is not None and (width > 0) == near]
        if turns:
            values["cos" + tail], values["sin" + tail] = turns[0].tables(positions, a.head_dim)
    if form.is_aligned:
        blocks = np.arange(form.context // form.rows).reshape(form.place)
        values["here"] = blocks == start // form.rows
        values["keep"] = ~values["here"]
    else:
        values["here"] = (columns == positions[:, None]).reshape(form.place)
        values["keep"] = ~(columns == positions[:, None]).any(0).reshape(1, 1, 1, form.context)
    return {name: array.astype(form.numpy) for name, array in values.items()}
