"""Compressing weights: every format gives what it says, through files, the compiler and a budget."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import hexane
from hexane import chips
from hexane.errors import UnsupportedError, UsageError
from hexane.graph import GraphBuilder
from hexane.lowering.compilation import Compilation
from hexane.studies import WeightFormat
from hexane.studies.choose import Budget, FormatChoice, choices_of, choose
from hexane.studies.compress import layers_of
from hexane.studies.encode import indices_into, palette_of
from hexane.studies.trials import Trials, relative_error

M1 = Compilation(chips.get("M1"))

RNG = np.random.default_rng(0)


def network():
    rng = np.random.default_rng(3)
    b = GraphBuilder()
    x = b.input("x", (1, 16, 8, 8), "fp32")
    y = b.conv(x=x, weight=rng.normal(0, 0.1, (32, 16, 3, 3)).astype(np.float32), pad_type="same", name="first")
    y = b.batch_norm(
        x=y,
        mean=rng.normal(0, 0.1, 32).astype(np.float32),
        variance=rng.uniform(0.5, 2, 32).astype(np.float32),
        gamma=rng.uniform(0.5, 2, 32).astype(np.float32),
        beta=rng.normal(0, 0.1, 32).astype(np.float32),
        epsilon=1e-5,
    )
    y = b.reshape(x=b.relu(x=y), shape=[1, 2048])
    y = b.linear(x=y, weight=rng.normal(0, 0.02, (64, 2048)).astype(np.float32), name="second")
    y = b.matmul(x=y, y=rng.normal(0, 0.1, (64, 48)).astype(np.float32), name="third")
    b.output(y)
    return b.graph


GIVEN = {"x": np.random.default_rng(1).normal(0, 1, (1, 16, 8, 8)).astype(np.float32)}


def error(graph) -> float:
    wanted, found = (next(iter(g.evaluate(GIVEN).values())).astype(np.float64) for g in (network(), graph))
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize(
    "form, most",
    [
        ("palette8", 0.03),
        ("palette6", 0.06),
        ("palette4", 0.2),
        ("palette4:scales", 0.2),
        ("palette4:16", 0.2),
        ("palette3", 0.4),
        ("palette2", 0.7),
        ("palette1", 1.0),
        ("int8", 0.02),
        ("int8:tensor", 0.05),
        ("int4", 0.35),
        ("int4:16", 0.25),
        ("sparse:0.5", 0.7),
        ("sparse:0.25+palette6", 0.4),
    ],
)
def test_every_format(form, most):
    graph = hexane.compress(network(), form)
    found = error(graph)
    assert 0 < found < most
    ops = [op.type for op in graph.main.ops]
    assert sum(op.startswith("constexpr_") for op in ops) >= 3
    program = hexane.compile(graph, "M1")
    assert program.stats()["macs_on_engine"] == 1.0


@pytest.mark.parametrize("form, share", [("palette4", 0.25), ("palette2", 0.125), ("int8:tensor", 0.5)])
def test_what_streams_is_that_small(form, share):
    full = sum(2 * layer.count for layer in layers_of(network()))
    program = hexane.compile(hexane.compress(network(), form), "M1")
    heads = 3 * 16 * 640
    assert sum(len(image.const) for image in program.images) <= share * full + heads


@pytest.mark.parametrize("suffix", [".mil", ".mlpackage"])
@pytest.mark.parametrize("form", ["palette4:16", "int4:16", "sparse:0.5+palette4"])
def test_files_hold_what_was_compressed(tmp_path, form, suffix):
    if suffix == ".mlpackage":
        pytest.importorskip("coremltools")
    graph = hexane.compress(network(), form)
    graph.save(tmp_path / f"m{suffix}")
    read = hexane.load(tmp_path / f"m{suffix}")
    wanted, found = (next(iter(g.evaluate(GIVEN).values())) for g in (graph, read))
    assert wanted.tobytes() == found.tobytes()
    assert any(op.type.startswith("constexpr_") for op in read.main.ops)


def test_a_network_stays_as_it_is_and_layers_can_be_chosen():
    graph = network()
    before = graph.to_mil() if hasattr(graph, "to_mil") else str(graph)
    names = [layer.name for layer in layers_of(graph)]
    made = hexane.compress(graph, {names[1]: "palette4"})
    assert (graph.to_mil() if hasattr(graph, "to_mil") else str(graph)) == before
    assert sum(op.type.startswith("constexpr_") for op in made.main.ops) == 1
    with pytest.raises(UsageError, match="no layer"):
        hexane.compress(graph, {"nothing": "palette4"})


@pytest.mark.parametrize("name", ["palette5", "int3", "sparse:2", "palette", "int8:x", "", "fp8"])
def test_unknown_formats(name):
    with pytest.raises(UsageError, match="no weight format"):
        hexane.compress(network(), name)


@pytest.mark.parametrize("form", ["palette4:scales", "int8", "int4", "int8:tensor", "palette4", "sparse:0.5+palette4"])
def test_outputs_that_are_zero_or_tiny_or_large(form):
    """Channels that training let die, and channels at the end of fp16's range."""
    weight = np.random.default_rng(8).normal(0, 1, (64, 64)).astype(np.float32)
    weight[3], weight[7], weight[9] = 0, weight[7] * 1e-12, weight[9] * 15000
    b = GraphBuilder()
    b.output(b.linear(x=b.input("x", (1, 64), "fp32"), weight=weight))
    (out,) = hexane.compress(b.graph, form).evaluate({"x": np.full((1, 64), 0.01, np.float32)}).values()
    assert np.isfinite(out).all()
    if not form.startswith("palette"):  # a table need not hold zero
        assert out[0, 3] == 0
        assert abs(out[0, 7]) < 1e-3


