"""A network as plain data: what a generator draws, what is made smaller, and what becomes a graph or a script."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hexane.errors import UnsupportedError
from hexane.graph import GraphBuilder
from hexane.graph.ir import Graph
from hexane.graph.parts import Value
from hexane.graph.registry import lookup


def data(shape, dtype, seed, low=-1.0, high=1.0):
    """Numbers of a MIL dtype from a seed: evenly between the bounds, whole ones where the dtype has no fractions."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        top = 2 ** int(dtype.lstrip("uint"))
        low, high = (
            (max(low, 0), min(high, top - 1)) if dtype[0] == "u" else (max(low, -top // 2), min(high, top // 2 - 1))
        )
        return rng.integers(int(low), int(high) + 1, shape).astype(dtype if top >= 256 else "int8")
    if dtype in ("bf16", "fp8e4m3fn", "fp8e5m2"):
        return (rng.integers(-8, 9, shape) / 8).astype(np.float32)  # what all of them hold exactly
    kind = {"fp16": np.float16, "fp64": np.float64}.get(dtype, np.float32)
    return rng.uniform(low, high, shape).astype(kind)


@dataclass(frozen=True)
class Ref:
    """A value of the network by name: an input's, or a step's with ``.1`` and so on for its further results."""

    name: str


@dataclass(frozen=True)
class Data:
    """A constant: what `data` gives for these arguments."""

    shape: tuple[int, ...]
    dtype: str
    seed: int
    low: float = -1.0
    high: float = 1.0

    def array(self) -> np.ndarray:
        return data(self.shape, self.dtype, self.seed, self.low, self.high)


@dataclass(frozen=True)
class Input:
    """An input of the network; a state where ``state`` is set."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: float = -1.0
    high: float = 1.0
    state: bool = False


@dataclass(frozen=True)
class Step:
    """One op: operands by parameter name, each a `Ref`, `Data`, a tuple of them, or a Python value."""

    name: str
    op: str
    operands: dict[str, Any]
    since: int = 15

    def refs(self) -> Iterator[str]:
        """The names that the step reads."""
        for operand in self.operands.values():
            for item in operand if isinstance(operand, tuple) else (operand,):
                if isinstance(item, Ref):
                    yield item.name


@dataclass(frozen=True)
class Sketch:
    """A whole network. ``outputs`` are names, or constants."""

    inputs: tuple[Input, ...] = ()
    steps: tuple[Step, ...] = ()
    outputs: tuple[Any, ...] = ()
    seed: int = 0
    opset: str = "ios18"
    notes: str = ""
    values: dict[str, Value] = field(default_factory=dict, compare=False, repr=False)

    def graph(self) -> Graph:
        """The network; GraphError where a type rule refuses it."""
        builder = GraphBuilder(opset=self.opset)
        values = self.values
        values.clear()
        for item in self.inputs:
            declare = builder.state if item.state else builder.input
            values[item.name] = declare(item.name, item.shape, item.dtype)
        for step in self.steps:
            operands = {name: _operand(builder, values, operand) for name, operand in step.operands.items()}
            results = builder.op(step.op, name=step.name, opset=written_opset(step, self.opset), **operands)
            for index, value in enumerate(results if isinstance(results, tuple) else (results,)):
                values[step.name if index == 0 else f"{step.name}.{index}"] = value
        for output in self.outputs:
            if isinstance(output, Data):
                builder.output(builder.const(output.array(), output.dtype, name="constant"))
            elif values[output] is not None:
                builder.output(values[output])
        return builder.graph

    def numbers(self) -> dict[str, np.ndarray]:
        """Values of the inputs; states begin with zeros."""
        return {
            item.name: data(item.shape, item.dtype, self.seed + index, item.low, item.high)
            for index, item in enumerate(self.inputs)
            if not item.state
        }

    def pruned(self) -> Sketch:
        """Without steps that no output needs (those without results stay) and inputs that nothing reads."""
        wanted = {name.split(".")[0] for name in self.outputs if isinstance(name, str)}
        kept: list[Step] = []
        for step in reversed(self.steps):
            if step.name in wanted or step.op in ("write_state",):
                kept.append(step)
                wanted.update(name.split(".")[0] for name in step.refs())
        inputs = tuple(item for item in self.inputs if item.name in wanted)
        return replace(self, steps=tuple(reversed(kept)), inputs=inputs, values={})

    def script(self, chip: str, dialect: str, what: str = "") -> str:
        """A Python script that builds the network and compares both levels."""
        lines = [f"# {line}" for line in what.splitlines()]
        lines += ["import numpy as np", "", "import hexane", "from hexane.graph import GraphBuilder", "", ""]
        lines += [inspect.getsource(data), "", f'b = GraphBuilder(opset="{self.opset}")']
        given = []
        for index, item in enumerate(self.inputs):
            kind = "state" if item.state else "input"
            lines.append(f'{item.name} = b.{kind}("{item.name}", {item.shape}, "{item.dtype}")')
            if not item.state:
                numbers = f'{item.shape}, "{item.dtype}", {self.seed + index}, {item.low}, {item.high}'
                given.append(f'    "{item.name}": data({numbers}),')
        several = {name.split(".")[0] for step in self.steps for name in step.refs() if "." in name}
        several |= {name.split(".")[0] for name in self.outputs if isinstance(name, str) and "." in name}
        for step in self.steps:
            tuple_ = step.name in several or isinstance(self.values.get(f"{step.name}.1"), Value)
            operands = "".join(f", {name}={_text(operand, several)}" for name, operand in step.operands.items())
            opset = written_opset(step, self.opset)
            extra = f', opset="{opset}"' if opset else ""
            lines.append(f'{step.name} = b.op("{step.op}"{extra}{operands})')
            if tuple_ and step.name not in several:
                several.add(step.name)
        lines.append(
            f"b.output({', '.join(_text(Ref(o) if isinstance(o, str) else o, several) for o in self.outputs)})"
        )
        lines += [f'program = hexane.compile(b.graph, "{chip}", dialect="{dialect}")', "inputs = {", *given, "}"]
        lines += [
            'engine, graph = program.run(inputs), program.run(inputs, level="graph")',
            "for name in graph:",
            "    np.testing.assert_array_equal(engine[name], graph[name], err_msg=name, strict=True)",
        ]
        return "\n".join(lines) + "\n"


def written_opset(step: Step, opset: str) -> str | None:
    """The op set that a step has to be written with, where the network's own gives another entry of the vocabulary."""
    try:
        own = lookup(step.op, opset).since
    except UnsupportedError:
        own = -1
    return None if own == step.since else f"ios{step.since}"


def _operand(builder: GraphBuilder, values: dict[str, Value], operand: Any) -> Any:
    if isinstance(operand, Ref):
        return values[operand.name]
    if isinstance(operand, Data):
        return builder.const(operand.array(), operand.dtype)
    if isinstance(operand, tuple):
        return tuple(_operand(builder, values, item) for item in operand)
    return operand


def _text(operand: Any, several: set[str]) -> str:
    if isinstance(operand, Ref):
        base, _, index = operand.name.partition(".")
        return f"{base}[{index or 0}]" if base in several else base
    if isinstance(operand, Data):
        arguments = f'{operand.shape}, "{operand.dtype}", {operand.seed}, {operand.low}, {operand.high}'
        return f'b.const(data({arguments}), "{operand.dtype}")'
    if isinstance(operand, tuple):
        return "(" + "".join(f"{_text(item, several)}, " for item in operand) + ")"
    if isinstance(operand, np.generic):
        return f"np.{type(operand).__name__}({operand.item()!r})"
    return repr(operand)
