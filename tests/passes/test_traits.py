"""Traits of ops are true, and a pass that promises something for a trait reaches every op that has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hexane
from hexane import chips, numerics, passes
from hexane.graph import Graph, GraphBuilder, Op, Value
from hexane.graph.evaluate import evaluate
from hexane.graph.registry import lookup, traits_of, with_trait
from hexane.graph.traits import (
    CONVOLVES,
    ELEMENTWISE,
    GATHERS,
    NEVER_NEGATIVE,
    PICKS,
    POOLS,
    PRODUCTS,
    REARRANGES,
    REDUCES,
    RESHAPES,
)
from hexane.lowering.compilation import Compilation
from hexane.lowering.fusion import is_epilogue
from hexane.passes import lifting, products, views
from hexane.passes.attention import Operands
from hexane.passes.column_relations import Analysis, Kind, relation
from hexane.passes.layouts.axes import signature

M1 = Compilation(chips.get("M1"))

NUMBERS = {"alpha": 0.25, "beta": 0.5, "epsilon": 0.0, "function": "sigmoid"}
FIVE, FOUR = (2, 3, 4, 5, 6), (1, 24, 5, 6)
ALL = with_trait(ELEMENTWISE)
ONE = with_trait(ELEMENTWISE, 1)
LOGICAL = ("logical_not", "logical_and", "logical_or", "logical_xor")
FLOATING = [name for name in ALL if name not in LOGICAL]


def parameters(name: str) -> dict[str, Any]:
    """Numbers for the compile-time parameters that an op must have."""
    return {p.name: NUMBERS[p.name] for p in lookup(name).params if p.name in NUMBERS and p.is_attribute}


def applied(b: GraphBuilder, name: str, x: Value, others: list[Value]) -> Value:
    """The op on ``x`` and as many others as it has tensors; the condition of a choice is a comparison."""
    names = lookup(name).tensors
    operands = dict(zip(names, (x, *others)))
    if name == "select":
        operands = {"cond": b.greater(x=x, y=others[1]), "a": x, "b": others[0]}
    return b.op(name, **operands, **parameters(name))


def between_reshapes(name: str, shape: tuple[int, ...]) -> Graph:
    b = GraphBuilder(opset="ios17")
    given = [b.input(f"x{i}", (1, 24, 30), "fp16") for i in range(3)]
    result = applied(b, name, *_split([b.reshape(x=value, shape=list(shape)) for value in given]))
    b.output(b.cast(x=b.reshape(x=result, shape=[1, 24, 30]), dtype="fp16"), name="y")
    return b.graph


def _split(values: list[Value]) -> tuple[Value, list[Value]]:
    return values[0], values[1:]


def the(graph: Graph, name: str) -> Op:
    (found,) = [op for op in graph.main.walk() if op.type == name]
    return found


def elements(name: str, count: int) -> dict[str, np.ndarray]:
    """Operands of numbers that every function takes: also negative ones where there are results for them."""
    draw = np.random.default_rng(3)
    bools = lookup(name).params[0].group == "B" and name != "select"
    made = {}
    for tensor in lookup(name).tensors:
        values = draw.uniform(-0.9, 0.9, count).astype(np.float32)
        made[tensor] = values > 0 if bools or tensor == "cond" else values
    return made


@pytest.mark.parametrize("name", ALL)
def test_elementwise_ops_know_no_places(name: str) -> None:
    evaluate, given = lookup(name).evaluate, elements(name, 64)
    assert evaluate is not None
    order = np.random.default_rng(5).permutation(64)
    defaults = {p.name: p.default for p in lookup(name).params if p.is_attribute and not p.required}
    settings = {**defaults, **parameters(name)}
    with np.errstate(all="ignore"):
        plain = evaluate(**given, **settings)
        moved = evaluate(**{tensor: values[order] for tensor, values in given.items()}, **settings)
        alone = np.stack([evaluate(**{t: v[i : i + 1] for t, v in given.items()}, **settings) for i in range(64)])
    np.testing.assert_array_equal(plain[order], moved)
    np.testing.assert_allclose(plain, alone[:, 0], rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in ONE if traits_of(name) & NEVER_NEGATIVE])
def test_results_that_are_never_negative(name: str) -> None:
    evaluate = lookup(name).evaluate
    assert evaluate is not None
    x = np.concatenate([np.linspace(-70000, 70000, 1001), np.linspace(-3, 3, 1001)]).astype(np.float32)
    defaults = {p.name: p.default for p in lookup(name).params if p.is_attribute and not p.required}
    with np.errstate(all="ignore"):
        assert not (evaluate(x, **{**defaults, **parameters(name)}) < 0).any()


MOVED: dict[str, dict[str, Any]] = {
    "reshape": {"shape": [2, 96]}, "expand_dims": {"axes": [0]}, "squeeze": {"axes": [0]}, "flatten2d": {"axis": 2},
    "transpose": {"perm": [0, 3, 1, 2]}, "reverse": {"axes": [1, 3]}, "space_to_depth": {"block_size": 2},
    "depth_to_space": {"block_size": 2}, "pixel_shuffle": {"upscale_factor": 2},
    "pixel_unshuffle": {"downscale_factor": 2}, "concat": {"axis": 1}, "stack": {"axis": 1},
    "split": {"axis": 1, "num_splits": 2}, "tile": {"reps": [1, 2, 1, 3]},
    "slice_by_index": {"begin": [0, 1, 0, 0], "end": [1, 12, 4, 3], "stride": [1, 2, 1, 1]},
    "slice_by_size": {"begin": [0, 1, 0, 0], "size": [1, 5, 4, 3]},
    "crop": {"crop_height": [1, 1], "crop_width": [0, 2]},
}  # fmt: skip


@pytest.mark.parametrize("name", with_trait(RESHAPES | REARRANGES | PICKS))
def test_moves_move(name: str) -> None:
    b = GraphBuilder(opset="ios17")
    x = b.input("x", (1, 12, 4, 4), "fp32")
    operands: dict[str, Any] = {"values": (x, x)} if name in ("concat", "stack") else {"x": x}
    results = b.op(name, **operands, **MOVED[name])
    results = results if isinstance(results, tuple) else (results,)
    for i, result in enumerate(results):
        b.output(result, name=f"y{i}")
    data = np.random.default_rng(1).permutation(192).astype(np.float32).reshape(1, 12, 4, 4)
    found = [np.asarray(v) for v in evaluate(b.graph, {"x": data}).values()]
    if traits_of(name) & RESHAPES:
        np.testing.assert_array_equal(found[0].ravel(), data.ravel())
    elif traits_of(name) & REARRANGES:
        np.testing.assert_array_equal(np.sort(found[0].ravel()), np.arange(192))
        assert (found[0].ravel() != data.ravel()).any()
    else:
        assert all(np.isin(array, data).all() for array in found)


def computed(name: str, settings: dict[str, Any], **arrays: np.ndarray) -> np.ndarray:
    """The op's only result on these arrays."""
    b = GraphBuilder(opset="ios17")
    given = {key: b.input(key, data.shape, str(data.dtype).replace("float", "fp")) for key, data in arrays.items()}
    b.output(b.op(name, **given, **settings), name="result")
    (result,) = evaluate(b.graph, arrays).values()
    return np.asarray(result)


