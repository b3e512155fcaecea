"""Packing and unpacking are inverse on every layout, and a stream is what a plain reading of the rules says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexane import HexaneError
from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.kernels import KernelLayout, pack, unpack
from hexane.kernels.layout import PALETTE_BITS

CORES = (1, 2, 4, 8, 16)
FORMATS = ("float16", "float16", "int8", "uint8")


@st.composite
def layouts(draw) -> KernelLayout:
    """Any layout whose bytes are known, small enough to be quick."""
    kinds = ("dense", "grouped", "unicast", "sparse", "sparse unicast", "binary", "widened", "palette", "integers")
    kind = draw(st.sampled_from(kinds))
    cores = draw(st.sampled_from(CORES))
    size = {"kh": draw(st.integers(1, 5)), "kw": draw(st.integers(1, 5))}
    table = draw(st.booleans())
    bias = draw(st.booleans())
    if kind == "dense":
        dtype = "float16" if bias else draw(st.sampled_from(FORMATS))
        cout, ocg = draw(st.integers(1, 70)), draw(st.integers(0, 5))
        return KernelLayout(cout, draw(st.integers(1, 9)), **size, cores=cores, ocg=ocg, dtype=dtype, bias=bias)
    if kind in ("palette", "integers"):
        coded = {"palette": draw(st.sampled_from(PALETTE_BITS))}
        if kind == "integers":
            coded = {"dtype": draw(st.sampled_from(("int8", "uint8", "e4m3")))}
        groups, cout = draw(st.integers(1, 3)), draw(st.integers(1, 70))
        cout = cores * draw(st.integers(1, 4)) if groups > 1 else cout
        return KernelLayout(
            cout, draw(st.integers(1, 9)), **size, groups=groups, cores=cores, ocg=draw(st.integers(2, 5)),
            bias=bias, table=table, scales=draw(st.booleans()), **coded,
        )  # fmt: skip
    if kind == "grouped":
        cout = cores * draw(st.integers(1, 5))
        groups = draw(st.integers(2, 5))
        ocg = draw(st.integers(0, 4))
        return KernelLayout(cout, 3, **size, groups=groups, cores=cores, ocg=ocg, bias=bias, table=table)
    if kind == "unicast":
        dtype = "float16" if bias else draw(st.sampled_from(FORMATS))
        cout, cin = draw(st.integers(1, 70)), draw(st.integers(1, 4))
        return KernelLayout(cout, cin, **size, unicast=True, cores=cores, dtype=dtype, bias=bias, table=table)
    if kind == "widened":
        cout, kw = draw(st.integers(1, 70)), draw(st.integers(8, 13))
        return KernelLayout(cout, 1, 1, kw, unicast=True, widened=True, cores=cores, bias=bias, stride=(1, 2))
    stride = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    if kind == "binary":
        cout = draw(st.integers(1, 40))
        return KernelLayout(cout, 1, **size, unicast=True, sparse=True, binary=True, cores=cores, stride=stride)
    if kind == "sparse unicast":
        cout, cin = draw(st.integers(1, 40)), draw(st.integers(1, 3))
        return KernelLayout(
            cout, cin, **size, unicast=True, sparse=True, cores=cores, stride=stride, bias=bias, table=table
        )
    groups = draw(st.integers(1, 3))
    lanes = draw(st.integers(1, 8 if groups > 1 else 20))
    cout = cores * lanes if groups > 1 else draw(st.integers(1, cores * lanes))
    return KernelLayout(
        cout, 3, **size, groups=groups, sparse=True, stride=stride, cores=cores, ocg=3, bias=bias, table=table
    )


def random_kernel(layout: KernelLayout, seed: int) -> dict:
    """Random bits of every part that the layout has; a third of the weights of a sparse one are zero."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 1 << 16, layout.weight_shape).astype("<u2")
    if layout.sparse:
        weights[rng.random(layout.weight_shape) < 0.35] = 0
    if layout.binary:
        weights[weights != 0] = 0x4200
    if layout.palette:
        palette = rng.integers(0, 1 << 16, 1 << layout.palette).astype("<u2").view("<f2")
        parts = {"weights": rng.integers(0, palette.size, layout.weight_shape).astype("u1"), "palette": palette}
    elif layout.dtype == "float16":
        parts = {"weights": weights.view("<f2")}
    else:
        parts = {"weights": weights.astype("u1").view("u1" if layout.dtype == "e4m3" else layout.dtype)}
    if layout.bias:
        parts["bias"] = rng.integers(0, 1 << 16, layout.weight_shape[0]).astype("<u2").view("<f2")
    if layout.scales:
        parts["scales"] = rng.integers(0, 1 << 16, layout.weight_shape[0]).astype("<u2").view("<f2")
    if layout.table:
        parts["table"] = rng.bytes(128)
    return parts


