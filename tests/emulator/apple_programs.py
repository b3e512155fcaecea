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
from hexane.emulator import EmulatedProgram
from hexane.emulator.registers import Registers
from hexane.emulator.task import understand
from hexane.graph import Graph, GraphBuilder
from hexane.image import Image, Surface
from hexane.isa.roles import roles_of
from kernels import apple

TABLES = {
    "inverse": ["recip"],
    "pow": ["log2", "exp2"],
    "real_div": ["recip"],
    "rsqrt": ["rsqrt"],
    "sigmoid": ["sigmoid"],
    "silu": ["silu"],
    "sqrt": ["sqrt"],
    "tanh": ["tanh"],
}
POSITIVE = {"rsqrt", "sqrt", "pow", "real_div"}


_ROWS = {
    "add": lambda z: (z, np.ones_like(z)),
    "sub": lambda z: (-z, np.ones_like(z)),
    "mul": lambda z: (np.zeros_like(z), z),
    "real_div": lambda z: (np.zeros_like(z), 1 / z),
}
"""The two rows of a constant operand with one value per channel: what is added, what is multiplied with."""


@dataclass
class AppleProgram:
    """One file of data/apple with values: inputs and constants by name, tables in the order of their use."""

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

    @property
    def generation(self) -> str:
        return self.tasks[0].generation

    def image(self) -> Image:
        """The program with its constants packed."""
        return hexane.build_image(self.tasks, self.const(), self.surfaces, "h13", self.scratch_bytes)

    def program(self) -> EmulatedProgram:
        """What the engine gets: the words, the sections of constants and of kernels, the surfaces' slots."""
        if self.generation == "h13":
            return EmulatedProgram.of(self.image())
        sections = self.sections()
        own = next((channel for channel in sections if channel != 1), None)
        return EmulatedProgram(
            generation=self.generation,
            text=isa.encode_stream(self.tasks, self.generation),
            const=sections.get(1, bytes(0x4000)),
            surfaces=tuple(Surface(**surface) for surface in self.surfaces),
            scratch_bytes=self.scratch_bytes,
            task_count=len(self.tasks),
            kernels=sections.get(own, b""),
            kernel_channel=own,
        )

    def const(self) -> bytes:
        """The constant section."""
        return self.sections()[1]

    def sections(self) -> dict[int, bytes]:
        """The sections that the task words ask for, from the values: by channel, 1 for the constants."""
        sections = {1: bytearray(max(self.const_size, 0x4000))}
        kernel_of, table_of = self._kernels(), iter(self.tables)
        roles = roles_of(self.generation)
        for task in self.tasks:
            layout, windows = kernels.layout_of(task), kernels.windows_of(task)
            if layout is None or layout.runtime:
                continue
            side = kernels.side_table(task)
            table = next(table_of).tobytes() if layout.table or side else None
            if side:
                _put(sections, roles.channel(task, "table"), side.offset, table)
            if not layout.weighted:
                for window in windows if layout.table else ():
                    _put(sections, roles.channel(task, "kernel"), window.offset, table)
                continue
            if layout.binary:  # Apple's padding task: a shift by one column (docs/reference/engine-h13.md 9.10)
                weights = np.zeros(layout.weight_shape, np.float16)
                weights[..., 0] = 1
                packed = kernels.pack(layout, weights)
            else:
                weights, bias = next(kernel_of)
                packed = kernels.pack(layout, weights, bias if layout.bias else None, table if layout.table else None)
            assert [window.size for window in windows] == list(packed.sizes)
            for window, offset in zip(windows, packed.offsets):
                part = packed.data[offset : offset + window.size]
                _put(sections, roles.channel(task, "kernel"), window.offset, part)
        for offset, data in self._operands():
            _put(sections, 1, offset, data)
        return {channel: bytes(section) for channel, section in sections.items()}

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
            bias = self._bias_of(operation)
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

    def _bias_of(self, operation: dict) -> np.ndarray | None:
        """The operation's own bias, or the constant vector that is added to a product behind it."""
        if "bias" in operation["inputs"]:
            return self.constants[operation["inputs"]["bias"]]
        for other in self.network["operations"]:
            names = list(other["inputs"].values())
            if other["op"] == "add" and operation["output"]["name"] in names and operation["op"] == "matmul":
                values = next((self.constants[name] for name in names if name in self.constants), None)
                return None if values is None else values.ravel()
        return None

    def _oihw(self, operation: dict, values: np.ndarray) -> np.ndarray:
        if values.ndim == 4:
            return values
        if operation["op"] == "matmul" and not operation["parameters"]["transpose_y"]:
            values = values.T
        return np.ascontiguousarray(values).reshape(*values.shape, 1, 1)

    def _operands(self) -> Iterator[tuple[int, bytes]]:
        """Constant operands that are read as tiles through channel 1 (docs/reference/engine-h13.md 9.11)."""
        roles = roles_of(self.generation)
        if not any(roles.channel(task, side) == 1 for task in self.tasks for side in ("source1", "source2")):
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
                elif operation["op"] in _ROWS and self._kind4():
                    channels = operation["output"]["shape"][1]
                    flat = np.broadcast_to(values.ravel(), channels).astype(np.float16)
                    offset = self._kind4_offset()
                    yield offset, np.concatenate(_ROWS[operation["op"]](flat)).astype(np.float16).tobytes()
                elif values.size > 1:
                    yield 0, values.tobytes()

    def _kind4(self) -> list[isa.Task]:
        """Tasks that take a row of addends and a row of factors from the constants."""
        return [task for task in self.tasks if get(task, "Common.Cfg.PEKind") == 4]

    def _kind4_offset(self) -> int:
        (task,) = self._kind4()
        side = "source2" if roles_of(self.generation).channel(task, "source2") == 1 else "source1"
        name = {"source1": "TileDMASrc.BaseAddr.Addr", "source2": "TileDMASrc.Src2BaseAddr.Addr"}[side]
        other = [t for t in self.tasks if roles_of(self.generation).channel(t, "source1") == 1]
        task = task if side == "source2" else other[0]
        return 64 * get(task, name)

    def graph(self) -> Graph:
        """The network with these constants."""
        b = GraphBuilder()
        dtypes = {"fp16": "fp16", "bool": "bool"}
        values = {
            row["name"]: b.input(row["name"], row["shape"], dtypes[row["dtype"]]) for row in self.network["inputs"]
        }
        for row in self.network["constants"]:
            values[row["name"]] = b.const(self.constants[row["name"]].reshape(row["shape"]), name=row["name"])
        for operation in self.network["operations"]:
            arguments = {
                key: [values[name] for name in names] if isinstance(names, list) else values[names]
                for key, names in operation["inputs"].items()
            }
            output = operation["output"]
            parameters = dict(operation["parameters"])
            values[output["name"]] = b.op(operation["op"], name=output["name"], **arguments, **parameters)
        b.output(*[values[row["name"]] for row in self.network["outputs"]])
        return b.graph

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
                pixels = get(task, "Common.OutDim.Wout") * get(task, "Common.OutDim.Hout")
                total += int(np.prod(layout.weight_shape, dtype=np.int64)) * pixels
        return total


