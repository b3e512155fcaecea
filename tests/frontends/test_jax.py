"""hexane.from_jax against jax: names, trees, dtypes, refusals, and a fixed sample of the operations."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import FormatError, UnsupportedError, UsageError
from tool import tool_named

jax = pytest.importorskip("jax")
pytest.importorskip("stablehlo_coreml")
ROOT = Path(__file__).resolve().parents[2]
SAMPLE = """tanh erf sub select/x clamp transpose reduce_max argmax cumsum reduce_window/max dot_general conv gather
scan network/mlp cbrt""".split()


def test_trees_names_and_dtypes() -> None:
    import jax.numpy as jnp

    def function(x: Any, params: Any, on: Any, *more: Any) -> Any:
        y = jnp.where(on, x @ params["w"] + params["b"][0], 0)
        return {"y": y, "any": (y > 1).any(), "n": more[0].sum()}

    draw = np.random.default_rng(0)
    x, w, b = (draw.standard_normal(shape).astype(np.float32) for shape in ((4, 8), (8, 3), (3,)))
    on = np.array([[True], [False], [True], [True]])
    more = np.arange(5, dtype=np.int8)
    graph = hexane.from_jax(function, x, {"w": w, "b": [b]}, on, more)
    assert {name: (type_.dtype, type_.shape) for name, type_ in graph.inputs.items()} == {
        "x": ("fp32", (4, 8)),
        "params_b_0": ("fp32", (3,)),
        "params_w": ("fp32", (8, 3)),
        "on": ("int32", (4, 1)),
        "x3": ("int32", (5,)),
    }
    assert list(graph.outputs) == ["result_any", "result_n", "result_y"]
    given = {"x": x, "params_w": w, "params_b_0": b, "on": on.astype(np.int32), "x3": more.astype(np.int32)}
    wanted = function(x, {"w": w, "b": [b]}, on, more)
    for made, close in ((graph.evaluate(given), 1e-5), (hexane.compile(graph).run(given), 1e-2)):
        np.testing.assert_allclose(made["result_y"], wanted["y"], rtol=close, atol=close)
        assert made["result_any"] == bool(wanted["any"]) and made["result_n"] == 10


def test_one_result_and_names_of_ones_own() -> None:
    spec = jax.ShapeDtypeStruct((2, 3), np.float16)
    graph = hexane.from_jax(jax.jit(lambda a, b: a * b), spec, spec, input_names=["left", "right"])
    assert list(graph.inputs) == ["left", "right"] and list(graph.outputs) == ["result"]
    x = np.float16([[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(hexane.compile(graph).run({"left": x, "right": x})["result"], x * x)
    same = hexane.from_jax(lambda a: (a, a + 1), np.zeros(3, np.float32))
    made = same.evaluate({"a": np.float32([1, 2, 3])})
    assert {name: list(value) for name, value in made.items()} == {"a": [1, 2, 3], "result_1": [2, 3, 4]}
    with pytest.raises(UnsupportedError, match="returned twice"):
        hexane.from_jax(lambda a: (a, a), np.zeros(3, np.float32))


def test_wrong_uses() -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(UsageError, match="is no function"):
        hexane.from_jax(3, x)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="example at"):
        hexane.from_jax(lambda v: v, "text")
    with pytest.raises(UsageError, match="no 1 different names"):
        hexane.from_jax(lambda v: v, x, input_names=["a", "b"])
    with pytest.raises(UsageError, match="names are words"):
        hexane.from_jax(lambda v: v, x, input_names=["a b"])
    with pytest.raises(UnsupportedError, match="cannot trace"):
        hexane.from_jax(lambda v: v @ v, x)
    with pytest.raises(UnsupportedError, match="cannot trace"):
        hexane.from_jax(lambda v: v if v.sum() > 0 else -v, x)
    with pytest.raises(UnsupportedError, match="complex"):
        hexane.from_jax(lambda v: v.real, x.astype(np.complex64))
    with pytest.raises(UnsupportedError, match="does not lower it"):
        hexane.from_jax(jax.lax.population_count, np.zeros(3, np.int32))


def test_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jax import export

    from hexane.formats import stablehlo

    x = np.float32([[1, -2, 3]])
    module = export.export(jax.jit(lambda v: jax.nn.relu(v) + 1))(x).mlir_module()
    for name in ("net.mlir", "net.stablehlo", "net"):
        (tmp_path / name).write_text(module)
        graph = hexane.load(tmp_path / name)
        (made,) = graph.evaluate({"v": x}).values()
        np.testing.assert_array_equal(made, np.maximum(x, 0) + 1)
    for text in ("module @x {", "module", ""):
        (tmp_path / "bad.mlir").write_text(text)
        with pytest.raises((FormatError, UnsupportedError)):
            hexane.load(tmp_path / "bad.mlir")
    with pytest.raises(UsageError, match="fixed shape"):
        hexane.load(tmp_path / "net.mlir", shapes={"v": (2, 3)})
    monkeypatch.setattr(stablehlo, "MAX_BYTES", len(module))
    hexane.load(tmp_path / "net.mlir")
    (tmp_path / "net.mlir").write_text(module + " ")
    with pytest.raises(FormatError, match=f"a module of {len(module) + 1} bytes"):
        hexane.load(tmp_path / "net.mlir")


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_operations(name: str) -> None:
    (case,) = [case for case in tool_named("jax_ops").cases() if case.name == name.removesuffix("/x")]
    outcome = tool_named("jax_ops").run(case)
    assert outcome.kind == "pass", outcome


@pytest.mark.slow
def test_every_operation_and_the_document() -> None:
    found = [tool_named("jax_ops").run(case) for case in tool_named("jax_ops").cases()]
    counts = Counter(outcome.kind for outcome in found)
    assert not counts["wrong"] and not counts["crash"], [o for o in found if o.kind in ("wrong", "crash")]
    document = (ROOT / "docs" / "jax-ops.md").read_text()
    if f"jax {jax.__version__}," not in document:
        pytest.skip(f"docs/jax-ops.md was written with another jax than {jax.__version__}")
    assert document == tool_named("jax_ops").render(found), "run tools/jax_ops.py"