def test_what_cannot_be_compressed_is_said():
    b = GraphBuilder()
    b.output(b.relu(x=b.input("x", (1, 4), "fp32")))
    with pytest.raises(UsageError, match="no layer has constant weights"):
        hexane.compress(b.graph)
    with pytest.raises(UnsupportedError, match="no multiple of 7"):
        hexane.compress(network(), "palette4:7")
    b = GraphBuilder()
    x = b.input("x", (1, 64), "fp32")
    weight = np.ones((64, 64), np.float32)
    weight[3, 5] = np.inf
    b.output(b.linear(x=x, weight=weight))
    with pytest.raises(UnsupportedError, match="not finite"):
        hexane.compress(b.graph)


@pytest.mark.parametrize("bits", [1, 2, 4, 6, 8])
@pytest.mark.parametrize("kind", ["normal", "laplace", "uniform"])
def test_palettes_are_near_the_best(bits, kind):
    """Panter and Dite's bound for many levels, and known optima for few (normal: Max 1960)."""
    draw = {"normal": RNG.normal, "laplace": RNG.laplace, "uniform": lambda a, b, n: RNG.uniform(-1, 1, n)}[kind]
    values = draw(0, 1, 200_000).astype(np.float32)
    entries = palette_of(values, bits)
    mean = float(np.mean((entries[indices_into(values, entries)].astype(np.float64) - values) ** 2))
    bound = {"normal": np.sqrt(3) * np.pi / 2, "laplace": 9 / 2 * 2, "uniform": 1 / 3}[kind] / 4**bits
    known = {("normal", 1): 0.3634, ("normal", 2): 0.1175, ("normal", 4): 0.009497}.get((kind, bits), bound)
    assert mean < (1.1 if known != bound or bits > 2 else 1.6) * known


def test_scales_help_where_outputs_differ_and_one_is_far_out():
    """Entries are chosen for the error behind the scale: an output with large weights does not lose to the others."""
    rng = np.random.default_rng(2)
    weight = (rng.normal(0, 1, (64, 256)) * np.geomspace(0.01, 1, 64)[:, None]).astype(np.float32)
    weight[5, 7] = 40
    graphs = {}
    for form in ("palette4", "palette4:scales"):
        b = GraphBuilder()
        b.output(b.linear(x=b.input("x", (256, 256), "fp32"), weight=weight))
        (out,) = hexane.compress(b.graph, form).evaluate({"x": np.eye(256, dtype=np.float32)}).values()
        graphs[form] = np.linalg.norm(out.T - weight, axis=1) / np.linalg.norm(weight, axis=1)
    assert np.median(graphs["palette4:scales"]) < np.median(graphs["palette4"])
    assert graphs["palette4:scales"][5] < 0.1


