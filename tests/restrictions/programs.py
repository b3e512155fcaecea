"""Small MIL programs, and ways to write them."""

from __future__ import annotations

INFO = '[buildInfo = dict<string, string>({{"coremlc-version", "3505.4.1"}})]'


def program(
    body: str, inputs: str, results: str, *, info: str = INFO, version: str = "1.3", opset: str = "ios18"
) -> str:
    """A program of one function."""
    return f"program({version})\n{info}\n{{\n    func main<{opset}>({inputs}) {{\n{body}\n    }} -> ({results});\n}}\n"


def tensor(*shape: int, dtype: str = "fp16") -> str:
    """A type."""
    return f"tensor<{dtype}, [{', '.join(map(str, shape))}]>"


def const(type_: str, name: str, value: str) -> str:
    """A const statement."""
    return f'        {type_} {name} = const()[name = string("{name}"), val = {type_}({value})];\n'


def call(type_: str, name: str, op: str, arguments: str) -> str:
    """Any other statement."""
    return f'        {type_} {name} = {op}({arguments})[name = string("{name}")];\n'


X = tensor(1, 64, 1, 512)
CONV = (
    const("string", "pt", '"valid"')
    + const("tensor<int32, [2]>", "st", "[1, 1]")
    + const("tensor<int32, [4]>", "pd", "[0, 0, 0, 0]")
    + const("tensor<int32, [2]>", "dl", "[1, 1]")
    + const("int32", "gr", "1")
)


def conv(weight: str, *, result: str = "y", type_: str = X, x: str = "x", more: str = "") -> str:
    """A 1x1 convolution."""
    arguments = f"dilations = dl, groups = gr, pad = pd, pad_type = pt, strides = st, weight = {weight}, x = {x}{more}"
    return call(type_, result, "conv", arguments)


def blob(shape: tuple[int, ...], name: str, path: str = "w.bin", offset: int = 64, dtype: str = "fp16") -> str:
    """A constant in a weight file."""
    type_ = tensor(*shape, dtype=dtype)
    return const(type_, name, f'BLOBFILE(path = string("@model_path/weights/{path}"), offset = uint64({offset}))')


def unary(op: str, more: str = "", before: str = "") -> str:
    """A program of one op with one operand."""
    return program(before + call(X, "y", op, f"x = x{more}"), f"{X} x", "y")
