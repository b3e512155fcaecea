"""Mutable constants: files of the base and of adapters, against coremltools' own protobuf and weight reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import FormatError, HexaneError, UsageError
from hexane.formats.mutable import ADAPTER_PATH, declare_mutable, mutable_constants, mutable_files
from hexane.graph import Graph, GraphBuilder

RNG = np.random.default_rng(11)
BASE = RNG.standard_normal((24, 16, 1, 1)).astype(np.float16)
X = RNG.standard_normal((1, 16, 1, 8)).astype(np.float16)


def factors(seed: int, rank: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"low": rng.standard_normal((rank, 16, 1, 1)).astype(np.float16),
            "high": rng.standard_normal((24, rank, 1, 1)).astype(np.float16)}  # fmt: skip


def network(rank: int = 2, seed: int = 0) -> Graph:
    """y = base(x) + high(low(x)), the adapter declared mutable."""
    b, own = GraphBuilder(), factors(seed, rank)
    x = b.input("x", X.shape, "fp16")
    y = b.conv(x=x, weight=b.const(BASE, name="base"))
    low = b.conv(x=x, weight=b.const(own["low"], name="low"))
    b.output(b.add(x=y, y=b.conv(x=low, weight=b.const(own["high"], name="high"))), name="y")
    declare_mutable(b.graph, ("low", "high"))
    return b.graph


def exact(own: dict[str, np.ndarray]) -> np.ndarray:
    low, high = (own[name][:, :, 0, 0].astype(np.float64) for name in ("low", "high"))
    return np.einsum("oi,bihw->bohw", BASE[:, :, 0, 0].astype(np.float64) + high @ low, X.astype(np.float64))


def written(folder: Path, suffix: str, graph: Graph) -> tuple[Path, Path]:
    """The written network, and its folder of weights."""
    path = folder / ("net.mlpackage" if suffix == "mlpackage" else "net.mlmodelc/model.mil")
    path.parent.mkdir(exist_ok=True)
    hexane.frontends.networks.save(graph, path)
    inner = path / "Data/com.apple.CoreML/weights" if suffix == "mlpackage" else path.parent / "weights"
    return (path if suffix == "mlpackage" else path.parent), inner


@pytest.mark.parametrize("suffix", ["mlpackage", "mil"])
def test_two_adapters_over_one_written_base(suffix: str, tmp_path: Path) -> None:
    path, weights = written(tmp_path, suffix, network())
    base = (weights / "weight.bin").read_bytes()
    other = factors(1)
    (weights.parent / "b.bin").write_bytes(mutable_files(hexane.load(path), other)[ADAPTER_PATH])
    for own, given in ((factors(0), None), (other, {"adapter.bin": weights.parent / "b.bin"})):
        graph = hexane.load(path, weights=given)
        assert list(mutable_constants(graph)) == ["low", "high"]
        error = np.abs(graph.evaluate({"x": X})["y"] - exact(own)).max()
        assert error < 2e-3 * np.abs(exact(own)).max()
        program = hexane.compile(graph, chip="M4")
        assert np.abs(program.run({"x": X})["y"] - exact(own)).max() < 4e-3 * np.abs(exact(own)).max()
    assert (weights / "weight.bin").read_bytes() == base
    (weights / "adapter.bin").unlink()
    with pytest.raises(UsageError, match=r"adapter\.bin' is not given"):
        hexane.load(path).evaluate({"x": X})


@pytest.mark.parametrize("suffix", ["mlpackage", "mil"])
def test_written_again_everything_is_the_same_byte_for_byte(suffix: str, tmp_path: Path) -> None:
    path, weights = written(tmp_path, suffix, network(rank=1))
    (tmp_path / "again").mkdir()
    _, second = written(tmp_path / "again", suffix, hexane.load(path))
    assert {f.name for f in weights.iterdir()} == {"weight.bin", "adapter.bin"}
    for one, other in ((weights, second), (weights.parent, second.parent)):
        for file in one.glob("*.*"):
            assert file.read_bytes() == (other / file.name).read_bytes(), file.name


def test_coremltools_reads_what_is_mutable_and_where(tmp_path: Path) -> None:
    pytest.importorskip("coremltools")
    from coremltools.models.utils import load_spec

    path, weights = written(tmp_path, "mlpackage", network())
    model = load_spec(str(path))
    info = model.mlProgram.attributes["BlobFileMutabilityInfo"].immediateValue.tuple.values
    assert list(info[0].immediateValue.tensor.strings.values) == ["Paths"]
    pairs = info[1].immediateValue.dictionary.values
    text = [pair.key.immediateValue.tensor.strings.values[0] for pair in pairs]
    assert text == ["@model_path/weights/adapter.bin"]
    (function,) = model.mlProgram.functions.values()
    (block,) = function.block_specializations.values()
    blobs: dict[str, Any] = {}
    for op in block.operations:
        value = op.attributes["val"] if op.type == "const" else None
        if value is not None and value.WhichOneof("value") == "blobFileValue":
            blobs[op.outputs[0].name] = value.blobFileValue
    names = {name: blob.fileName.rsplit("/", 1)[-1] for name, blob in blobs.items()}
    assert names == {"base": "weight.bin", "low": "adapter.bin", "high": "adapter.bin"}
    assert blobs["low"].offset == 64
    try:
        from coremltools.libmilstoragepython import _BlobStorageReader as Reader
    except ImportError:
        return
    for name, array in {"base": BASE, **factors(0)}.items():
        reader = Reader(str(weights / names[name]))
        given = np.asarray(reader.read_fp16_data(blobs[name].offset), np.uint16).view(np.float16)
        assert np.array_equal(given, array.reshape(-1))


def test_the_text_has_the_form_that_was_loaded_on_a_mac(tmp_path: Path) -> None:
    """github.com/MidasMulli/ane-mutable-adapters: the attribute stands behind buildInfo, each pair in braces."""
    path, _ = written(tmp_path, "mil", network())
    head = (path / "model.mil").read_text().split("\n")[1]
    end = ('BlobFileMutabilityInfo = tuple<string, dict<string, string>>(("Paths", '
           '{{"@model_path/weights/adapter.bin", "@model_path/weights/adapter.bin"}}))]')  # fmt: skip
    assert head.startswith("[buildInfo = ") and head.endswith(end)


def test_a_foreign_file_may_have_room_between_its_records(tmp_path: Path) -> None:
    graph = network()
    text = hexane.frontends.networks.to_text(graph).replace("uint64(192)", "uint64(512)")
    own = factors(3)
    graph = hexane.parse_mil(text)
    file = mutable_files(graph, own)[ADAPTER_PATH]
    again = hexane.parse_mil(text, {ADAPTER_PATH: file})
    for name, constant in mutable_constants(again).items():
        assert np.array_equal(constant.array, own[name])


def test_a_model_without_the_values_refuses_and_says_so() -> None:
    graph = network()
    text = hexane.frontends.networks.to_text(graph)
    (finding,) = [f for f in hexane.check_mil(text, weights={}) if f.rule == "W14"]
    assert str(finding.severity) == "fails" and "predict refuses" in finding.sources[0]
    with hexane.mil.Model(text, mutable_files(graph), chip="M4") as model:
        assert np.abs(model.evaluate({"x": X})["y"] - exact(factors(0))).max() < 4e-3 * np.abs(exact(factors(0))).max()
        assert model.update(factors(4)).how == "patched"
        given = model.evaluate({"x": X})["y"]
        assert np.abs(given - exact(factors(4))).max() < 4e-3 * np.abs(exact(factors(4))).max()


def test_wrong_declarations_are_refused() -> None:
    graph = network()
    with pytest.raises(UsageError, match="no constant 'nothing'"):
        declare_mutable(graph, ("nothing",))
    with pytest.raises(UsageError, match="no mutable constant 'base'"):
        mutable_files(graph, {"base": BASE})
    with pytest.raises(UsageError, match="has shape"):
        mutable_files(graph, {"low": BASE})
    text = hexane.frontends.networks.to_text(graph)
    for wrong in ('dict<string, string>({{"a", "b"}, {"c", "d"}})', 'tuple<string, string>(("Files", "x"))'):
        begin = text.index("BlobFileMutabilityInfo = ") + len("BlobFileMutabilityInfo = ")
        with pytest.raises(HexaneError, match="a form that is not known"):
            hexane.parse_mil(text[:begin] + wrong + text[text.index("]\n", begin) :])
    with pytest.raises(FormatError, match="no record can stand there"):
        mutable_files(hexane.parse_mil(text.replace("uint64(192)", "uint64(128)")), factors(1))
