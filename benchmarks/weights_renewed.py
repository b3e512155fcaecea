"""Weights renewed in place against a recompilation: a convolution, and the weights of a 12-layer transformer.

    python benchmarks/weights_renewed.py [--layers 12] [--dim 768] [--hidden 2048]

Prints seconds and ratios; both sides are measured in the same run.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from hexane.formats.blob import blob_bytes
from hexane.mil import CompileBudget, Model, Options

INFO = '[buildInfo = dict<string, string>({{"coremlc-version", "3505.4.1"}})]'
SCALARS = """        string pt = const()[name = string("pt"), val = string("{pad_type}")];
        tensor<int32, [2]> st = const()[name = string("st"), val = tensor<int32, [2]>([1, 1])];
        tensor<int32, [4]> pd = const()[name = string("pd"), val = tensor<int32, [4]>([{pad}, {pad}, {pad}, {pad}])];
        int32 gr = const()[name = string("gr"), val = int32(1)];
        bool f = const()[name = string("f"), val = bool(false)];
        bool t = const()[name = string("t"), val = bool(true)];
        int32 ax = const()[name = string("ax"), val = int32(-1)];
"""


class Text:
    """A MIL program that grows line by line, with its weight shapes."""

    def __init__(self, inputs: str, pad: int) -> None:
        self.lines = [f"program(1.3)\n{INFO}\n{{\n    func main<ios18>({inputs}) {{"]
        self.lines.append(SCALARS.format(pad_type="custom" if pad else "valid", pad=pad))
        self.weights: dict[str, tuple[int, ...]] = {}

    def weight(self, name: str, *shape: int) -> str:
        """A constant in a file of its own."""
        self.weights[name] = shape
        type_ = f"tensor<fp16, {list(shape)}>"
        place = f'BLOBFILE(path = string("@model_path/{name}.bin"), offset = uint64(64))'
        self.lines.append(f'        {type_} {name} = const()[name = string("{name}"), val = {type_}({place})];')
        return name

    def op(self, name: str, extents: tuple[int, ...], op: str, **arguments: str) -> str:
        """A statement."""
        given = ", ".join(f"{key} = {value}" for key, value in arguments.items())
        self.lines.append(f'        tensor<fp16, {list(extents)}> {name} = {op}({given})[name = string("{name}")];')
        return name

    def ints(self, name: str, *values: int) -> str:
        """A vector of integers."""
        type_ = f"tensor<int32, [{len(values)}]>"
        self.lines.append(f'        {type_} {name} = const()[name = string("{name}"), val = {type_}({list(values)})];')
        return name

    def conv(self, name: str, shape: tuple[int, ...], x: str, weight: str) -> str:
        """A convolution."""
        return self.op(name, shape, "conv", dilations="st", groups="gr", pad="pd", pad_type="pt", strides="st",
                       weight=weight, x=x)  # fmt: skip

    def done(self, result: str) -> str:
        """The program."""
        return "\n".join([*self.lines, f"    }} -> ({result});\n}}\n"])


def convolution() -> tuple[str, dict[str, tuple[int, ...]]]:
    """3x3, 256 -> 256 channels, 14x14."""
    text = Text("tensor<fp16, [1, 256, 14, 14]> x", 1)
    text.conv("y", (1, 256, 14, 14), "x", text.weight("w", 256, 256, 3, 3))
    return text.done("y"), text.weights


def transformer(layers: int, dim: int, hidden: int, tokens: int = 64, head: int = 64) -> tuple[str, dict]:
    """Attention and a gated feed-forward part per layer, every matrix a 1x1 convolution."""
    text, x = Text(f"tensor<fp16, [1, {dim}, 1, {tokens}]> x", 0), "x"
    row, wide, heads = (1, dim, 1, tokens), (1, hidden, 1, tokens), dim // head
    split, scores = (1, heads, head, tokens), (1, heads, tokens, tokens)
    as_heads, as_row = text.ints("as_heads", *split), text.ints("as_row", *row)
    for n in range(layers):
        parts = []
        for name in "qkv":
            whole = text.conv(f"{name}{n}", row, x, text.weight(f"w{name}{n}", dim, dim, 1, 1))
            parts.append(text.op(f"{name}h{n}", split, "reshape", shape=as_heads, x=whole))
        text.op(f"s{n}", scores, "matmul", transpose_x="t", transpose_y="f", x=parts[0], y=parts[1])
        text.op(f"p{n}", scores, "softmax", axis="ax", x=f"s{n}")
        text.op(f"a{n}", split, "matmul", transpose_x="f", transpose_y="t", x=parts[2], y=f"p{n}")
        text.op(f"ar{n}", row, "reshape", shape=as_row, x=f"a{n}")
        text.conv(f"o{n}", row, f"ar{n}", text.weight(f"wo{n}", dim, dim, 1, 1))
        x = text.op(f"x{n}a", row, "add", x=x, y=f"o{n}")
        text.conv(f"h{n}", wide, x, text.weight(f"w1{n}", hidden, dim, 1, 1))
        text.conv(f"g{n}", wide, x, text.weight(f"w3{n}", hidden, dim, 1, 1))
        text.op(f"e{n}", wide, "sigmoid", x=f"h{n}")
        text.op(f"i{n}", wide, "mul", x=f"h{n}", y=f"e{n}")
        text.op(f"j{n}", wide, "mul", x=f"i{n}", y=f"g{n}")
        text.conv(f"d{n}", row, f"j{n}", text.weight(f"w2{n}", dim, hidden, 1, 1))
        x = text.op(f"x{n}b", row, "add", x=x, y=f"d{n}")
    return text.done(x), text.weights


def drawn(weights: dict[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    """Weights of unit gain, small."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(shape, np.float32) * (0.1 / np.sqrt(np.prod(shape[1:])))).astype(np.float16)
        for name, shape in weights.items()
    }


