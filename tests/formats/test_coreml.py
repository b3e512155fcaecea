"""Core ML packages: read, written, read back by coremltools; image inputs; functions; what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hexane
from formats.zoo import fetched
from hexane import HexaneError
from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.graph import GraphBuilder

pytest.importorskip("coremltools.proto", reason="coremltools is not installed")


def small_graph(opset: str = "ios16", dtype: str = "fp16") -> hexane.graph.Graph:
    rng = np.random.default_rng(0)
    kind = np.float16 if dtype == "fp16" else np.float32
    b = GraphBuilder(opset=opset)
    x = b.input("x/in:0", (1, 3, 8, 8), dtype)
    y = b.conv(x=x, weight=rng.standard_normal((4, 3, 3, 3)).astype(kind), pad_type="same", name="conv 1")
    parts = b.split(x=b.relu(x=y), num_splits=2, axis=1)
    joined = b.concat(values=(parts[1], parts[0]), axis=1, interleave=False)
    b.output(b.reduce_mean(x=joined, axes=[2, 3], keep_dims=False, name="mean:0"), b.relu(x=parts[0], name="part"))
    b.graph.metadata["author"] = "somebody"
    return b.graph


@pytest.mark.parametrize("opset", ["ios15", "ios16", "ios17", "ios18"])
def test_a_written_package_reads_back_equal(tmp_path: Path, opset: str) -> None:
    graph = small_graph(opset, "fp32" if opset == "ios15" else "fp16")
    graph.save(tmp_path / "m.mlpackage")
    again = hexane.load(tmp_path / "m.mlpackage")
    assert not again.problems
    assert again.equals(graph)
    assert again.metadata["author"] == "somebody"
    assert list(again.inputs) == ["x/in:0"] and list(again.outputs) == ["mean:0", "part"]
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8))
    for name, array in graph.evaluate({"x/in:0": x}).items():
        np.testing.assert_array_equal(again.evaluate({"x/in:0": x})[name], array)


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    graph = small_graph()
    for name in ("a", "b"):
        graph.save(tmp_path / f"{name}.mlpackage")
    files = sorted(
        p.relative_to(tmp_path / "a.mlpackage") for p in (tmp_path / "a.mlpackage").rglob("*") if p.is_file()
    )
    assert len(files) == 3
    for file in files:
        assert (tmp_path / "a.mlpackage" / file).read_bytes() == (tmp_path / "b.mlpackage" / file).read_bytes()
    graph.save(tmp_path / "a.mlpackage")  # in place of the old one
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.mlpackage", "b.mlpackage"]


@pytest.mark.slow
def test_coremltools_loads_what_hexane_writes(tmp_path: Path) -> None:
    small_graph("ios17").save(tmp_path / "m.mlpackage")
    code = f"""
