"""Ops against their definitions written out as loops over elements: the fast half of what the slow tests compare."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.ops.run_op import evaluate
from hexane.errors import GraphError
from hexane.graph import GraphBuilder, all_specs
from hexane.graph.numeric import erf


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def naive_conv(x, weight, strides, pads, dilations, groups):
    """Every product of the definition, one at a time."""
    n, _, *extents = x.shape
    cout, cin, *kernel = weight.shape
    out = [
        (e + a + b - (k - 1) * d - 1) // s + 1 for e, (a, b), k, d, s in zip(extents, pads, kernel, dilations, strides)
    ]
    result = np.zeros((n, cout, *out))
    for image, o in itertools.product(range(n), range(cout)):
        group = o // (cout // groups)
        for place in np.ndindex(*out):
            for c in range(cin):
                for tap in np.ndindex(*kernel):
                    at = [p * s + t * d - a for p, s, t, d, (a, _) in zip(place, strides, tap, dilations, pads)]
                    if all(0 <= i < e for i, e in zip(at, extents)):
                        result[(image, o, *place)] += float(x[(image, group * cin + c, *at)]) * weight[(o, c, *tap)]
    return result


@pytest.mark.parametrize("turned", list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("ranks", list(itertools.product(range(1, 5), repeat=2)))
def test_products_of_every_rank(ranks, turned):
    """Element by element; an operand of one axis is a row or a column, whatever is transposed."""
    leads = [(), (), (3,), (2, 3)]
    x, y = normal(0, *leads[ranks[0] - 1], *(4, 5)[-ranks[0] :]), normal(1, *leads[ranks[1] - 1], *(5, 6)[: ranks[1]])
    rows, columns = x[None] if x.ndim == 1 else x, y[:, None] if y.ndim == 1 else y
    lead = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    rows, columns = (np.broadcast_to(a, (*lead, *a.shape[-2:])) for a in (rows, columns))
    wanted = np.zeros((*lead, rows.shape[-2], columns.shape[-1]), np.float32)
    for *image, m, n in np.ndindex(*wanted.shape):
        wanted[(*image, m, n)] = sum(rows[(*image, m, k)] * columns[(*image, k, n)] for k in range(5))
    wanted = wanted.reshape((*lead, *([4] if x.ndim > 1 else []), *([6] if y.ndim > 1 else [])))
    operands = [a.swapaxes(-1, -2) if flag and a.ndim > 1 else a for a, flag in zip((x, y), turned)]
    result = evaluate("matmul", x=operands[0], y=operands[1], transpose_x=turned[0], transpose_y=turned[1])
    five_roundings = 5 * 2.0**-24 * float((np.abs(rows) @ np.abs(columns)).max())  # in whatever order, on each side
    np.testing.assert_allclose(result, wanted, rtol=0, atol=2 * five_roundings, strict=True)


@pytest.mark.parametrize(("shape", "f"), [((2, 3, 4, 6), 2), ((1, 2, 9, 3), 3), ((1, 1, 5, 7), 1)])
def test_pixels_become_channels_and_back(shape, f):
    """Channel ``c f f + i f + j`` holds the pixel ``(i, j)`` of each block."""
    x = normal(0, *shape)
    wanted = np.zeros((shape[0], shape[1] * f * f, shape[2] // f, shape[3] // f), np.float32)
    for n, c, h, w in np.ndindex(*shape):
        wanted[n, c * f * f + h % f * f + w % f, h // f, w // f] = x[n, c, h, w]
    channels = evaluate("pixel_unshuffle", x=x, downscale_factor=f)
    np.testing.assert_array_equal(channels, wanted, strict=True)
    np.testing.assert_array_equal(evaluate("pixel_shuffle", x=wanted, upscale_factor=f), x, strict=True)


@st.composite
def conv_cases(draw):
    dims = draw(st.integers(1, 3))
    small = st.integers(1, 2)
    groups = draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(dims)]
    dilations = [draw(small) for _ in range(dims)]
    strides = [draw(st.integers(1, 3)) for _ in range(dims)]
    pads = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(dims)]
    extents = [draw(st.integers((k - 1) * d + 1, 6)) if (k - 1) * d < 6 else 7 for k, d in zip(kernel, dilations)]
    seed = draw(st.integers(0, 1000))
    x = normal(seed, draw(small), groups * draw(small), *extents)
    weight = normal(seed + 1, groups * draw(small), x.shape[1] // groups, *kernel)
    return x, weight, strides, pads, dilations, groups


@given(conv_cases())
@settings(deadline=None, max_examples=40)
def test_conv(case):
    x, weight, strides, pads, dilations, groups = case
    got = evaluate(
        "conv",
        x=x,
        weight=weight,
        strides=strides,
        pad_type="custom",
        pad=[p for pair in pads for p in pair],
        dilations=dilations,
        groups=groups,
    )
    np.testing.assert_allclose(got, naive_conv(*case), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("extent", "kernel", "stride"), [(5, 2, 1), (5, 2, 2), (6, 3, 2), (7, 4, 3), (4, 4, 1)])
def test_same_padding_puts_the_odd_element_after_or_before(extent, kernel, stride):
    x, weight = normal(0, 1, 1, extent), normal(1, 1, 1, kernel)
    out = -(-extent // stride)
    total = max((out - 1) * stride + kernel - extent, 0)
    for pad_type, before in (("same", total // 2), ("same_lower", total - total // 2)):
        got = evaluate("conv", x=x, weight=weight, strides=[stride], pad_type=pad_type)
        wanted = naive_conv(x, weight, [stride], [(before, total - before)], [1], 1)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@given(conv_cases())
@settings(deadline=None, max_examples=30)
def test_conv_transpose_is_the_gradient(case):
    """<conv(x), y> = <x, conv_transpose(y)> for every y."""
    x, weight, strides, pads, dilations, groups = case
    pads = [(min(a, (k - 1) * d), min(b, (k - 1) * d)) for (a, b), k, d in zip(pads, weight.shape[2:], dilations)]
    flat = [p for pair in pads for p in pair]
    case = {"strides": strides, "pad_type": "custom", "pad": flat, "dilations": dilations, "groups": groups}
    there = evaluate("conv", x=x, weight=weight, **case)
    y = normal(7, *there.shape)
    back = evaluate("conv_transpose", x=y, weight=weight, output_shape=x.shape, **case)
    np.testing.assert_allclose(np.vdot(there, y), np.vdot(x, back), rtol=1e-3, atol=1e-3)


def naive_pool(x, kernel, strides, pads, ceil, kind):
    extents = x.shape[2:]
    out = []
    for e, k, s, (a, b) in zip(extents, kernel, strides, pads):
        n = (math.ceil if ceil else math.floor)((e + a + b - k) / s) + 1
        out.append(n - (ceil and (n - 1) * s >= e + a and a + b > 0))
    result = np.zeros((*x.shape[:2], *out))
    for index in np.ndindex(*result.shape):
        inside, count = [], 0
        for tap in np.ndindex(*kernel):
            at = [p * s + t - a for p, s, t, (a, _) in zip(index[2:], strides, tap, pads)]
            if all(0 <= i < e for i, e in zip(at, extents)):
                inside.append(x[(*index[:2], *at)])
            count += all(-a <= i < e + b for i, e, (a, b) in zip(at, extents, pads))
        if kind == "max":
            result[index] = max(inside, default=-np.inf)
        elif kind == "l2":
            result[index] = np.sqrt(sum(v * v for v in inside))
        else:
            result[index] = sum(inside) / max(len(inside) if kind == "inside" else count, 1)
    return result


@pytest.mark.parametrize("seed", range(12))
def test_pools(seed):
    rng = np.random.default_rng(seed)
    dims = int(rng.integers(1, 4))
    kernel, strides = ([int(n) for n in rng.integers(1, 4, dims)] for _ in range(2))
    pads = [(int(rng.integers(0, k)), int(rng.integers(0, k))) for k in kernel]
    x = normal(seed, 1, 2, *(int(n) for n in rng.integers(3, 7, dims)))
    for ceil in (False, True):
        case = {
            "x": x,
            "kernel_sizes": kernel,
            "strides": strides,
            "pad_type": "custom",
            "pad": [p for pair in pads for p in pair],
            "ceil_mode": ceil,
        }
        for op, kind, more in (
            ("max_pool", "max", {}),
            ("l2_pool", "l2", {}),
            ("avg_pool", "all", {}),
            ("avg_pool", "inside", {"exclude_padding_from_average": True}),
        ):
            wanted = naive_pool(x, kernel, strides, pads, ceil, kind)
            np.testing.assert_allclose(evaluate(op, **case, **more), wanted, rtol=1e-4, atol=1e-5)


def test_erf_is_exact_to_2e14():
    x = np.concatenate([np.linspace(-7, 7, 4001), [0.0, -0.0, np.inf, -np.inf, 1e-30]])
    wanted = np.array([math.erf(v) for v in x])
    np.testing.assert_allclose(erf(x), wanted, rtol=0, atol=2e-14)
    np.testing.assert_allclose(erf(x.astype(np.float32)), [math.erf(v) for v in x.astype(np.float32)], atol=2e-7)
    assert np.isnan(erf(np.array([np.nan])))[0]


def test_integer_arithmetic():
    x, y = np.int32([7, -7, 7, -7, 5]), np.int32([2, 2, -2, -2, 0])
    assert evaluate("real_div", x=x, y=y).tolist() == [3, -3, -3, 3, 0]
    assert evaluate("floor_div", x=x, y=y).tolist() == [3, -4, -4, 3, 0]
    assert evaluate("mod", x=x[:4], y=y[:4]).tolist() == [1, 1, -1, -1]
    assert evaluate("pow", x=np.int32([2, -1, -1, 3, 1]), y=np.int32([5, -3, -2, -1, -9])).tolist() == [32, -1, 1, 0, 1]
    big = np.int64([2**62 + 1, -(2**62) - 1])
    assert evaluate("real_div", x=big, y=np.int64([3, 3])).tolist() == [(2**62 + 1) // 3, -((2**62 + 1) // 3)]
    assert evaluate("reduce_mean", x=np.int32([-3, -4]), axes=[0]).tolist() == -3
    assert evaluate("cast", x=np.float32([1.9, -1.9, np.nan, 3e9]), dtype="int32").tolist()[:3] == [1, -1, 0]
    assert evaluate("cast", x=np.float32([0, 0.5, -1]), dtype="bool").tolist() == [False, True, True]


def test_interleaved_concat():
    got = evaluate("concat", values=(np.float32([[1, 2]]), np.float32([[3, 4]])), axis=1, interleave=True)
    assert got.tolist() == [[1, 3, 2, 4]]


@pytest.mark.parametrize("mode", ["add", "sub", "mul", "div", "max", "min", "update"])
def test_scatters_apply_one_update_after_the_other(mode):
    data, updates = np.abs(normal(0, 4, 3)) + 1, np.abs(normal(1, 5, 3)) + 1
    indices = np.int32([1, 3, 1, 0, -1])
    functions = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "div": np.divide,
        "max": np.maximum,
        "min": np.minimum,
        "update": lambda a, b: b,
    }
    wanted = data.copy()
    for row, update in zip(indices, updates):
        wanted[row] = functions[mode](wanted[row], update)
    got = evaluate("scatter", data=data, indices=indices, updates=updates, axis=0, mode=mode)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    got = evaluate("scatter_nd", data=data, indices=indices[:, None], updates=updates, mode=mode)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    wide = np.repeat(indices[:, None], 3, 1)
    got = evaluate("scatter_along_axis", data=data, indices=wide, updates=updates, axis=0, mode=mode)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6, 8])
def test_packed_palettes(bits):
    rng = np.random.default_rng(bits)
    index = rng.integers(0, 1 << bits, 35).astype(np.uint8)
    stream = "".join(f"{v:0{bits}b}"[::-1] for v in index)
    stream += "0" * (-len(stream) % 8)
    packed = np.array([int(stream[i : i + 8][::-1], 2) for i in range(0, len(stream), 8)], np.uint8)
    lut = rng.standard_normal(1 << bits).astype(np.float32)
    b = GraphBuilder(opset="ios16")
    b.output(b.constexpr_lut_to_dense(indices=packed, lut=lut, shape=[5, 7]))
    (got,) = b.graph.verify().evaluate({}).values()
    np.testing.assert_array_equal(got, lut[index].reshape(5, 7))


def test_sparse_forms_agree():
    rng = np.random.default_rng(0)
    mask = rng.random((4, 6)) < 0.5
    values = rng.integers(-8, 8, int(mask.sum())).astype(np.int8)
    scale = rng.standard_normal((2, 3)).astype(np.float32)
    b = GraphBuilder()
    kept, data = b.constexpr_sparse_blockwise_shift_scale(
        data_mask=b.const(mask, "uint1"), nonzero_data=b.const(values, "int4"), scale=scale
    )
    dense = b.constexpr_sparse_to_dense(nonzero_data=data, mask=kept)
    b.output(dense)
    (got,) = b.graph.verify().evaluate({}).values()
    wanted = np.zeros((4, 6), np.float32)
    wanted[mask] = values
    np.testing.assert_allclose(got, wanted * np.repeat(np.repeat(scale, 2, 0), 2, 1), rtol=1e-6)


def test_suppression_keeps_the_best_and_drops_what_overlaps():
    boxes = np.float32([[[1, 1, 2, 2], [1.1, 1, 2, 2], [5, 5, 2, 2], [5, 5, 2, 2]]])
    scores = np.float32([[[0.5, 0], [0.9, 0], [0, 0.3], [0.2, 0]]])
    case = {"boxes": boxes, "scores": scores, "iou_threshold": 0.5, "score_threshold": 0.25, "max_boxes": 3}
    _, _, indices, count = evaluate("non_maximum_suppression", opset="ios15", **case)
    assert indices.tolist() == [[1, 2, -1]] and count.tolist() == [2]
    case = {**case, "score_threshold": 0.1, "per_class_suppression": True}
    assert evaluate("non_maximum_suppression", opset="ios15", **case)[2].tolist() == [[1, 2, 3]]


@pytest.mark.parametrize("size", [0.3, 1.0, 20.0])
@pytest.mark.parametrize("threshold", [0.2, 0.5])
def test_suppression_of_drawn_boxes_is_onnxruntimes(size, threshold):
    """Boxes of an image whose side is 1, and of pixels; centre and size in both."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    boxes = np.concatenate([rng.uniform(0, size, (1, 40, 2)), rng.uniform(size / 4, size / 2, (1, 40, 2))], -1)
    boxes, scores = boxes.astype(np.float32), rng.permutation(40).astype(np.float32).reshape(1, 40, 1) / 40
    arrays = [boxes, scores.swapaxes(1, 2).copy(), np.int64([40]), np.float32([threshold]), np.float32([0.11])]
    names = ["boxes", "scores", "most", "iou", "least"]
    nodes = [onnx.helper.make_node("NonMaxSuppression", names, ["y"], center_point_box=1)]
    types = [onnx.helper.np_dtype_to_tensor_dtype(array.dtype) for array in arrays]
    inputs = [onnx.helper.make_tensor_value_info(*row) for row in zip(names, types, [array.shape for array in arrays])]
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [None, 3])
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "g", inputs, [output]), opset_imports=[onnx.helper.make_opsetid("", 11)]
    )
    model.ir_version = 8
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, dict(zip(names, arrays)))
    case = {"boxes": boxes, "scores": scores, "iou_threshold": threshold, "score_threshold": 0.11, "max_boxes": 40}
    _, _, indices, count = evaluate("non_maximum_suppression", opset="ios15", **case)
    assert 4 < len(wanted) < 36
    assert indices[0, : count[0]].tolist() == wanted[:, 2].tolist()


