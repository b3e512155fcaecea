"""Apple's decoded programs made runnable: recorded words, surfaces, and constants packed from random values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import hexane
from hexane import isa, kernels
from hexane.image import Image
from kernels import apple

TABLES = {
    "gelu": ["gelu"],
    "pow": ["log2", "exp2"],
    "real_div": ["recip"],
    "rsqrt": ["rsqrt"],
    "sigmoid": ["sigmoid"],
    "silu": ["silu"],
    "sqrt": ["sqrt"],
    "tanh": ["tanh"],
}
POSITIVE = {"rsqrt", "sqrt", "pow", "real_div"}


@dataclass
class AppleProgram:
    """One file of data/apple/h13 with values: inputs and constants by name, tables in the order of their use."""

    name: str
    network: dict
    tasks: list[isa.Task]
    surfaces: list[dict]
    const_size: int
    content: str
    scratch_bytes: int
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    tables: list[np.ndarray] = field(default_factory=list)

    def image(self) -> Image:
        """The program with its constants packed."""
        return hexane.build_image(self.tasks, self.const(), self.surfaces, "h13", self.scratch_bytes)

    def const(self) -> bytes:
        """The constant section that the task words ask for, from the values."""
        section = bytearray(max(self.const_size, 0x4000))
        kernel_of, table_of = self._kernels(), iter(self.tables)
        for task in self.tasks:
            layout, windows = kernels.layout_of(task), kernels.windows_of(task)
            if layout is None or task.get("Header[9].KBase0") != 1:
                continue
            table = next(table_of).tobytes() if layout.table else None
            if not layout.weighted:
                for window in windows:
                    section[window.offset : window.offset + 128] = table or b""
                continue
            if layout.binary:  # Apple's padding task: a shift by one column (spec/engine-h13 §9.10)
                weights = np.zeros(layout.weight_shape, np.float16)
                weights[..., 0] = 1
                packed = kernels.pack(layout, weights)
            else:
                weights, bias = next(kernel_of)
                packed = kernels.pack(layout, weights, bias if layout.bias else None, table)
            assert [window.size for window in windows] == list(packed.sizes)
            for window, offset in zip(windows, packed.offsets):
                section[window.offset : window.offset + window.size] = packed.data[offset : offset + window.size]
        for offset, data in self._operands():
            section[offset : offset + len(data)] = data
        return bytes(section)

    def _kernels(self) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Weights and bias of every task with weights: an operation's channels divided as §7.6 says."""
        weighted = [
            t for t in self.tasks if (x := kernels.layout_of(t)) and x.weighted and not x.binary and not x.runtime
        ]
        position = 0
        for operation in self.network["operations"]:
            name = operation["inputs"].get("weight") or operation["inputs"].get("y")
            if name not in self.constants or self.role(name) != "weight":
                continue
            weights = self._oihw(operation, self.constants[name])
            bias = self.constants.get(operation["inputs"].get("bias", ""))
            mine: list[isa.Task] = []
            while sum(map(_channels, mine)) < weights.shape[0]:
                mine.append(weighted[position])
                position += 1
            ascending = bool(mine[0].get("Common.Cfg.OutTrans"))
            first = 0 if ascending else weights.shape[0]
            for task in mine:
                count = _channels(task)
                first -= 0 if ascending else count
                part = slice(first, first + count)
                yield np.ascontiguousarray(weights[part]), None if bias is None else bias[part]
                first += count if ascending else 0

    def _oihw(self, operation: dict, values: np.ndarray) -> np.ndarray:
        if values.ndim == 4:
            return values
        if operation["op"] == "matmul" and not operation["parameters"]["transpose_y"]:
            values = values.T
        return np.ascontiguousarray(values).reshape(*values.shape, 1, 1)

    def _operands(self) -> Iterator[tuple[int, bytes]]:
        """Constant operands that are read as tiles through channel 1 (spec/engine-h13 §9.11)."""
        if not any(task.get("Header[8].RBE0") and task.get("Header[8].RBase0") == 1 for task in self.tasks):
            return
        for operation in self.network["operations"]:
            for name in operation["inputs"].values():
                if name not in self.constants:
                    continue
                values = self.constants[name]
                if operation["op"] == "matmul":
                    padded = np.zeros((*values.shape[:2], 384), np.float16)
                    padded[..., : values.shape[2]] = values
                    yield 0, padded.tobytes()
                elif self.const_size == 4 * values.size:
                    flat = values.ravel()
                    rows = (flat, np.ones_like(flat)) if operation["op"] == "add" else (np.zeros_like(flat), flat)
                    yield 0, np.concatenate(rows).tobytes()
                else:
                    yield 0, values.tobytes()

    def role(self, name: str) -> str:
        """weight, bias or operand."""
        return next(row["role"] for row in self.network["constants"] if row["name"] == name)

    @property
    def operations(self) -> list[str]:
        """Names of the network's operations."""
        return [operation["op"] for operation in self.network["operations"]]

    @property
    def multiplications(self) -> int:
        """Products of all neural core tasks that have weights or a runtime kernel."""
        total = 0
        for task in self.tasks:
            layout = kernels.layout_of(task)
            if layout is not None and layout.weighted:
                pixels = task.get("Common.OutDim.Wout") * task.get("Common.OutDim.Hout")
                total += int(np.prod(layout.weight_shape, dtype=np.int64)) * pixels
        return total


