"""Whole networks: the emulated engine against onnxruntime in float32, in time and in results.

    python benchmarks/networks.py [NAME ...] [--threads N]

Times are after a warm-up, compilation apart; the last column says whether the engine's arithmetic on the network
(``level="graph"``) gives the emulator's bits. The light zoo has seeded random weights, scaled so that every layer's
result has variance 1 (``--wild``: as drawn, so that resnet50 and shufflenet leave fp16's range and most sums meet the
accumulator's limit); the others are those of ``make models``, the detector with a picture of two lines of text.
Compilation is stated beside onnxruntime's own preparation of a session.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import _peer
from _best import best_of_both

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

REAL = {
    "rapidocr-detector": ("rapidocr-onnxruntime/ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 320, 320)}),
    "rapidocr-classifier": ("rapidocr-onnxruntime/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    "basic-pitch": ("basic-pitch/nmp.onnx", {"serving_default_input_2:0": (1, 43844, 1)}),
}


def measure(name: str, path: Path, shapes: dict | None, threads: int) -> str:
    import onnxruntime

    import hexane
    from formats.zoo import two_lines_of_text, zoo_inputs

    graph = hexane.load(path, shapes=shapes)
    inputs = {"x": two_lines_of_text()} if name == "rapidocr-detector" else zoo_inputs(graph.main.inputs)
    start = time.perf_counter()
    program = hexane.compile(graph)
    compiled = time.perf_counter() - start
    options = _peer.options(threads)
    options.log_severity_level = 4
    start = time.perf_counter()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    prepared = time.perf_counter() - start
    wanted = dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))
    got = program.run(inputs)
    engine_s, other_s = best_of_both(lambda: program.run(inputs), lambda: session.run(None, inputs), 9)
    same = all(np.array_equal(a, got[n], equal_nan=True) for n, a in program.run(inputs, level="graph").items())
    worst, cosine, tops = 0.0, 1.0, ""
    for output, array in wanted.items():
        a, b = got[output].astype(np.float64).ravel(), array.astype(np.float64).ravel()
        norm = np.linalg.norm(a) * np.linalg.norm(b)
        cosine = min(cosine, float(a @ b / norm) if norm else 1.0)
        worst = max(worst, float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30)))
        if b.size == 1000:
            five = set(np.argsort(b)[-5:]) & set(np.argsort(a)[-5:])
            tops = f"top-1 {'same' if a.argmax() == b.argmax() else 'other'}, top-5 {len(five)} of 5"
    stats = program.stats()
    return (
        f"{name:20} {stats['tasks']:5} tasks {stats['macs_on_engine']:7.2%} on engine, {stats['host_segments']} host "
        f"segments | compile {compiled:6.2f} s ({compiled / prepared:4.1f} x session) | run {engine_s:7.3f} s, "
        f"{engine_s / other_s:5.1f} x onnxruntime | error {worst:.2e} of the largest value, cosine {cosine:.6f} "
        f"{tops} | levels {'agree' if same else 'DIFFER'}"
    )


def main() -> None:
    from formats.zoo import ZOO, light_model, mobilenet_v2, settled_model

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[*REAL, *ZOO, "mobilenet_v2"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--wild", action="store_true", help="the zoo's weights as drawn, not scaled")
    options = parser.parse_args()
    os.environ["HEXANE_THREADS"] = str(options.threads)
    import onnx

    for name in options.names:
        if name in REAL:
            relative, shapes = REAL[name]
            path = ROOT / "models" / relative
            print(measure(name, path, shapes, options.threads) if path.exists() else f"{name}: run `make models`")
        else:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"{name}.onnx"
                zoo = light_model if options.wild else settled_model
                onnx.save(mobilenet_v2() if name == "mobilenet_v2" else zoo(name), path)
                print(measure(name, path, None, options.threads), flush=True)


if __name__ == "__main__":
    main()
