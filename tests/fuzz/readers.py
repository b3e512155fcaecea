"""Every reader with files to damage: what it reads, and how.

    python -m fuzz.readers NAME|all [--count N] [--seconds S] [--seed K]      (from the folder tests)

prints how many inputs a reader met, how many of them it took, and ends with an error at the first that raises anything
but a ``HexaneError``, takes longer than `SLOWEST` seconds, or that the memory grows with.
"""

from __future__ import annotations

import argparse
import atexit
import io
import plistlib
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import hexane
from hexane.errors import HexaneError

SLOWEST = 60.0
"""Seconds that one input of a few kilobytes may take; the machine may be busy with other things."""

GROWTH = 400 << 20
"""Bytes of memory that a process may need more at the end of a run than after its first hundred inputs."""

MIL = """
program(1.3)
[buildInfo = dict<string, string>({{"coremlc-version", "3500.32.1"}})]
{
    func main<ios18>(tensor<fp16, [1, 4, 6, 8]> x, tensor<fp16, [1, 4, 6, 8]> z) {
        tensor<fp16, [8, 4, 3, 3]> w = const()[name = string("w"),
            val = tensor<fp16, [8, 4, 3, 3]>(BLOBFILE(path = string("@model_path/weights/weight.bin"),
            offset = uint64(64)))];
        tensor<int32, [2]> s = const()[name = string("s"), val = tensor<int32, [2]>([1, 1])];
        tensor<int32, [4]> p = const()[name = string("p"), val = tensor<int32, [4]>([1, 1, 1, 1])];
        string t = const()[name = string("t"), val = string("custom")];
        int32 g = const()[name = string("g"), val = int32(1)];
        tensor<fp16, [1, 8, 6, 8]> c = conv(dilations = s, groups = g, pad = p, pad_type = t, strides = s, weight = w,
            x = x)[name = string("c")];
        tensor<fp16, [1, 8, 6, 8]> r = relu(x = c)[name = string("r")];
        tensor<fp16, [1, 4, 6, 8]> a = mul(x = x, y = z)[name = string("a")];
        tensor<int32, [1]> axes = const()[name = string("axes"), val = tensor<int32, [1]>([1])];
        bool keep = const()[name = string("keep"), val = bool(true)];
        tensor<fp16, [1, 1, 6, 8]> m = reduce_sum(axes = axes, keep_dims = keep, x = a)[name = string("m")];
    } -> (r, m);
}
"""

ASM_WORDS = [b"task", b"0x", b".", b"=", b"[", b"]", b"t0", b"t1", b"\n", b"surface", b"#", b"-1", b"99999999999"]
MIL_WORDS = [
    b"tensor<", b"fp16", b"int32", b"[", b"]", b"?", b"(", b")", b"const()", b"BLOBFILE", b"-1", b"1e400", b"nan",
    b"string(", b"state<", b"list<", b"dict<", b"func ", b"->", b"{", b"}", b",", b"99999999999999999999", b'"',
]  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """What is damaged, and what reads it; ``words`` are put into texts."""

    originals: Callable[[], list[bytes]]
    read: Callable[[bytes], Any]
    words: tuple[bytes, ...] = ()


ABSURD = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)


def damaged(originals: list[bytes], draw: random.Random, words: tuple[bytes, ...] = ()) -> bytes:
    """One of the files with one to six kinds of damage."""
    data = bytearray(draw.choice(originals))
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        at, kind = draw.randrange(len(data) + 1), draw.randrange(9 if words else 8)
        if kind == 0:
            data[at : at + 1] = bytes([draw.randrange(256)])
        elif kind == 1 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 2:
            del data[at : at + draw.choice((1, 2, 4, 8, draw.randrange(1, 200)))]
        elif kind == 3:
            data[at:at] = data[at : at + draw.randrange(1, 100)]
        elif kind == 4 and draw.random() < 0.3:
            del data[at:]
        elif kind == 5:
            size = draw.choice((1, 2, 4, 8))
            data[at : at + size] = (draw.choice(ABSURD) & (1 << 8 * size) - 1).to_bytes(size, "little")
        elif kind == 6:
            other = draw.choice(originals)
            start = draw.randrange(len(other) + 1)
            data[at : at + draw.choice((0, 8, 64))] = other[start : start + draw.randrange(1, 120)]
        elif kind == 7:
            start = draw.randrange(len(data) + 1)
            size = draw.choice((1, 2, 4, 8, 16))
            data[at : at + size] = data[start : start + size]
        elif kind == 8:
            data[at : at + draw.choice((0, 0, 1, 3))] = draw.choice(words)
    return bytes(data)


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="hexane-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _file(name: str, data: bytes) -> Path:
    path = _folder() / name
    path.write_bytes(data)
    return path