def get(task: isa.Task, role: str) -> int:
    """A value by its role, whatever the generation."""
    return task.read(roles_of(task.generation).handle(role))


def _put(sections: dict[int, bytearray], channel: int, offset: int, data: bytes) -> None:
    section = sections.setdefault(channel, bytearray())
    if len(section) < offset + len(data):
        section.extend(bytes(offset + len(data) - len(section)))
    section[offset : offset + len(data)] = data


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
    if record["generation"] != "h13":
        _give_slots(surfaces, tasks)
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


def _give_slots(surfaces: list[dict], tasks: list[isa.Task]) -> None:
    """Slots in the order of names; where the tasks use others, in the order in which they use them."""
    roles = roles_of(tasks[0].generation)
    first = 4 if tasks[0].generation == "h14" else 6
    used: dict[str, list[int]] = {"input": [], "output": []}
    for task in tasks:
        layout = kernels.layout_of(task)
        sides = ["source1", "source2"] + ["kernel"] * bool(layout and layout.runtime)
        for role, names in (("input", sides), ("output", ["result"])):
            slots = [roles.channel(task, side) for side in names]
            used[role] += [slot for slot in slots if slot is not None and slot >= first and slot not in used[role]]
    given = {name: first + i for i, name in enumerate(sorted(surface["name"] for surface in surfaces))}
    if any(given[surface["name"]] not in used[surface["role"]] for surface in surfaces):
        for role, slots in used.items():  # both as declared and as used: in the order of the network
            mine = [surface["name"] for surface in surfaces if surface["role"] == role]
            given.update(zip(mine, slots))
    for surface in surfaces:
        surface["channel"] = given[surface["name"]]


