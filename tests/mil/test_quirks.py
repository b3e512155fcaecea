"""``Model(quirks=True)``: what the real runtime is reported to do, rule by rule, as minimal call sequences."""

from __future__ import annotations

import numpy as np
import pytest
from tests.mil.test_model import FILES, GOOD, INPUT, WEIGHT
from tests.restrictions.programs import X, call, const, program, tensor, unary

import hexane
from blobs import blob_bytes
from hexane.errors import UnsupportedError
from hexane.mil import Model, NSString, Options, Process, ProcessCrash, RuntimeFault

PATH = "@model_path/weights/w.bin"
M4_MAX_15 = "macOS 15"


def model(
    text: str,
    weights: dict | None = None,
    chip: str = "M4 Max",
    os: str = M4_MAX_15,
    process: Process | None = None,
    surfaces: str | None = None,
) -> Model:
    options = Options(os=os, process=process or Process(), surfaces=surfaces)
    return Model(text, weights or {}, chip, quirks=True, options=options)


def near(got: np.ndarray, expected: np.ndarray) -> bool:
    """Within the engine's rounding."""
    return bool(np.allclose(got.astype(float), expected.astype(float), rtol=2e-3, atol=2e-3))


def square(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(0, 1, shape).astype(np.float16)


def test_t1_a_string_object_crashes() -> None:
    with pytest.raises(ProcessCrash, match="string object"):
        Model(NSString(GOOD), FILES, quirks=True)
    Model(GOOD.encode(), FILES, quirks=True)


def test_w1_a_nil_dictionary_crashes_where_there_are_weights() -> None:
    with pytest.raises(ProcessCrash, match="nil"):
        Model(GOOD, None, quirks=True)
    Model(unary("exp"), None, quirks=True)


def test_r1_the_120th_compilation_fails() -> None:
    process = Process()
    for number in range(119):
        text = unary("mul", ", y = c", const("fp16", "c", f"{number}.0"))
        process.compile() if number else model(text, process=process).compile()
    with pytest.raises(RuntimeFault, match=r"FAILED \(domain com.apple.appleneuralengine.compiler, code 1\)") as caught:
        model(unary("exp"), process=process).compile()
    assert caught.value.rule == "R1"


def test_r3_too_many_loaded_programs() -> None:
    process = Process(most_loaded=2)
    kept = [model(GOOD, FILES, process=process).compile().load() for _ in range(2)]
    with pytest.raises(RuntimeFault, match="0x50004"):
        model(GOOD, FILES, process=process).compile().load()
    kept[0].unload()
    model(GOOD, FILES, process=process).compile().load()


def test_w8_changed_weights_have_no_effect() -> None:
    with model(GOOD, FILES) as loaded:
        before = loaded.evaluate({"x": INPUT})["y"]
        loaded.files[PATH] = blob_bytes([(WEIGHT * 2, "fp16")])
        loaded.unload()
        assert np.array_equal(loaded.load().evaluate({"x": INPUT})["y"], before)
        update = loaded.update({"w": WEIGHT * 2})
        assert update.how == "ignored"
        assert np.array_equal(loaded.evaluate({"x": INPUT})["y"], before)


def test_w9_the_cache_looks_at_the_dictionary() -> None:
    process = Process()
    with model(GOOD, FILES, process=process) as first:
        before = first.evaluate({"x": INPUT})["y"]
    second = model(GOOD, FILES, process=process)
    second.files[PATH] = blob_bytes([(WEIGHT * 2, "fp16")])  # the file in the folder, not the dictionary
    assert np.array_equal(second.compile().load().evaluate({"x": INPUT})["y"], before)
    tagged = GOOD.replace('"3505.4.1"}', '"3505.4.1"}, {"tag", "2"}')
    third = model(tagged, FILES, process=process)
    third.files[PATH] = blob_bytes([(WEIGHT * 2, "fp16")])
    assert near(third.compile().load().evaluate({"x": INPUT})["y"], before * 2)


def test_w10_a_weights_buffer_is_ignored() -> None:
    with model(GOOD, FILES) as loaded:
        plain = loaded.evaluate({"x": INPUT})["y"]
        assert np.array_equal(loaded.evaluate({"x": INPUT}, weights_buffer=b"other")["y"], plain)


def test_s8_strided_data_are_read_packed() -> None:
    wide = square(1, 64, 1, 1024)
    with model(unary("mul", ", y = x")) as loaded:
        got = loaded.evaluate({"x": wide[..., :512]})["y"]
    packed = wide.reshape(-1)[: 64 * 512].reshape(1, 64, 1, 512)
    assert near(got, packed * packed)
    assert not near(got, wide[..., :512] ** 2)


def test_s2_results_come_in_byte_order() -> None:
    text = program(call(X, "z", "add", "x = x, y = x") + call(X, "a", "mul", "x = x, y = x"), f"{X} x", "z, a")
    with model(text) as loaded:
        got = loaded.evaluate({"x": INPUT})
    assert near(got["z"], INPUT * INPUT)  # the surface listed first holds a
    assert near(got["a"], INPUT + INPUT)
    digits = program(call(X, "y", "add", "x = x, y = x") + call(X, "y2", "mul", "x = x, y = x"), f"{X} x", "y, y2")
    with model(digits) as loaded:
        assert near(loaded.evaluate({"x": INPUT})["y"], INPUT * INPUT)  # "2" sorts before "@"


def test_s7_inputs_are_bound_in_byte_order() -> None:
    text = program(call(X, "y", "sub", "x = x, y = w"), f"{X} x, {X} w", "y")
    x, w = square(1, 64, 1, 512), INPUT
    with model(text) as loaded:
        assert near(loaded.evaluate({"x": x, "w": w})["y"], w - x)
    with Model(text, {}, "M4 Max") as strict:
        assert near(strict.evaluate({"x": x, "w": w})["y"], x - w)


def test_s7_a_small_surface_for_a_large_tensor() -> None:
    small, large = tensor(1, 2, 1, 32), tensor(4, 2, 1, 32)
    text = program(call(large, "y", "mul", "x = W, y = x"), f"{small} x, {large} W", "y")
    inputs = {"x": square(1, 2, 1, 32), "W": square(4, 2, 1, 32)}
    with model(text, chip="M3 Max", os="26.3.1") as loaded, pytest.raises(RuntimeFault, match="0x1d") as caught:
        loaded.evaluate(inputs)
    assert (caught.value.domain, caught.value.code, caught.value.status) == ("com.apple.appleneuralengine", 8, 0x1D)


@pytest.mark.parametrize(("declared", "results", "rule"), [("a", "b, c", "S1"), ("a, b", "c", "S6")])
def test_s1_and_s6_unequal_surfaces(declared: str, results: str, rule: str) -> None:
    half = tensor(1, 32, 1, 512)
    cut = const("tensor<int32, [4]>", "bg", "[0, 0, 0, 0]") + const("tensor<int32, [4]>", "sz", "[1, 32, 1, 512]")
    if rule == "S1":
        text = program(cut + call(half, "b", "slice_by_size", "begin = bg, size = sz, x = a")
                       + call(X, "c", "add", "x = a, y = a"), f"{X} a", results)  # fmt: skip
    else:
        text = program(cut + call(half, "h", "slice_by_size", "begin = bg, size = sz, x = b")
                       + call(half, "c", "add", "x = a, y = h"), f"{half} a, {X} b", results)  # fmt: skip
    arrays = {"a": square(*((1, 64, 1, 512) if rule == "S1" else (1, 32, 1, 512))), "b": square(1, 64, 1, 512)}
    inputs = {name.strip(): arrays[name.strip()] for name in declared.split(",")}
    with model(text) as loaded, pytest.raises(RuntimeFault, match="0x1d") as caught:
        loaded.evaluate(inputs)
    assert caught.value.rule == rule
    with model(text, surfaces="uniform_largest") as loaded:
        loaded.evaluate(inputs)


def test_o4_the_mask_is_ignored() -> None:
    shape = tensor(1, 4, 32, 64)
    text = program(call(shape, "y", "scaled_dot_product_attention", "key = a, query = b, value = c, attn_mask = d"),
                   f"{shape} a, {shape} b, {shape} c, {tensor(1, 4, 32, 32)} d", "y")  # fmt: skip
    arrays = {name: square(1, 4, 32, 64) for name in "abc"}
    mask = np.triu(np.full((32, 32), -1e4, np.float16), 1)
    with model(text, chip="M4") as loaded:
        causal = loaded.evaluate({**arrays, "d": np.broadcast_to(mask, (1, 4, 32, 32)).copy()})["y"]
        plain = loaded.evaluate({**arrays, "d": np.zeros((1, 4, 32, 32), np.float16)})["y"]
    assert np.array_equal(causal, plain)


def test_o7_tile_spoils_the_process() -> None:
    process = Process()
    text = unary("tile", ", reps = r", const("tensor<int32, [4]>", "r", "[1, 1, 1, 1]"))
    other = model(GOOD, FILES, "M3 Max", "26.3.1", process).compile().load()
    other.evaluate({"x": INPUT})
    with model(text, None, "M3 Max", "26.3.1", process) as loaded:
        assert np.array_equal(loaded.evaluate({"x": INPUT})["y"], INPUT)  # a right first answer
        with pytest.raises(RuntimeFault, match="0x1d"):
            loaded.evaluate({"x": INPUT})
    with pytest.raises(RuntimeFault, match="0x1d"):
        other.evaluate({"x": INPUT})


def test_o11_zeros_on_m1() -> None:
    flags = (
        const("tensor<bool, []>", "f", "false")
        .replace("string(", "tensor<string, []>(")
        .replace("bool(", "tensor<bool, []>(")
    )
    text = program(flags + call(tensor(1, 1, 64, 64), "y", "matmul", "transpose_x = f, transpose_y = f, x = a, y = b"),
                   f"{tensor(1, 1, 64, 48)} a, {tensor(1, 1, 48, 64)} b", "y")  # fmt: skip
    with model(text, chip="M1", os="macOS 26") as loaded:
        got = loaded.evaluate({"a": square(1, 1, 64, 48), "b": square(1, 1, 48, 64)})["y"]
    assert not got.any()


def test_a_compile_error_names_no_line() -> None:
    with pytest.raises(RuntimeFault, match="InvalidMILProgram") as caught:
        model(unary("rsqrt")).compile()
    assert "line" not in caught.value.message
    with pytest.raises(RuntimeFault, match="FAILED"):
        model("program(1.3) nonsense").compile()


def test_wrong_numbers_that_nobody_published() -> None:
    text = program(
        const("string", "pt", '"valid"') + const("tensor<int32, [2]>", "st", "[1, 1]")
        + const("tensor<int32, [4]>", "pd", "[0, 0, 0, 0]") + const("int32", "gr", "1")
        + call(tensor(1, 64, 1, 64), "y", "conv",
               "dilations = st, groups = gr, pad = pd, pad_type = pt, strides = st, weight = b, x = a"),
        f"{tensor(1, 64, 1, 64)} a, {tensor(64, 64, 1, 1)} b", "y",
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="W11"):
        model(text, chip="M3 Max", os="26.3.1").compile()
    assert hexane.check_mil(text, chip="M3 Max", os="26.3.1")