def _programs() -> list[bytes]:
    from image.hostile import small_program

    return [small_program("zin4"), small_program("default"), small_program("default", 1)]


def _anec() -> list[bytes]:
    from hexane.image import to_anec

    return [to_anec(hexane.open_image(data)).to_bytes() for data in _programs()]


def _open_image(data: bytes) -> None:
    image = hexane.open_image(data)
    if len(image.tasks) < 50:
        image.to_bytes()


def _assembly() -> list[bytes]:
    from hexane.image.text import disassemble_image

    return [disassemble_image(hexane.open_image(data)).encode() for data in _programs()]


def _assemble(data: bytes) -> None:
    from hexane.image.text import assemble_image

    assemble_image(data.decode("utf-8", "replace")).to_bytes()


def _blobs() -> list[bytes]:
    from blobs import blob_bytes

    arrays = [(np.ones((8, 4, 3, 3), np.float16), "fp16"), (np.arange(7, dtype=np.int8), "int8")]
    return [blob_bytes(arrays)]


def _mil(data: bytes) -> None:
    hexane.parse_mil(data.decode("utf-8", "replace"), weights={"@model_path/weights/weight.bin": _blobs()[0]})


def _blob(data: bytes) -> None:
    graph = hexane.parse_mil(MIL, weights={"@model_path/weights/weight.bin": data})
    for op in graph.ops:
        for value in op.operands():
            if value.is_constant:
                _ = value.data


