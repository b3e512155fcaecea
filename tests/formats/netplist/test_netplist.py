"""``net.plist`` networks: recorded ones, made-up ones, broken ones."""

from __future__ import annotations

import plistlib
import random

import numpy as np
import pytest

import hexane
from facts import fact_params
from hexane.errors import FormatError, HexaneError, UnsupportedError, UsageError
from hexane.formats.netplist import parse_netplist


def network(units, inputs=None, outputs=None, weights=()):
    """Bytes of a plist: units {name: dict}, inputs {name: (n, c, h, w)}, outputs {name: bottom}."""
    inputs = inputs or {"x": (1, 3, 4, 5)}
    outputs = outputs or {"y@output": list(units)[-1]}
    net = {"Inputs": list(inputs), "Units": list(units), "Outputs": list(outputs), "Weights": list(weights), **units}
    for name, (n, c, h, w) in inputs.items():
        net[name] = {
            "BatchSize": n,
            "InputChannels": c,
            "InputHeight": h,
            "InputWidth": w,
            "InputType": "Float16",
            "InputRowStride": 64,
        }
    for name, bottom in outputs.items():
        net[name] = {"Bottom": bottom, "OutputInterleave": 1}
    return plistlib.dumps({"Networks": ["net"], "Version": "1.0.9", "net": net})


def unit(kind, bottom="x", params=None, **more):
    return {"Type": kind, "Bottom": bottom, "Name": "u", "OutputType": "Float16", "Params": params or {}, **more}


CONV = {
    "KernelHeight": 2,
    "KernelWidth": 3,
    "KernelIndex": 0,
    "KernelOffset": 4,
    "KernelType": "Float32",
    "PadTop": 1,
    "PadBot": 0,
    "PadLeft": 1,
    "PadRight": 1,
    "Step": [1, 1],
    "Type": "Conv",
}


@pytest.mark.parametrize("path", [*fact_params("plists/**/*.plist"), *fact_params("hwx/*.plist")])
def test_recorded_networks(path):
    graph = hexane.load(path).verify()
    net = plistlib.loads(path.read_bytes())["net"]
    assert list(graph.inputs) == net["Inputs"] and list(graph.outputs) == net["Outputs"]
    assert graph.metadata["network"] == net
    names = {op.name for op in graph.ops}
    dead = {"my_layer_2"} if path.stem in ("doubleconv", "doubleconvrev") else set()
    assert set(net["Units"]) - dead <= names
    given = {weights: bytes(1 << 20) for weights in net.get("Weights", [])}
    graph = hexane.load(path, weights=given)
    rng = np.random.default_rng(0)
    inputs = {name: np.round(rng.random(type_.shape) * 9) for name, type_ in graph.inputs.items()}
    outputs = graph.evaluate(inputs)
    assert all(outputs[name].shape == type_.shape for name, type_ in graph.outputs.items())


def test_conv_reads_its_kernel():
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((6, 3, 2, 3)).astype(np.float32)
    data = network({"c": unit("Conv", params=CONV, OutputChannels=6)}, weights=["/tmp/gone/k.weights"])
    graph = parse_netplist(data, {"k.weights": b"\0\0\0\0" + weight.tobytes()})
    x = rng.standard_normal((1, 3, 4, 5)).astype(np.float16)
    padded = np.pad(x.astype(np.float32), ((0, 0), (0, 0), (1, 0), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 3), (2, 3))
    wanted = np.einsum("nchwij,ocij->nohw", windows, weight.astype(np.float16).astype(np.float32))
    np.testing.assert_allclose(graph.evaluate({"x": x})["y@output"], wanted, rtol=2e-3, atol=2e-3)


def test_weights_are_looked_up_beside_the_plist(tmp_path):
    data = network({"c": unit("Conv", params=CONV, OutputChannels=1)}, weights=["/tmp/gone/k.weights"])
    (tmp_path / "net.plist").write_bytes(data)
    graph = hexane.load(tmp_path / "net.plist")
    with pytest.raises(UsageError, match=r"k\.weights' is missing"):
        graph.evaluate({"x": np.zeros((1, 3, 4, 5))})
    (tmp_path / "k.weights").write_bytes(bytes(4) + np.ones(18, np.float32).tobytes())
    assert hexane.load(tmp_path).evaluate({"x": np.ones((1, 3, 4, 5))})["y@output"].max() == 18
    (tmp_path / "k.weights").write_bytes(bytes(75))
    with pytest.raises(FormatError, match="72 bytes at 0x4 lie outside"):
        hexane.load(tmp_path)


