"""Small networks of several layers: attention, residuals, branches, states."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from codegen.small_ops import Row, numbers, title
from hexane.graph import GraphBuilder
from hexane.graph.ir import Value
from hexane.studies.probe.examples import EXAMPLES, Build


def examples() -> Iterator[Row]:
    """One for each recipe."""
    for name, (build, shapes) in EXAMPLES.items():
        yield f"recipe {name}", build, shapes


def attention(heads: int, width: int, *, masked: bool) -> Build:
    def build(b: GraphBuilder, q: Value, k: Value, v: Value) -> Value:
        scores = b.mul(x=b.matmul(x=q, y=k, transpose_y=True), y=np.float16(0.125))
        if masked:
            length = q.shape[-2]
            hidden = np.triu(np.full((1, 1, length, length), -1e4, np.float16), 1)
            scores = b.add(x=scores, y=hidden)
        return b.matmul(x=b.softmax(x=scores, axis=-1), y=v)

    return build


def feed_forward(width: int, hidden: int, function: str) -> Build:
    def build(b: GraphBuilder, x: Value) -> Value:
        normal = b.layer_norm(x=x, axes=[-1], gamma=numbers(width, step=3), epsilon=np.float16(2.0**-10))
        inner = b.op(function, x=b.linear(x=normal, weight=numbers(hidden, width), bias=numbers(hidden)))
        return b.add(x=x, y=b.linear(x=inner, weight=numbers(width, hidden, step=5)))

    return build


def residual(channels: int, stride: int) -> Build:
    def build(b: GraphBuilder, x: Value) -> Value:
        cin = x.shape[1]
        y = b.relu(x=b.conv(x=x, weight=numbers(channels, cin, 3, 3), strides=[stride] * 2, pad_type="same"))
        y = b.conv(x=y, weight=numbers(channels, channels, 3, 3, step=5), pad_type="same")
        short = b.conv(x=x, weight=numbers(channels, cin, 1, 1, step=3), strides=[stride] * 2, pad_type="same")
        return b.relu(x=b.add(x=y, y=short))

    return build


def squeezed(channels: int) -> Build:
    """Depthwise, then channels weighed by their means, as small networks of pictures are built."""

    def build(b: GraphBuilder, x: Value) -> Value:
        y = b.relu6(x=b.conv(x=x, weight=numbers(channels, 1, 3, 3), groups=channels, pad_type="same"))
        mean = b.reduce_mean(x=y, axes=[2, 3], keep_dims=True)
        inner = b.relu(x=b.conv(x=mean, weight=numbers(5, channels, 1, 1)))
        gate = b.sigmoid(x=b.conv(x=inner, weight=numbers(channels, 5, 1, 1)))
        return b.conv(x=b.mul(x=y, y=gate), weight=numbers(2 * channels, channels, 1, 1, step=5))

    return build


def branches(b: GraphBuilder, x: Value) -> Value:
    """A cell of four branches that are joined."""
    c = x.shape[1]
    parts = [b.relu(x=b.conv(x=x, weight=numbers(n, c, k, k), pad_type="same")) for n, k in ((16, 1), (9, 3), (5, 5))]
    parts.append(b.max_pool(x=x, kernel_sizes=[3, 3], strides=[1, 1], pad_type="same"))
    return b.concat(values=tuple(parts), axis=1)


def cache(b: GraphBuilder, x: Value) -> Value:
    """A state that is read, added to and written."""
    state = b.state("memory", x.shape)
    b.write_state(data=b.add(x=b.read_state(input=state), y=x), input=state)
    return b.mul(x=b.read_state(input=state), y=np.float16(0.5))


def layers() -> Iterator[Row]:
    for heads, length, width, masked in ((1, 5, 8, False), (3, 33, 16, True), (8, 17, 32, False), (2, 64, 64, True)):
        shape = (1, heads, length, width)
        yield title("attention", shape, masked), attention(heads, width, masked=masked), (shape,) * 3
    for width, hidden, function in ((33, 70, "relu"), (64, 128, "silu"), (48, 192, "gelu")):
        for lead in ((5,), (1, 16)):
            yield (
                title("feed forward", (*lead, width), hidden, function),
                feed_forward(width, hidden, function),
                ((*lead, width),),
            )
    for cin, channels, stride in ((3, 16, 1), (16, 16, 1), (17, 33, 2), (64, 64, 1)):
        yield title("residual", cin, channels, stride), residual(channels, stride), ((1, cin, 12, 20),)
    for channels in (8, 33):
        yield title("squeezed", channels), squeezed(channels), ((1, channels, 9, 17),)
    yield "branches", branches, ((1, 17, 9, 17),)
    for shape in ((1, 8, 4, 33), (1, 5, 64)):
        yield title("cache", shape), cache, (shape,)
