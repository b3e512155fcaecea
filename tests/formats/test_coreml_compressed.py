"""coremltools' own compression, read, evaluated as coremltools' decompressed weights do, compiled and run."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import hexane
from hexane import numerics
from hexane.graph import GraphBuilder

ct = pytest.importorskip("coremltools")
pytest.importorskip("sklearn", reason="coremltools makes palettes with scikit-learn")


def convolutions(b, rng):
    x = b.input("x", (1, 16, 10, 10), "fp16")
    y = b.relu(x=b.conv(x=x, weight=weight(rng, 32, 16, 3, 3), bias=weight(rng, 32), pad_type="same"))
    y = b.relu(x=b.conv(x=y, weight=weight(rng, 64, 32, 1, 1)))
    return b.reduce_mean(x=y, axes=[2, 3], keep_dims=False)


def mobile(b, rng):
    """A block of the MobileNet kind: widened, depthwise, narrowed, added."""
    x = b.input("x", (1, 32, 8, 8), "fp16")
    y = b.relu6(x=b.conv(x=x, weight=weight(rng, 96, 32, 1, 1)))
    y = b.relu6(x=b.conv(x=y, weight=weight(rng, 96, 1, 3, 3), groups=96, pad_type="same"))
    return b.add(x=x, y=b.conv(x=y, weight=weight(rng, 32, 96, 1, 1)))


def feed_forward(b, rng):
    x = b.input("x", (1, 16, 64), "fp16")
    y = b.gelu(x=b.linear(x=x, weight=weight(rng, 256, 64), bias=weight(rng, 256)), mode="EXACT")
    return b.add(x=x, y=b.linear(x=y, weight=weight(rng, 64, 256)))


def weight(rng, *shape):
    return rng.normal(0, 1 / np.sqrt(max(np.prod(shape[1:]), 16)), shape).astype(np.float16)


NETWORKS = {"convolutions": convolutions, "mobile": mobile, "feed forward": feed_forward}


def palettes(**options):
    from coremltools.optimize import coreml as cto

    config = cto.OpPalettizerConfig(mode="kmeans", weight_threshold=64, **options)
    return lambda model: cto.palettize_weights(model, cto.OptimizationConfig(config))


def integers(**options):
    from coremltools.optimize import coreml as cto

    config = cto.OpLinearQuantizerConfig(weight_threshold=64, **options)
    return lambda model: cto.linear_quantize_weights(model, cto.OptimizationConfig(config))


def pruned(then=None):
    from coremltools.optimize import coreml as cto

    config = cto.OpMagnitudePrunerConfig(target_sparsity=0.6, weight_threshold=64)

    def change(model):
        made = cto.prune_weights(model, cto.OptimizationConfig(config))
        if then == "palette":
            more = cto.OpPalettizerConfig(mode="kmeans", nbits=4, weight_threshold=64)
            return cto.palettize_weights(made, cto.OptimizationConfig(more), joint_compression=True)
        if then == "int8":
            more = cto.OpLinearQuantizerConfig(mode="linear_symmetric", weight_threshold=64)
            return cto.linear_quantize_weights(made, cto.OptimizationConfig(more), joint_compression=True)
        return made

    return change


FORMS = {
    **{f"palette {bits}": lambda bits=bits: palettes(nbits=bits) for bits in (1, 2, 3, 4, 6, 8)},
    "palette 4, groups": lambda: palettes(nbits=4, granularity="per_grouped_channel", group_size=16),
    "palette 4, scales": lambda: palettes(nbits=4, enable_per_channel_scale=True),
    "palette 4, vectors": lambda: palettes(nbits=4, cluster_dim=2),
    "int8": lambda: integers(mode="linear_symmetric"),
    "int8, one scale": lambda: integers(mode="linear_symmetric", granularity="per_tensor"),
    "uint8 with offsets": lambda: integers(mode="linear"),
    "int4": lambda: integers(mode="linear_symmetric", dtype="int4", granularity="per_channel"),
    "int4, blocks": lambda: integers(mode="linear_symmetric", dtype="int4", granularity="per_block", block_size=16),
    "pruned": pruned,
    "pruned, palette": lambda: pruned("palette"),
    "pruned, int8": lambda: pruned("int8"),
}
QUICK = {("convolutions", "palette 4"), ("feed forward", "int8"), ("mobile", "pruned, palette")}
CASES = [
    pytest.param(network, form, marks=() if (network, form) in QUICK else pytest.mark.slow, id=f"{network}, {form}")
    for network in NETWORKS
    for form in FORMS
]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Each network as a Core ML package, saved once."""
    folder = tmp_path_factory.mktemp("plain")
    paths = {}
    for name, build in NETWORKS.items():
        b = GraphBuilder()
        b.output(build(b, np.random.default_rng(5)))
        paths[name] = folder / f"{name}.mlpackage"
        b.graph.save(paths[name])
    return paths


@pytest.mark.parametrize("network, form", CASES)
def test_compressed_packages(network, form, plain, tmp_path):
    from coremltools.optimize.coreml import decompress_weights

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ct.models.MLModel(str(plain[network]), skip_model_load=True)
        packed = FORMS[form]()(model)
        packed.save(str(tmp_path / "packed.mlpackage"))
        decompress_weights(packed).save(str(tmp_path / "dense.mlpackage"))
    graph, dense = hexane.load(tmp_path / "packed.mlpackage"), hexane.load(tmp_path / "dense.mlpackage")
    assert any(op.type.startswith("constexpr_") for op in graph.main.ops)
    assert not any(op.type.startswith("constexpr_") for op in dense.main.ops)
    value = graph.main.inputs[0]
    given = {value.name: np.random.default_rng(1).normal(0, 1, value.shape).astype(np.float16)}
    for found, wanted in zip(graph.evaluate(given).values(), dense.evaluate(given).values(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3 * np.abs(wanted).max())
    for chip in ("M1", "M2", "M4", "M5"):
        program = hexane.compile(graph, chip)
        assert program.stats()["macs_on_engine"] == 1.0
        ran, same = program.run(given), numerics.evaluate(program.graph, given, chip)
        for name, array in ran.items():
            assert array.tobytes() == same[name].tobytes(), (chip, name)