def compare(title: str, text: str, shapes: dict[str, tuple[int, ...]]) -> None:
    """Print compile, prepare and update seconds, and whether both ways end in the same bytes."""
    files = lambda given: {f"@model_path/{n}.bin": blob_bytes([(a, "fp16")]) for n, a in given.items()}  # noqa: E731
    first, second, third = (drawn(shapes, seed) for seed in (1, 2, 3))
    options = Options(level="engine", statistics=False, budget=CompileBudget(1000), allow=("W5", "W7"))
    Model(text, files(second), "M1", options=options).compile()  # compiled code is loaded before the clock runs
    start = time.perf_counter()
    model = Model(text, files(first), "M1", options=options).compile().load()
    compiled = time.perf_counter() - start
    one, two = model.update(second), model.update(third)
    start = time.perf_counter()
    again = Model(text, files(third), "M1", options=options).compile()
    recompiled = time.perf_counter() - start
    assert model.program is not None
    assert again.program is not None
    parts = lambda images: [(image.text(), image.const, image.kernel_section) for image in images]  # noqa: E731
    same = parts(model.program.images) == parts(again.program.images)
    count = sum(a.size for a in first.values())
    print(f"{title}: {count:,} weights")
    print(f"  compile {compiled:.2f} s, again with other weights {recompiled:.2f} s")
    print(f"  update: {two.how}, {two.seconds * 1e3:.1f} ms ({recompiled / two.seconds:.0f} times faster), after "
          f"{one.prepared_seconds:.2f} s once for finding the places; same tasks and constants: {same}")  # fmt: skip
    assert same or two.how != "patched"


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--hidden", type=int, default=2048)
    asked = parser.parse_args()
    compare("convolution 3x3, 256 -> 256, 14x14", *convolution())
    title = f"transformer of {asked.layers} layers, {asked.dim} wide"
    compare(title, *transformer(asked.layers, asked.dim, asked.hidden))


if __name__ == "__main__":
    main()
