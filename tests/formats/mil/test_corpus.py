"""The MIL programs of ``tests/data``: read, typed, printed, computed."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hexane
from facts import fact_params
from hexane.formats.blob import BlobWriter
from hexane.graph import TensorType, is_known
from hexane.graph.compare import difference


def record_of(path):
    records = json.loads((path.parent / "index.json").read_text())
    records = records if isinstance(records, list) else records["programs"]
    return next(record for record in records if record["file"] == path.name)


def weight_files(record, seed=0):
    """Made-up weights at the offsets that the text names, as bytes by path; each blob where its record is expected."""
    rng = np.random.default_rng(seed)
    files: dict[str, bytearray] = {}
    for weight in record["weights"]:
        type_ = TensorType(weight["dtype"], tuple(weight["shape"]))
        spread = 1 / np.sqrt(max(np.prod(type_.shape[1:], dtype=int), 1))
        if type_.carrier.kind == "f":
            data = (rng.standard_normal(type_.shape) * spread).astype(type_.carrier)
        else:
            data = rng.integers(0, 100, type_.shape).astype(type_.carrier)
        writer = BlobWriter()
        writer.add(data, type_)
        single = bytearray(writer.to_bytes())
        offset = weight["offset"]
        file = files.setdefault(weight["path"], bytearray(single[:64]))
        file.extend(bytes(max(0, offset + 64 + type_.nbytes - len(file))))
        single[80:88] = (offset + 64).to_bytes(8, "little")
        file[offset : offset + 64] = single[64:128]
        file[offset + 64 : offset + 64 + type_.nbytes] = single[128 : 128 + type_.nbytes]
    return {path: bytes(data) for path, data in files.items()}


@pytest.mark.parametrize("path", fact_params("mil/*.mil"))
def test_read_type_and_print(path):
    record = record_of(path)
    graph = hexane.parse_mil(path.read_text())
    declared = [(i["name"], i["dtype"], tuple(i["shape"])) for i in record["inputs"]]
    assert [(name, type_.dtype, type_.shape) for name, type_ in graph.inputs.items()] == declared
    declared = [(o["name"], o["dtype"], tuple(o["shape"])) for o in record["outputs"]]
    assert [(name, type_.dtype, type_.shape) for name, type_ in graph.outputs.items()] == declared
    graph.verify()
    assert {problem.rule for problem in graph.problems} <= {"T5", "T7"}
    text = graph.to_mil()
    again = hexane.parse_mil(text)
    assert difference(graph, again) is None
    assert again.to_mil() == text
    other = "1.3" if graph.version == "1.0" else "1.0"
    assert difference(graph, hexane.parse_mil(graph.to_mil(version=other))) is None


def size_of(record):
    """Elements of weights, inputs and outputs."""
    tensors = [*record["weights"], *record["inputs"], *record["outputs"]]
    return sum(int(np.prod(tensor["shape"], dtype=np.int64)) for tensor in tensors)


def compute(path, record):
    """Evaluate a program with made-up weights and inputs; every output has its declared type."""
    graph = hexane.parse_mil(path.read_text(), weight_files(record))
    assert all(is_known(op.type) for op in graph.ops)
    rng = np.random.default_rng(1)
    inputs = {
        name: rng.standard_normal(type_.shape) if type_.carrier.kind == "f" else np.ones(type_.shape, np.int32)
        for name, type_ in graph.inputs.items()
    }
    outputs = graph.evaluate(inputs)
    assert list(outputs) == list(graph.outputs)
    for name, type_ in graph.outputs.items():
        assert outputs[name].shape == type_.shape and outputs[name].dtype == type_.carrier


def test_small_programs_compute(facts):
    count = 0
    for path in sorted((facts / "mil").glob("*.mil")):
        record = record_of(path)
        if size_of(record) < 300_000:
            compute(path, record)
            count += 1
    assert count


@pytest.mark.slow
def test_large_programs_compute(facts):
    count = 0
    for path in sorted((facts / "mil").glob("*.mil")):
        record = record_of(path)
        if size_of(record) >= 300_000 and path.stem != "claim_blob_offset_128":
            compute(path, record)
            count += 1
    assert count
