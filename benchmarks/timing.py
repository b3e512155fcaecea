"""The timing model beside a plain roofline and ANEForge's estimator, on the same measured rows; and its speed.

    python benchmarks/timing.py [calibration.csv] [--folds 40]

ANEForge (PyPI ``aneforge``) estimates without a Mac; where it is not installed its column stays empty. Prints mean
factor error (exp of the mean absolute log ratio), median and 90th percentile, by chip and by kind of workload.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from hexane import chips
from hexane.graph import GraphBuilder
from hexane.timing import estimates
from hexane.timing.calibrate import read_rows, samples_of
from hexane.timing.fit import Sample, cross_validate, factor, fit
from hexane.timing.measured import predict_case
from hexane.timing.parameters import PARAMETERS
from hexane.timing.roofline import roofline_us

ROWS = Path(__file__).resolve().parents[1] / "tests" / "data" / "perf" / "calibration.csv"


def aneforge_us(row: dict[str, str]) -> float | None:
    """ANEForge's estimate of a row's network, microseconds; None where it has no such network."""
    try:
        import aneforge.graph as g
        from aneforge._cost import estimate as cost
    except ImportError:
        return None

    def number(column: str, default: int = 0) -> int:
        return int(float(row[column])) if row.get(column) else default

    kind, depth = row["kind"], number("layers", 1) if row["layers"] != "slope" else 1
    try:
        if kind in ("conv", "conv_chain") and row["cin"]:
            x = g.input((number("n", 1), number("cin"), number("h"), number("w")))
            cin, cout, kh, kw = number("cin"), number("cout"), number("kh"), number("kw")
            for _ in range(depth):
                pad = (kh // 2, kh // 2, kw // 2, kw // 2)
                x = g.conv(x, np.broadcast_to(np.float16(0), (cout, cin, kh, kw)), stride=number("stride", 1), pad=pad)
                cin = cout
        elif kind in ("linear", "gemv"):
            x = g.input((number("m", 1), number("k")))
            for layer in range(depth):
                k, n = number("k"), number("nn")
                shape = (k, n) if layer % 2 == 0 else (n, k)
                x = x @ np.broadcast_to(np.float16(0), shape)
        elif kind in ("eltwise", "softmax", "layer_norm", "rms_norm", "reduce") and row["m"]:
            x = g.input((number("m"), number("k")))
            op = {"reduce": "sum"}.get(kind, row["op"])
            x = getattr(x, op)(axis=-1) if kind in ("softmax", "reduce") else getattr(x, op)()
        else:
            return None
        target = chips.get(row["chip"]).target
        return float(cost(x, int8=row["dtype"] == "int8", target=target))
    except Exception:  # whatever the peer cannot build is not counted against it
        return None


def table(title: str, samples: list[Sample], columns: dict[str, np.ndarray], by: str) -> None:
    groups: dict[str, list[int]] = defaultdict(list)
    for i, sample in enumerate(samples):
        groups[getattr(sample, by)].append(i)
    print(f"\n{title:<16}{'rows':>6}" + "".join(f"{name:>18}" for name in columns))
    for key, members in sorted(groups.items()):
        cells = []
        for values in columns.values():
            known = [values[i] for i in members if math.isfinite(values[i])]
            cells.append(f"{factor(known):.3f} ({len(known)})" if known else "-")
        print(f"{key:<16}{len(members):>6}" + "".join(f"{cell:>18}" for cell in cells))


def speed() -> None:
    """A network of 1,000 ops on 20 chips, after loading."""
    b = GraphBuilder()
    x = b.input("x", (1, 64, 28, 28), "fp16")
    for i in range(334):
        weight = np.ones((64, 64, 1 + i % 3, 1), np.float16)
        x = b.add(x=b.relu(x=b.conv(x=x, weight=weight, pad_type="same")), y=x)
    b.output(x)
    targets = [chip for chip in chips.CHIPS if chip.generation_name not in ("h11", "h12")][:20]
    estimates(b.graph, targets[:1])
    start = time.perf_counter()
    estimates(b.graph, targets)
    print(f"\n{len(b.graph.ops)} ops on {len(targets)} chips: {time.perf_counter() - start:.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="?", type=Path, default=ROWS)
    parser.add_argument("--folds", type=int, default=0, help="cross-validate over series in this many folds (minutes)")
    args = parser.parse_args()
    rows = read_rows(args.rows)
    samples = samples_of(rows)
    from hexane.chips.measured import values

    columns = {
        "hexane": np.array([math.log(predict_case(s.case, values(s.chip)) / s.us) for s in samples]),
        "roofline": np.array([math.log(roofline_us(s.case) / s.us) for s in samples]),
        "ANEForge": np.array(
            [math.log(us / s.us) if (us := aneforge_us(r)) else math.nan for r, s in zip(rows, samples)]
        ),
    }
    if args.folds:
        left_out = cross_validate(samples, fit(samples), args.folds, workers=2)
        columns = {"cross-validated": np.array([item.log_ratio for item in left_out]), **columns}
    print(f"{len(rows)} rows, {len(PARAMETERS)} constants and chip factors")
    for name, ratios in columns.items():
        known = np.abs(ratios[np.isfinite(ratios)])
        if len(known):
            middle, tail = np.exp(np.median(known)), np.exp(np.quantile(known, 0.9))
            print(
                f"{name:<16} mean factor {factor(known):.3f}  median {middle:.3f}  p90 {tail:.3f}  ({len(known)} rows)"
            )
    same = np.isfinite(columns["ANEForge"])
    if same.any():
        print(
            f"on ANEForge's own {same.sum()} rows: "
            + ", ".join(f"{n} {factor(v[same]):.3f}" for n, v in columns.items())
        )
    table("chip", samples, columns, "chip")
    table("kind", samples, columns, "kind")
    speed()


if __name__ == "__main__":
    main()
