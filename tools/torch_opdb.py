"""torch's own samples of its operators (``op_db``) in float16 through the back end: counts into docs/torch-opdb.md.

Each sample is captured by AOT autograd as ``torch.compile`` captures it, and its results are held against torch in
float64. It counts as

* pass: something of it ran on the engine, and every result is right;
* refused: nothing of it is for the engine; torch ran it, and the reason is listed;
* range: a result differs, and in float32 a value on the way is beyond 65504 or no number, which halves do not hold (the
  engine makes NaN infinite, and infinity minus infinity 0: docs/reference/numerics.md);
* wrong: a result differs by more than the tolerance otherwise; crash: an exception, or the time ran out.

    python tools/torch_opdb.py --samples 3              three samples of every operator, and the page
    python tools/torch_opdb.py --only add nn.functional.conv2d
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "torch-opdb.md"
ATOL, RTOL = 1e-2, 2e-2
"""Of half precision: ATOL of the largest element (at least of 1), and RTOL of each."""
SECONDS = 60
KINDS = ("pass", "refused", "range", "wrong", "crash")
LARGEST = 65504.0


def operators(only: list[str] | None = None) -> Iterator[Any]:
    """The rows of ``op_db`` that take float16 on the CPU."""
    from torch.testing._internal.common_methods_invocations import op_db

    for row in op_db:
        if torch.float16 in row.dtypes and (not only or row.name in only):
            yield row


def tensors_of(sample: Any) -> tuple[list[torch.Tensor], Callable[..., list[Any]], Any]:
    """The tensors of a sample, and a way to put others in their place."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def filled(tensors: Any) -> Any:
        whole = list(leaves)
        for place, tensor in zip(places, tensors):
            whole[place] = tensor
        return pytree.tree_unflatten(whole, spec)

    return [leaves[i] for i in places], filled, spec


def results_of(found: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, torch.Tensor)]


def run_sample(operator: Any, sample: Any) -> tuple[str, str] | None:
    """(kind, reason) of one sample; None where torch itself cannot run it in float16."""
    from functorch.compile import aot_function

    from hexane.frontends.aten import decompositions
    from hexane.integrations.torch.backend import _inference, _training, collected
    from hexane.integrations.torch.parts import PartOptions

    tensors, filled, _ = tensors_of(sample)

    def call(*given: torch.Tensor) -> list[torch.Tensor]:
        first, args, kwargs = filled(given)
        return results_of(operator.op(first, *args, **kwargs))

    def copies(wide: bool = False) -> list[torch.Tensor]:
        return [t.double() if wide and t.dtype == torch.float16 else t.clone() for t in tensors]

    try:
        half = call(*copies())
    except Exception:
        return None
    try:
        wide = call(*copies(True))
    except Exception:
        wide = half
    if [tuple(t.shape) for t in wide] != [tuple(t.shape) for t in half]:
        wide = half
    try:
        captured = aot_function(
            call, fw_compiler=_training, bw_compiler=_training, inference_compiler=_inference(PartOptions()),
            decompositions=decompositions(),
        )  # fmt: skip
        with collected() as reports, seen() as calls, torch.no_grad():
            found = results_of(captured(*copies()))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "hexane" in f.filename]
        if not ours or type(error).__module__.startswith("torch."):
            return "refused", f"torch captures no graph of it ({type(error).__name__})"
        return "crash", f"{type(error).__name__}: {str(error)[:160]} ({' '.join(ours[-2:])})"
    parts = sum(len(report.parts) for report in reports)
    why = "; ".join(dict.fromkeys(str(left) for report in reports for left in report.left))
    if not parts:
        return "refused", why or "there is nothing to compute"
    if is_random(reports):
        return "refused", "random numbers: there is no right answer"
    for number, (one, near, exact) in enumerate(zip(found, half, wide)):
        text = differs(one, near, exact)
        if text:
            return "range" if any(leaves_range(*one) for one in calls) else "wrong", f"result {number}: {text}"
    if len(found) != len(half):
        return "wrong", f"{len(found)} results, not {len(half)}"
    return "pass", why


@contextmanager
def seen() -> Iterator[list[tuple[Any, dict[str, Any]]]]:
    """The calls of programs inside: the program and its inputs."""
    from hexane.integrations.torch import parts

    calls: list[tuple[Any, dict[str, Any]]] = []
    forward = parts.Part.forward

    def recorded(self: Any, *args: Any) -> Any:
        calls.append((self.program, {name: parts.to_numpy(args[i]) for i, name in self.inputs.items()}))
        return forward(self, *args)

    parts.Part.forward = recorded  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        parts.Part.forward = forward  # type: ignore[method-assign]


def leaves_range(program: Any, inputs: dict[str, Any]) -> bool:
    """Whether a value of the network, in float32, is one that halves do not hold."""
    from hexane.numerics.insight import every_value

    values = (*every_value(program.graph, inputs).values(), *inputs.values())
    return any(v.dtype.kind == "f" and v.size and not float(np.abs(v).max()) <= LARGEST for v in values)


def is_random(reports: list[Any]) -> bool:
    """Whether an operator that was left to torch draws random numbers: captured, it draws others."""
    for report in reports:
        for left in report.left:
            for name in left.operator.split(", "):
                packet, _, overload = name.partition(".")
                operator = getattr(getattr(torch.ops.aten, packet, None), overload, None)
                if operator is not None and torch.Tag.nondeterministic_seeded in operator.tags:
                    return True
    return False


