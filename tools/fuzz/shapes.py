"""Convolution, transformer and U-Net shapes whose sizes lie at a limit of a generation: on it, one below, one above.

The limits are those of `hexane.chips`, pages and granules those of surfaces and of L2; none is stated here.
"""

from __future__ import annotations

import random
from math import prod, sqrt
from typing import Any

from fuzz.sketch import Data, Input, Ref, Sketch, Step
from hexane.chips import GENERATIONS, Generation
from hexane.codegen.l2 import UNIT
from hexane.graph.registry import lookup
from hexane.isa.granules import PAGE

MACS = 40_000_000
"""Multiply-accumulates of a convolution, at most: beyond them it takes its channels one by one."""
ELEMENTS = 1_100_000
ELEMENT_BYTES = 2
L2_GRANULE_BYTES = UNIT

Shape = tuple[int, int, int, int]


def network(seed: int, index: int) -> Sketch:
    """The network of a seed and an index, the same in every process."""
    chance = random.Random(f"shapes {seed} {index}")
    drawn = Drawn(chance, chance.choice(GENERATIONS[2:]))
    family = chance.choice(FAMILIES)
    family(drawn)
    return drawn.finished(family.__name__.strip("_"))


class Drawn:
    """A network that grows; values by name, with their shapes."""

    def __init__(self, chance: random.Random, limits: Generation) -> None:
        self.chance = chance
        self.limits = limits
        self.dtype = chance.choice(("fp16", "fp16", "fp16", "fp32"))
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.outputs: list[str] = []

    def near(self, limit: int, step: int = 1) -> int:
        """The limit, or a step beside it."""
        return max(1, limit + self.chance.choice((0, 0, 0, -step, step)))

    def map(self) -> Shape:
        """A map at a limit of memory or extent."""
        return self.chance.choice((self.full_l2, self.full_l2, self.part_of_l2, self.pages, self.longest, self.plain))()

    def width(self, most: int = 8) -> int:
        """A row that fills granules of memory, or is one element off."""
        granule = self.chance.choice((self.limits.dma_granule_bytes, L2_GRANULE_BYTES)) // ELEMENT_BYTES
        return self.near(granule * self.chance.choice([n for n in (1, 2, 3, 4, 8) if n <= most]))

    def full_l2(self, part: int = 1) -> Shape:
        """A map that fills L2, or a part of it, to the row."""
        width = self.width()
        granule = L2_GRANULE_BYTES
        row = -(-width * ELEMENT_BYTES // granule) * granule
        total = self.limits.l2_bytes // part
        channels = self.chance.choice((1, 3, 8, 15, 16, 17, 32, 64, 127, 128, 255, 256))
        height = self.near(max(1, total // (row * channels)))
        return self.bounded((1, channels, height, width))

    def part_of_l2(self) -> Shape:
        """One of several maps that fill L2 together."""
        return self.full_l2(self.chance.choice((2, 2, 3, 4, 4, 4, 5, 8, 16)))

    def pages(self) -> Shape:
        """A plane, or all of them, of whole pages of a surface."""
        width, page = self.width(), PAGE
        granule = self.limits.dma_granule_bytes
        row = -(-width * ELEMENT_BYTES // granule) * granule
        channels = self.chance.choice((1, 2, 4, 7, 16))
        height = self.near(max(1, page * self.chance.choice((1, 1, 2, 4)) // row // self.chance.choice((1, channels))))
        return self.bounded((1, channels, height, width))

    def longest(self) -> Shape:
        """One extent at the generation's maximum, the others small."""
        limits, small = self.limits, self.chance.choice((1, 2, 3))
        return self.chance.choice(
            (
                (1, small, 1, self.near(limits.max_width)),
                (1, small, self.near(limits.max_height), 1),
                (1, self.near(limits.max_channels), 1, small),
                (self.near(self.chance.choice((16, 64))), small, 1, 2),
                (1, 2, small, self.near(limits.max_width // 2)),
            )
        )

    def plain(self) -> Shape:
        """A small map without a limit."""
        chance = self.chance
        return (chance.choice((1, 1, 1, 2, 3)), chance.randint(1, 40), chance.randint(1, 20), chance.randint(1, 40))

    def bounded(self, shape: Shape) -> Shape:
        batch, channels, height, width = shape
        return (
            batch,
            channels,
            max(1, min(height, ELEMENTS // (batch * channels * width), self.limits.max_height + 1)),
            width,
        )

    def input(self, shape: tuple[int, ...]) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(Input(name, shape, self.dtype))
        self.shapes[name] = shape
        return name

    def op(self, kind: str, shape: tuple[int, ...], /, **operands: Any) -> str:
        """A step; operands that are names of values become references."""
        name = f"v{len(self.steps)}"
        given = {
            key: Ref(operand)
            if isinstance(operand, str) and operand in self.shapes
            else tuple(map(Ref, operand))
            if isinstance(operand, tuple)
            else operand
            for key, operand in operands.items()
        }
        self.steps.append(Step(name, kind, given, lookup(kind).since))
        self.shapes[name] = shape
        return name

    def data(self, *shape: int, fan: int = 1) -> Data:
        """A constant whose products with ``fan`` numbers stay about as large as they."""
        bound = sqrt(3 / max(1, fan))
        return Data(shape, self.dtype, self.chance.randrange(1 << 16), -bound, bound)

    def conv(self, x: str, cout: int | None = None, k: tuple[int, int] | None = None, **more: Any) -> str:
        """A convolution that keeps the map's size unless ``more`` says otherwise."""
        chance = self.chance
        n, cin, h, w = self.shapes[x]  # type: ignore[misc]
        kh, kw = k or chance.choice(((1, 1), (3, 3), (3, 3), (5, 5), (1, 3), (3, 1), (7, 7)))
        cout = cout or cin
        groups, step = 1, more.pop("stride", 1)
        while n * cout * cin // groups * kh * kw * h * w > MACS * step * step and groups == 1:
            if cout == cin and cin > 1:
                groups = cin
            elif cout > 1 and n * cin * h * w * kh * kw <= MACS:
                cout = max(1, MACS // (n * cin * h * w * kh * kw))
                break
            elif kh * kw > 1:
                kh = kw = 1
            else:
                break
        out = [(extent - 1) // step + 1 for extent in (h, w)]
        operands: dict[str, Any] = {"weight": self.data(cout, cin // groups, kh, kw, fan=cin // groups * kh * kw)}
        if chance.random() < 0.5:
            operands["bias"] = self.data(cout, fan=10)
        if step > 1:
            operands["strides"] = [step, step]
        if groups > 1:
            operands["groups"] = groups
        return self.op("conv", (n, cout, *out), x=x, pad_type="same", **operands)

    def act(self, x: str) -> str:
        kind = self.chance.choice(("relu", "relu", "relu", "sigmoid", "silu", "tanh", "gelu", None))
        return x if kind is None else self.op(kind, self.shapes[x], x=x)

    def binary(self, x: str, y: str) -> str:
        return self.op(self.chance.choice(("add", "add", "add", "mul", "maximum", "sub")), self.shapes[x], x=x, y=y)

    def concat(self, *names: str) -> str:
        shape = list(self.shapes[names[0]])
        shape[1] = sum(self.shapes[name][1] for name in names)
        return self.op("concat", tuple(shape), values=names, axis=1)

    def pool(self, x: str, k: int = 2, stride: int = 2) -> str:
        n, c, h, w = self.shapes[x]  # type: ignore[misc]
        kind = self.chance.choice(("max_pool", "avg_pool"))
        kh, kw = min(k, h), min(k, w)
        out = ((h - kh) // stride + 1, (w - kw) // stride + 1)
        return self.op(
            kind, (n, c, *out), x=x, kernel_sizes=[kh, kw], strides=[stride, stride], pad_type="valid", pad=[0, 0, 0, 0]
        )

    def finished(self, note: str) -> Sketch:
        read = {name for step in self.steps for name in step.refs()}
        results = [name for name in self.shapes if name.startswith("v")]
        outputs = [name for name in results if name not in read or self.chance.random() < 0.04]
        return Sketch(tuple(self.inputs), tuple(self.steps), tuple(outputs), self.chance.randrange(1 << 16), notes=note)


def _residual(net: Drawn) -> None:
    x = skip = net.input(net.map())
    for number in range(net.chance.choice((1, 2, 2, 3, 4, 4))):
        x = net.act(net.conv(x))
        if number % 2 and net.shapes[x] == net.shapes[skip]:
            x = skip = net.binary(x, skip)


def _before_activation(net: Drawn) -> None:
    x = skip = net.conv(net.input(net.map()))
    for _ in range(net.chance.randint(1, 3)):
        x = net.conv(net.act(x))
        if net.shapes[x] == net.shapes[skip]:
            x = skip = net.binary(x, skip)


def _chain(net: Drawn) -> None:
    x = net.input(net.map())
    for _ in range(net.chance.randint(2, 5)):
        cout = net.chance.choice((None, None, 1, 8, 16, 24))
        x = net.act(net.conv(x, cout))


def _dense(net: Drawn) -> None:
    x = net.act(net.conv(net.input(net.map())))
    parts = [x]
    for _ in range(net.chance.randint(1, 3)):
        joined = net.concat(*parts) if len(parts) > 1 else parts[0]
        if prod(net.shapes[joined]) > 2 * ELEMENTS:
            break
        parts.append(net.act(net.conv(joined, net.shapes[x][1])))
        if net.shapes[parts[-1]][1] != net.shapes[x][1]:
            break
    net.concat(*parts, net.chance.choice(parts))


def _two_inputs(net: Drawn) -> None:
    shape = net.map()
    a, b = net.input(shape), net.input(shape)
    x, y = net.act(net.conv(a)), net.act(net.conv(b))
    if net.shapes[x] != net.shapes[y]:
        return
    z = net.binary(x, y)
    z = net.binary(net.conv(z, k=(1, 1)), z) if net.shapes[z][1] == 1 or prod(shape) < 200_000 else net.act(z)
    net.binary(z, x) if net.shapes[z] == net.shapes[x] else None


def _unet(net: Drawn) -> None:
    n, c, h, w = net.map()
    if min(h, w) < 4:
        h, w = max(h, 4), max(w, 4)
        c = min(c, max(1, ELEMENTS // (n * h * w)))
    h, w = h - h % 4, w - w % 4
    x = net.act(net.conv(net.input((n, c, h, w))))
    skips = []
    for _ in range(net.chance.randint(1, 2)):
        skips.append(x)
        x = net.act(net.conv(net.pool(x), net.chance.choice((None, 2 * net.shapes[x][1]))))
    for skip in reversed(skips):
        b, c, h, w = net.shapes[x]  # type: ignore[misc]
        if net.chance.random() < 0.7:
            kind = net.chance.choice(("upsample_nearest_neighbor", "upsample_nearest_neighbor", "upsample_bilinear"))
            scales = {"scale_factor_height": 2.0, "scale_factor_width": 2.0}
            more = {"align_corners": False} if kind == "upsample_bilinear" else {}
            x = net.op(kind, (b, c, 2 * h, 2 * w), x=x, **scales, **more)
        else:
            cout = max(1, min(c, MACS // (b * c * h * w * 4)))
            weight = net.data(c, cout, 2, 2, fan=c)
            x = net.op("conv_transpose", (b, cout, 2 * h, 2 * w), x=x, weight=weight, strides=[2, 2])
        x = net.act(net.conv(net.concat(x, skip), net.shapes[skip][1]))


def _squeezed(net: Drawn) -> None:
    x = net.act(net.conv(net.input(net.map())))
    n, c, _, _ = net.shapes[x]  # type: ignore[misc]
    mean = net.op("reduce_mean", (n, c, 1, 1), x=x, axes=[2, 3], keep_dims=True)
    gate = net.op("sigmoid", (n, c, 1, 1), x=net.conv(mean, min(c, 64) if c > 2048 else c, (1, 1)))
    if net.steps[-2].operands["weight"].shape[0] == c:
        net.op("mul", net.shapes[x], x=x, y=gate)


def _strided(net: Drawn) -> None:
    x = net.input(net.map())
    for _ in range(net.chance.randint(1, 3)):
        x = net.act(net.conv(x, stride=net.chance.choice((1, 2, 2, 3))))
    if net.chance.random() < 0.5:
        net.pool(x, net.chance.choice((2, 3)), net.chance.choice((1, 2)))


def _windows(net: Drawn) -> None:
    """A kernel or a pool whose window lies at the generation's maximum."""
    limits, chance = net.limits, net.chance
    _, c, h, w = net.plain()
    most = chance.choice((*limits.kernel_width_fp16, *limits.kernel_height))
    other = chance.choice((1, 3, net.near(chance.choice(limits.kernel_height))))
    shape = (1, min(c, 8), max(h, other), max(w, most + 2))
    x = net.input(shape)
    if chance.random() < 0.6:
        net.act(net.conv(x, k=chance.choice(((other, net.near(most)), (net.near(most), other)))))
    else:
        window = net.near(chance.choice((limits.max_pool_window, 3)))
        net.pool(net.act(x), window, chance.choice((1, 2)))


def _kernels(net: Drawn) -> None:
    """Weights that fill the kernel memory of a core, or the channels of a core."""
    limits, chance = net.limits, net.chance
    k = chance.choice((1, 1, 3))
    cin = chance.choice((16, 64, 100, 255, 256, 512))
    per_core = limits.kernel_bytes_per_core // ELEMENT_BYTES // chance.choice((1, 1, 2, 4))
    cout = net.near(max(1, per_core * limits.cores // (cin * k * k)), chance.choice((1, limits.cores)))
    size = chance.choice(((1, 1), (1, 8), (4, 4), (2, 33)))
    x = net.input((1, cin, *size))
    net.act(net.conv(net.act(net.conv(x, min(cout, 4096), (k, k))), chance.choice((1, 16, 17)), (1, 1)))


def _products(net: Drawn) -> None:
    """Products whose sum is as long as a generation takes, or whose operand fills L2."""
    limits, chance = net.limits, net.chance
    if chance.random() < 0.5:
        length = net.near(limits.max_contraction)
        x = net.input((chance.choice((1, 2, 16)), length))
        net.op("linear", (net.shapes[x][0], 4), x=x, weight=net.data(4, length, fan=length))
    else:
        rows, depth = chance.choice((16, 64, 256)), chance.choice((16, 64, 128))
        columns = net.near(limits.l2_bytes // (ELEMENT_BYTES * depth * chance.choice((4, 8, 16, 32))))
        x, y = net.input((rows, depth)), net.input((depth, columns))
        net.op("matmul", (rows, columns), x=x, y=y)


def _transformer(net: Drawn) -> None:
    """A block of attention and two layers over tokens."""
    chance = net.chance
    width = net.near(chance.choice((16, 32, 64, 96, 128)), chance.choice((1, 16)))
    heads = next(n for n in (chance.choice((1, 2, 4)), 1) if width % n == 0)
    tokens = net.near(chance.choice((1, 8, 16, 32, 64, 77, 128, 197, 256)))
    depth = width // heads
    x = net.input((1, tokens, width))
    y = net.op(
        "layer_norm", (1, tokens, width), x=x, axes=[-1], gamma=net.data(width), beta=net.data(width), epsilon=1e-5
    )
    parts = []
    for _ in range(3):
        part = net.op("linear", (1, tokens, width), x=y, weight=net.data(width, width, fan=width), bias=net.data(width))
        part = net.op("reshape", (1, tokens, heads, depth), x=part, shape=[1, tokens, heads, depth])
        parts.append(net.op("transpose", (1, heads, tokens, depth), x=part, perm=[0, 2, 1, 3]))
    q, k, v = parts
    if chance.random() < 0.4:
        z = net.op("scaled_dot_product_attention", (1, heads, tokens, depth), query=q, key=k, value=v)
    else:
        scores = net.op("matmul", (1, heads, tokens, tokens), x=q, y=k, transpose_y=True)
        scores = net.op("mul", (1, heads, tokens, tokens), x=scores, y=1 / sqrt(depth))
        scores = net.op("softmax", (1, heads, tokens, tokens), x=scores, axis=-1)
        z = net.op("matmul", (1, heads, tokens, depth), x=scores, y=v)
    z = net.op("transpose", (1, tokens, heads, depth), x=z, perm=[0, 2, 1, 3])
    z = net.op("reshape", (1, tokens, width), x=z, shape=[1, tokens, width])
    x = net.op("add", (1, tokens, width), x=x, y=z)
    if chance.random() < 0.6:
        up = net.op("linear", (1, tokens, 4 * width), x=x, weight=net.data(4 * width, width, fan=width))
        up = net.op("gelu", (1, tokens, 4 * width), x=up)
        down = net.op("linear", (1, tokens, width), x=up, weight=net.data(width, 4 * width, fan=4 * width))
        net.op("add", (1, tokens, width), x=x, y=down)


def _moves(net: Drawn) -> None:
    """Copies of maps at a limit: slices, pads, transposes, joins."""
    chance = net.chance
    x = net.input(net.map())
    for _ in range(chance.randint(1, 3)):
        shape = net.shapes[x]
        kind = chance.randrange(4)
        if kind == 0:
            begin = [chance.choice((0, 0, min(1, n - 1), n // 2)) for n in shape]
            size = [max(1, chance.choice((n - b, n - b, n - b - 1, 1))) for n, b in zip(shape, begin)]
            x = net.op("slice_by_size", tuple(size), x=x, begin=begin, size=size)
        elif kind == 1:
            order = [0, *chance.sample((1, 2, 3), 3)]
            x = net.op("transpose", tuple(shape[axis] for axis in order), x=x, perm=order)
        elif kind == 2:
            pads = [0, 0, 0, 0, *(chance.choice((0, 1, 1, 2)) for _ in range(4))]
            padded = tuple(n + a + b for n, a, b in zip(shape, pads[::2], pads[1::2]))
            x = net.op("pad", padded, x=x, pad=pads, mode="constant", constant_val=0.0)
        elif prod(shape) < ELEMENTS:
            x = net.concat(x, net.act(x))


def _many(net: Drawn) -> None:
    """More tasks than a counter of eight bits counts."""
    x = net.input((1, net.chance.choice((3, 16)), 4, net.chance.choice((5, 16))))
    for _ in range(net.chance.choice((120, 126, 127, 128, 129, 140))):
        x = net.op("add", net.shapes[x], x=net.op("relu", net.shapes[x], x=x), y=x)
        if len(net.steps) % 8 == 0:
            x = net.op("mul", net.shapes[x], x=x, y=0.01)


FAMILIES = (
    *(_residual,) * 4, *(_before_activation,) * 2, *(_chain,) * 3, *(_dense,) * 3, *(_two_inputs,) * 2, *(_unet,) * 3,
    *(_squeezed,) * 2, *(_strided,) * 3, *(_windows,) * 3, *(_kernels,) * 3, *(_products,) * 2, *(_transformer,) * 4,
    *(_moves,) * 3, *(_many,) * 0,
)  # fmt: skip