def _onnx() -> list[bytes]:
    """onnx's own test models, one op each."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [case.model.SerializeToString() for case in collect_testcases(None)]
    return [data for data in found if len(data) < 4000]


def _external_model() -> Any:
    import onnx

    tensors = [onnx.TensorProto(name=n, data_type=t, dims=[4, 4], data_location=1) for n, t in (("w", 1), ("b", 10))]
    for tensor, offset, length in zip(tensors, ("0", "64"), ("64", "32")):
        for key, value in (("location", "data.bin"), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=value)
    return onnx.helper.make_model(
        onnx.helper.make_graph(
            [
                onnx.helper.make_node("MatMul", ["x", "w"], ["m"]),
                onnx.helper.make_node("Cast", ["b"], ["c"], to=1),
                onnx.helper.make_node("Add", ["m", "c"], ["y"]),
            ],
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, (4, 4))],
            [onnx.helper.make_tensor_value_info("y", 1, (4, 4))],
            tensors,
        ),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=8,
    )


def _load_onnx(data: bytes) -> None:
    from hexane.formats.onnx import load

    load(data)


def _load_external(data: bytes) -> None:
    _file("data.bin", bytes(96))
    hexane.load(_file("external.onnx", data))


def _coreml() -> list[bytes]:
    from hexane.formats.coreml.writer import save_package

    found = []
    path = _folder() / "whole.mlpackage"
    graph = hexane.parse_mil(MIL, weights={"@model_path/weights/weight.bin": _blobs()[0]})
    save_package(graph, path)
    found += [file.read_bytes() for file in path.rglob("*.mlmodel")]
    (_folder() / "weights").mkdir(exist_ok=True)
    _file("weights/weight.bin", next(path.rglob("weight.bin")).read_bytes())
    from hexane.formats.coreml.protos import protos

    for exact in (0, 1):
        model = protos().model.Model(specificationVersion=4)
        given = (1, 3, 8, 8)[1 - exact :]
        for features, name, shape in ((model.description.input, "x", given), (model.description.output, "y", ())):
            feature = features.add(name=name)
            feature.type.multiArrayType.shape.extend(shape)
            feature.type.multiArrayType.dataType = 65568
        network = model.neuralNetwork
        network.arrayInputShapeMapping = exact
        layer = network.layers.add(name="conv", input=["x"], output=["c"])
        layer.convolution.outputChannels, layer.convolution.kernelChannels = 2, 3
        layer.convolution.nGroups = 1
        layer.convolution.kernelSize.extend((1, 1))
        layer.convolution.valid.SetInParent()
        layer.convolution.weights.floatValue.extend([0.5] * 6)
        layer = network.layers.add(name="act", input=["c"], output=["a"])
        layer.activation.ReLU.SetInParent()
        layer = network.layers.add(name="pool", input=["a"], output=["p"])
        layer.pooling.globalPooling = True
        layer = network.layers.add(name="soft", input=["p"], output=["y"])
        layer.softmax.SetInParent()
        found.append(model.SerializeToString())
    return found


def _load_coreml(data: bytes) -> None:
    hexane.load(_file("damaged.mlmodel", data))


def _plists() -> list[bytes]:
    content = {
        "Networks": ["net"], "Version": "1.0.14",
        "net": {
            "Inputs": ["x"], "Outputs": ["y"], "Units": ["u", "v"], "Weights": ["w.bin"],
            "x": {"BatchSize": 1, "InputChannels": 4, "InputHeight": 2, "InputWidth": 8, "InputType": "Float16"},
            "u": {"Bottom": "x", "Name": "u", "Type": "Neuron", "OutputType": "Float16", "Params": {"Type": "ReLU"}},
            "v": {"Bottom": ["u", "x"], "Name": "v", "Type": "ElementWise", "OutputType": "Float16",
                  "Params": {"Type": "Add", "Scale": 15360}},
            "y": {"Bottom": "v"},
        },
    }  # fmt: skip
    return [plistlib.dumps(content), plistlib.dumps(content, fmt=plistlib.FMT_BINARY)]


def _load_plist(data: bytes) -> None:
    hexane.load(_file("damaged.plist", data))


def _packages() -> list[bytes]:
    found = []
    text = MIL.replace("relu(x = c)", "sin(x = c)")
    for source in (MIL, text):
        graph = hexane.parse_mil(source, weights={"@model_path/weights/weight.bin": _blobs()[0]})
        path = _folder() / "whole.hexane"
        hexane.compile(graph).save(path)
        found.append(path.read_bytes())
    return found


def _load_program(data: bytes) -> None:
    hexane.load_program(_file("damaged.hexane", data))


def _manifests() -> list[bytes]:
    import zipfile

    return [zipfile.ZipFile(io.BytesIO(data)).read("manifest.json") for data in _packages()[1:]]


@cache
def _parts() -> dict[str, bytes]:
    import zipfile

    with zipfile.ZipFile(io.BytesIO(_packages()[1])) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _load_manifest(data: bytes) -> None:
    import zipfile

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in _parts().items():
            archive.writestr(name, data if name == "manifest.json" else content)
    _load_program(stream.getvalue())


KINDS = ("npy", "npz", "txt", "wav", "png", "jpg", "gif", "bmp")


def _arrays() -> list[bytes]:
    """Each with its kind's index in front, so that one reader takes all."""
    import wave

    from PIL import Image

    array = np.arange(72, dtype=np.float32).reshape(1, 3, 4, 6)
    made: dict[str, bytes] = {"txt": b" ".join(b"%d" % i for i in range(72))}
    for kind, write in (
        ("npy", lambda s: np.save(s, array)),
        ("npz", lambda s: np.savez_compressed(s, x=array)),
        *((k, _drawing(Image, k)) for k in ("png", "jpeg", "gif", "bmp")),
    ):
        stream = io.BytesIO()
        write(stream)
        made[kind.replace("jpeg", "jpg")] = stream.getvalue()
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(144))
    made["wav"] = stream.getvalue()
    return [bytes([i]) + made[kind] for i, kind in enumerate(KINDS)]


def _drawing(module: Any, kind: str) -> Callable[[Any], None]:
    return lambda stream: module.fromarray(np.arange(72, dtype=np.uint8).reshape(4, 6, 3)).save(stream, kind)


