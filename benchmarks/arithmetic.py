"""The engine's arithmetic against float32 libraries: `mac` and NumPy's sgemm, whole convolutions and onnxruntime.

    python benchmarks/arithmetic.py [--threads N] [--repeat R] [--codes avx512,avx2] [--cpu] [--start]

A ratio is the library's time divided by ours, both the best of runs taken in turn on the same threads; 1.0 would be as
fast as float32. Three kinds of data, because the drop rule costs where it can strike (docs/reference/numerics.md 3.1):

    typical   x of N(0, 1), w of N(0, 1/sqrt(K))
    small     x and w of N(0, 1/sqrt(K)): nearly every product has to be tested
    no drop   as typical, no magnitude below 2^-8
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
parser.add_argument("--repeat", type=int, default=15)
parser.add_argument("--codes", default="", help="vector codes to compare, by default the best one and avx2")
parser.add_argument("--cpu", action="store_true", help="one thread, processor time: for a machine that is not idle")
parser.add_argument("--start", action="store_true", help="also time the first call of a fresh process")
arguments = parser.parse_args()
if arguments.cpu:
    arguments.threads = 1
clock = time.process_time if arguments.cpu else time.perf_counter
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "HEXANE_THREADS"):
    os.environ[name] = str(arguments.threads)

import numpy as np  # noqa: E402

import _peer  # noqa: E402
from hexane import arithmetic  # noqa: E402
from hexane.arithmetic.fast import mac, rounding  # noqa: E402
from hexane.arithmetic.fast.targets import best, kernels  # noqa: E402

PRODUCTS = [(1024, 1024, 1024), (3136, 576, 256), (256, 4608, 512)]
CONVOLUTIONS = [  # channels in, out, kernel, size, stride, groups
    (3, 64, 7, 224, 2, 1),
    (64, 64, 3, 56, 1, 1),
    (128, 128, 3, 28, 1, 1),
    (256, 256, 3, 14, 1, 1),
    (512, 512, 3, 7, 1, 1),
    (128, 256, 3, 56, 2, 1),
    (256, 64, 1, 56, 1, 1),
    (512, 2048, 1, 14, 1, 1),
    (256, 256, 3, 56, 1, 256),
]


REST = 0.3
"""Seconds until the threads of other libraries, which spin for a while after a call, have gone to sleep."""


def race(*calls: Callable[[], object]) -> list[float]:
    """Shortest time of each call in ms; each runs alone, once the others' threads rest."""
    times = [float("inf")] * len(calls)
    for i, call in enumerate(calls):
        time.sleep(REST)
        call()
        for _ in range(arguments.repeat):
            start = clock()
            call()
            times[i] = min(times[i], (clock() - start) * 1e3)
    return times


def operands(kind: str, m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((m, k)), rng.standard_normal((k, n)) / np.sqrt(k)
    if kind == "small":
        x /= np.sqrt(k)
    if kind == "no drop":
        x, w = (np.copysign(np.maximum(np.abs(v), 2.0**-8), v) for v in (x, w))
    return x.astype(np.float16), w.astype(np.float16)


def products(codes: list[str]) -> None:
    print(f"{'M x K x N':>18}  {'data':8}  {'sgemm ms':>9}" + "".join(f"  {c + ' ms':>11}  ratio" for c in codes))
    for m, k, n in PRODUCTS:
        for kind in ("typical", "small", "no drop"):
            x, w = operands(kind, m, k, n)
            x32, w32, zero = x.astype(np.float32), w.astype(np.float32), np.zeros(n, np.float16)
            calls = [
                lambda code=code, x=x, w=w, zero=zero: mac.mac(x, w, zero, 1.0, None, kernels(code)) for code in codes
            ]
            times = race(lambda x32=x32, w32=w32: x32 @ w32, *calls)
            cells = "".join(f"  {t:11.2f}  {times[0] / t:5.2f}" for t in times[1:])
            print(f"{f'{m} x {k} x {n}':>18}  {kind:8}  {times[0]:9.2f}{cells}", flush=True)


def peak_ratio(call: Callable[[], np.ndarray], *tensors: np.ndarray) -> float:
    """Peak of traced memory during a call, divided by the tensors' own size; the tensors themselves included."""
    tracemalloc.start()
    result = call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = sum(t.nbytes for t in tensors)
    return (peak + size) / (size + result.nbytes)


def session(x: np.ndarray, w: np.ndarray, stride: int, pad: int, groups: int) -> Callable[[], object]:
    """The same convolution in onnxruntime, float32."""
    from onnx import helper

    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[pad] * 4, strides=[stride] * 2, group=groups)
    return _peer.session(node, x, w, arguments.threads)


