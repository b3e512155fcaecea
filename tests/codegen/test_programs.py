"""Whole networks: partition, packages, determinism, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.errors import HexaneError, UnsupportedError, UsageError
from hexane.graph import GraphBuilder


def weights(rng, *shape):
    return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float16)


def residual_network():
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", (1, 3, 32, 32), "fp16")
    v = b.relu(x=b.conv(x=x, weight=weights(rng, 16, 3, 3, 3), bias=weights(rng, 16, 1).ravel(), pad_type="same"))
    for stride in (1, 2):
        w = b.conv(
            x=v, weight=weights(rng, 16, 16, 3, 3), strides=(stride, stride), pad_type="custom", pad=(1, 1, 1, 1)
        )
        if stride == 2:
            v = b.conv(x=v, weight=weights(rng, 16, 16, 1, 1), strides=(2, 2), pad_type="valid")
        v = b.relu(x=b.add(x=v, y=w))
    v = b.reduce_mean(x=v, axes=(2, 3), keep_dims=True)
    b.output(b.softmax(x=b.conv(x=v, weight=weights(rng, 10, 16, 1, 1), pad_type="valid"), axis=1, name="y"))
    return b.graph


def mixed_network():
    """Engine, host, engine: cumsum has no encoding."""
    b = GraphBuilder()
    x = b.input("x", (1, 8, 4, 32), "fp16")
    summed = b.cumsum(x=b.relu(x=x), axis=3, exclusive=False, reverse=False)
    b.output(b.sigmoid(x=summed, name="y"), b.abs(x=x, name="z"))
    return b.graph


def run_both(graph):
    program = hexane.compile(graph)
    rng = np.random.default_rng(1)
    inputs = {name: (rng.standard_normal(t.shape) * 0.5).astype(np.float16) for name, t in graph.inputs.items()}
    return program, inputs, program.run(inputs), graph.evaluate(inputs)


def test_residual_network_is_one_engine_program():
    program, _, made, wanted = run_both(residual_network())
    assert [s.kind for s in program.segments] == ["engine"]
    np.testing.assert_allclose(made["y"].astype(float), wanted["y"].astype(float), atol=2e-3)
    assert program.stats()["macs_on_engine"] == 1.0


def test_host_part_has_a_reason():
    program, _, made, wanted = run_both(mixed_network())
    assert [s.kind for s in program.segments] == ["engine", "host", "engine"]
    assert "cumsum" in program.segments[1].reason
    assert list(program.stats()["host_ops"]) == ["cumsum"]
    for name in wanted:
        np.testing.assert_allclose(made[name].astype(float), wanted[name].astype(float), atol=5e-3)


@pytest.mark.parametrize("network", [residual_network, mixed_network])
def test_package_round_trip(network, tmp_path):
    program, inputs, made, _ = run_both(network())
    path = tmp_path / "net.hexane"
    program.save(path)
    again = hexane.load_program(path)
    assert [s.kind for s in again.segments] == [s.kind for s in program.segments]
    for name, array in again.run(inputs).items():
        np.testing.assert_array_equal(array, made[name])


def test_single_program_as_hwx(tmp_path):
    program, inputs, made, _ = run_both(residual_network())
    for suffix in (".hwx", ".anec"):
        program.save(tmp_path / f"net{suffix}")
        image = hexane.open_image(tmp_path / f"net{suffix}")
        (label,) = (s.label for s in image.surfaces if s.role == "input")  # a package keeps no names
        outputs = hexane.emulate(image, {label: inputs["x"]})
        (array,) = outputs.values()
        np.testing.assert_array_equal(array, made["y"])


def test_several_segments_are_no_hwx(tmp_path):
    with pytest.raises(UsageError, match=r"\.hexane"):
        hexane.compile(mixed_network()).save(tmp_path / "net.hwx")


def test_same_input_same_bytes(tmp_path):
    files = []
    for i in range(2):
        path = tmp_path / f"{i}.hexane"
        hexane.compile(residual_network()).save(path)
        files.append(path.read_bytes())
    assert files[0] == files[1]


def test_strict_refuses_the_host():
    with pytest.raises(UnsupportedError, match="cumsum"):
        hexane.compile(mixed_network(), strict=True)


def test_strict_has_no_inferred_task():
    program = hexane.compile(residual_network(), strict=True)
    assert set(program.stats()["evidence"]) <= {"APPLE", "SILICON"}


def test_other_chips_are_refused_with_a_way_out():
    with pytest.raises(UnsupportedError, match="level"):
        hexane.compile(residual_network(), chip="A13")


def test_bad_arguments():
    graph = residual_network()
    with pytest.raises(UsageError, match="dialect"):
        hexane.compile(graph, dialect="zin9")
    with pytest.raises(UsageError, match="ident"):
        hexane.compile(graph, ident={"colour": "red"})
    program = hexane.compile(graph)
    for wrong in ({}, {"x": np.zeros((1, 3, 8, 8), np.float16)}, {"x": np.zeros((1, 3, 32, 32)), "q": np.zeros(1)}):
        with pytest.raises(HexaneError):
            program.run(wrong)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 broken", b"\0" * 100])
def test_broken_packages(data, tmp_path):
    path = tmp_path / "broken.hexane"
    path.write_bytes(data)
    with pytest.raises(HexaneError):
        hexane.load_program(path)


@pytest.mark.parametrize(("shape", "dtype"), [((1, 20_000), "fp16"), ((4, 4), "int32")])
def test_what_the_engine_cannot_hold_is_on_the_host(shape, dtype):
    builder = GraphBuilder()
    x = builder.input("x", shape, dtype)
    builder.output(builder.add(x=x, y=x, name="y"))
    program = hexane.compile(builder.graph)
    host = [s for s in program.segments if s.kind == "host"]
    assert host and all(s.reason for s in host)
    values = np.arange(np.prod(shape)).reshape(shape) % 7
    np.testing.assert_array_equal(program.run({"x": values})["y"], 2 * values)


def test_many_inputs_are_cut_into_programs():
    builder = GraphBuilder()
    values = [builder.input(f"x{i:02}", (1, 8, 4, 32), "fp16") for i in range(40)]
    builder.output(builder.concat(values=tuple(values[:20]), axis=1, name="y"))
    builder.output(builder.concat(values=tuple(values[20:]), axis=1, name="z"))
    program, _, made, wanted = run_both(builder.graph)
    assert [s.kind for s in program.segments] == ["engine", "engine"]
    for name in wanted:
        np.testing.assert_array_equal(made[name], wanted[name])


def test_outputs_that_no_op_makes(tmp_path):
    builder = GraphBuilder()
    x = builder.input("x", (1, 8, 4, 32), "fp16")
    builder.output(x, builder.relu(x=x, name="y"), builder.const(np.arange(3, dtype=np.float16), name="k"))
    program = hexane.compile(builder.graph)
    program.save(tmp_path / "net.hexane")
    values = np.linspace(-1, 1, 1024).astype(np.float16).reshape(1, 8, 4, 32)
    for made in (program.run({"x": values}), hexane.load_program(tmp_path / "net.hexane").run({"x": values})):
        np.testing.assert_array_equal(made["x"], values)
        np.testing.assert_array_equal(made["y"], np.maximum(values, 0))
        np.testing.assert_array_equal(made["k"], [0, 1, 2])


def test_shapes_that_depend_on_data_are_on_the_host():
    builder = GraphBuilder()
    found = builder.non_zero(x=builder.relu(x=builder.input("x", (1, 8, 4, 32), "fp16")))
    builder.output(builder.relu(x=builder.cast(x=found, dtype="fp16"), name="y"))
    program = hexane.compile(builder.graph)
    assert [s.kind for s in program.segments] == ["engine", "host"]
    assert "depends on data" in program.segments[1].reason


def test_a_long_network_is_cut_where_little_crosses():
    """280 convolutions are too many tasks for one program of M2; one of them has two channels, all others sixteen."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    value = b.input("x", (1, 16, 4, 4), "fp16")
    for i in range(280):
        kernel = weights(rng, 2 if i == 50 else 16, value.shape[1], 1, 1)
        value = b.conv(x=value, weight=kernel, name="narrow" if i == 50 else f"wide{i}")
    b.output(b.relu(x=value, name="y"))
    first, second = hexane.compile(b.graph, "M2").segments
    assert [port.name for port in first.outputs] == [port.name for port in second.inputs] == ["narrow"]
    assert max(len(first.image.tasks), len(second.image.tasks)) <= 255
    assert len(hexane.compile(b.graph).segments) == 1
