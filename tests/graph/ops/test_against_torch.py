"""Every op that PyTorch has too, over random parameters."""

from __future__ import annotations

import numpy as np
import pytest

from graph.ops.run_op import evaluate

torch = pytest.importorskip("torch")
F = torch.nn.functional

pytestmark = pytest.mark.slow


def close(got, wanted, tolerance=2e-5):
    wanted = wanted.detach().numpy() if hasattr(wanted, "detach") else np.asarray(wanted)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def t(array):
    return torch.from_numpy(np.ascontiguousarray(array))


@pytest.fixture(params=range(12))
def rng(request):
    return np.random.default_rng(request.param)


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


UNARY = {
    "abs": torch.abs,
    "ceil": torch.ceil,
    "floor": torch.floor,
    "round": torch.round,
    "sign": torch.sign,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "erf": torch.erf,
    "square": torch.square,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "atan": torch.atan,
    "relu": torch.relu,
    "relu6": F.relu6,
    "softsign": F.softsign,
    "softplus": F.softplus,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    x = np.concatenate([np.linspace(-9, 9, 1001), [0.0, -0.0, 0.5, 1.5, -0.5]]).astype(np.float32)
    close(evaluate(name, x=x), UNARY[name](t(x)), 2e-5 if name not in ("tan", "sinh", "cosh", "exp", "exp2") else 2e-4)


def test_unary_of_a_part_of_the_line():
    x = np.linspace(-0.99, 0.99, 401).astype(np.float32)
    for name, function in (("asin", torch.asin), ("acos", torch.acos), ("atanh", torch.atanh)):
        close(evaluate(name, x=x), function(t(x)), 1e-4)
    x = np.linspace(0.01, 20, 401).astype(np.float32)
    close(evaluate("sqrt", x=x), torch.sqrt(t(x)))
    close(evaluate("rsqrt", x=x), torch.rsqrt(t(x)))
    close(evaluate("log", x=x), torch.log(t(x)))
    close(evaluate("inverse", x=x, epsilon=0.5), 1 / (t(x) + 0.5))


def test_activations(rng):
    x = normal(rng, 2, 3, 5)
    a, b = (float(v) for v in rng.uniform(0.1, 2, 2))
    close(evaluate("leaky_relu", x=x, alpha=a), F.leaky_relu(t(x), a))
    close(evaluate("elu", x=x, alpha=a), F.elu(t(x), a))
    close(evaluate("gelu", x=x, mode="TANH_APPROXIMATION"), F.gelu(t(x), approximate="tanh"))
    close(evaluate("clip", x=x, alpha=-a, beta=b), torch.clamp(t(x), -a, b))
    close(evaluate("sigmoid_hard", x=x, alpha=1 / 6, beta=0.5), F.hardsigmoid(t(x)))
    alpha = normal(rng, 3)
    close(evaluate("prelu", x=x, alpha=alpha), F.prelu(t(x), t(alpha)))
    for axis in (-3, -1, 0, 1):
        close(evaluate("softmax", x=x * 10, axis=axis), torch.softmax(t(x * 10), axis))


def test_binary(rng):
    shapes = [((2, 3, 4), (4,)), ((1, 3, 1), (2, 1, 5)), ((), (3,)), ((4, 1), (4, 3))]
    a, b = shapes[rng.integers(len(shapes))]
    x, y = normal(rng, *a), normal(rng, *b)
    for name, function in (
        ("add", torch.add),
        ("sub", torch.sub),
        ("mul", torch.mul),
        ("maximum", torch.maximum),
        ("minimum", torch.minimum),
        ("real_div", torch.div),
        ("floor_div", torch.floor_divide),
        ("mod", torch.remainder),
        ("equal", torch.eq),
        ("greater", torch.gt),
        ("less_equal", torch.le),
    ):
        close(evaluate(name, x=x, y=y), function(t(x), t(y)), 1e-4)
    close(evaluate("pow", x=np.abs(x), y=y), torch.pow(t(np.abs(x)), t(y)), 1e-4)
    i, j = rng.integers(-9, 9, a).astype(np.int32), rng.integers(1, 9, b).astype(np.int32)
    for name, function in (
        ("floor_div", torch.floor_divide),
        ("mod", torch.remainder),
        ("real_div", lambda x, y: torch.div(x, y, rounding_mode="trunc")),
    ):
        close(evaluate(name, x=i, y=j), function(t(i), t(j)))
    cond = rng.random(a) < 0.5
    close(evaluate("select", cond=cond, a=x, b=y), torch.where(t(cond), t(x), t(y)))


def conv_case(rng, transposed=False):
    dims = int(rng.integers(1, 4))
    groups = int(rng.choice([1, 1, 2, 3]))
    cin, cout = groups * int(rng.integers(1, 4)), groups * int(rng.integers(1, 4))
    if rng.random() < 0.25:
        groups = cin = cout = 4
    kernel = tuple(int(k) for k in rng.integers(1, 4, dims))
    strides = tuple(int(s) for s in rng.integers(1, 3, dims))
    dilations = tuple(int(d) for d in rng.integers(1, 3, dims))
    pads = tuple(int(p) for p in rng.integers(0, 3, dims))
    extents = tuple(int(n) for n in rng.integers(5, 10, dims))
    x = normal(rng, int(rng.integers(1, 3)), cin, *extents)
    weight = normal(rng, *((cin, cout // groups) if transposed else (cout, cin // groups)), *kernel)
    bias = normal(rng, cout) if rng.random() < 0.5 else None
    return dims, x, weight, bias, strides, pads, dilations, groups


@pytest.mark.parametrize("seed", range(60))
def test_conv(seed):
    rng = np.random.default_rng(seed)
    dims, x, weight, bias, strides, pads, dilations, groups = conv_case(rng)
    function = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    wanted = function(t(x), t(weight), None if bias is None else t(bias), strides, pads, dilations, groups)
    got = evaluate(
        "conv",
        x=x,
        weight=weight,
        bias=bias,
        strides=strides,
        pad_type="custom",
        pad=[p for p in pads for _ in (0, 1)],
        dilations=dilations,
        groups=groups,
    )
    close(got, wanted, 1e-4)
    if all(s == 1 for s in strides):
        got = evaluate("conv", x=x, weight=weight, bias=bias, pad_type="same", dilations=dilations, groups=groups)
        wanted = function(t(x), t(weight), None if bias is None else t(bias), 1, "same", dilations, groups)
        close(got, wanted, 1e-4)


@pytest.mark.parametrize("seed", range(60))
def test_conv_transpose(seed):
    rng = np.random.default_rng(seed)
    dims, x, weight, bias, strides, pads, dilations, groups = conv_case(rng, transposed=True)
    full = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilations)]
    pads = tuple(min(p, f - 1) for p, f in zip(pads, full))
    extra = tuple(int(rng.integers(0, s)) for s in strides)
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    wanted = function(t(x), t(weight), None if bias is None else t(bias), strides, pads, extra, groups, dilations)
    got = evaluate(
        "conv_transpose",
        x=x,
        weight=weight,
        bias=bias,
        strides=strides,
        pad_type="custom",
        pad=[p for p in pads for _ in (0, 1)],
        dilations=dilations,
        groups=groups,
        output_shape=wanted.shape if any(extra) else None,
    )
    close(got, wanted, 1e-4)


def test_matrices(rng):
    x, y = normal(rng, 2, 1, 3, 4), normal(rng, 5, 4, 6)
    close(evaluate("matmul", x=x, y=y), t(x) @ t(y), 1e-4)
    close(evaluate("matmul", x=x, y=y.swapaxes(1, 2).copy(), transpose_y=True), t(x) @ t(y), 1e-4)
    close(evaluate("matmul", x=x.swapaxes(2, 3).copy(), y=y, transpose_x=True), t(x) @ t(y), 1e-4)
    close(evaluate("matmul", x=x[0, 0, 0], y=y), t(x[0, 0, 0]) @ t(y), 1e-4)
    close(evaluate("matmul", x=x, y=y[0, :, 0].copy()), t(x) @ t(y[0, :, 0]), 1e-4)
    weight, bias = normal(rng, 7, 4), normal(rng, 7)
    close(evaluate("linear", x=x, weight=weight, bias=bias), F.linear(t(x), t(weight), t(bias)), 1e-4)
    for equation, a, b in (
        ("nchw,nwhu->nchu", (2, 3, 4, 5), (2, 5, 4, 6)),
        ("chw,whr->chr", (3, 4, 5), (5, 4, 6)),
        ("ij,jk->ik", (3, 4), (4, 5)),
        ("b...d,bd->b...", (2, 3, 4), (2, 4)),
    ):
        p, q = normal(rng, *a), normal(rng, *b)
        close(evaluate("einsum", values=(p, q), equation=equation), torch.einsum(equation, t(p), t(q)), 1e-4)


def test_attention(rng):
    q, k, v = normal(rng, 2, 3, 5, 8), normal(rng, 2, 3, 7, 8), normal(rng, 2, 3, 7, 4)
    for mask in (None, rng.random((5, 7)) < 0.7, normal(rng, 2, 1, 5, 7)):
        if mask is not None and mask.dtype == bool:
            mask[:, 0] = True
        wanted = F.scaled_dot_product_attention(t(q), t(k), t(v), None if mask is None else t(mask))
        got = evaluate("scaled_dot_product_attention", query=q, key=k, value=v, attn_mask=mask)
        close(got, wanted, 1e-4)


def test_reductions(rng):
    x = normal(rng, 2, 3, 4, 5)
    axes = sorted(int(a) for a in rng.choice(4, int(rng.integers(1, 5)), replace=False))
    keep = bool(rng.random() < 0.5)
    case = {"x": x, "axes": axes, "keep_dims": keep}
    close(evaluate("reduce_sum", **case), torch.sum(t(x), axes, keep), 1e-4)
    close(evaluate("reduce_mean", **case), torch.mean(t(x), axes, keep), 1e-4)
    close(evaluate("reduce_max", **case), torch.amax(t(x), axes, keep))
    close(evaluate("reduce_min", **case), torch.amin(t(x), axes, keep))
    close(evaluate("reduce_log_sum_exp", **case), torch.logsumexp(t(x), axes, keep), 1e-4)
    close(evaluate("reduce_l1_norm", **case), torch.sum(t(x).abs(), axes, keep), 1e-4)
    close(evaluate("reduce_l2_norm", **case), torch.linalg.vector_norm(t(x), 2, axes, keep), 1e-4)
    close(evaluate("reduce_sum_square", **case), torch.sum(t(x) ** 2, axes, keep), 1e-4)
    axis = axes[0]
    close(evaluate("reduce_prod", x=x, axes=[axis], keep_dims=keep), torch.prod(t(x), axis, keep), 1e-4)
    close(evaluate("reduce_argmax", x=x, axis=axis, keep_dims=keep), torch.argmax(t(x), axis, keep))
    close(evaluate("reduce_argmin", x=x, axis=axis, keep_dims=keep), torch.argmin(t(x), axis, keep))
    close(evaluate("cumsum", x=x, axis=axis), torch.cumsum(t(x), axis), 1e-4)


def test_norms(rng):
    x = normal(rng, 2, 6, 4, 5)
    g, b = normal(rng, 4, 5), normal(rng, 4, 5)
    close(
        evaluate("layer_norm", x=x, axes=[2, 3], gamma=g, beta=b, epsilon=1e-3),
        F.layer_norm(t(x), (4, 5), t(g), t(b), 1e-3),
        1e-4,
    )
    close(
        evaluate("layer_norm", x=x, axes=[3, 2], gamma=g.T.copy(), beta=b.T.copy(), epsilon=1e-3),
        F.layer_norm(t(x), (4, 5), t(g), t(b), 1e-3),
        1e-4,
    )
    g, b, m, v = normal(rng, 6), normal(rng, 6), normal(rng, 6), rng.random(6).astype(np.float32) + 0.1
    close(
        evaluate("batch_norm", x=x, mean=m, variance=v, gamma=g, beta=b, epsilon=1e-4),
        F.batch_norm(t(x), t(m), t(v), t(g), t(b), eps=1e-4),
        1e-4,
    )
    close(
        evaluate("instance_norm", x=x, gamma=g, beta=b, epsilon=1e-4),
        F.instance_norm(t(x), weight=t(g), bias=t(b), eps=1e-4),
        1e-4,
    )
    size = int(rng.choice([1, 3, 5]))
    close(
        evaluate("local_response_norm", x=x, size=size, alpha=0.1, beta=0.6, k=2.0),
        F.local_response_norm(t(x), size, 0.1, 0.6, 2.0),
        1e-4,
    )


@pytest.mark.parametrize("seed", range(40))
def test_pools(seed):
    rng = np.random.default_rng(seed)
    dims = int(rng.integers(1, 4))
    kernel = tuple(int(k) for k in rng.integers(1, 5, dims))
    strides = tuple(int(s) for s in rng.integers(1, 4, dims))
    pads = tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel)
    x = normal(rng, 2, 3, *(int(n) for n in rng.integers(5, 12, dims)))
    ceil = bool(rng.random() < 0.5)
    case = {
        "x": x,
        "kernel_sizes": kernel,
        "strides": strides,
        "pad_type": "custom",
        "pad": [p for p in pads for _ in (0, 1)],
        "ceil_mode": ceil,
    }
    max_pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[dims - 1]
    avg_pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[dims - 1]
    wanted = max_pool(t(x), kernel, strides, pads, 1, ceil)
    got = evaluate("max_pool", **case)
    if ceil and got.shape != wanted.shape:
        # on an axis without padding MIL keeps a last window that begins past the input
        shared = tuple(slice(0, n) for n in wanted.shape)
        differing = [axis for axis in range(dims) if got.shape[2 + axis] != wanted.shape[2 + axis]]
        assert all(pads[axis] == 0 for axis in differing)
        close(got[shared], wanted)
        return
    close(got, wanted)
    for exclude in (False, True):
        wanted = avg_pool(t(x), kernel, strides, pads, ceil, not exclude)
        close(evaluate("avg_pool", **case, exclude_padding_from_average=exclude), wanted, 1e-4)
    if dims == 2 and not any(pads):
        close(evaluate("l2_pool", **case), F.lp_pool2d(t(x), 2, kernel, strides, ceil), 1e-3)


def test_resizes(rng):
    x = normal(rng, 2, 3, int(rng.integers(2, 9)), int(rng.integers(2, 9)))
    size = tuple(int(n) for n in rng.integers(1, 14, 2))
    case = {"x": x, "target_size_height": size[0], "target_size_width": size[1]}
    close(evaluate("resize_nearest_neighbor", **case), F.interpolate(t(x), size, mode="nearest"))
    close(
        evaluate("resize_bilinear", **case, sampling_mode="UNALIGN_CORNERS"),
        F.interpolate(t(x), size, mode="bilinear", align_corners=False),
        1e-4,
    )
    close(
        evaluate("resize_bilinear", **case, sampling_mode="STRICT_ALIGN_CORNERS"),
        F.interpolate(t(x), size, mode="bilinear", align_corners=True),
        1e-4,
    )
    factor = int(rng.integers(1, 4))
    case = {"x": x, "scale_factor_height": factor, "scale_factor_width": factor}
    close(evaluate("upsample_nearest_neighbor", **case), F.interpolate(t(x), scale_factor=factor, mode="nearest"))
    for corners in (False, True):
        close(
            evaluate("upsample_bilinear", **case, align_corners=corners),
            F.interpolate(t(x), scale_factor=factor, mode="bilinear", align_corners=corners),
            1e-4,
        )
    case = {"x": x, "shape": size, "resized_dims": 2, "sampling_mode": "UNALIGN_CORNERS"}
    close(
        evaluate("resize", **case, interpolation_mode="NEAREST_NEIGHBOR"),
        F.interpolate(t(x), size, mode="nearest-exact"),
    )


def test_resample(rng):
    x = normal(rng, 2, 3, 5, 6)
    grid = rng.uniform(-1.6, 1.6, (2, 4, 7, 2)).astype(np.float32)
    for mode in ("bilinear", "nearest"):
        for padding, name in (("constant", "zeros"), ("border", "border"), ("reflection", "reflection")):
            for corners in (True, False):
                if padding == "reflection":
                    padding_here = "reflection" if corners else "symmetric"
                else:
                    padding_here = padding
                if mode == "nearest" and padding != "constant":
                    continue  # PyTorch brings the coordinate inside before it rounds
                got = evaluate(
                    "resample",
                    x=x,
                    coordinates=grid,
                    sampling_mode=mode,
                    padding_mode=padding_here,
                    padding_value=0.0,
                    coordinates_mode="normalized_minus_one_to_one",
                    align_corners=corners,
                )
                close(got, F.grid_sample(t(x), t(grid), mode, name, corners), 1e-4)
    matrix = normal(rng, 2, 2, 3)
    wanted = F.grid_sample(t(x), F.affine_grid(t(matrix), (2, 3, 4, 7), align_corners=True), align_corners=True)
    got = evaluate(
        "affine",
        x=x,
        transform_matrix=matrix.reshape(2, 6),
        output_height=4,
        output_width=7,
        sampling_mode="bilinear",
        padding_mode="constant",
        padding_value=0.0,
        coordinates_mode="normalized_minus_one_to_one",
        align_corners=True,
    )
    close(got, wanted, 1e-4)


def test_orders(rng):
    x = normal(rng, 2, 8, 6, 9)
    close(evaluate("pixel_shuffle", x=x, upscale_factor=2), F.pixel_shuffle(t(x), 2))
    close(evaluate("pixel_unshuffle", x=x, downscale_factor=3), F.pixel_unshuffle(t(x), 3))
    close(evaluate("transpose", x=x, perm=[2, 0, -1, 1]), t(x).permute(2, 0, 3, 1))
    close(evaluate("reverse", x=x, axes=[1, -1]), torch.flip(t(x), [1, 3]))
    close(evaluate("tile", x=x, reps=[1, 2, 1, 3]), t(x).repeat(1, 2, 1, 3))
    close(evaluate("sliding_windows", x=x, axis=2, size=3, stride=2), t(x).unfold(2, 3, 2).movedim(-1, 3))
    close(evaluate("stack", values=(x, x + 1), axis=-1), torch.stack([t(x), t(x + 1)], -1))
    close(evaluate("concat", values=(x, x), axis=-2), torch.cat([t(x), t(x)], -2))
    for part, wanted in zip(evaluate("split", x=x, split_sizes=[1, 5, 3], axis=-1), torch.split(t(x), [1, 5, 3], -1)):
        close(part, wanted)
    pads = [int(p) for p in rng.integers(0, 5, 4)]
    torch_pads = [pads[2], pads[3], pads[0], pads[1]]
    for mode in ("constant", "reflect", "replicate"):
        value = 2.5 if mode == "constant" else 0.0
        wanted = F.pad(t(x), torch_pads, mode, value if mode == "constant" else None)
        close(evaluate("pad", x=x, pad=pads, mode=mode, constant_val=value), wanted)


def test_indices(rng):
    x = normal(rng, 4, 5, 6)
    index = rng.integers(-5, 5, (2, 3)).astype(np.int32)
    close(evaluate("gather", x=x, indices=index, axis=1), t(x)[:, t(index).long() % 5])
    along = rng.integers(0, 5, (4, 3, 6)).astype(np.int32)
    close(evaluate("gather_along_axis", x=x, indices=along, axis=1), torch.gather(t(x), 1, t(along).long()))
    vectors = np.stack([rng.integers(0, 4, 7), rng.integers(0, 5, 7)], -1).astype(np.int32)
    close(evaluate("gather_nd", x=x, indices=vectors), t(x)[t(vectors[:, 0]).long(), t(vectors[:, 1]).long()])
    batched = rng.integers(0, 6, (4, 2)).astype(np.int32)
    wanted = torch.stack([t(x)[b][:, t(batched[b]).long()] for b in range(4)])
    close(evaluate("gather", x=x, indices=batched, axis=2, batch_dims=1), wanted)
    updates = normal(rng, 4, 3, 6)
    close(
        evaluate("scatter_along_axis", data=x, indices=along, updates=updates, axis=1, mode="add"),
        torch.scatter_add(t(x), 1, t(along).long(), t(updates)),
        1e-4,
    )
    rows = rng.permutation(5)[:3].astype(np.int32)
    close(
        evaluate("scatter", data=x, indices=rows, updates=updates, axis=1, mode="update"),
        t(x).index_copy(1, t(rows).long(), t(updates)),
    )
    k = int(rng.integers(1, 6))
    for ascending in (False, True):
        values, where = evaluate("topk", x=x, k=k, axis=1, ascending=ascending)
        wanted = torch.topk(t(x), k, 1, not ascending)
        close(values, wanted.values)
        close(where, wanted.indices)
        close(evaluate("argsort", x=x, axis=0, ascending=ascending), torch.argsort(t(x), 0, not ascending))
    hot = rng.integers(0, 5, (2, 3)).astype(np.int32)
    close(evaluate("one_hot", indices=hot, one_hot_vector_size=5), F.one_hot(t(hot).long(), 5))
    close(evaluate("band_part", x=x, lower=1, upper=2), torch.triu(torch.tril(t(x), 2), -1))


def test_recurrent(rng):
    s, b, i, h = 5, 2, 3, 4
    x = normal(rng, s, b, i)
    h0, c0 = normal(rng, b, h), normal(rng, b, h)
    lstm = torch.nn.LSTM(i, h)
    order = [0, 1, 3, 2]  # PyTorch: input, forget, cell, output; MIL: input, forget, output, cell

    def gates(weight, which):
        parts = weight.detach().numpy().reshape(len(which), h, *weight.shape[1:])
        return np.concatenate([parts[g] for g in which])

    out, (hn, cn) = lstm(t(x), (t(h0)[None], t(c0)[None]))
    got = evaluate(
        "lstm",
        x=x,
        initial_h=h0,
        initial_c=c0,
        weight_ih=gates(lstm.weight_ih_l0, order),
        weight_hh=gates(lstm.weight_hh_l0, order),
        bias=gates(lstm.bias_ih_l0 + lstm.bias_hh_l0, order),
        output_sequence=True,
    )
    for found, wanted in zip(got, (out, hn[0], cn[0])):
        close(found, wanted, 1e-4)
    both = torch.nn.LSTM(i, h, bidirectional=True)
    h2, c2 = normal(rng, 2, b, h), normal(rng, 2, b, h)
    out, (hn, cn) = both(t(x), (t(h2), t(c2)))
    got = evaluate(
        "lstm",
        x=x,
        initial_h=np.concatenate(list(h2), 1),
        initial_c=np.concatenate(list(c2), 1),
        weight_ih=gates(both.weight_ih_l0, order),
        weight_hh=gates(both.weight_hh_l0, order),
        bias=gates(both.bias_ih_l0 + both.bias_hh_l0, order),
        weight_ih_back=gates(both.weight_ih_l0_reverse, order),
        weight_hh_back=gates(both.weight_hh_l0_reverse, order),
        bias_back=gates(both.bias_ih_l0_reverse + both.bias_hh_l0_reverse, order),
        direction="bidirectional",
        output_sequence=True,
    )
    for found, wanted in zip(got, (out, torch.cat(list(hn), 1), torch.cat(list(cn), 1))):
        close(found, wanted, 1e-4)
    gru = torch.nn.GRU(i, h)
    order = [0, 2, 1]  # PyTorch: reset, update, new; MIL: reset, new, update
    out, hn = gru(t(x), t(h0)[None])
    got = evaluate(
        "gru",
        x=x,
        initial_h=h0,
        weight_ih=gates(gru.weight_ih_l0, order),
        weight_hh=gates(gru.weight_hh_l0, order),
        input_bias=gates(gru.bias_ih_l0, order),
        bias=gates(gru.bias_hh_l0, order),
        reset_after=True,
        output_sequence=True,
    )
    close(got[0], out, 1e-4)
    close(got[1], hn[0], 1e-4)
    rnn = torch.nn.RNN(i, h, nonlinearity="relu")
    out, hn = rnn(t(x), t(h0)[None])
    got = evaluate(
        "rnn",
        x=x,
        initial_h=h0,
        weight_ih=rnn.weight_ih_l0.detach().numpy(),
        weight_hh=rnn.weight_hh_l0.detach().numpy(),
        bias=(rnn.bias_ih_l0 + rnn.bias_hh_l0).detach().numpy(),
        activation="relu",
    )
    close(got[0], out[-1:], 1e-4)