def _scratch(tasks: list[isa.Task]) -> int:
    """Bytes of scratch by the rule of docs/reference/engine-h13.md 3, for programs whose record does not say."""
    roles = roles_of(tasks[0].generation)
    if tasks[0].generation != "h13":
        ends = [0]
        for index, task in enumerate(tasks):
            if roles.channel(task, "result") == 3:
                wanted = understand(Registers(index, task)).result
                ends.append(64 * -(-(_end(wanted.surface, wanted.stored)) // 64))
        return -(-max(ends) // 0x4000) * 0x4000
    ends = [
        64 * (task.get("TileDMADst.BaseAddr.Addr") + task.get("TileDMADst.DepthStride.DepthStride"))
        for task in tasks
        if task.get("Header[8].WBE") and task.get("Header[8].WBase") == 3
    ]
    return -(-max(ends, default=0) // 0x4000) * 0x4000


def _end(surface: Surface, extent: tuple) -> int:
    blocks = -(-extent.c // surface.interleave)
    row = surface.element * surface.interleave * extent.w
    steps = (extent.g, surface.group), (extent.d, surface.depth), (blocks, surface.plane), (extent.h, surface.row)
    return surface.base + sum((count - 1) * step for count, step in steps) + row


def _fill_constants(program: AppleProgram, record: dict, rng: np.random.Generator) -> None:
    sparse = any(task.get("NE.KernelCfg.SparseFmt") for task in program.tasks)
    recorded = apple.constants(record) if sparse else {}
    for row in program.network["constants"]:
        literal = re.fullmatch(r"(?:every element )?fp16 (\S+)", row["value"] or "")
        later = record["generation"] != "h13" and row["shape"]  # of equal weights a product would show little
        if literal and not later:
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


def _others(program: AppleProgram, operation: dict) -> Iterator[kernels.LookupTable]:
    """Tables of operations that do not always have one, or that have one with parameters."""
    tabled = any(get(task, "NE.MACCfg.NonlinearMode") == 2 for task in program.tasks)
    op, parameters = operation["op"], operation["parameters"]
    if op == "leaky_relu":
        yield kernels.leaky_relu_table(parameters["alpha"])
    elif op == "gelu" and parameters.get("mode") == "SIGMOID_APPROXIMATION":
        yield kernels.fitted_table("gelu_sigmoid").table
    elif op in ("gelu", "exp"):
        yield kernels.known_table({"gelu": "gelu", "exp": "exp2"}[op])
    elif op == "maximum" and tabled:
        (value,) = program.constants.values()
        yield kernels.clip_table(low=float(value))


def _select(program: AppleProgram, operation: dict) -> Iterator[kernels.LookupTable]:
    """Each table task makes a factor for the operand that the next product reads: 1 where it is chosen."""
    if program.generation == "h13":
        yield from (kernels.is_zero_table(), kernels.not_zero_table())
        return
    roles = roles_of(program.generation)
    chosen = next(s["channel"] for s in program.surfaces if s["name"] == operation["inputs"]["a"])
    waiting = 0
    for task in program.tasks:
        waiting += get(task, "NE.MACCfg.NonlinearMode") == 2
        if waiting and get(task, "Common.TaskInfo.NID") == 0 and get(task, "PE.Cfg.OpMode") == 1:
            read = {roles.channel(task, side) for side in ("source1", "source2")}
            yield kernels.not_zero_table() if chosen in read else kernels.is_zero_table()
            waiting -= 1


def _tables(program: AppleProgram) -> Iterator[np.ndarray]:
    """The tables of the program's table tasks, in task order."""

    def halfwords(table: kernels.LookupTable) -> np.ndarray:
        return np.frombuffer(table.to_bytes(), np.uint16)

    for operation in program.network["operations"]:
        op = operation["op"]
        if op == "sqrt" and any(task.get("PE.Cfg.NonlinearMode") == 3 for task in program.tasks):
            continue  # the planar engine's own root
        if op in ("leaky_relu", "maximum", "exp", "gelu"):
            yield from map(halfwords, _others(program, operation))
        elif op == "softmax":
            yield halfwords(kernels.known_table("exp2"))
            if any(task.get("NE.MACCfg.OpMode") == 3 for task in program.tasks):  # over channels: the sum is an NE task
                yield halfwords(kernels.known_table("recip"))
        elif op == "select":
            yield from (halfwords(table) for table in _select(program, operation))
        else:
            yield from (halfwords(kernels.known_table(name)) for name in TABLES.get(op, []))
