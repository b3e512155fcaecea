"""Packing and unpacking speed of every stream order, against copying the same bytes in the same run.

    python benchmarks/kernels.py [MEGABYTES]

A ratio of 3 means that packing takes three times as long as ``numpy.copy`` of the weights.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from _best import best
from hexane.kernels import KernelLayout, pack, unpack

ORDERS = {
    "dense 1x1": {"cin": 2048},
    "dense 3x3": {"cin": 512, "kh": 3, "kw": 3},
    "dense 7x7": {"cin": 64, "kh": 7, "kw": 7},
    "dense 3x3, 14 lanes, bias": {"cin": 256, "kh": 3, "kw": 3, "bias": True, "step": 224, "most": 224},
    "grouped 3x3": {"cin": 32, "kh": 3, "kw": 3, "step": 32, "most": 32},
    "depthwise 3x3": {"cin": 1, "kh": 3, "kw": 3, "unicast": True, "most": 65536},
    "int8 1x1": {"cin": 2048, "dtype": "int8"},
    "sparse 3x3, stride 2": {"cin": 512, "kh": 3, "kw": 3, "sparse": True, "stride": (2, 2)},
    "sparse 3x3, stride 2, half zero": {"cin": 512, "kh": 3, "kw": 3, "sparse": True, "stride": (2, 2)},
}


def layout_for(
    megabytes: float, cin: int, kh: int = 1, kw: int = 1, step: int = 256, most: int = 1 << 17, **rest
) -> KernelLayout:
    """About so many megabytes of weights: more output channels, and beyond ``most`` of them more groups."""
    size = 1 if rest.get("dtype") == "int8" else 2
    channels = max(step, round(megabytes * 1e6 / (cin * kh * kw * size) / step) * step)
    groups = 1 if rest.get("unicast") else min(8192, -(-channels // most))
    return KernelLayout(min(channels, most), cin, kh, kw, groups=groups, **rest)


def main() -> None:
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 100.0
    rng = np.random.default_rng(0)
    print(f"{'order':<34}{'MB':>7}{'copy ms':>9}{'pack ms':>9}{'ratio':>7}{'unpack ms':>11}{'ratio':>7}")
    for name, arguments in ORDERS.items():
        layout = layout_for(megabytes, **arguments)
        bits = rng.integers(1, 1 << 15, layout.weight_shape, dtype=np.uint16)
        if "half zero" in name:
            bits[rng.random(bits.shape, dtype=np.float32) < 0.5] = 0
        weights = bits.view(np.float16) if layout.dtype == "float16" else bits.astype(np.int8)
        bias = np.ones(layout.weight_shape[0], np.float16) if layout.bias else None
        small = replace(layout, cout=16, groups=1)
        warm = pack(small, np.ones(small.weight_shape, weights.dtype), None if bias is None else bias[:16])
        unpack(small, [warm.data[at : at + size] for at, size in zip(warm.offsets, warm.sizes)])
        copy = best(weights.copy, 3)
        packed = pack(layout, weights, bias)
        packing = best(lambda: pack(layout, weights, bias), 3)  # noqa: B023
        view = memoryview(packed.data)
        chunks = [view[at : at + size] for at, size in zip(packed.offsets, packed.sizes)]
        unpacking = best(lambda: unpack(layout, chunks), 3)  # noqa: B023
        kernel = unpack(layout, chunks)
        if kernel.weights.tobytes() != weights.tobytes():
            raise SystemExit(f"{name}: unpacked weights differ")
        row = f"{copy * 1e3:>9.1f}{packing * 1e3:>9.1f}{packing / copy:>7.1f}"
        row += f"{unpacking * 1e3:>11.1f}{unpacking / copy:>7.1f}"
        print(f"{name:<34}{weights.nbytes / 1e6:>7.1f}{row}")


if __name__ == "__main__":
    main()