def _gather(data: bytes) -> None:
    from hexane.program import Port
    from hexane.session.inputs import gather

    kind = KINDS[data[0] % len(KINDS)] if data else "npy"
    shape = (1, 72) if kind == "wav" else (1, 3, 4, 6)
    given = gather([Port("x", shape, "fp32")], [f"x={_file(f'damaged.{kind}', data[1:])}"])
    assert given.arrays["x"].shape == shape


def _tensors() -> list[bytes]:
    from language.reference import safetensors

    return [safetensors({"a": np.ones((2, 3)), "b": np.ones(4)}, dtype) for dtype in ("F32", "F16", "BF16")]


def _read_tensors(data: bytes) -> None:
    from hexane.formats.safetensors import read_safetensors

    for tensor in read_safetensors(_file("damaged.safetensors", data)).values():
        tensor.read()


READERS: dict[str, Reader] = {
    "hwx": Reader(_programs, _open_image),
    "anec": Reader(_anec, _open_image),
    "asm": Reader(_assembly, _assemble, tuple(ASM_WORDS)),
    "mil": Reader(lambda: [MIL.encode()], _mil, tuple(MIL_WORDS)),
    "blob": Reader(_blobs, _blob),
    "onnx": Reader(_onnx, _load_onnx),
    "external": Reader(lambda: [_external_model().SerializeToString()], _load_external),
    "coreml": Reader(_coreml, _load_coreml),
    "plist": Reader(_plists, _load_plist, (b"<dict>", b"</key>", b"<real>1.5</real>", b"<array/>", b"<true/>")),
    "hexane": Reader(_packages, _load_program),
    "manifest": Reader(_manifests, _load_manifest, (b"null", b"[]", b"{}", b"1e999", b"-1", b'"x"', b"true")),
    "arrays": Reader(_arrays, _gather),
    "safetensors": Reader(_tensors, _read_tensors, (b"[]", b'"F32"', b"-1", b"99999999999999", b"null", b"0,", b"{")),
}


class Failure(Exception):
    """An input that a reader did not take as it should."""


@contextmanager
def _in_time(seconds: float) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise Failure(f"takes longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class Counts(NamedTuple):
    """Inputs that a reader met, took, and refused without a reason of its own: an assumption broke, the net held."""

    met: int
    taken: int
    netted: int


def run(name: str, count: int, seed: int = 0, seconds: float = float("inf")) -> Counts:
    """What came of damaged inputs; Failure at the first that the reader did not survive."""
    reader = READERS[name]
    originals = reader.originals()
    for data in originals:
        try:
            reader.read(data)
        except HexaneError:
            if name != "onnx":  # some ops are none of hexane's
                raise
    draw, end = random.Random(f"{name} {seed}"), time.monotonic() + seconds
    taken = before = met = netted = 0
    for met in range(1, count + 1):
        data = damaged(originals, draw, reader.words)
        try:
            with _in_time(SLOWEST):
                reader.read(data)
            taken += 1
        except HexaneError as error:
            netted += "is not well-formed" in error.message
        except Exception as error:
            path = _file(f"failure-{name}-{seed}-{met}", data)
            what = error if isinstance(error, Failure) else traceback.format_exc(limit=-6)
            raise Failure(f"{name}: input {met} of seed {seed} (kept as {path}): {what}") from error
        if met == 100:
            before = _resident()
        if time.monotonic() > end:
            break
    if before and _resident() - before > GROWTH:
        raise Failure(f"{name}: {(_resident() - before) >> 20} MiB more after {met} inputs of seed {seed}")
    return Counts(met, taken, netted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=[*READERS, "all"])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of each reader, at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in READERS if options.name == "all" else [options.name]:
        start = time.monotonic()
        try:
            met, taken, netted = run(name, options.count, options.seed, options.seconds)
        except Failure as failure:
            print(failure, flush=True)
            continue
        took = time.monotonic() - start
        print(f"{name}: {met} inputs, {taken} taken, {netted} netted, {took:.0f} s, seed {options.seed}", flush=True)


if __name__ == "__main__":
    main()