def test_crop_resize_of_a_whole_image_is_resize():
    x = normal(0, 1, 2, 5, 7)
    for mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "DEFAULT", "UNALIGN_CORNERS"):
        wanted = evaluate("resize_bilinear", x=x, target_size_height=4, target_size_width=9, sampling_mode=mode)
        case = {"x": x, "target_height": 4, "target_width": 9, "sampling_mode": mode}
        box = np.float32([0, 0, 4, 6]).reshape(1, 1, 4, 1, 1)
        got = evaluate("crop_resize", opset="ios15", roi=box, **case)
        np.testing.assert_allclose(got[0], wanted, rtol=1e-5, atol=1e-6)


BOX = np.float32([[1, 0.5, 3.5, 6]])  # top, left, bottom, right


@pytest.mark.parametrize("opset", ["ios16", "ios17"])
def test_crop_resize_of_a_box_in_every_form(opset):
    x = normal(0, 2, 3, 5, 7)
    places = np.linspace(1, 3.5, 6), np.linspace(0.5, 6, 4)
    rows = np.apply_along_axis(lambda line: np.interp(places[0], range(5), line), 1, x[1])
    wanted = np.apply_along_axis(lambda line: np.interp(places[1], range(7), line), 2, rows)

    def crop(box, index=1, **how):
        case = {"x": x, "target_height": 6, "target_width": 4, "sampling_mode": "STRICT_ALIGN_CORNERS", **how}
        if opset == "ios17":
            return evaluate("crop_resize", opset=opset, boxes=box, box_indices=np.int32([index]), **case)[0]
        roi = np.concatenate([np.float32([[index]]), box], 1).reshape(1, 1, 5, 1, 1)
        return evaluate("crop_resize", opset=opset, roi=roi, **case)[0, 0]

    forms = {
        "CORNERS_HEIGHT_FIRST": BOX,
        "CORNERS_WIDTH_FIRST": BOX[:, [1, 0, 3, 2]],
        "CENTER_SIZE_HEIGHT_FIRST": np.float32([[2.25, 3.25, 2.5, 5.5]]),
        "CENTER_SIZE_WIDTH_FIRST": np.float32([[3.25, 2.25, 5.5, 2.5]]),
    }
    for mode, box in forms.items():
        np.testing.assert_allclose(crop(box, box_coordinate_mode=mode), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(crop(BOX * 4, spatial_scale=0.25), wanted, rtol=1e-5, atol=1e-6)
    shares = BOX / np.float32([4, 6, 4, 6])
    np.testing.assert_allclose(crop(shares, normalized_coordinates=True), wanted, rtol=1e-5, atol=1e-6)
    outside = crop(BOX + np.float32([0, 0, 2.5, 0]), pad_value=9.0)  # the last row stands at 6 of 0 to 4
    assert (outside[:, -1] == 9).all() and (outside[:, 0] != 9).all()
    for index in (-1, 2):
        with pytest.raises(GraphError, match="of 2 images"):
            crop(BOX, index)


@pytest.mark.parametrize(
    ("mode", "places", "place"),
    [
        ("DEFAULT", [1, 1.75, 2.5, 3.25], 1),  # the box is the elements 1 to 3 and all of the last
        ("UNALIGN_CORNERS", [0.875, 1.625, 2.375, 3.125], 2),
        ("OFFSET_CORNERS", [1.25, 1.75, 2.25, 2.75], 2),
        ("ALIGN_CORNERS", [1, 5 / 3, 7 / 3, 3], 2),
        ("STRICT_ALIGN_CORNERS", [1, 5 / 3, 7 / 3, 3], 1),
    ],
)
def test_where_crop_resize_samples_a_box(mode, places, place):
    ramp = np.broadcast_to(np.arange(6, dtype=np.float32), (1, 1, 6, 6))
    box = np.float32([1, 1, 3, 3]).reshape(1, 1, 4, 1, 1)
    case = {"x": ramp, "roi": box, "target_height": 2, "target_width": 4, "sampling_mode": mode}
    got = evaluate("crop_resize", opset="ios15", **case)
    np.testing.assert_allclose(got[0, 0, 0], [places, places], rtol=1e-6)
    assert evaluate("crop_resize", opset="ios15", **{**case, "target_width": 1})[0, 0, 0, 0, 0] == place


PADDED = {"constant": "constant", "border": "edge", "reflection": "reflect", "symmetric": "symmetric"}


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grid_sample_goes_on_as_numpy_pads(mode, padding, align_corners):
    """Pixels beyond the edges are those of the image padded by NumPy, sampled where it needs no padding."""
    mirrored = "reflect" if align_corners else "symmetric"
    x, room = normal(1, 2, 3, 4, 6), 12
    wider = {"zeros": "constant", "border": "edge", "reflection": mirrored}[padding]
    padded = np.pad(x, ((0, 0), (0, 0), (room, room), (room, room)), wider)
    places = np.random.default_rng(2).uniform(-7, 12, (2, 5, 3, 2))

    def sampled(image, at):
        extents = np.array(image.shape[:1:-1])
        grid = 2 * at / (extents - 1) - 1 if align_corners else (2 * at + 1) / extents - 1
        how = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
        return evaluate("onnx.GridSample", x=image, grid=grid.astype(np.float32), **how)

    np.testing.assert_allclose(sampled(x, places), sampled(padded, places + room), rtol=0, atol=4e-6)


def by_loops(image, px, py, sampling, padding, fill):
    """An image [C, H, W], padded by 30 elements, at pixel positions."""
    filling = {"constant_values": fill} if padding == "constant" else {}
    image = np.pad(image, ((0, 0), (30, 30), (30, 30)), PADDED[padding], **filling).astype(np.float64)
    result = np.zeros((image.shape[0], *px.shape))
    for place in np.ndindex(px.shape):
        x, y = px[place] + 30, py[place] + 30
        if sampling == "nearest":
            result[:, *place] = image[:, round(y), round(x)]
            continue
        left, top = math.floor(x), math.floor(y)
        upper = image[:, top, left] * (left + 1 - x) + image[:, top, left + 1] * (x - left)
        lower = image[:, top + 1, left] * (left + 1 - x) + image[:, top + 1, left + 1] * (x - left)
        result[:, *place] = upper * (top + 1 - y) + lower * (y - top)
    return result


def in_elements(places, extent, mode, align_corners):
    if mode == "unnormalized":
        return places
    share = places if mode == "normalized_zero_to_one" else (places + 1) / 2
    return share * (extent - 1) if align_corners else share * extent - 0.5


@pytest.mark.parametrize("padding", PADDED)
@pytest.mark.parametrize("sampling", ["bilinear", "nearest"])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("mode", ["unnormalized", "normalized_minus_one_to_one", "normalized_zero_to_one"])
def test_resample_and_affine_sample_a_padded_image(padding, sampling, align_corners, mode):
    x = normal(1, 2, 3, 4, 6)
    reach = {"unnormalized": (-9, 14), "normalized_zero_to_one": (-1.2, 2.2)}.get(mode, (-3.4, 3.4))
    coordinates = np.random.default_rng(2).uniform(*reach, (2, 5, 3, 2)).astype(np.float32)
    how = {"sampling_mode": sampling, "padding_mode": padding, "padding_value": 0.5}
    how |= {"coordinates_mode": mode, "align_corners": align_corners}

    def sampled(image, places):
        px = in_elements(places[..., 0].astype(np.float64), 6, mode, align_corners)
        py = in_elements(places[..., 1].astype(np.float64), 4, mode, align_corners)
        return by_loops(image, px, py, sampling, padding, 0.5)

    wanted = [sampled(image, places) for image, places in zip(x, coordinates)]
    got = evaluate("resample", x=x, coordinates=coordinates, **how)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)

    matrix = np.float32([[0.9, -0.4, 0.13, 0.3, 1.2, -0.21], [1.3, 0.2, -0.17, 0.1, -0.8, 0.45]])
    if align_corners:
        row, column = np.linspace(0, 1, 3), np.linspace(0, 1, 4)
    else:
        row, column = (np.arange(3) + 0.5) / 3, (np.arange(4) + 0.5) / 4
    if mode == "unnormalized":
        row, column = np.arange(3), np.arange(4)
    if mode == "normalized_minus_one_to_one":
        row, column = 2 * row - 1, 2 * column - 1
    for matrices in (matrix, matrix[:1]):
        got = evaluate("affine", x=x, transform_matrix=matrices, output_height=3, output_width=4, **how)
        for n, (a, b, c, d, e, f) in enumerate(np.broadcast_to(matrices, (2, 6)).astype(np.float64)):
            h, w = np.meshgrid(row, column, indexing="ij")
            wanted = sampled(x[n], np.stack([a * w + b * h + c, d * w + e * h + f], -1))
            np.testing.assert_allclose(got[n], wanted, rtol=1e-4, atol=1e-5)