def test_few_values_stand_exactly():
    values = RNG.choice(np.array([-1, 0, 0.5, 3], np.float32), 1000)
    entries = palette_of(values, 2)
    np.testing.assert_array_equal(entries[indices_into(values, entries)], values.astype(np.float16))


def test_sizes_of_formats():
    shape = (64, 32, 3, 3)
    count = 64 * 32 * 9
    assert WeightFormat.of("fp16").bytes_of(shape) == 2 * count
    assert WeightFormat.of("palette4").bytes_of(shape) == count // 2 + 32
    assert WeightFormat.of("palette4:16").bytes_of(shape) == count // 2 + 4 * 32
    assert WeightFormat.of("int8").bytes_of(shape) == count + 128
    assert WeightFormat.of("int4:32").bytes_of(shape) == count // 2 + 2 * 64 * 9
    assert WeightFormat.of("sparse:0.5").bytes_of(shape) == count // 8 + count


def choice(layer, form, size, wrong):
    return FormatChoice(layer, WeightFormat.of(form), size, size / 10, wrong)


CHOICES = [
    choice("a", "fp16", 100, 0.0),
    choice("a", "int8", 50, 0.01),
    choice("a", "palette4", 25, 0.3),
    choice("b", "fp16", 100, 0.0),
    choice("b", "int8", 50, 0.02),
    choice("b", "palette4", 25, 0.04),
]


def names(found):
    return {layer: c.form.name for layer, c in found.items()}


def test_a_budget_takes_what_costs_least_error():
    assert names(choose(CHOICES, Budget("bytes", 200))) == {"a": "fp16", "b": "fp16"}
    assert names(choose(CHOICES, Budget("bytes", 80))) == {"a": "int8", "b": "palette4"}
    assert names(choose(CHOICES, Budget("us", 8))) == {"a": "int8", "b": "palette4"}
    assert names(choose(CHOICES, Budget("error", 0.03))) == {"a": "int8", "b": "int8"}
    with pytest.raises(UsageError, match="still take"):
        choose(CHOICES, Budget("bytes", 40))


@pytest.mark.parametrize(
    "text, kind, limit",
    [("50%", "bytes", 500), ("2.5MB", "bytes", 2.5e6), ("0.8ms", "us", 800), ("error:1%", "error", 0.01)],
)
def test_budgets(text, kind, limit):
    assert Budget.of(text, 1000) == Budget(kind, limit)


@pytest.mark.parametrize("text", ["", "50", "error:2", "error:1ms", "-1%", "2 MB x"])
def test_what_is_no_budget(text):
    with pytest.raises(UsageError, match="no budget"):
        Budget.of(text, 1000)


def test_choices_are_measured_alone():
    from hexane import chips

    graph = network()
    chip = chips.get("M1")
    found = choices_of(Trials(graph, [GIVEN], chip), [WeightFormat.of("palette4"), WeightFormat.of("int8")], [chip])
    assert len(found) == 9
    for layer in layers_of(graph):
        rows = {c.form.name: c for c in found if c.layer == layer.name}
        assert rows["fp16"].error == 0 < rows["int8"].error < rows["palette4"].error < 1
        assert rows["palette4"].bytes < rows["int8"].bytes < rows["fp16"].bytes


def run(*arguments):
    from hexane.cli.main import app

    return CliRunner().invoke(app, ["compress", *map(str, arguments)], catch_exceptions=True)