def differs(one: torch.Tensor, near: torch.Tensor, exact: torch.Tensor) -> str:
    """How a result differs from torch's, empty where it does not."""
    if one.shape != near.shape or one.dtype != near.dtype:
        return f"{tuple(one.shape)} {one.dtype}, not {tuple(near.shape)} {near.dtype}"
    if not one.numel():
        return ""
    if one.dtype.is_complex or not one.dtype.is_floating_point:
        unlike = (one != near) & (one != exact.to(near.dtype))
        if near.dtype in (torch.int64, torch.int32) and bool(unlike.any()):
            return f"{int(unlike.sum())} of {one.numel()} elements"
        return f"{int(unlike.sum())} of {one.numel()} elements" if bool(unlike.any()) else ""
    one, near, exact = one.double(), near.double(), exact.double()
    exact = exact.where(exact.abs() <= LARGEST, exact.sign() * float("inf"))
    largest = exact.where(exact.isfinite(), 0.0).abs().max().clamp(min=1.0)
    allowed = ATOL * largest + RTOL * exact.abs() + 2 * (near - exact).abs().nan_to_num(0, 0, 0)
    good = ((one - exact).abs() <= allowed) | (one == exact) | (one == near)
    good |= one.isnan() & (exact.isnan() | near.isnan())
    # Where float16 overflows on the way, torch in float16 and torch in float64 differ, and either is right.
    good |= ~near.isfinite() & ~one.isfinite()
    if bool(good.all()):
        return ""
    bad = (~good).flatten().nonzero()[0, 0]
    pair = f"{one.flatten()[bad]:.5g} for {exact.flatten()[bad]:.5g} (torch in float16 {near.flatten()[bad]:.5g})"
    return f"{int((~good).sum())} of {one.numel()} elements, the first {pair}"


def run(samples: int, only: list[str] | None = None, say: bool = False) -> dict[str, list[tuple[str, str]]]:
    """Operator -> (kind, reason) of each sample."""
    logging.getLogger("hexane.torch").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")

    def late(*_: Any) -> None:
        raise TimeoutError(f"more than {SECONDS} s of the processor")

    signal.signal(signal.SIGPROF, late)
    rows: dict[str, list[tuple[str, str]]] = {}
    for operator in operators(only):
        torch.manual_seed(16)
        name = operator.name + (f".{operator.variant_test_name}" if operator.variant_test_name else "")
        try:
            given = list(operator.sample_inputs("cpu", torch.float16, requires_grad=False))
        except Exception:
            continue
        step = max(len(given) // samples, 1)
        for sample in given[::step][:samples]:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                kind = run_sample(operator, sample)
            except TimeoutError as error:
                kind = ("crash", str(error))
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            if kind is not None:
                rows.setdefault(name, []).append(kind)
                if say and kind[0] in ("wrong", "crash"):
                    print(f"{name}: {kind[0]}: {kind[1]}", flush=True)
    return rows


def counts(rows: dict[str, list[tuple[str, str]]]) -> Counter[str]:
    """How many samples of each kind."""
    return Counter(kind for found in rows.values() for kind, _ in found)


def page(rows: dict[str, list[tuple[str, str]]], samples: int) -> str:
    """The page: totals, operators with anything but a pass, their reasons."""
    total = counts(rows)
    whole = [name for name, found in rows.items() if all(kind == "pass" for kind, _ in found)]
    lines = [
        "# torch's operator samples on the back end",
        "",
        "Generated by `tools/torch_opdb.py`; do not edit.",
        "",
        f"`op_db` of torch {torch.__version__.partition('+')[0]}: {len(rows)} operators that take float16 on the CPU,"
        f" up to {samples} samples of each, captured as `torch.compile` captures them, parts compiled for M1"
        " and run on the emulator.",
        "",
        f"Right means within {ATOL} of the result's largest element (at least of 1) plus {RTOL} of each element from"
        " torch in float64, plus twice what torch itself loses in float16;"
        " results beyond 65504 count as infinite, integers and truth values must be equal to torch's in float16 or in"
        " float64.",
        "",
        "| kind | samples |",
        "|---|---|",
        *(f"| {kind} | {total[kind]} |" for kind in KINDS),
        "",
        f"{len(whole)} of {len(rows)} operators pass with all their samples:",
        "",
        ", ".join(f"`{name}`" for name in sorted(whole)) + ".",
        "",
        "## The others",
        "",
        "| operator | pass | refused | range | wrong | crash | the first reason |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in sorted(rows.items()):
        if name in whole:
            continue
        kinds = Counter(kind for kind, _ in found)
        order = [why for wanted in ("crash", "wrong", "range", "refused") for kind, why in found if kind == wanted]
        why = " ".join(order[0].split()).replace("|", "\\|")[:180]
        lines.append(f"| `{name}` | " + " | ".join(str(kinds[kind]) for kind in KINDS) + f" | {why} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = run(options.samples, options.only or None, say=True)
    print(dict(counts(rows)))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if not options.only:
        PAGE.write_text(page(rows, options.samples))
    elif len(options.only) < 10:
        for name, found in rows.items():
            print(name, found)


if __name__ == "__main__":
    main()
