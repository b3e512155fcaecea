"""One order of axes between transpositions: the same network, no transposition where none is needed, the same bits."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

import hexane
from hexane import chips, passes
from hexane.graph import GraphBuilder
from hexane.lowering.compilation import Compilation
from hexane.lowering.transformations import active
from hexane.passes.layouts import rewrite
from hexane.passes.layouts.axes import regions
from hexane.passes.layouts.cost import terms

from .comparing import same, types_of

M1 = Compilation(chips.get("M1"))

NAMES = ["fold_constants", "remove_identities", "views", "layouts", "cancel", "fold_constants_again"]
NCHW, NHWC = [0, 3, 1, 2], [0, 2, 3, 1]


def conv(b, x, cout, kh=3, kw=3, **given):
    rng = np.random.default_rng(cout + kh)
    weight = rng.normal(size=(cout, x.shape[1], kh, kw)) / np.sqrt(x.shape[1] * kh * kw)
    return b.conv(x=x, weight=weight.astype(np.float32), bias=rng.normal(size=cout).astype(np.float32), **given)


def transposes(graph):
    """Those that move more than axes of one element, with the elements they move."""
    found = []
    for op in graph.main.ops:
        if op.type == "transpose":
            long = [p for p in op.arg("perm") if op.inputs["x"].shape[p] > 1]
            if long != sorted(long):
                found.append(prod(op.output.shape))
    return found


def test_channels_last_between_convolutions():
    """As TensorFlow exports: element-wise ops with channels last between convolutions with channels first."""
    b = GraphBuilder()
    x = b.input("x", (1, 8, 10, 12))
    y = b.transpose(x=conv(b, x, 16, pad_type="same"), perm=NHWC)
    y = b.mul(x=y, y=np.linspace(0.5, 2, 16).astype(np.float32))
    y = b.add(x=y, y=b.sigmoid(x=y))
    y = b.concat(values=(y, b.abs(x=y)), axis=3)
    y = b.pad(x=y, pad=[0, 0, 1, 0, 0, 2, 0, 0], mode="constant", constant_val=0.5)
    y = b.slice_by_size(x=y, begin=[0, 1, 0, 3], size=[1, 9, 14, 20])
    b.output(conv(b, b.transpose(x=y, perm=NCHW), 4))
    assert len(transposes(passes.run(b.graph, M1, ["cancel"]))) == 2
    assert not transposes(same(b.graph, NAMES))


def test_rows_and_columns_of_convolutions_change_places():
    """Convolutions between two transpositions of rows and columns run the other way round."""
    b = GraphBuilder()
    x = b.transpose(x=b.input("x", (1, 8, 20, 30)), perm=[0, 1, 3, 2])
    y = b.relu(x=conv(b, x, 8, 5, 3, strides=[2, 1], pad_type="custom", pad=[2, 1, 0, 1]))
    y = conv(b, y, 6, 1, 7, pad_type="same")
    b.output(b.transpose(x=y, perm=[0, 1, 3, 2]))
    after = same(b.graph, NAMES)
    assert not transposes(after)
    assert [op.inputs["weight"].shape[2:] for op in after.main.ops if op.type == "conv"] == [(3, 5), (7, 1)]


def test_a_convolution_too_wide_for_the_engine_stays():
    b = GraphBuilder()
    x = b.transpose(x=b.input("x", (1, 4, 20, 40)), perm=[0, 1, 3, 2])
    b.output(b.transpose(x=conv(b, x, 8, 21, 3), perm=[0, 1, 3, 2]))
    assert len(transposes(same(b.graph, NAMES))) == 2


def test_a_join_within_rows_becomes_a_join_of_rows():
    """A stack of pairs behind everything else: pairs go in front."""
    b = GraphBuilder()
    x = b.input("x", (1, 24, 1, 50))
    parts = [conv(b, x, 12, 1, 1), conv(b, x, 12, 1, 1)]
    turned = [b.reshape(x=b.transpose(x=p, perm=[0, 2, 3, 1]), shape=[1, 50, 12]) for p in parts]
    y = b.concat(values=tuple(b.expand_dims(x=t, axes=[3]) for t in turned), axis=3)
    y = b.reduce_sum(x=b.mul(x=y, y=y), axes=[3], keep_dims=False)
    b.output(b.transpose(x=y, perm=[0, 2, 1]))
    after = same(b.graph, NAMES)
    assert not transposes(after)
    (joined,) = (op for op in after.main.ops if op.type == "concat")
    assert joined.output.shape[-1] == 50


def test_a_tensor_and_its_transposition_in_one_op():
    """x + transpose(x): no order of axes does for both."""
    b = GraphBuilder()
    x = b.input("x", (1, 1, 16, 16))
    b.output(b.relu(x=b.add(x=x, y=b.transpose(x=x, perm=[0, 1, 3, 2]))))
    assert types_of(same(b.graph, NAMES)).count("transpose") == 1


def test_a_reduction_to_a_single_number():
    """Beside transpositions, and of something that they turn."""
    b = GraphBuilder()
    x = b.input("x", (2, 3, 4, 5))
    turned = b.transpose(x=b.relu(x=x), perm=NHWC)
    b.output(turned, b.reduce_max(x=x, axes=[0, 1, 2, 3], keep_dims=False))
    b.output(b.add(x=b.reduce_sum(x=turned, axes=[0, 1, 2, 3], keep_dims=False), y=turned))
    same(b.graph, NAMES)


def test_it_can_be_switched_off():
    b = GraphBuilder()
    x = b.transpose(x=b.input("x", (1, 8, 6, 10)), perm=NHWC)
    b.output(b.transpose(x=b.mul(x=b.sigmoid(x=x), y=x), perm=NCHW))
    assert not transposes(passes.run(b.graph, M1, NAMES))
    without = Compilation(chips.get("M1"), active(without=("layouts",)))
    assert transposes(passes.run(b.graph, without, NAMES))


# -- random networks ---------------------------------------------------------------------------------------------------


def random_network(rng):
    """Layers with transpositions thrown in; four axes, the first of one element."""
    b = GraphBuilder()
    values = [b.input("x", (1, *map(int, rng.integers(2, 9, 3))))]
    for _ in range(int(rng.integers(4, 14))):
        x = values[int(rng.integers(max(0, len(values) - 3), len(values)))]
        values.append(LAYERS[int(rng.integers(len(LAYERS)))](b, x, values, rng))
    b.output(*dict.fromkeys(values[-2:]))
    return b.graph


def _turned(b, x, values, rng):
    return b.transpose(x=x, perm=[0, *map(int, 1 + rng.permutation(3))])


def _binary(b, x, values, rng):
    others = [v for v in values if v.shape == x.shape]
    kind = str(rng.choice(["add", "mul", "sub", "maximum"]))
    if rng.random() < 0.5:
        shape = [extent if rng.random() < 0.5 else 1 for extent in x.shape[int(rng.integers(4)) :]]
        return b.op(kind, x=x, y=rng.normal(size=shape).astype(np.float32))
    return b.op(kind, x=x, y=others[int(rng.integers(len(others)))])


def _unary(b, x, values, rng):
    return b.op(str(rng.choice(["relu", "sigmoid", "tanh", "abs"])), x=x)


def _conv(b, x, values, rng):
    kh, kw = map(int, rng.integers(1, 4, 2))
    strides = [int(s) for s in rng.integers(1, 3, 2)]
    return conv(b, x, int(rng.integers(2, 9)), kh, kw, strides=strides, pad_type="custom", pad=[1, 1, 1, 2])


def _pad(b, x, values, rng):
    return b.pad(x=x, pad=[int(w) for w in rng.integers(0, 3, 6)], mode="constant", constant_val=0.25)


def _slice(b, x, values, rng):
    begin = [int(rng.integers(extent)) for extent in x.shape]
    size = [int(rng.integers(1, extent - at + 1)) for extent, at in zip(x.shape, begin)]
    return b.slice_by_size(x=x, begin=begin, size=size)


def _strided(b, x, values, rng):
    axis = int(rng.integers(1, 4))
    stride = [1, 1, 1, 1]
    stride[axis] = 2
    return b.slice_by_index(x=x, begin=[0] * 4, end=list(x.shape), stride=stride, end_mask=[True] * 4)


def _concat(b, x, values, rng):
    return b.concat(values=(x, b.relu(x=x), x), axis=int(rng.integers(-3, 4)))


def _split(b, x, values, rng):
    axis = int(rng.integers(1, 4))
    first = int(rng.integers(1, max(2, x.shape[axis])))
    sizes = [first, x.shape[axis] - first] if x.shape[axis] > first else [x.shape[axis]]
    parts = b.split(x=x, axis=axis, split_sizes=sizes)
    return parts[-1] if isinstance(parts, tuple) else parts


def _mean(b, x, values, rng):
    axes = [int(axis) for axis in rng.choice([1, 2, 3, -1], 1)]
    return b.op(str(rng.choice(["reduce_mean", "reduce_max"])), x=x, axes=axes, keep_dims=True)


def _dropped(b, x, values, rng):
    """An axis taken away by a reduction, and one of one element put somewhere."""
    less = b.reduce_sum(x=x, axes=[int(rng.integers(1, 4))], keep_dims=False)
    return b.expand_dims(x=less, axes=[int(rng.integers(1, 4))])


LAYERS = [_turned, _turned, _turned, _binary, _unary, _conv, _pad, _slice, _strided, _concat, _split, _mean, _dropped]


@pytest.mark.parametrize("seed", range(60))
def test_random_networks_stay_the_same(seed):
    same(random_network(np.random.default_rng(seed)), NAMES)


def test_random_networks_cost_less():
    """A network of chance has few transpositions whose removal pays, but some; what is chosen costs less in the sum."""
    fewer = 0
    chosen, plain = [], []
    for seed in range(60, 110):
        graph = random_network(np.random.default_rng(seed))
        before = sum(transposes(passes.run(graph, M1, ["cancel"])))
        made = sum(transposes(passes.run(graph, M1, NAMES)))
        fewer += made < before
        if made != before:
            chosen.append(hexane.compile(graph).estimate().engine_us)
            plain.append(hexane.compile(graph, without="layouts").estimate().engine_us)
    assert fewer >= 4
    assert sum(chosen) < 0.98 * sum(plain)
    assert sum(a < 0.999 * b for a, b in zip(chosen, plain)) > 2 * sum(a > 1.001 * b for a, b in zip(chosen, plain))


@pytest.mark.parametrize("seed", range(200, 208))
def test_engine_and_graph_level_agree(seed):
    graph = random_network(np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    inputs = {v.name: rng.normal(size=v.shape).astype(np.float32) for v in graph.main.inputs}
    program = hexane.compile(graph)
    made, bits = program.run(inputs), program.run(inputs, level="graph")
    for name, array in bits.items():
        assert np.array_equal(made[name], array, equal_nan=True), name


# -- what counts -------------------------------------------------------------------------------------------------------

CUTS = {
    "concat on the grid": (lambda b, x: b.concat(values=(x, b.relu(x=x)), axis=3), ()),
    "concat off the grid": (lambda b, x: b.concat(values=(x, b.relu(x=x)), axis=1), (1,)),
    "concat from behind": (lambda b, x: b.concat(values=(x, b.relu(x=x)), axis=-2), (2,)),
    "split on the grid": (lambda b, x: b.split(x=x, axis=3, split_sizes=[32, 32])[1], ()),
    "split off the grid": (lambda b, x: b.split(x=x, axis=3, split_sizes=[31, 33])[1], (3,)),
    "pad": (lambda b, x: b.pad(x=x, pad=[0, 0, 0, 0, 1, 0, 0, 0], mode="constant", constant_val=0.0), (2,)),
    "size from 32 on": (lambda b, x: b.slice_by_size(x=x, begin=[0, 0, 0, 32], size=[1, 9, 40, 5]), ()),
    "size from 33 on": (lambda b, x: b.slice_by_size(x=x, begin=[0, 0, 0, 33], size=[1, 9, 40, 5]), (3,)),
    "index from 1 on": (lambda b, x: b.slice_by_index(x=x, begin=[0, 0, 1, 0], end=[1, 9, 40, 64]), (2,)),
    "index from 32 on": (lambda b, x: b.slice_by_index(x=x, begin=[0, 0, 32, 0], end=[1, 9, 40, 64]), ()),
    "index to the left": (lambda b, x: b.slice_by_index(x=x, begin=[0, 0, 0, -31], end=[1, 9, 40, 64]), (3,)),
    "the mask says where": (
        lambda b, x: b.slice_by_index(
            x=x, begin=[0, 0, 5, 0], end=[1, 9, 33, 64], begin_mask=[False, False, True, False]
        ),
        (),
    ),
    "every other": (
        lambda b, x: b.slice_by_index(x=x, begin=[0, 0, 0, 0], end=[1, 9, 40, 64], stride=[1, 2, 1, 1]),
        (1,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CUTS)
def test_where_a_cut_is_off_the_grid(name):
    """Along these axes of (1, 9, 40, 64) a join or cut costs copies if they are the rows; others cost nothing."""
    make, axes = CUTS[name]
    b = GraphBuilder()
    x = b.transpose(x=b.relu(x=b.input("x", (1, 40, 64, 9))), perm=NCHW)
    made = make(b, x)
    b.output(b.relu(x=made))
    (region,) = regions(b.graph.main)
    assert {term.axes for term in terms(region) if term.kind == "cut"} == ({axes} if axes else set())


def merged(chain, wish):
    """As `GrowingOrder.merge`, counted from the front."""
    common = [number for number in wish if number in chain]
    if common != [number for number in chain if number in common]:
        return chain
    grown = list(chain)
    for at, number in enumerate(wish):
        if number not in grown:
            grown.insert(grown.index(wish[at - 1]) + 1 if at else grown.index(common[0]), number)
    return grown


def test_chains_of_classes_grow_as_plain_lists_do(monkeypatch):
    """Also where the gaps between labels are used up."""
    monkeypatch.setattr(rewrite, "GAP_BITS", 2)
    rng = np.random.default_rng(4)
    grown = 0
    for _ in range(40):
        row = [0, 1]
        chain = rewrite.GrowingOrder(row)
        for _ in range(60):
            wish = [int(number) for number in rng.choice(len(row) + 4, 4, replace=False)]
            if 0 < sum(number in row for number in wish) < 4:
                longer = merged(row, wish)
                assert chain.merge(wish) == (longer is not row)
                grown += longer is not row
                row = longer
            assert chain.numbers == row and sorted(chain.labels, key=chain.labels.get) == row
    assert grown > 400