def test_the_command(tmp_path):
    network().save(tmp_path / "m.mil")
    done = run(tmp_path / "m.mil", "--weights", "palette4", "-o", tmp_path / "small.mil", "--chip", "M1,M4", "--json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.output)
    assert data["schema"] == "hexane-compress/1"
    plain, small = data["rows"]
    assert small["bytes"] < 0.3 * plain["bytes"]
    assert plain["error"] < 2e-3 < small["error"] < 0.2  # the engine's own rounding, then the palette's
    assert small["becomes"]["M1"] == {"streams 4-bit indices": 3}
    assert small["M1_ms"] > 0 and small["M4_ms"] > 0
    assert any(op.type == "constexpr_lut_to_dense" for op in hexane.load(tmp_path / "small.mil").main.ops)


def test_the_command_with_a_budget(tmp_path):
    network().save(tmp_path / "m.mil")
    out = tmp_path / "mixed.mil"
    done = run(tmp_path / "m.mil", "--weights", "palette4,int8", "--budget", "40%", "-o", out, "--json")
    assert done.exit_code == 0, done.output
    plain, mixed = json.loads(done.output)["rows"]
    assert mixed["bytes"] <= 0.4 * plain["bytes"]
    assert set(mixed["layers"].values()) <= {"fp16", "palette4", "int8"}
    assert out.exists()


def test_an_error_budget_says_what_it_counts(tmp_path):
    network().save(tmp_path / "m.mil")
    done = run(tmp_path / "m.mil", "--weights", "palette6,int8", "--budget", "error:2%", "--json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.output)
    plain, mixed = data["rows"]
    (note,) = [note for note in data["notes"] if "budget" in note]
    assert f"alone are off by {plain['error']:.2%}, these by {mixed['error']:.2%}" in note
    assert not any("budget" in note for note in json.loads(run(tmp_path / "m.mil", "--json").output)["notes"])


def test_wrong_uses_of_the_command(tmp_path):
    network().save(tmp_path / "m.mil")
    for arguments in (
        ["--weights", "palette5"],
        ["-o", tmp_path / "x.tflite"],
        ["--weights", "palette4,int8"],
        ["--compare", "--budget", "50%"],
        ["--budget", "x"],
    ):
        done = run(tmp_path / "m.mil", *arguments)
        assert done.exit_code != 0
        assert isinstance(done.exception, UsageError), done.exception


def test_the_command_writes_onnx(tmp_path):
    pytest.importorskip("onnx")
    network().save(tmp_path / "m.mil")
    done = run(tmp_path / "m.mil", "--weights", "sparse:0.5", "-o", tmp_path / "small.onnx")
    assert done.exit_code == 0, done.output
    assert "written as dense weights" in done.output
    assert next(iter(hexane.load(tmp_path / "small.onnx").outputs.values())).shape == (1, 48)


def test_the_page(tmp_path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    network().save(tmp_path / "m.mil")
    done = run(tmp_path / "m.mil", "--weights", "palette4,int8", "--budget", "40%", "--page", tmp_path / "page.html",
               "--chip", "M1,M4", "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text()
    assert page.count("data:image/png;base64,") == 3  # size, M1, M4
    assert 'src="http' not in page and "<script src" not in page
    rows = json.loads(done.output)["rows"]
    assert [row["weights"] for row in rows] == ["fp16", "palette4", "int8", "mixed, 40%"]
    for layer in layers_of(network()):
        assert layer.name in page
    for row in rows[1:]:
        for reasons in row["becomes"].values():
            for reason in reasons:
                assert reason in page


def test_trials_begin_where_a_layer_changes():
    """What is computed again behind one layer gives the bits of the whole network with that layer compressed."""
    from hexane import chips, passes
    from hexane.numerics import evaluate

    graph, chip = network(), chips.get("M4")
    trials = Trials(graph, [GIVEN], chip)
    plain = evaluate(passes.run(hexane.compress(graph, "fp16"), M1), GIVEN, chip)
    for form in ("int8", "palette4:scales", "sparse:0.5"):
        for layer in layers_of(graph):
            whole = evaluate(passes.run(hexane.compress(graph, {layer.name: form}), M1), GIVEN, chip)
            assert trials.alone(layer.name, WeightFormat.of(form)) == relative_error(whole, plain)


def test_what_is_compressed_already_stays_so():
    graph = network()
    first, second, third = (layer.name for layer in layers_of(graph))
    made = hexane.compress(hexane.compress(graph, {first: "int8"}), {second: "palette4"})
    kinds = [op.type for op in made.main.ops if op.type.startswith("constexpr_")]
    assert sorted(kinds) == ["constexpr_blockwise_shift_scale", "constexpr_lut_to_dense"]
    assert [layer.name for layer in layers_of(made)] == [third]


def of(build, *shape, dtype="fp32"):
    b = GraphBuilder()
    b.output(build(b, b.input("x", shape, dtype)))
    return b.graph


def drawn(*shape):
    return np.random.default_rng(5).normal(0, 0.05, shape).astype(np.float32)


def tied(b, x):
    table = b.const(drawn(300, 64))
    return b.linear(x=b.relu(x=b.gather(x=table, indices=x, axis=0)), weight=table)


def twice(b, x):
    kernel = b.const(drawn(64, 64, 3, 3))
    return b.conv(x=b.relu(x=b.conv(x=x, weight=kernel, pad_type="same")), weight=kernel, pad_type="same")


def grouped(b, x):
    y = b.conv(x=x, weight=drawn(64, 16, 3, 3), groups=4, pad_type="same")
    return b.conv(x=y, weight=drawn(64, 1, 7, 7), groups=64, pad_type="same")


def recurrent(b, x):
    start = np.zeros((1, 32), np.float32)
    parts = dict(initial_h=start, initial_c=start, weight_ih=drawn(128, 16), weight_hh=drawn(128, 32))
    out = b.op("lstm", x=x, output_sequence=True, **parts)
    return b.linear(x=out[0], weight=drawn(64, 32))


MAP, WORDS = (1, 64, 8, 8), np.array([[1, 5, 299, 0]], np.int32)
ODD = {  # network, input, how many weights are compressed
    "one kernel for two layers": (of(twice, *MAP), drawn(*MAP), 1),
    "groups": (of(grouped, *MAP), drawn(*MAP), 2),
    "embeddings": (of(lambda b, x: b.gather(x=drawn(300, 64), indices=x, axis=0), 1, 4, dtype="int32"), WORDS, 1),
    "embeddings that are a product's weights": (of(tied, 1, 4, dtype="int32"), WORDS, 1),
    "a transposed convolution": (
        of(lambda b, x: b.conv_transpose(x=x, weight=drawn(64, 32, 2, 2), strides=[2, 2]), *MAP), drawn(*MAP), 1
    ),
    "a recurrent layer": (of(recurrent, 5, 1, 16), 40 * drawn(5, 1, 16), 1),
    "weights of zeros": (
        of(lambda b, x: b.linear(x=x, weight=np.zeros((64, 64), np.float32)), 1, 64), drawn(1, 64), 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", ["palette4:scales", "int8", "sparse:0.5"])
@pytest.mark.parametrize("name", ODD)
def test_odd_networks(name, form, tmp_path):
    """Through a file and the compiler with the same values; a shared weight is stored once."""
    graph, x, count = ODD[name]
    made = hexane.compress(graph, form)
    assert len({id(op.output) for op in made.main.ops if op.type.startswith("constexpr_")}) >= count
    last = {"palette4:scales": "constexpr_blockwise_shift_scale", "int8": "constexpr_blockwise_shift_scale",
            "sparse:0.5": "constexpr_sparse_to_dense"}[form]  # fmt: skip
    assert sum(op.type == last for op in made.main.ops) == count
    made.save(tmp_path / "m.mil")
    (wanted,), (found,), (plain,) = (
        g.evaluate({"x": x}).values() for g in (made, hexane.load(tmp_path / "m.mil"), graph)
    )
    assert wanted.tobytes() == found.tobytes()
    assert np.linalg.norm(wanted - plain) <= 0.7 * np.linalg.norm(plain)
    (ran,) = hexane.compile(made, "M4").run({"x": x}).values()
    np.testing.assert_allclose(ran, wanted, rtol=0, atol=0.02 * max(float(np.abs(wanted).max()), 2.0**-8))


def test_networks_of_small_layers():
    """Layers of fewer than 2,048 weights stay beside larger ones; where all are small they are compressed."""
    b = GraphBuilder()
    x = b.conv(x=b.input("x", (1, 3, 8, 8), "fp32"), weight=drawn(4, 3, 3, 3), pad_type="same")
    b.output(x)
    assert [layer.count for layer in layers_of(b.graph)] == [108]
    made = hexane.compress(b.graph, "palette4")
    assert any(op.type.startswith("constexpr_") for op in made.main.walk())
    values = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    (plain,), (found,) = b.graph.evaluate({"x": values}).values(), made.evaluate({"x": values}).values()
    assert 0 < np.linalg.norm(found - plain) < 0.3 * np.linalg.norm(plain)
    b.output(b.conv(x=x, weight=drawn(64, 4, 3, 3)))
    assert [layer.count for layer in layers_of(b.graph)] == [64 * 4 * 9]
    with pytest.raises(UsageError, match="no layer has constant weights"):
        hexane.compress(b.graph, "palette4", smallest=4096)


def test_nothing_to_compress():
    small = of(lambda b, x: b.relu(x=x), 1, 4)
    for form in ("palette4", "int8"):
        with pytest.raises(UsageError, match="no layer has constant weights"):
            hexane.compress(small, form)
    broken = drawn(64, 64)
    broken[3, 4] = np.nan
    with pytest.raises(UnsupportedError, match="not finite"):
        hexane.compress(of(lambda b, x: b.linear(x=x, weight=broken), 1, 64), "palette4")


def broken_network(tmp_path):
    """Two products: the first's weights hold an infinity that its zero input hides, 72 outputs of the second."""
    first, second = drawn(32, 64), drawn(72, 32)
    first[3, 4] = np.inf
    b = GraphBuilder()
    y = b.relu(x=b.linear(x=b.input("x", (1, 64), "fp32"), weight=first, name="first"))
    b.output(b.linear(x=y, weight=second, name="second"))
    b.graph.save(tmp_path / "broken.mil")
    return b.graph, tmp_path / "broken.mil"


def test_layers_that_a_format_does_not_suit_stay_at_every_door(tmp_path, monkeypatch):
    tables = []
    monkeypatch.setattr("hexane.studies.encode.palette_of", lambda *given: tables.append(given) or palette_of(*given))
    graph, path = broken_network(tmp_path)
    done = run(path, "-o", tmp_path / "small.mil", "--json")
    assert done.exit_code == 0, done.output
    assert len(tables) == 1  # a palette is worked out once, for the figures and for the file
    first, second = (layer.name for layer in layers_of(graph))
    assert json.loads(done.output)["rows"][1]["layers"] == {first: "fp16", second: "palette4"}
    ours = [op.type for op in hexane.compress(graph, "palette4").main.ops]
    assert [op.type for op in hexane.load(tmp_path / "small.mil").main.ops].count("constexpr_lut_to_dense") == 1
    assert ours.count("constexpr_lut_to_dense") == 1
    for wrong in ("palette4:7", "int4:64"):  # 72 outputs, 32 inputs
        refused = run(path, "--weights", wrong)
        assert isinstance(refused.exception, UnsupportedError), refused.output
        with pytest.raises(UnsupportedError, match=r"not finite|no multiple"):
            hexane.compress(graph, wrong)
    with pytest.raises(UnsupportedError, match="not finite"):
        hexane.compress(graph, {first: "palette4"})


def test_errors_of_what_is_not_finite_as_numpy_has_them(recwarn):
    want, got = np.array([np.inf, 3.0, np.nan, 4.0]), np.array([np.inf, 3.0, 7.0, 4.5])
    finite = np.isfinite(want)
    expected = np.linalg.norm((got - want)[finite]) / np.linalg.norm(want[finite])
    recwarn.clear()
    assert relative_error({"y": got}, {"y": want}) == pytest.approx(expected)
    assert relative_error({"y": want}, {"y": got}) == np.inf
    assert np.isnan(relative_error({"y": got[:1]}, {"y": want[:1]}))
    assert relative_error({"y": got}, {"y": np.zeros(4)}) == np.inf
    assert relative_error({"y": np.zeros(4)}, {"y": np.zeros(4)}) == 0
    assert not recwarn.list


def test_palettes_of_values_beyond_fp16_are_finite(recwarn):
    values = np.array([1e6, -3e5, 2.0, 7e4], np.float32)
    entries = palette_of(values, 2)
    assert entries[indices_into(values, entries)].tolist() == [65504, -65504, 2, 65504]
    assert not recwarn.list