def test_random_numbers_follow_their_seed_and_distribution():
    case = {"shape": [10_000], "seed": 3}
    a = evaluate("random_uniform", low=2.0, high=4.0, **case)
    np.testing.assert_array_equal(a, evaluate("random_uniform", low=2.0, high=4.0, **case))
    assert a.min() >= 2 and a.max() <= 4 and abs(a.mean() - 3) < 0.05
    n = evaluate("random_normal", mean=1.0, stddev=2.0, **case)
    assert abs(n.mean() - 1) < 0.1 and abs(n.std() - 2) < 0.1
    assert abs(evaluate("random_bernoulli", prob=0.3, **case).mean() - 0.3) < 0.02
    draws = evaluate("random_categorical", x=np.float32([[0.7, 0.2, 0.1]]), mode="probs", size=10_000, seed=1)
    assert np.abs(np.bincount(draws[0].astype(int)) / 1e4 - [0.7, 0.2, 0.1]).max() < 0.02


def test_lists():
    b = GraphBuilder()
    x = b.input("x", (3, 2), "fp32")
    ls = b.make_list(init_length=3, dynamic_length=False, elem_shape=(2,), dtype="fp32")
    ls = b.list_scatter(ls=ls, indices=np.int32([0, 1, 2]), value=x)
    ls = b.list_write(ls=ls, index=np.int32(1), value=np.float32([7, 8]))
    b.output(
        b.list_gather(ls=ls, indices=np.int32([1, 2])), b.list_length(ls=ls), b.list_read(ls=ls, index=np.int32(0))
    )
    got = list(b.graph.verify().evaluate({"x": [[1, 2], [3, 4], [5, 6]]}).values())
    assert [value.tolist() for value in got] == [[[7, 8], [5, 6]], 3, [1, 2]]