def whole(*shape: int) -> np.ndarray:
    """Whole numbers from -4 to 4: sums of their products are exact."""
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize("name", with_trait(PRODUCTS))
def test_products_are_linear_in_both_operands_but_for_a_bias(name: str) -> None:
    first, second = lookup(name).tensors[:2]
    shapes = ((2, 4, 5, 6), (4, 4, 3, 2)) if traits_of(name) & CONVOLVES else ((3, 4), (4, 4))
    settings = {"pad_type": "valid"} if traits_of(name) & CONVOLVES else {}
    x, weight = (whole(*shape) for shape in shapes)
    more_x, more_weight = (whole(*shape[::-1]).reshape(shape) for shape in shapes)
    result = computed(name, settings, **{first: x, second: weight})
    assert result.any()
    for a, b in ((x + more_x, weight), (x, weight + more_weight)):
        other = (more_x, weight) if a is not x else (x, more_weight)
        total = computed(name, settings, **{first: a, second: b})
        np.testing.assert_array_equal(total, result + computed(name, settings, **dict(zip((first, second), other))))
    assert set(lookup(name).tensors[2:]) <= {"bias"}
    if lookup(name).tensors[2:]:
        bias = whole(4)
        along = (4, 1, 1) if traits_of(name) & CONVOLVES else (4,)
        biased = computed(name, settings, **{first: x, second: weight, "bias": bias})
        np.testing.assert_array_equal(biased, result + bias.reshape(along))


@pytest.mark.parametrize("name", with_trait(CONVOLVES))
def test_convolutions_take_groups_of_channels(name: str) -> None:
    assert traits_of(name) & PRODUCTS
    x, weight = whole(1, 4, 5, 6), whole(4, 2, 3, 2)
    result = computed(name, {"pad_type": "valid", "groups": 2}, x=x, weight=weight)
    x[:, 2:] = 0
    half = computed(name, {"pad_type": "valid", "groups": 2}, x=x, weight=weight)
    first = result.shape[1] // 2
    np.testing.assert_array_equal(half[:, :first], result[:, :first])
    assert result[:, first:].any() and not half[:, first:].any()


@pytest.mark.parametrize("name", with_trait(POOLS))
def test_pools_see_a_window_of_one_channel(name: str) -> None:
    x = whole(2, 3, 4, 6)
    settings = {"kernel_sizes": [2, 3], "strides": [2, 3], "pad_type": "valid"}
    result = computed(name, settings, x=x)
    assert result.shape == (2, 3, 2, 2)
    x[1, 2, 2:, :3] = 9
    changed = computed(name, settings, x=x) != result
    assert np.argwhere(changed).tolist() == [[1, 2, 1, 0]]