def convolutions() -> None:
    print(f"\n{'convolution':>34}  {'MMAC':>6}  {'ort ms':>8}  {'ours ms':>8}  ratio  Winograd ratio  memory")
    for cin, cout, k, size, stride, groups in CONVOLUTIONS:
        rng = np.random.default_rng(1)
        x = rng.standard_normal((1, cin, size, size)).astype(np.float16)
        w = (rng.standard_normal((cout, cin // groups, k, k)) / np.sqrt(cin // groups * k * k)).astype(np.float16)
        pad = k // 2
        options = {"pads": (pad,) * 4, "strides": stride, "groups": groups}
        ours: list[Callable[[], np.ndarray]] = [lambda x=x, w=w, o=options: arithmetic.conv2d(x, w, **o)]
        if k == 3 and stride == 1 and groups == 1:
            ours.append(lambda x=x, w=w, o=options: arithmetic.conv2d(x, w, form="winograd", **o))
        times = race(session(x, w, stride, pad, groups), *ours)
        out = ours[0]()
        macs = out.size * w[0].size / 1e6
        winograd = f"{times[0] / times[2]:14.2f}" if len(times) > 2 else " " * 14
        name = f"{cin}->{cout} {k}x{k}/{stride} {size}x{size}" + (f" groups {groups}" if groups > 1 else "")
        memory = peak_ratio(ours[0], x, w)
        print(
            f"{name:>34}  {macs:6.0f}  {times[0]:8.2f}  {times[1]:8.2f}  {times[0] / times[1]:5.2f}  {winograd}"
            f"  {memory:6.2f}",
            flush=True,
        )


def elementwise() -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((64, 128, 128)).astype(np.float16) for _ in range(2))
    table = arithmetic.function_table("gelu")
    a32 = a.astype(np.float32)
    rows = {
        "add, against NumPy float16 add": (lambda: a + b, lambda: arithmetic.elementwise("add", a, b)),
        "mul, against NumPy float16 mul": (lambda: a * b, lambda: arithmetic.elementwise("mul", a, b)),
        "gelu table, against NumPy float32 tanh": (lambda: np.tanh(a32), lambda: arithmetic.lookup(table, a)),
        "rounding, against NumPy float64 to float16": (
            lambda: a32.astype(np.float64).astype(np.float16),
            lambda: rounding.round_half_away(a32.astype(np.float64)),
        ),
    }
    print("\nelement by element, 1 M elements")
    for name, calls in rows.items():
        theirs, ours = race(*calls)
        print(f"{name:>45}  {theirs:7.2f} ms  {ours:7.2f} ms  ratio {theirs / ours:5.2f}", flush=True)


def first_use() -> None:
    """The first `mac` of a fresh process, with an empty and with a filled cache of compiled code."""
    script = (
        "import time; t = time.perf_counter(); import numpy as np; from hexane import arithmetic; "
        "x = np.ones((8, 8), np.float16); arithmetic.mac(x, x); print(f'{time.perf_counter() - t:.2f}')"
    )
    with tempfile.TemporaryDirectory() as folder:
        for state in ("empty", "filled"):
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            out = subprocess.run(
                [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
            )
            print(f"first mac of a process, imports included, {state} cache: {out.stdout.strip()} s", flush=True)


if __name__ == "__main__":
    chosen = [c for c in arguments.codes.split(",") if c] or list(dict.fromkeys([best(), "avx2"]))
    print(f"{arguments.threads} threads, vector code {best()}, best of {arguments.repeat}")
    products(chosen)
    convolutions()
    elementwise()
    if arguments.start:
        first_use()