def chunks(packed) -> list[bytes]:
    return [packed.data[at : at + size] for at, size in zip(packed.offsets, packed.sizes)]


@settings(max_examples=250, deadline=None)
@given(layouts(), st.integers(0, 2**32 - 1))
def test_unpacking_what_was_packed_gives_the_same_bits(layout, seed):
    parts = random_kernel(layout, seed)
    packed = pack(layout, **parts)
    kernel = unpack(layout, chunks(packed))
    stored = kernel.indices if layout.palette else kernel.weights
    assert stored.dtype == parts["weights"].dtype
    assert kernel.weights.shape == layout.weight_shape
    assert stored.tobytes() == parts["weights"].tobytes()
    if layout.palette:
        assert kernel.palette.tobytes() == parts["palette"].tobytes()
        assert kernel.weights.tobytes() == parts["palette"][parts["weights"]].tobytes()
    assert (kernel.scales is None) == (not layout.scales)
    if layout.scales:
        assert kernel.scales.tobytes() == parts["scales"].tobytes()
    assert (kernel.bias is None) == (not layout.bias)
    if layout.bias:
        assert kernel.bias.tobytes() == parts["bias"].tobytes()
    assert kernel.table == parts.get("table")
    assert kernel.consumed == packed.sizes


@settings(max_examples=250, deadline=None)
@given(layouts(), st.integers(0, 2**32 - 1))
def test_a_packed_kernel_lies_as_the_registers_ask(layout, seed):
    packed = pack(layout, **random_kernel(layout, seed))
    assert len(packed.offsets) == len(packed.sizes) == layout.active
    ends = [at + size for at, size in zip(packed.offsets, packed.sizes)]
    assert packed.offsets == (0, *ends[:-1])
    assert ends[-1] == len(packed.data)
    assert all(size % 64 == 0 and size > 0 for size in packed.sizes)
    limits = [layout.core_bytes(core) for core in range(layout.active)]
    if layout.sparse:
        least = [layout.least_bytes(core) for core in range(layout.active)]
        assert all(low <= size <= high for low, size, high in zip(least, packed.sizes, limits))
    else:
        assert list(packed.sizes) == limits
    addresses, sizes = packed.registers(0x1000)
    assert addresses[0] == 0x40
    assert sizes[0] * 64 == packed.sizes[0]


