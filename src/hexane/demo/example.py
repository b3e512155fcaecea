"""Things to try the commands on: a small network as ONNX, a picture, and the engine programs that come of them.

The network is made here, with weights from a seed: it shows what the commands do, and knows nothing of pictures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hexane.codegen import compile
from hexane.demo.text import draw
from hexane.errors import UnsupportedError
from hexane.files import make_folder
from hexane.graph import Graph, GraphBuilder

SIDE, CLASSES = 320, 10
FILES = tuple("model.onnx photo.jpg image.npy model.hwx relu.hwx a.hwx b.hwx program.mil weights.npy".split())


def make_example(folder: Path) -> list[Path]:
    """Write the files named in ``FILES`` into a folder, which is made; their paths.

    UnsupportedError where onnx or Pillow is missing.
    """
    make_folder(folder)
    _save_onnx(folder / "model.onnx")
    picture, _ = draw()
    from PIL import Image

    Image.fromarray(picture).save(folder / "photo.jpg", quality=92)
    np.save(folder / "image.npy", np.random.default_rng(1).standard_normal((1, 16, 32, 64)).astype(np.float16))
    compile(_product(1.0)).save(folder / "model.hwx")
    compile(_relu()).save(folder / "relu.hwx")
    compile(_product(1.0)).save(folder / "a.hwx")
    compile(_product(0.5)).save(folder / "b.hwx")
    _relu().save(folder / "program.mil")
    np.save(folder / "weights.npy", _weight(0.5))
    return [folder / name for name in FILES]


def _relu() -> Graph:
    b = GraphBuilder()
    b.output(b.relu(x=b.input("image", (1, 16, 32, 64), "fp16"), name="relu"))
    return b.graph


def _weight(scale: float) -> np.ndarray:
    return (np.random.default_rng(2).standard_normal((32, 16, 3, 3)) * scale / 12).astype(np.float16)


def _product(scale: float) -> Graph:
    weight = _weight(scale)
    b = GraphBuilder()
    x = b.input("image", (1, 16, 32, 64), "fp16")
    y = b.conv(x=x, weight=weight, strides=(1, 1), pad_type="same", dilations=(1, 1), groups=1, name="features")
    b.output(b.relu(x=y, name="out"))
    return b.graph


def _save_onnx(path: Path) -> None:
    """``x`` [batch, 3, 320, 320] through three convolutions to the probabilities of ten classes."""
    try:
        import onnx
    except ImportError:
        raise UnsupportedError("the example is an ONNX file", hint="pip install 'hexane[onnx]'") from None
    helper, rng = onnx.helper, np.random.default_rng(0)
    shapes = {"w1": (16, 3, 3, 3), "w2": (32, 16, 3, 3), "w3": (32, 32, 3, 3), "w4": (32, CLASSES)}
    weights: list[Any] = []
    for name, shape in shapes.items():
        spread = 1.4 / np.sqrt(np.prod(shape[1:]) if len(shape) == 4 else shape[0])
        array = (rng.standard_normal(shape) * spread).astype(np.float32)
        weights.append(onnx.numpy_helper.from_array(array, name))
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Conv", ["p1", "w2"], ["c2"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["hidden"]),
        helper.make_node("Conv", ["hidden", "w3"], ["c3"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c3"], ["r3"]),
        helper.make_node("GlobalAveragePool", ["r3"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w4"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"], axis=-1),
    ]
    kind = onnx.TensorProto.FLOAT
    x = helper.make_tensor_value_info("x", kind, ["batch", 3, SIDE, SIDE])
    y = helper.make_tensor_value_info("probabilities", kind, ["batch", CLASSES])
    graph = helper.make_graph(nodes, "example", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