def _has_weights(task: isa.Task) -> bool:
    layout = kernels.layout_of(task)
    return layout is not None and layout.weighted and not layout.binary and not layout.runtime


def _channels(task: isa.Task) -> int:
    layout = kernels.layout_of(task)
    assert layout is not None
    return layout.weight_shape[0]


def load(path: Path, seed: int = 0) -> AppleProgram:
    """Read a program and give it random values."""
    record = json.loads(path.read_text())
    tasks = apple.tasks(record)
    surfaces = [
        {
            "name": tensor["name"],
            "role": tensor["role"],
            "shape": tuple(tensor["surface_shape"]),
            "dtype": {"fp16": "float16", "bool": "uint8"}[tensor["dtype"]],
            "strides": tuple(tensor["strides"][axis] for axis in ("batch", "channel", "row", "element")),
            "channel": tensor["channel"],
        }
        for tensor in record["tensors"]
    ]
    program = AppleProgram(
        name=record["name"],
        network=record["network"],
        tasks=tasks,
        surfaces=surfaces,
        const_size=record["constant_section"]["size"] or 0,
        content=record["constant_section"]["content"] or "",
        scratch_bytes=record["program"]["scratch_bytes"] or _scratch(tasks),
    )
    rng = np.random.default_rng([seed, *map(ord, program.name)])
    _fill_constants(program, record, rng)
    _fill_inputs(program, record, rng)
    program.tables = list(_tables(program))
    return program


def _scratch(tasks: list[isa.Task]) -> int:
    """Bytes of scratch by the rule of spec/engine-h13 §3, for programs whose record does not say."""
    ends = [
        64 * (task.get("TileDMADst.BaseAddr.Addr") + task.get("TileDMADst.DepthStride.DepthStride"))
        for task in tasks
        if task.get("Header[8].WBE") and task.get("Header[8].WBase") == 3
    ]
    return -(-max(ends, default=0) // 0x4000) * 0x4000


def _fill_constants(program: AppleProgram, record: dict, rng: np.random.Generator) -> None:
    sparse = any(task.get("NE.KernelCfg.SparseFmt") for task in program.tasks)
    recorded = apple.constants(record) if sparse else {}
    for row in program.network["constants"]:
        literal = re.fullmatch(r"(?:every element )?fp16 (\S+)", row["value"] or "")
        if literal:
            values = np.full(row["shape"], _literal(literal.group(1)), np.float16)
        else:
            shape = tuple(row["shape"])
            fan = int(np.prod(shape[1:])) if row["role"] == "weight" and len(shape) == 4 else (shape or (1,))[-1]
            scale = fan**-0.5 if row["role"] == "weight" else 1.0
            values = (rng.standard_normal(shape) * scale).astype(np.float16)
            values[values == 0] = np.float16(0.125)
            if sparse and row["role"] == "weight":  # stream sizes are recorded, and depend on the zeros
                values[recorded[row["name"]] == 0] = 0
        program.constants[row["name"]] = values


def _literal(text: str) -> float:
    if re.fullmatch(r"0x[0-9a-f]{4}", text):
        return float(np.uint16(int(text, 16)).view(np.float16))
    return float.fromhex(text) if "x" in text else float(text)


def _fill_inputs(program: AppleProgram, record: dict, rng: np.random.Generator) -> None:
    positive = POSITIVE & set(program.operations)
    for tensor in record["tensors"]:
        if tensor["role"] != "input":
            continue
        shape = tuple(tensor["surface_shape"])
        if tensor["dtype"] == "bool":
            program.inputs[tensor["name"]] = rng.integers(0, 2, shape, np.uint8)
            continue
        values = rng.standard_normal(shape)
        program.inputs[tensor["name"]] = (np.abs(values) + 0.25 if positive else values).astype(np.float16)


def _tables(program: AppleProgram) -> Iterator[np.ndarray]:
    """The tables of the program's table tasks, in task order."""

    def halfwords(table: kernels.LookupTable) -> np.ndarray:
        return np.frombuffer(table.to_bytes(), np.uint16)

    for operation in program.network["operations"]:
        op = operation["op"]
        if op == "softmax":
            yield halfwords(kernels.known_table("exp2"))
            if any(task.get("NE.MACCfg.OpMode") == 3 for task in program.tasks):  # over channels: the sum is an NE task
                yield halfwords(kernels.known_table("recip"))
        elif op == "select":
            yield halfwords(kernels.is_zero_table())
            yield halfwords(kernels.not_zero_table())
        elif op == "maximum" and "LUT" in program.content:
            (value,) = program.constants.values()
            yield halfwords(kernels.clip_table(low=float(value)))
        else:
            yield from (halfwords(kernels.known_table(name)) for name in TABLES.get(op, []))
