"""How long networks take to load, how much of it in other packages, and the reference beside onnxruntime.

    python benchmarks/load.py [--repeat R] [--gigabyte]

Columns: first call of a fresh process (imports included), a later call, the share of the later call that passes in
other packages (onnx, onnxscript, protobuf), onnxruntime's own time to make a session, then one inference each and
their ratio.
Both run on one thread. Networks of `make models` are left out where they are not fetched.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import subprocess
import sys
import tempfile
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--repeat", type=int, default=3)
parser.add_argument("--gigabyte", action="store_true", help="also load 1 GB of external data and print the peak memory")
arguments = parser.parse_args()
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402

import hexane  # noqa: E402
from _best import best  # noqa: E402
from formats.zoo import MODELS, ZOO, light_model  # noqa: E402

HEADINGS = ("first s", "later s", "others", "ort s", "ours ms", "ort ms", "ratio")
FETCHED = (
    ("rapidocr-onnxruntime/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    ("rapidocr-onnxruntime/ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 320, 320)}),
    ("basic-pitch/nmp.onnx", {"serving_default_input_2:0": (1, 43844, 1)}),
    ("basic-pitch/nmp.mlpackage", {}),
)


def share_of_others(path: Path, shapes: dict) -> float:
    """The part of a load that passes in installed packages other than NumPy; compiled code counts with its caller."""
    profile = cProfile.Profile()
    profile.enable()
    hexane.load(path, shapes=shapes)
    profile.disable()
    total = other = 0.0

    def foreign(file: str) -> bool:
        return "site-packages" in file and "numpy" not in file

    for (file, _, name), (_, _, own, _, callers) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        total += own
        if file == "~":
            known = any(word in name for word in ("onnx", "google", "upb"))
            other += sum(part[2] for caller, part in callers.items() if known or foreign(caller[0]))
        elif foreign(file):
            other += own
    return other / total if total else 0.0


def output_of(code: str) -> str:
    """What a fresh interpreter prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, env=environment
    ).stdout


def fresh(path: Path, shapes: dict) -> float:
    """Seconds of the first load in a new process, the interpreter's own start left out."""
    code = (
        "import time; t = time.perf_counter(); import hexane\n"
        f"hexane.load({str(path)!r}, shapes={shapes!r}); print(time.perf_counter() - t)"
    )
    return float(output_of(code))


def row(label: str, path: Path, shapes: dict) -> None:
    graph = hexane.load(path, shapes=shapes)
    later = best(lambda: hexane.load(path, shapes=shapes))
    text = f"{label:<34} {fresh(path, shapes):8.2f} {later:8.3f} {100 * share_of_others(path, shapes):7.0f} %"
    if path.suffix == ".onnx":
        onnxruntime.set_default_logger_severity(4)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1

        def session() -> onnxruntime.InferenceSession:
            return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

        rng = np.random.default_rng(0)
        inputs = {name: rng.standard_normal(type_.shape).astype(np.float32) for name, type_ in graph.inputs.items()}
        peer = session()
        theirs, ours = best(lambda: peer.run(None, inputs)), best(lambda: graph.evaluate(inputs))
        text += f" {best(session):8.3f} {1e3 * ours:9.1f} {1e3 * theirs:9.1f} {ours / theirs:7.1f}"
    print(text, flush=True)


def gigabyte(folder: Path) -> None:
    """1 GB of weights in a file of their own: the peak memory of loading them."""
    import onnx
    from onnx import TensorProto, helper

    size, layers = 4096, 16
    with open(folder / "w.bin", "wb") as file:
        for _ in range(layers):
            file.write(np.full((size, size), 1e-3, np.float32).tobytes())
    tensors = []
    for i in range(layers):
        tensor = TensorProto(name=f"w{i}", data_type=1, dims=(size, size))
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "w.bin"), ("offset", str(i * size * size * 4))):
            tensor.external_data.add(key=key, value=value)
        tensors.append(tensor)
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(layers)]
    x = helper.make_tensor_value_info("x0", 1, [1, size])
    y = helper.make_tensor_value_info(f"x{layers}", 1, [1, size])
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y], tensors)), folder / "m.onnx")
    code = (
        "import time; t = time.perf_counter(); import hexane\n"
        f"hexane.load({str(folder / 'm.onnx')!r}); t = time.perf_counter() - t\n"
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(t, int(peak.split()[1]) / 1024)"
    )
    seconds, peak = map(float, output_of(code).split())
    print(f"\n1 GB of external data: {seconds:.2f} s in a fresh process, peak {peak:.0f} MB (at most 1024 + 300)")


headings = [f"{'network':<34}", *(f"{h:>{w}}" for h, w in zip(HEADINGS, (8, 8, 9, 8, 9, 9, 7)))]
print(" ".join(headings))
with tempfile.TemporaryDirectory() as made:
    for name in ZOO:
        file = Path(made) / f"{name}.onnx"
        file.write_bytes(light_model(name).SerializeToString())
        row(name, file, {})
        file.unlink()
    for relative, bound in FETCHED:
        if (MODELS / relative).exists():
            row(relative.split("/")[1], MODELS / relative, bound)
    if arguments.gigabyte:
        gigabyte(Path(made))