def test_goc_scales_and_shifts():
    params = {"BiasScalar": 16354, "ScaleScalar": 20544}
    graph = parse_netplist(network({"g": unit("GOC", params=params)}))
    x = np.linspace(-2, 2, 60).reshape(1, 3, 4, 5)
    scale, bias = (float(np.uint16(bits).view(np.float16)) for bits in (20544, 16354))
    got = graph.evaluate({"x": x})["y@output"]
    np.testing.assert_allclose(got, x.astype(np.float16).astype(np.float32) * scale + bias, rtol=1e-3)


def test_units_in_any_order_and_two_outputs():
    units = {"b": unit("Neuron", "a", {"Type": "Sigmoid"}), "a": unit("Neuron", "x", {"Type": "ReLU"})}
    graph = parse_netplist(network(units, outputs={"b@output": "b", "a@output": "a", "again@output": "a"})).verify()
    out = graph.evaluate({"x": np.full((1, 3, 4, 5), -1.0)})
    assert [float(value.max()) for value in out.values()] == [0.5, 0.0, 0.0]


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"", FormatError, "no property list"),
        (b"<plist><dict>" * 3000, FormatError, "no property list"),
        (plistlib.dumps([1]), FormatError, "dictionary"),
        (plistlib.dumps({"Networks": ["net"]}), FormatError, "missing"),
        (network({"a": unit("Neuron", "b", {"Type": "ReLU"})}), FormatError, "nothing known"),
        (
            network({"a": unit("Neuron", "b", {"Type": "ReLU"}), "b": unit("Neuron", "a", {"Type": "ReLU"})}),
            FormatError,
            "depends on itself",
        ),
        (network({"a": unit("Softmax")}), UnsupportedError, "a unit of type 'Softmax'"),
        (network({"a": unit("Neuron", params={"Type": "Frob"})}), UnsupportedError, "Frob"),
        (network({"a": unit("Neuron", params={"Type": "ReLU", "Odd": 1})}), UnsupportedError, "Odd"),
        (
            network({"a": unit("Conv", params={**CONV, "KernelOffset": -1}, OutputChannels=1)}, weights=["k"]),
            FormatError,
            "negative",
        ),
        (
            network({"a": unit("Conv", params={**CONV, "Step": [1, 2]}, OutputChannels=1)}),
            UnsupportedError,
            "Step|step",
        ),
        (network({"a": unit("Reshape", params={"ReshapedChannel": 7})}), FormatError, "elements"),
        (network({"a": unit("Neuron", params={"Type": "ReLU"})}, {"x": (1, 10**6, 1000, 1000)}), FormatError, "limit"),
        (network({"a": unit("Neuron", params={"Type": "ReLU"})}, {"x": (1, -1, 1, 1)}), FormatError, "InputChannels"),
        (
            network({"a": unit("InputView", params={"Dimension": "Channel", "Offset": 2, "Size": 2})}),
            FormatError,
            "2 from 2 on",
        ),
    ],
)
def test_broken_networks(data, error, message):
    with pytest.raises(error, match=message):
        parse_netplist(data)


def test_mutations_raise_our_errors():
    """Bytes changed at random: a graph, or a HexaneError."""
    units = {
        "c": unit("Conv", params=CONV, OutputChannels=4),
        "g": unit(
            "GOC", "c", {"BiasScaleGroupData": {"BiasCount": 4, "BiasIndex": 0, "BiasOffset": 0, "BiasType": "Float16"}}
        ),
        "n": unit("Neuron", "g", {"Type": "Sigmoid"}),
    }
    data = network(units, weights=["k"])
    binary = plistlib.dumps(plistlib.loads(data), fmt=plistlib.FMT_BINARY)
    rng = random.Random(0)
    read = refused = 0
    for source in (data, binary):
        for _ in range(400):
            changed = bytearray(source)
            for _ in range(rng.randint(1, 4)):
                place = rng.randrange(len(changed))
                if rng.random() < 0.5:
                    changed[place] = rng.randrange(256)
                else:
                    del changed[place : place + rng.randint(1, 20)]
            try:
                graph = parse_netplist(bytes(changed), {"k": bytes(400)})
                graph.evaluate({name: np.zeros(type_.shape) for name, type_ in graph.inputs.items()})
                read += 1
            except HexaneError:
                refused += 1
    assert read and refused