@pytest.mark.parametrize("name", with_trait(GATHERS))
def test_gathers_take_elements(name: str) -> None:
    x = np.random.default_rng(2).permutation(12).astype(np.float32).reshape(3, 4)
    indices = np.array([[2, 1, 0, 2]] if name == "gather_along_axis" else [[2, 1], [0, 2]], np.int32)
    expected = {
        "gather": lambda: x[indices],
        "gather_along_axis": lambda: x[indices[0], np.arange(4)][None],
        "gather_nd": lambda: x[indices[:, 0], indices[:, 1]],
    }[name]()
    np.testing.assert_array_equal(computed(name, {}, x=x, indices=indices), expected)


def test_reductions_have_the_parameters_that_passes_set() -> None:
    for name in with_trait(REDUCES):
        assert [p.name for p in lookup(name).params] == ["x", "axes", "keep_dims"]


@pytest.mark.parametrize("name", FLOATING)
def test_views_see_five_axes_as_four(name: str) -> None:
    graph = between_reshapes(name, FIVE)
    views.legalise_views(graph.main)
    assert all(len(v.shape) <= 4 for v in the(graph, name).operands() if v.shape)


@pytest.mark.parametrize("name", [name for name in FLOATING if name not in ("floor_div", "mod", "engine.table")])
def test_five_axes_run_where_four_do(name: str) -> None:
    """Also ops that passes write as others: no segment of the host more than on four axes."""
    five, four = (
        [segment.kind for segment in hexane.compile(between_reshapes(name, shape), chip="M1").segments]
        for shape in (FIVE, FOUR)
    )
    assert five == four


@pytest.mark.parametrize("name", FLOATING)
def test_layouts_take_them_in_any_order_of_axes(name: str) -> None:
    assert signature(the(between_reshapes(name, FOUR), name)) is not None


@pytest.mark.parametrize("name", [name for name in ONE if name not in LOGICAL])
def test_products_apply_functions_to_the_map(name: str) -> None:
    b = GraphBuilder(opset="ios17")
    x = b.input("x", (1, 8, 2, 2), "fp16")
    y = b.op(name, x=b.reshape(x=x, shape=[1, 32]), **parameters(name))
    b.output(b.linear(x=y, weight=np.ones((4, 32), np.float16)), name="z")
    products.legalise_products(b.graph.main)
    assert len(the(b.graph, name).inputs["x"].shape) == 4


@pytest.mark.parametrize("name", [name for name in ONE if name not in LOGICAL])
def test_lifting_puts_what_a_task_fuses_behind_its_sums(name: str) -> None:
    b = GraphBuilder(opset="ios17")
    x = b.input("x", (1, 8, 4, 4), "fp16")
    y = b.conv(x=x, weight=np.ones((8, 8, 1, 1), np.float16))
    b.output(b.op(name, x=b.transpose(x=y, perm=[0, 2, 3, 1]), **parameters(name)), name="z")
    fused = is_epilogue(the(b.graph, name))
    lifting.lift_functions(b.graph.main, M1)
    assert (the(b.graph, name).inputs["x"].op is the(b.graph, "conv")) == fused


@pytest.mark.parametrize("name", [name for name in FLOATING if len(lookup(name).tensors) < 3])
def test_columns_have_a_transposed_form(name: str) -> None:
    b = GraphBuilder(opset="ios17")
    given = [b.input(f"x{i}", (1, 16, 32), "fp16") for i in range(3)]
    result = applied(b, name, given[0], given[1:])
    analysis = Analysis(M1, Operands(frozenset(), frozenset(), frozenset()), kinds=dict.fromkeys(given, Kind.ROWS))
    assert result.op is not None
    floats = result.dtype == "fp16"
    assert (relation(result.op, analysis) is not None) == floats, "truth values have no place among features"


@pytest.mark.parametrize("name", ["relu", "elu", "erf", "softplus", "softsign", "square", "rsqrt", "log", "real_div"])
def test_five_axes_keep_their_bits(name: str) -> None:
    """The engine's program against the engine's arithmetic on the graph, both on five axes."""
    graph = between_reshapes(name, FIVE)
    draw = np.random.default_rng(7)
    given = {v.name: draw.uniform(0.5, 4, v.shape).astype(np.float16) for v in graph.main.inputs}
    program = hexane.compile(graph, chip="M1")
    assert [segment.kind for segment in program.segments] == ["engine"]
    (expected,) = numerics.evaluate(passes.run(graph, M1), given).values()
    (result,) = program.run(given).values()
    np.testing.assert_array_equal(result.view(np.uint16), expected.view(np.uint16))
