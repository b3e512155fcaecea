"""Silent behaviour of the real runtime, for ``Model(quirks=True)``.

Modelled: binding by position in byte order (S2, S7), surfaces that are too small (0x1d), packed reads of strided data
(S8), masks that attention ignores (O4), products that come out as zeros (O11 on M1, S4 on M5), tile that spoils the
process (O7), weights that are a snapshot (W8), a cache that looks at the dictionary only (W9), counts (R1, R3, R4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hexane.errors import UnsupportedError
from hexane.graph.ir import Graph
from hexane.mil.surfaces import Ports, Surface, packed_as_the_runtime_reads
from hexane.private_api.faults import BAD_WIDTH, SURFACE, ProcessCrash, RuntimeFault, compile_fault, inference_fault
from hexane.restrictions import RULES, Finding
from hexane.restrictions.reports import Severity
from hexane.restrictions.shapes import binding_order
from hexane.runtime.executable import Executable

BINDING = frozenset({"S1", "S2", "S6", "S7"})
"""Rules that binding itself plays out."""
MODELLED = BINDING | {"O4", "O11", "S4", "O7", "W2", "W3", "W4", "N20", "S15", "O15", "O16"}
"""Rules whose silent effect is modelled, or comes out of the arithmetic by itself."""


class NSString(str):
    """A program handed over as a string object in place of bytes (restriction T1)."""


def crash_of(rule: str) -> ProcessCrash:
    """The process ends, with the words of a rule."""
    return ProcessCrash(RULES[rule].says, hint=RULES[rule].remedy)


def compile_fault_of(findings: list[Finding]) -> RuntimeFault | None:
    """Report of the compiler on a program that breaks these restrictions; None where it compiles."""
    worst = next((f for f in findings if f.severity is Severity.REJECTED), None)
    if worst is None:
        return None
    broken = worst.rule.startswith(("T", "O", "W", "L"))
    return compile_fault("InvalidMILProgram" if broken else "CompilationFailure", worst.rule)


def inference_fault_of(findings: list[Finding]) -> RuntimeFault | None:
    """Report of an evaluation on them; None where it runs. Sizes are looked at when surfaces are bound."""
    for finding in findings:
        if finding.severity is Severity.FAILS and finding.rule not in {"S7", "O7"}:
            return inference_fault(BAD_WIDTH if finding.rule == "S4" else SURFACE, finding.rule)
    return None


def silent(graph: Graph, executable: Executable, findings: list[Finding]) -> Executable:
    """The program as the engine silently computes it."""
    wrong = {f.rule for f in findings if f.severity is Severity.WRONG}
    unknown = sorted(wrong - MODELLED)
    if unknown:
        raise UnsupportedError(
            f"the program runs and gives wrong numbers by rule {unknown[0]}, and nobody published which",
            hint="without quirks the numbers are those of the program",
        )
    if "O4" in wrong:
        graph = without_masks(graph)
        executable = Executable(graph, executable.chip, "graph", "restriction O4")
    if wrong & {"O11", "S4"}:
        names = frozenset(value.name for value in graph.main.outputs)
        executable = replace(executable, graph=graph, zeros=names)
    return executable


def without_masks(graph: Graph) -> Graph:
    """The graph with every attention mask left out."""
    graph = graph.clone()
    for op in graph.main.walk():
        if op.type == "scaled_dot_product_attention" and "attn_mask" in op.inputs:
            op.remove_input("attn_mask")
    return graph


def bound_inputs(ports: Ports, inputs: Mapping[str, Any], surfaces: str) -> dict[str, np.ndarray]:
    """Inputs as the runtime binds them: the surfaces in the declared order, to the names in byte order."""
    arrays = []
    sizes = ports.sizes(ports.inputs, surfaces)
    for name, type_ in ports.inputs.items():
        array = inputs.get(name)
        if array is None:
            raise inference_fault(SURFACE, "S7")
        if isinstance(array, Surface):
            arrays.append(array)
            continue
        array = packed_as_the_runtime_reads(np.asarray(array))
        surface = Surface(max(sizes[name], array.nbytes))
        surface.write(array.astype(type_.carrier, copy=False) if array.dtype.kind != type_.carrier.kind else array)
        arrays.append(surface)
    values = {}
    for name, surface in zip(binding_order(list(ports.inputs)), arrays):
        type_ = ports.inputs[name]
        if surface.nbytes < type_.count * type_.carrier.itemsize:
            raise inference_fault(SURFACE, "S7")
        values[name] = surface.read(type_)
    return values


def bound_outputs(ports: Ports, results: Mapping[str, np.ndarray], surfaces: str) -> dict[str, np.ndarray]:
    """Results as the caller finds them: the tensors in byte order of their names, in the surfaces as listed."""
    sizes = ports.sizes(ports.outputs, surfaces)
    arrays = {}
    for listed, name in zip(ports.outputs, binding_order(list(ports.outputs), results=True)):
        type_ = ports.outputs[listed]
        array = np.ascontiguousarray(results[name])
        if sizes[listed] < array.nbytes:
            raise inference_fault(SURFACE, "S1")
        surface = Surface(max(sizes[listed], type_.count * type_.carrier.itemsize))
        surface.write(array)
        arrays[listed] = surface.read(type_)
    return arrays