import coremltools as ct
from coremltools.converters.mil.frontend.milproto.load import load
m = ct.models.MLModel({str(tmp_path / "m.mlpackage")!r}, skip_model_load=True)
spec = m.get_spec()
program = load(spec, specification_version=spec.specificationVersion, file_weights_dir=m.weights_dir)
from hexane.formats.coreml.writer import to_model
import hexane
model, _ = to_model(hexane.load({str(tmp_path / "m.mlpackage")!r}))
assert model.SerializeToString(deterministic=True) == spec.SerializeToString(deterministic=True)
print(sorted({{op.op_type for op in program.functions["main"].operations}} - {{"const"}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": "src"})
    assert done.returncode == 0, done.stderr[-2000:]
    assert "['concat', 'conv', 'reduce_mean', 'relu', 'split']" in done.stdout


def test_nothing_but_hexane_speaks(tmp_path: Path) -> None:
    small_graph().save(tmp_path / "m.mlpackage")
    code = (
        f"import hexane, sys; hexane.load({str(tmp_path / 'm.mlpackage')!r}); assert 'coremltools' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": "src"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_two_readings_of_one_network_agree() -> None:
    package = hexane.load(fetched("basic-pitch/nmp.mlpackage"))
    other = hexane.load(fetched("basic-pitch/nmp.onnx"), shapes={"serving_default_input_2:0": (1, 43844, 1)})
    assert not package.problems
    x = np.random.default_rng(0).standard_normal((1, 43844, 1)).astype(np.float32) * 0.1
    ours, theirs = package.evaluate({"input_2": x}), other.evaluate({"serving_default_input_2:0": x})
    left = dict(theirs)
    for name, array in ours.items():
        match = [
            key
            for key, candidate in left.items()
            if candidate.shape == array.shape and np.allclose(candidate, array, atol=2e-5)
        ]
        assert len(match) == 1, name
        del left[match[0]]
    assert not left


def test_ops_that_core_ml_lacks_are_named(tmp_path: Path) -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 3, 3), "fp32")
    b.output(b.op("onnx.Det", x=x, name="d"))
    with pytest.raises(UnsupportedError, match=r"onnx\.Det"):
        b.graph.save(tmp_path / "m.mlpackage")
    assert not list(tmp_path.iterdir())


def test_sixty_four_bit_integers_become_int32(tmp_path: Path) -> None:
    b = GraphBuilder()
    x = b.input("x", (4,), "int64")
    b.output(b.add(x=x, y=np.arange(4), name="sum"))
    b.graph.save(tmp_path / "m.mlpackage")
    again = hexane.load(tmp_path / "m.mlpackage")
    assert again.inputs["x"].dtype == again.outputs["sum"].dtype == "int32"
    np.testing.assert_array_equal(again.evaluate({"x": np.arange(4, dtype=np.int32)})["sum"], np.arange(4) * 2)
    b = GraphBuilder()
    b.output(b.add(x=b.input("x", (1,), "int64"), y=np.array([2**40]), name="y"))
    with pytest.raises(UnsupportedError, match="beyond int32"):
        b.graph.save(tmp_path / "n.mlpackage")


def test_functions_are_chosen_by_name(tmp_path: Path) -> None:
    graph = small_graph()
    second = GraphBuilder(opset="ios16")
    second.output(second.relu(x=second.input("z", (2,), "fp16"), name="out"))
    function = second.graph.main
    function.name = "other"
    graph.add_function(function)
    graph.save(tmp_path / "m.mlpackage")
    assert "x/in:0" in hexane.load(tmp_path / "m.mlpackage").inputs
    assert list(hexane.load(tmp_path / "m.mlpackage", function="other").inputs) == ["z"]
    with pytest.raises(UsageError, match="'third'"):
        hexane.load(tmp_path / "m.mlpackage", function="third")


def test_a_compiled_model_is_its_text(tmp_path: Path) -> None:
    graph = small_graph()
    folder = tmp_path / "m.mlmodelc"
    folder.mkdir()
    graph.save(folder / "model.mil")
    (folder / "coremldata.bin").write_bytes(b"")
    again = hexane.load(folder)
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8))
    for name, array in graph.evaluate({"x/in:0": x}).items():
        np.testing.assert_array_equal(again.evaluate({"x/in:0": x})[name], array)


# ------------------------------------------------------------------------------------------------- hostile packages


def written(tmp_path: Path) -> Path:
    small_graph().save(tmp_path / "m.mlpackage")
    return tmp_path / "m.mlpackage"


def test_paths_that_leave_the_package_are_refused(tmp_path: Path) -> None:
    package = written(tmp_path)
    (tmp_path / "secret.mlmodel").write_bytes(b"x")
    manifest = json.loads((package / "Manifest.json").read_text())
    for path in ("../../secret.mlmodel", str(tmp_path / "secret.mlmodel"), "", 3, "no.mlmodel"):
        manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"] = path
        (package / "Manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(FormatError):
            hexane.load(package)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[" * 100_000, '{"rootModelIdentifier": 1}', '{"itemInfoEntries": {}}']
)
def test_broken_manifests_are_refused(tmp_path: Path, text: str) -> None:
    package = written(tmp_path)
    (package / "Manifest.json").write_text(text)
    with pytest.raises(FormatError):
        hexane.load(package)


def protobuf(package: Path):  # type: ignore[no-untyped-def]
    from hexane.formats.coreml.protos import protos

    file = package / "Data" / "com.apple.CoreML" / "model.mlmodel"
    model = protos().model.Model.FromString(file.read_bytes())
    return model, lambda: file.write_bytes(model.SerializeToString())


def test_weights_outside_their_file_are_refused(tmp_path: Path) -> None:
    package = written(tmp_path)
    model, save = protobuf(package)
    operations = model.mlProgram.functions["main"].block_specializations["CoreML6"].operations
    blob = next(o.attributes["val"].blobFileValue for o in operations if o.attributes["val"].HasField("blobFileValue"))
    own = "@model_path/weights/weight.bin"
    outside = ["@model_path/../../../other.bin", "/etc/hostname", "@model_path/none.bin"]
    for name, offset in [(own, 1 << 40), (own, 65), *((name, 64) for name in outside)]:
        blob.fileName, blob.offset = name, offset
        save()
        with pytest.raises(FormatError):
            hexane.load(package)


def test_cycles_and_giants_are_refused(tmp_path: Path) -> None:
    package = written(tmp_path)
    model, save = protobuf(package)
    operations = model.mlProgram.functions["main"].block_specializations["CoreML6"].operations
    relu = next(o for o in operations if o.type == "relu")
    relu.inputs["x"].arguments[0].name = relu.outputs[0].name
    save()
    with pytest.raises(FormatError, match="nothing before it defines"):
        hexane.load(package)
    model, save = protobuf(written(tmp_path / "again"))
    for dimension in model.mlProgram.functions["main"].inputs[0].type.tensorType.dimensions:
        dimension.constant.size = 1_000_000_000
    save()
    with pytest.raises(HexaneError, match="elements"):
        hexane.load(tmp_path / "again" / "m.mlpackage")


def test_a_zipped_package_is_named_as_such(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "m.mlmodel", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", b"\0" * (1 << 20))
    with pytest.raises(FormatError, match="zip"):
        hexane.load(tmp_path / "m.mlmodel")


def test_mutated_packages_never_crash(tmp_path: Path) -> None:
    package = written(tmp_path)
    file = package / "Data" / "com.apple.CoreML" / "model.mlmodel"
    good = file.read_bytes()
    rng = np.random.default_rng(0)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(300):
        data = bytearray(good)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(data)))
            if rng.random() < 0.3:
                del data[at : at + int(rng.integers(1, 20))]
            else:
                data[at] = int(rng.integers(256))
        file.write_bytes(data)
        try:
            hexane.load(package)
            outcomes["read"] += 1
        except HexaneError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 0, outcomes


