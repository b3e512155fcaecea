"""Run the ONNX project's own node tests through hexane and write docs/onnx-coverage.md.

    python tools/onnx_coverage.py [docs/onnx-coverage.md]

A test is in scope when every input and output of its graph is a tensor of float16, float32, float64, integer or bool
type and no operator of a training domain occurs.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import HexaneError, UnsupportedError, UsageError
from hexane.formats.onnx import load
from hexane.formats.onnx.importer import FOREIGN

TARGET = Path(__file__).resolve().parents[1] / "docs" / "onnx-coverage.md"
DTYPES = (
    "FLOAT16",
    "FLOAT",
    "DOUBLE",
    "BOOL",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
)


@dataclass(frozen=True)
class Outcome:
    """What became of one test: pass, foreign (onnxruntime runs a node on the host), refused, wrong or crash."""

    name: str
    kind: str
    reason: str = ""
    ops: tuple[str, ...] = ()


def all_tests() -> list[Any]:
    """Every node test of the installed onnx."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return list(collect_testcases(None))


def in_scope(test: Any) -> bool:
    """Whether hexane's promise covers a test."""
    import onnx

    codes = {getattr(onnx.TensorProto, name) for name in DTYPES}
    graph = test.model.graph
    values = [*graph.input, *graph.output]
    tensors = all(
        value.type.WhichOneof("value") == "tensor_type" and value.type.tensor_type.elem_type in codes
        for value in values
    )
    domains = [node.domain for node in graph.node] + [entry.domain for entry in test.model.opset_import]
    return tensors and not any("training" in domain for domain in domains)


def run(test: Any) -> Outcome:
    """Import one test's model, evaluate it, compare at the test's own tolerance."""
    import onnx

    def array(value: Any) -> np.ndarray:
        return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)

    graph = test.model.graph
    try:
        loaded = load(test.model.SerializeToString())
        foreign = [problem.message for problem in loaded.problems if problem.rule == FOREIGN]
        if len(foreign) < len(loaded.problems):
            return Outcome(test.name, "wrong", next(p.message for p in loaded.problems if p.rule != FOREIGN))
        for inputs, outputs in test.data_sets:
            made = loaded.evaluate({value.name: array(given) for value, given in zip(graph.input, inputs)})
            for value, wanted in zip(graph.output, map(array, outputs)):
                got = np.asarray(made[value.name])
                if got.dtype != wanted.dtype or got.shape != wanted.shape:
                    return Outcome(test.name, "wrong", f"{got.dtype} {got.shape} for {wanted.dtype} {wanted.shape}")
                if not np.allclose(got, wanted, rtol=test.rtol, atol=test.atol, equal_nan=True):
                    return Outcome(test.name, "wrong", f"{value.name} differs")
    except (UnsupportedError, UsageError) as error:
        problems = getattr(error, "problems", [])
        reasons = sorted({problem.reason for problem in problems}) or [error.message]
        return Outcome(test.name, "refused", "; ".join(reasons), tuple(sorted({problem.op for problem in problems})))
    except HexaneError as error:
        return Outcome(test.name, "refused", str(error))
    except Exception as error:
        return Outcome(test.name, "crash", f"{type(error).__name__}: {error}")
    if foreign:
        nodes = {message.split(" ")[0] for message in foreign}
        reasons = {message.partition("onnxruntime: ")[2] for message in foreign}
        return Outcome(test.name, "foreign", "; ".join(sorted(reasons)), tuple(sorted(nodes)))
    return Outcome(test.name, "pass")


def outcomes() -> Iterator[Outcome]:
    """The outcome of every test in scope, in the collection's order."""
    for test in all_tests():
        if in_scope(test):
            yield run(test)


def render(found: list[Outcome], total: int) -> str:
    """The document: counts, and every refused test under its reason."""
    import onnx

    counts = Counter(outcome.kind for outcome in found)
    share = 100 * counts["pass"] / len(found)
    lines = [
        "# ONNX coverage",
        "",
        "Written by `tools/onnx_coverage.py`; a test keeps it current.",
        "",
        f"The node tests of onnx {'.'.join(onnx.__version__.split('.')[:2])}, imported and evaluated by hexane's own",
        "reference, each at its stated tolerance.",
        "",
        "| | tests |",
        "|---|---:|",
        f"| in the collection | {total} |",
        f"| in scope | {len(found)} |",
        f"| pass | {counts['pass']} ({share:.1f} %) |",
        f"| right, with a node that onnxruntime runs on the host | {counts['foreign']} |",
        f"| refused with a reason | {counts['refused']} |",
        f"| wrong answer | {counts['wrong']} |",
        f"| bare exception | {counts['crash']} |",
        "",
        "## Refused or left to onnxruntime, and why",
        "",
    ]
    groups: dict[tuple[str, str], list[str]] = {}
    for outcome in found:
        if outcome.kind != "pass":
            groups.setdefault((", ".join(outcome.ops) or outcome.kind, outcome.reason), []).append(outcome.name)
    for (ops, reason), names in sorted(groups.items()):
        lines += [f"* **{ops}**: {reason}", "", *(f"  `{name}`" for name in names), ""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    found = list(outcomes())
    target.parent.mkdir(exist_ok=True)
    target.write_text(render(found, len(all_tests())))
    print(dict(Counter(outcome.kind for outcome in found)))


if __name__ == "__main__":
    main()