@pytest.mark.parametrize(
    ("op", "operands"),
    [
        ("reshape", {"x": normal(0, 2, 3), "shape": [4, 2]}),
        ("reshape", {"x": normal(0, 2, 3), "shape": [-1, -1]}),
        ("transpose", {"x": normal(0, 2, 3), "perm": [0, 0]}),
        ("concat", {"values": (normal(0, 2, 3), normal(0, 3, 2)), "axis": 0}),
        ("split", {"x": normal(0, 2, 3), "num_splits": 2, "axis": 1}),
        ("squeeze", {"x": normal(0, 2, 3), "axes": [0]}),
        ("conv", {"x": normal(0, 1, 2, 3), "weight": normal(0, 1, 2, 5)}),
        ("max_pool", {"x": normal(0, 1, 2, 3), "kernel_sizes": [5], "pad_type": "valid"}),
        ("matmul", {"x": normal(0, 2, 3), "y": normal(0, 2, 3)}),
        ("einsum", {"values": (normal(0, 2, 3),), "equation": "ij->ijk"}),
        ("gather", {"x": normal(0, 2, 3), "indices": np.int32([0]), "axis": 2}),
        ("softmax", {"x": normal(0, 2, 3), "axis": 5}),
        ("pad", {"x": normal(0, 2, 3), "pad": [3, 0], "mode": "reflect"}),
        ("fill", {"shape": [100_000, 100_000], "value": 1.0}),
        ("tile", {"x": normal(0, 2, 3), "reps": [10**6, 10**6]}),
        ("range_1d", {"start": 0, "end": 5, "step": 0}),
        ("topk", {"x": normal(0, 2, 3), "k": 4}),
        ("slice_by_size", {"x": normal(0, 2, 3), "begin": [0, 2], "size": [1, 2]}),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_computed(op, operands):
    with pytest.raises(GraphError):
        evaluate(op, **operands)


def test_every_op_says_what_it_is():
    from hexane.graph.registry import UNKNOWN

    names = {spec.name for spec in all_specs() if "." not in spec.name}
    assert len(names) >= 170 and not UNKNOWN
    for spec in all_specs():
        assert spec.evaluate is not None and spec.params is not None


def test_the_reference_needs_no_other_framework():
    import subprocess
    import sys

    code = (
        "import sys\n"
        "for name in ('onnx', 'onnxruntime', 'torch', 'coremltools', 'scipy'): sys.modules[name] = None\n"
        "import numpy as np, hexane\n"
        "from hexane.graph import GraphBuilder\n"
        "b = GraphBuilder(); x = b.input('x', (1, 3, 8, 8))\n"
        "b.output(b.gelu(x=b.conv(x=x, weight=np.ones((2, 3, 3, 3), np.float32))))\n"
        "print(b.graph.evaluate({'x': np.ones((1, 3, 8, 8))})['gelu'].shape)\n"
        "hexane.parse_mil(b.graph.to_mil())\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "(1, 2, 6, 6)"


@pytest.mark.parametrize("op", ["gather", "gather_along_axis", "gather_nd"])
@pytest.mark.parametrize("typed", [False, True])
def test_a_large_constant_is_not_widened_for_a_few_of_its_rows(op, typed):
    table = normal(1, 5000, 256).astype(np.float16)
    table[7, :3] = np.inf, -np.inf, 2.0**-24
    shape = (3, 256) if op == "gather_along_axis" else (3,)
    index = np.broadcast_to(np.int32([7, 4999, 0]).reshape(3, *(1,) * (len(shape) - 1)), shape)
    index = index.reshape(3, 1) if op == "gather_nd" else np.ascontiguousarray(index)
    b = GraphBuilder()
    at = b.input("at", index.shape, "int32")
    operands = {"x": b.const(table), "indices": at}
    rows = b.op(op, **operands, **({} if op == "gather_nd" else {"axis": 0}))
    b.output(b.add(x=rows, y=np.float16(0)))
    graph = b.graph.verify()
    graph.evaluate({"at": index})  # what is imported at the first run does not count
    tracemalloc.start()
    (found,) = graph.evaluate({"at": index}, typed=typed).values()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(found, table[[7, 4999, 0]])
    assert peak < table.nbytes / 10


@pytest.mark.parametrize("op", ["inverse", "rsqrt"])
def test_the_inverse_of_a_negative_zero_is_negative(op: str) -> None:
    b = GraphBuilder()
    b.output(b.op(op, x=b.input("x", (2,), "fp32"), epsilon=0.0, name="y"))
    with np.errstate(divide="ignore"):
        assert b.graph.evaluate({"x": np.float32([0.0, -0.0])})["y"].tolist() == [np.inf, -np.inf]
