"""Output channels cut into tasks whose kernels fit the cores' memory, against splits that Apple's programs show."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hexane
from hexane.codegen.recipes import blocks as cut
from hexane.codegen.recipes.blocks import StreamHeads
from hexane.codegen.targets import target_named
from hexane.errors import Reason, UnsupportedError
from hexane.graph import GraphBuilder

KERNEL_BYTES_PER_CORE = 64 << 10

PLAIN = {"table": False, "bias": False, "one_patch": False, "transposed": False}


def channel_blocks(cout, taps, *, table, bias, **flags):
    return cut.channel_blocks(target_named("h13"), cout, taps, StreamHeads(table, bias), **flags)


@pytest.mark.parametrize(
    ("cout", "taps", "flags", "lanes"),
    [
        (256, 256 * 9, {}, [2, 14]),
        (512, 512 * 9, {}, [2, 6, 6, 6, 6, 6]),
        (64, 1024 * 9, {}, [2, 2]),
        (1024, 1024, {"transposed": True}, [32, 32]),
        (2048, 2048, {"transposed": True}, [16] * 8),
        (2048, 2048, {"one_patch": True}, [128]),
    ],
)
def test_splits_of_apples_programs(cout: int, taps: int, flags: dict[str, bool], lanes: list[int]) -> None:
    assert [block.lanes for block in channel_blocks(cout, taps, **{**PLAIN, **flags})] == lanes


def test_a_bias_and_a_table_take_memory() -> None:
    most = {
        flag: channel_blocks(2048, 2048, **{**PLAIN, flag: True})[-1].lanes for flag in ("bias", "table", "one_patch")
    }
    assert channel_blocks(2048, 2048, **PLAIN)[-1].lanes == 16
    assert most == {"bias": 14, "table": 14, "one_patch": 128}


@given(st.integers(1, 2000), st.integers(1, 30000), st.booleans(), st.booleans(), st.booleans())
def test_a_split_covers_every_channel_once(cout: int, taps: int, bias: bool, table: bool, transposed: bool) -> None:
    flags = {"bias": bias, "table": table, "transposed": transposed, "one_patch": False}
    try:
        blocks = channel_blocks(cout, taps, **flags)
    except UnsupportedError as error:
        assert error.code == Reason.MEMORY
        assert 128 * table + (2 * taps + 2 * bias) * (31 if transposed else 1) > KERNEL_BYTES_PER_CORE
        return
    ends = sorted((block.first, block.first + block.count) for block in blocks)
    assert ends[0][0] == 0 and ends[-1][1] == cout
    assert all(left[1] == right[0] for left, right in pairwise(ends))
    assert all(block.count <= block.lanes << block.cores_log2 for block in blocks)
    assert all(block.count == block.lanes << block.cores_log2 for block in blocks if block.lanes > 1)
    assert all(128 * table + block.lanes * (2 * taps + 2 * bias) <= KERNEL_BYTES_PER_CORE for block in blocks)
    assert [block.first for block in blocks] == sorted((block.first for block in blocks), reverse=not transposed)


@pytest.mark.parametrize("cout", [1, 3, 16, 20])
def test_a_channel_that_no_core_holds(cout: int) -> None:
    with pytest.raises(UnsupportedError, match="a core holds 65536") as caught:
        channel_blocks(cout, 40000, **PLAIN)
    assert caught.value.code == Reason.MEMORY


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize(
    ("cin", "cout", "kernel", "stride", "size"),
    [(256, 256, 3, 2, 56), (512, 1024, 1, 2, 56), (64, 512, 5, 2, 64), (256, 512, 1, 1, 28)],
)
def test_kernels_of_tasks_fit_a_core_and_are_no_more_than_they_have_to(
    cin: int, cout: int, kernel: int, stride: int, size: int, chip: str
) -> None:
    """Also where a stride makes the stream a sparse one, whose masks take memory beside the values."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    weight = rng.choice([-1, 1], (cout, cin, kernel, kernel)).astype(np.float16)
    x = b.input("x", (1, cin, size, size), "fp16")
    b.output(b.conv(x=x, weight=weight, strides=[stride, stride], pad_type="same", name="y"))
    (segment,) = hexane.compile(b.graph, chip=chip).segments
    sizes = [max(plan.kernel.sizes) for plan in segment.plans]
    assert max(sizes) <= KERNEL_BYTES_PER_CORE
    assert len(sizes) == -(-sum(sizes) // KERNEL_BYTES_PER_CORE)