def test_an_espresso_network_is_refused_with_what_is_in_it(tmp_path):
    folder = tmp_path / "old.mlmodelc"
    folder.mkdir()
    with pytest.raises(UnsupportedError, match="no Espresso network"):
        hexane.load(folder)
    layers = [
        {"name": "c", "type": "convolution", "bottom": "image", "top": "c"},
        {"name": "r", "type": "activation", "bottom": "c,image", "top": "p"},
    ]
    (folder / "model.espresso.net").write_text(json.dumps({"layers": layers}))
    (folder / "model.espresso.shape").write_text(json.dumps({"layer_shapes": {"image": {"k": 3, "h": 8, "w": 9}}}))
    (folder / "model.espresso.weights").write_bytes(bytes(100))
    told = "2 layers .1 convolution, 1 activation., takes image .1, 3, 8, 9.; gives p, 100 bytes of weights"
    with pytest.raises(UnsupportedError, match=told):
        hexane.load(folder)
    for data in (b"bvx2", b"[" * 100_000, b"{}", b'{"layers": [1, {"top": 3}]}'):
        (folder / "model.espresso.net").write_bytes(data)
        with pytest.raises(UnsupportedError, match="Espresso"):
            hexane.load(folder)


@pytest.mark.parametrize("opset, as_attributes", [("ios16", True), ("ios18", False)])
def test_packed_constants_are_attributes_before_ios18_and_operands_from_it_on(opset: str, as_attributes: bool) -> None:
    """As coremltools writes and reads them: the first ops of constants have no inputs."""
    from hexane.formats.coreml.writer import to_model

    b = GraphBuilder(opset=opset)
    data, scale = np.arange(8, dtype=np.int8).reshape(2, 4, 1, 1), np.float16([[[[0.5]]], [[[0.25]]]])
    if as_attributes:
        weight = b.constexpr_affine_dequantize(
            quantized_data=data, zero_point=np.int8(0), scale=scale.ravel(), axis=0, name="w"
        )
        operands = {"quantized_data", "zero_point", "scale", "axis"}
    else:
        weight = b.constexpr_blockwise_shift_scale(data=data, scale=scale, name="w")
        operands = {"data", "scale"}
    b.output(b.conv(x=b.input("x", (1, 4, 3, 3), "fp16"), weight=weight, name="y"))
    model, _ = to_model(b.graph)
    (block,) = model.mlProgram.functions["main"].block_specializations.values()
    (packed,) = (op for op in block.operations if op.type.startswith("constexpr_"))
    attributes, inputs = set(packed.attributes) - {"name"}, set(packed.inputs)
    assert (attributes, inputs) == ((operands, set()) if as_attributes else (set(), operands))
    stored = {output.name for op in block.operations if op.type == "const" for output in op.outputs}
    used = {argument.name for binding in packed.inputs.values() for argument in binding.arguments}
    assert len(used) == len(inputs) and used <= stored
