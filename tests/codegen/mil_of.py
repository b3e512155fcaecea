"""A decoded program's network as MIL text and a weight file, as a compiler is given them.

Constants that were not recorded have the values that the compiler most likely saw (``tests/data/README.md``, fills).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.formats.blob import BlobWriter
from hexane.formats.mil.literals import quoted
from hexane.graph import TensorType
from kernels.apple import fill

WEIGHTS = "@model_path/weights/weight.bin"
_HEADER = """program(1.3)
[buildInfo = dict<string, string>({{"coremlc-component-MIL", "3510.2.1"}, {"coremlc-version", "3505.4.1"}})]
{"""


def mil_of(program: dict[str, Any]) -> tuple[str, bytes]:
    """MIL text (version 1.3) and the bytes of its weight file."""
    network, writer = program["network"], BlobWriter()
    stored, lines = _constants(network["constants"], writer)
    for position, operation in enumerate(network["operations"]):
        lines += _operation(position, operation, stored)
    parameters = ", ".join(f"{_type(tensor)} {tensor['name']}" for tensor in network["inputs"])
    results = ", ".join(tensor["name"] for tensor in network["outputs"])
    body = "".join(f"        {line}\n" for line in lines)
    text = f"{_HEADER}\n    func main<ios18>({parameters}) {{\n{body}    }} -> ({results});\n}}\n"
    return text, writer.to_bytes()


def _constants(constants: list[dict], writer: BlobWriter) -> tuple[dict[str, str], list[str]]:
    """Payloads of the quantised data by name, which have no line of their own, and lines of the others."""
    stored, lines = {}, []
    weight = next((row for row in constants if row["role"] == "weight"), None)
    for row in constants:
        kind, name = _type(row), row["name"]
        if not row["shape"]:
            value = f"{kind}({_scalar(row['value']).hex()})"
        else:
            offset = writer.add(_values(row, weight), TensorType(row["dtype"], tuple(row["shape"])))
            value = f"{kind}(BLOBFILE(path = {_string(WEIGHTS)}, offset = uint64({offset})))"
        if row["dtype"] == "int8":
            stored[name] = value
        else:
            lines.append(f"{kind} {name} = const()[name = {_string(name)}, val = {value}];")
    return stored, lines


def _operation(position: int, operation: dict, stored: dict[str, str]) -> list[str]:
    """Lines of the constants of an op's parameters, and its own."""
    op, out, inputs, parameters = (operation[key] for key in ("op", "output", "inputs", "parameters"))
    head, name = f"{_type(out)} {out['name']} = {op}", _string(out["name"])
    if op == "constexpr_affine_dequantize":
        data, scale = stored[inputs["quantized_data"]], _literal(float(parameters["scale"]))[1]
        given = f"quantized_data = {data}, scale = {scale}, zero_point = int8(0)"
        return [f"{head}()[axis = int32(0), name = {name}, {given}];"]
    lines, arguments = [], []
    for key, value in inputs.items():
        arguments.append(f"{key} = ({', '.join(value)})" if isinstance(value, list) else f"{key} = {value}")
    for key, value in parameters.items():
        kind, literal = _literal(value)
        lines.append(f"{kind} op{position}_{key} = const()[name = {_string(f'op{position}_{key}')}, val = {literal}];")
        arguments.append(f"{key} = op{position}_{key}")
    return [*lines, f"{head}({', '.join(arguments)})[name = {name}];"]


def _values(row: dict, weight: dict | None) -> np.ndarray:
    if row["dtype"] == "int8":
        count = int(np.prod(row["shape"], dtype=int))
        return (np.arange(count) * 7 % 31 - 15).astype(np.int8).reshape(row["shape"])
    if (row["value"] or "").startswith("fp16 "):
        return np.full(row["shape"], _scalar(row["value"]), np.float16)
    return fill(row, weight).view("<f2").reshape(row["shape"])


def _scalar(value: str | None) -> float:
    """The number of a rule such as ``fp16 0.5`` or ``every element fp16 0x3800``, rounded to fp16."""
    if value is None or not value.startswith(("fp16 ", "every element fp16 ")):
        raise ValueError(f"no value of a scalar: {value!r}")
    text = value.split()[-1] if value.startswith("every") else value.split()[1]
    return float(np.uint16(int(text, 16)).view(np.float16)) if text.startswith("0x") else float(np.float16(float(text)))


def _type(tensor: dict) -> str:
    dtype, shape = tensor["dtype"], tensor["shape"]
    return f"tensor<{dtype}, {list(shape)}>" if shape else dtype


def _string(text: str) -> str:
    return f"string({quoted(text)})"


def _literal(value: Any) -> tuple[str, str]:
    """Type and text of a parameter."""
    match value:
        case bool():
            return "bool", f"bool({str(value).lower()})"
        case int():
            return "int32", f"int32({value})"
        case float():
            return "fp16", f"fp16({value.hex()})"
        case str():
            return "string", _string(value)
    kind = f"tensor<int32, [{len(value)}]>"
    return kind, f"{kind}({list(value)})"
