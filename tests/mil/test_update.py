"""Weights renewed in place give the bytes and numbers of a program compiled with them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.mil.test_model import FILES, GOOD, INPUT, WEIGHT
from tests.restrictions.programs import CONV, X, blob, call, conv, program, tensor

import hexane
from blobs import blob_bytes
from hexane.errors import UsageError
from hexane.mil import Model, Options

RNG = np.random.default_rng(11)


def fresh(*shape: int) -> np.ndarray:
    return RNG.normal(0, 0.1, shape).astype(np.float16)


def files(**arrays: np.ndarray) -> dict[str, bytes]:
    return {f"@model_path/weights/{name}.bin": blob_bytes([(array, "fp16")]) for name, array in arrays.items()}


@pytest.mark.parametrize(("chip", "how"), [("M1", "patched"), ("M4", "replaced")])
def test_a_convolution(chip: str, how: str) -> None:
    new = fresh(64, 64, 1, 1)
    options = Options(level="engine" if how == "patched" else "graph")
    with Model(GOOD, FILES, chip, options=options) as model:
        model.evaluate({"x": INPUT})
        done = model.update({"w": new})
        assert (done.how, done.elements) == (how, 4096)
        got = model.evaluate({"x": INPUT})["y"]
        again = model.update({"w": WEIGHT})
        assert again.prepared_seconds < 0.1
        old = model.evaluate({"x": INPUT})["y"]
        program_now = model.program
    with Model(GOOD, {"@model_path/weights/w.bin": blob_bytes([(new, "fp16")])}, chip, options=options) as other:
        assert np.array_equal(got, other.evaluate({"x": INPUT})["y"])
    with Model(GOOD, FILES, chip, options=options) as first:
        assert np.array_equal(old, first.evaluate({"x": INPUT})["y"])
        if program_now is not None and first.program is not None:
            assert program_now.images[0].to_bytes() == first.program.images[0].to_bytes()


def test_several_constants_and_wide_kernels() -> None:
    """A 3x3 convolution with bias, a matmul by a constant and an element-wise one, patched together."""
    wide = tensor(1, 16, 16, 16)
    body = (
        CONV.replace("[0, 0, 0, 0]", "[1, 1, 1, 1]").replace('"valid"', '"custom"')
        + blob((16, 16, 3, 3), "w", "w.bin") + blob((1, 16, 1, 1), "b", "b.bin")
        + conv("w", result="c", type_=wide) + call(wide, "y", "add", "x = c, y = b")
    )  # fmt: skip
    text = program(body, f"{wide} x", "y")
    x = RNG.normal(0, 1, (1, 16, 16, 16)).astype(np.float16)
    first = {"w": fresh(16, 16, 3, 3), "b": fresh(1, 16, 1, 1)}
    second = {"w": fresh(16, 16, 3, 3), "b": fresh(1, 16, 1, 1)}
    with Model(text, files(**first), "M1") as model:
        done = model.update(second)
        got = model.evaluate({"x": x})["y"]
    assert done.how == "patched", done.reason
    assert done.elements >= 16 * 16 * 9 + 16
    with Model(text, files(**second), "M1") as other:
        assert np.array_equal(got, other.evaluate({"x": x})["y"])


def test_what_cannot_be_patched_is_compiled_again_and_says_so() -> None:
    """Two constants that are multiplied with each other before anything runs."""
    body = blob((1, 64, 1, 1), "a", "a.bin") + blob((1, 64, 1, 1), "b", "b.bin") + call(
        tensor(1, 64, 1, 1), "ab", "mul", "x = a, y = b") + call(X, "y", "mul", "x = x, y = ab")  # fmt: skip
    text = program(body, f"{X} x", "y")
    first, second = {"a": fresh(1, 64, 1, 1), "b": fresh(1, 64, 1, 1)}, {"a": fresh(1, 64, 1, 1)}
    with Model(text, files(**first), "M1") as model:
        if model.level != "engine":
            pytest.skip("the product is not computed at compile time")
        done = model.update(second)
        got = model.evaluate({"x": INPUT})["y"]
    assert done.how == "recompiled"
    assert done.reason
    with Model(text, files(a=second["a"], b=first["b"]), "M1") as other:
        assert np.array_equal(got, other.evaluate({"x": INPUT})["y"])


def test_wrong_updates() -> None:
    with Model(GOOD, FILES, "M1") as model:
        with pytest.raises(UsageError, match=r"no constant 'v'.*w"):
            model.update({"v": WEIGHT})
        with pytest.raises(UsageError, match="shape"):
            model.update({"w": WEIGHT[:8]})
    with pytest.raises(UsageError, match="not compiled"):
        Model(GOOD, FILES).update({"w": WEIGHT})
    assert hexane.mil is not None


@pytest.mark.parametrize("total", [5, 1024, 5000, 1 << 20, (1 << 20) + 77, (1 << 30) + 5, (1 << 32) - 1])
def test_numbers_come_back_from_their_codes(total: int) -> None:
    """Every element is found (of very many some that are drawn), and halfwords that no weight moves are none."""
    from hexane.mil import update

    numbers = np.arange(total, dtype=np.uint32) if total < 1 << 21 else RNG.integers(0, total, 5000, np.uint32)
    digits = max(1, -(-(total - 1).bit_length() // 10))
    codes = [update._code(numbers, digits, i) for i in range(digits)]
    probes = [np.concatenate([code, np.arange(1024, dtype=np.uint16)]) for code in (*codes, update._check_digit(codes))]
    at, element = update._decoded(probes, total)
    assert np.array_equal(at, np.arange(len(numbers)))
    assert np.array_equal(element, numbers)


def test_equal_matrices_patched_together() -> None:
    """Several constants of one shape: none is taken for another, and the program keeps its form."""
    wide = X
    body = CONV + "".join(blob((64, 64, 1, 1), f"w{i}", f"w{i}.bin") for i in range(4))
    body += "".join(conv(f"w{i}", result=f"c{i}", x="x" if i == 0 else f"c{i - 1}", type_=wide) for i in range(4))
    text = program(body, f"{X} x", "c3")
    first, second = ({f"w{i}": fresh(64, 64, 1, 1) for i in range(4)} for _ in range(2))
    with Model(text, files(**first), "M1") as model:
        done = model.update(second)
        got = model.evaluate({"x": INPUT})["c3"]
    assert (done.how, done.elements) == ("patched", 4 * 4096)
    with Model(text, files(**second), "M1") as other:
        assert np.array_equal(got, other.evaluate({"x": INPUT})["c3"])