def reference(layout: KernelLayout, weights, bias, table: bytes | None) -> list[bytes]:
    """The rules of docs/reference/engine-h13.md 9 read word by word, element by element."""
    bits = weights.view(layout.element)
    start = None if bias is None else bias.view("<u2")
    size = layout.element.itemsize

    def pad(data: bytes) -> bytes:
        return data + bytes(-len(data) % 64)

    def number(value) -> bytes:
        return int(value).to_bytes(size, "little")

    def tap(o: int, c: int, y: int, x: int) -> int:
        return int(bits[o, c, y, x]) if y < layout.kh and x < layout.kw else 0

    def body(outputs: list[int | None]) -> bytes:
        outputs = outputs + [None] * (-len(outputs) % 4)
        sequence = []
        sy, sx = layout.stride
        for c in range(layout.cin):
            for py in range(sy):
                for px in range(sx):
                    for y in range(py, -(-layout.kh // sy) * sy, sy):
                        for x in range(px, -(-layout.kw // sx) * sx, sx):
                            sequence += [0 if o is None else tap(o, c, y, x) for o in outputs]
        sequence += [0] * (-len(sequence) % 8)
        data = b""
        for at in range(0, len(sequence), 8):
            eight = sequence[at : at + 8]
            data += bytes([sum(1 << j for j, v in enumerate(eight) if v)])
            data += b"".join(v.to_bytes(2, "little") for v in eight if v)
        return len(data).to_bytes(3, "little") + data

    result = []
    for core in range(layout.cores):
        chunk = b""
        if layout.unicast:
            for o in range(core, layout.cout, layout.cores):
                if start is not None:
                    chunk += int(start[o]).to_bytes(2, "little")
                if layout.sparse:
                    chunk += body([o])
                else:
                    for c in range(layout.cin):
                        for y in range(layout.kh):
                            for x in range(layout.kw):
                                chunk += number(bits[o, c, y, x])
        else:
            lanes = layout.cout // layout.cores
            for group in range(layout.groups):
                outputs = [group * layout.cout + core * lanes + lane for lane in range(lanes)]
                part = b"" if start is None else b"".join(int(start[o]).to_bytes(2, "little") for o in outputs)
                if layout.sparse:
                    part += body(outputs)
                else:
                    for c in range(layout.cin):
                        for y in range(layout.kh):
                            for x in range(layout.kw):
                                part += b"".join(number(bits[o, c, y, x]) for o in outputs)
                chunk += pad(part) if layout.groups > 1 else part
        if chunk:
            result.append(pad((table or b"") + chunk))
    return result


def compressed_reference(layout: KernelLayout, parts: dict) -> list[bytes]:
    """The same for palettes and scales (docs/reference/compressed.md), one long number of bits for each sub-block."""
    stored = parts["weights"].view("u1")
    rows = [parts[name].view("<u2") for name in ("bias", "scales") if name in parts]
    head = parts.get("table", b"")
    if layout.palette:
        entries = parts["palette"].tobytes()
        head += entries + bytes(-len(entries) % 64)
    lanes = layout.cout // layout.cores
    result = []
    for core in range(layout.cores):
        chunk = head
        for group in range(layout.groups):
            outputs = [group * layout.cout + core * lanes + lane for lane in range(lanes)]
            part = b"".join(int(row[o]).to_bytes(2, "little") for row in rows for o in outputs)
            number, at = 0, 0
            for c in range(layout.cin):
                for y in range(layout.kh):
                    for x in range(layout.kw):
                        for o in outputs:
                            number |= int(stored[o, c, y, x]) << at
                            at += layout.palette or 8
            part += number.to_bytes(-(-at // 8), "little")
            chunk += part + bytes(-len(part) % 64)
        result.append(chunk)
    return result


@settings(max_examples=200, deadline=None)
@given(layouts(), st.integers(0, 2**32 - 1))
def test_streams_follow_the_written_rules(layout, seed):
    if layout.binary or layout.widened:
        return
    if not layout.unicast and (layout.cout % layout.cores or layout.cout > layout.cores << layout.ocg):
        return  # not what the rules state for one pass
    parts = random_kernel(layout, seed)
    if layout.compressed:
        assert chunks(pack(layout, **parts)) == compressed_reference(layout, parts)
        return
    expected = reference(layout, parts["weights"], parts.get("bias"), parts.get("table"))
    assert chunks(pack(layout, **parts)) == expected


def test_passes_of_a_product_are_planes():
    """§9.3: plane n div L belongs to core p mod 16, planes of a core in increasing order."""
    layout = KernelLayout(512, 8)
    weights = np.arange(512 * 8, dtype="<u2").reshape(512, 8, 1, 1).view("<f2")
    bits = weights.view("<u2")
    flat = np.frombuffer(pack(layout, weights).data, "<u2")
    for n in range(0, 512, 37):
        for k in range(8):
            plane = n // 16
            q = (plane % 16) * 2 + plane // 16
            assert flat[q * 8 * 16 + k * 16 + n % 16] == bits[n, k, 0, 0]


def test_a_wide_kernel_is_stored_for_two_columns():
    """§9.8, the slot of a 1 x 9 kernel with bias, tap t as the halfword t + 1 and the bias as 100."""
    layout = KernelLayout(1, 1, 1, 9, unicast=True, widened=True, bias=True, cores=1, stride=(1, 2))
    weights = np.arange(1, 10, dtype="<u2").reshape(1, 1, 1, 9).view("<f2")
    packed = pack(layout, weights, np.array([100], "<u2").view("<f2"))
    slot = np.frombuffer(packed.data, "<u2")[:22]
    t = [*range(1, 10)]
    pairs = ["0.", "21", "43", "65", "87", "10", "32", "54", "76", ".8"]
    assert slot.tolist() == [100, 100, *(0 if c == "." else t[int(c)] for pair in pairs for c in pair)]


def test_a_mask_stands_for_one_value():
    """§9.10: the one-hot kernel of a padding task."""
    layout = KernelLayout(1, 1, 1, 2, unicast=True, sparse=True, binary=True, cores=1)
    packed = pack(layout, np.array([1, 0], "<f2").reshape(1, 1, 1, 2))
    assert packed.data == b"\x00\x3c" + bytes(62) + b"\x01\x00\x00\x01" + bytes(60)
    packed = pack(layout, np.array([0, 1], "<f2").reshape(1, 1, 1, 2))
    assert packed.data[64:68] == b"\x01\x00\x00\x10"


@pytest.mark.parametrize(
    "cin, cout, bits, scales, size",
    [
        (3200, 256, 4, False, 0x6440),
        (3200, 256, 4, True, 0x6480),
        (1024, 256, 4, True, 0x2080),
        (1024, 128, 4, True, 0x1080),
        (2048, 256, 2, True, 0x2080),
        (2048, 256 * 5, 2, True, 0xA100),
        (2048, 256 * 7, 2, True, 0xE140),
        (6656, 256 * 2, 2, True, 0xD080),
    ],
)
def test_palette_chunks_have_the_published_sizes(cin, cout, bits, scales, size):
    """Chunks of shipped kernels (docs/reference/compressed.md)."""
    layout = KernelLayout(cout, cin, palette=bits, scales=scales)
    rng = np.random.default_rng(0)
    parts = {"scales": np.ones(cout, np.float16)} if scales else {}
    palette = np.arange(1 << bits).astype(np.float16)
    packed = pack(layout, rng.integers(0, 1 << bits, layout.weight_shape).astype("u1"), palette=palette, **parts)
    assert set(packed.sizes) == {size}
    assert packed.data[:2] == b"\0\0"
    assert packed.data[2:4] == b"\x00\x3c"


def test_a_palette_takes_values_and_refuses_others():
    layout = KernelLayout(16, 4, palette=2)
    palette = np.array([-1, 0, 0.5, 2], np.float16)
    indices = np.random.default_rng(1).integers(0, 4, layout.weight_shape).astype("u1")
    assert pack(layout, palette[indices], palette=palette) == pack(layout, indices, palette=palette)
    values = palette[indices]
    values[3, 2] = 7
    with pytest.raises(UsageError, match="no entry of the palette"):
        pack(layout, values, palette=palette)
    with pytest.raises(UsageError, match="index 3"):
        pack(layout, np.full(layout.weight_shape, 3, "u1"), palette=palette[:3])
    with pytest.raises(UsageError, match="palette"):
        pack(layout, indices)


def test_cores_with_different_palettes_are_refused():
    layout = KernelLayout(16, 8, palette=4, cores=2)
    packed = pack(layout, np.zeros(layout.weight_shape, "u1"), palette=np.ones(16, np.float16))
    broken = bytearray(packed.data)
    broken[packed.offsets[1]] ^= 1
    with pytest.raises(FormatError, match="different palettes"):
        unpack(layout, [bytes(broken[at : at + n]) for at, n in zip(packed.offsets, packed.sizes)])


def test_a_table_task_shares_one_table():
    layout = KernelLayout(64, 1, unicast=True, weighted=False, table=True, cores=8)
    packed = pack(layout, table=bytes(range(128)))
    assert packed.data == bytes(range(128)) + bytes(128 * 7)
    assert packed.offsets == (0,) * 8
    assert packed.sizes == (128,) * 8
    assert unpack(layout, chunks(packed)).table == bytes(range(128))


@settings(max_examples=150, deadline=None)
@given(layouts(), st.integers(0, 2**32 - 1), st.data())
def test_damaged_streams_are_refused_or_read(layout, seed, data):
    """A stream that was cut is refused; one with other bytes is read or refused, never anything else."""
    packed = pack(layout, **random_kernel(layout, seed))
    parts = chunks(packed)
    core = data.draw(st.integers(0, len(parts) - 1))
    whole = len(parts[core]) - (63 if layout.sparse else 0)  # the padding of a sparse stream is not read
    cut = data.draw(st.integers(0, max(0, whole - 1)))
    with pytest.raises(FormatError):
        unpack(layout, [*parts[:core], parts[core][:cut], *parts[core + 1 :]])
    with pytest.raises(FormatError):
        unpack(layout, parts[:-1])
    noise = np.random.default_rng(seed).bytes(len(parts[core]))
    try:
        unpack(layout, [*parts[:core], noise, *parts[core + 1 :]])
    except HexaneError:
        return


def test_a_sparse_body_must_fit_its_length():
    layout = KernelLayout(16, 8, 3, 3, sparse=True, stride=(2, 2))
    packed = pack(layout, np.ones(layout.weight_shape, "<f2"))
    parts = chunks(packed)
    length = int.from_bytes(parts[0][:3], "little")
    for wrong in (length - 1, length + 1, 0, 0xFFFFFF):
        with pytest.raises(FormatError):
            unpack(layout, [wrong.to_bytes(3, "little") + parts[0][3:], *parts[1:]])


@pytest.mark.parametrize(
    "arguments",
    [
        {"cout": 16, "cin": 4, "dtype": "float32"},
        {"cout": 0, "cin": 4},
        {"cout": 16, "cin": 4, "cores": 12},
        {"cout": 16, "cin": 4, "stride": (3, 3), "sparse": True},
        {"cout": 1 << 17, "cin": 1 << 17, "kh": 32, "kw": 32},
    ],
)
def test_geometry_that_no_engine_has(arguments):
    with pytest.raises(UsageError):
        KernelLayout(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"stride": (2, 2)},
        {"groups": 2, "unicast": True},
        {"dtype": "int8", "bias": True, "unicast": True},
        {"palette": 4, "unicast": True},
        {"palette": 4, "sparse": True},
        {"scales": True},
        {"widened": True, "kw": 9},
        {"binary": True},
    ],
)
def test_orders_that_nobody_decoded(arguments):
    with pytest.raises(UnsupportedError):
        KernelLayout(**{"cout": 16, "cin": 4} | arguments)


def test_arguments_that_do_not_fit_the_layout():
    layout = KernelLayout(16, 4)
    weights = np.zeros(layout.weight_shape, "<f2")
    for arguments in (
        {},
        {"weights": weights.astype("f4")},
        {"weights": weights[:8]},
        {"weights": weights, "bias": np.zeros(16, "<f2")},
        {"weights": weights, "table": bytes(128)},
        {"weights": weights, "palette": np.ones(1, "<f2")},
    ):
        with pytest.raises(UsageError):
            pack(layout, **arguments)
    with pytest.raises(UsageError):
        pack(KernelLayout(16, 4, table=True), weights, table=bytes(127))
    with pytest.raises(UsageError):
        pack(KernelLayout(16, 4, bias=True), weights)
    with pytest.raises(UnsupportedError):
        pack(KernelLayout(16, 4, runtime=True), weights)


def test_a_huge_sparse_layout_over_little_data_asks_for_no_memory():
    layout = KernelLayout(1 << 16, 1 << 14, sparse=True, stride=(2, 2))
    with pytest.raises(FormatError):
        unpack(layout, [bytes(1 << 10)] * 16)


def test_the_kernel_of_a_comparison():
    """§9.9: 64 pairs (+1, -1) of signed bytes behind a table; 16 chunks of 0xc0 bytes."""
    layout = KernelLayout(64, 2, unicast=True, dtype="int8", table=True)
    packed = pack(layout, np.tile(np.array([1, -1], np.int8), (64, 1)).reshape(64, 2, 1, 1), table=bytes(range(128)))
    assert packed.data == (bytes(range(128)) + b"\x01\xff" * 4 + bytes(56)) * 16
    assert set(packed.sizes) == {0xC0}
