"""Limits of Apple's compiler on an op: the last size that passes, and the first that does not (docs/limits.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from hexane import chips
from hexane.graph import GraphBuilder, Value
from hexane.restrictions.objections import LIMITS, objections

RULE = {entry.op_test.__name__: entry.id for entry in LIMITS if entry.op_test is not None}


def x(b: GraphBuilder, *shape: int, dtype: str = "fp16") -> Value:
    return b.input("x", shape, dtype)


def conv(b: GraphBuilder, kh: int = 1, kw: int = 1, groups: int = 1) -> Value:
    weight = np.zeros((groups, 1, kh, kw), np.float16)
    return b.conv(x=x(b, 1, groups, kh, kw), weight=weight, groups=groups, pad_type="valid")


def pool(b: GraphBuilder, *window: int) -> Value:
    return b.max_pool(x=x(b, 1, 1, 40, 40), kernel_sizes=window, pad_type="valid")


def volume_or_map(b: GraphBuilder, depth: int) -> Value:
    """A convolution over three axes; over two for depth 0."""
    axes = (1,) * (3 if depth else 2)
    return b.conv(x=x(b, 1, 2, *axes), weight=np.zeros((2, 2, *axes), np.float16), pad_type="valid")


Network = Callable[[GraphBuilder, int], Value]
EDGES: dict[tuple[str, str, int, int], Network] = {
    ("rank", "M1", 5, 6): lambda b, n: b.relu(x=x(b, *[2] * n)),
    ("no_elements", "M4", 1, 0): lambda b, n: b.relu(x=x(b, 1, n)),
    ("extent", "M1", 16384, 16385): lambda b, n: b.relu(x=x(b, 1, 1, 1, n)),
    ("extent", "M2", 16384, 16385): lambda b, n: b.relu(x=x(b, 1, 1, n, 1)),
    ("extent", "M4", 65536, 65537): lambda b, n: b.relu(x=x(b, 1, n, 1, 1)),
    ("kernel_width", "M1", 13, 14): lambda b, n: conv(b, kw=n),
    ("kernel_width", "M4", 15, 16): lambda b, n: conv(b, kw=n),
    ("kernel_height", "M1", 29, 30): lambda b, n: conv(b, kh=n),
    ("kernel_height", "M4", 32, 33): lambda b, n: conv(b, kh=n),
    ("group_count", "M1", 8191, 8192): lambda b, n: conv(b, groups=n),
    ("group_count", "M4", 131071, 131072): lambda b, n: conv(b, groups=n),
    ("three_dimensional", "M1", 0, 1): volume_or_map,
    ("pool_window", "M2", 31, 32): lambda b, n: pool(b, n, 2),
    ("pool_window", "M1", 29, 30): lambda b, n: pool(b, 2, n),
    ("pool_window", "M4", 31, 32): lambda b, n: pool(b, 2, n),
    ("sorted_axis", "M4", 2048, 2049): lambda b, n: b.topk(x=x(b, 1, n), k=5, axis=-1)[0],
    ("sorted_axis", "M1", 2048, 2049): lambda b, n: b.argsort(x=x(b, n, 3), axis=0),
    ("sorted_axis", "M2", 2048, 2049): lambda b, n: b.reduce_argmax(x=x(b, 3, n), axis=1),
    ("topk_count", "M1", 2, 3): lambda b, n: b.topk(x=x(b, 1, 9), k=n, axis=-1)[0],
    ("topk_count", "M4", 5, 4): lambda b, n: b.topk(x=x(b, 1, 9), k=n, axis=-1)[0],
    ("shuffle_factor", "M1", 4, 5): lambda b, n: b.pixel_shuffle(x=x(b, 1, n * n, 2, 2), upscale_factor=n),
    ("shuffle_factor", "M4", 8, 9): lambda b, n: b.space_to_depth(x=x(b, 1, 1, n, n), block_size=n),
    ("shuffle_factor", "M5", 1, 6): lambda b, n: b.depth_to_space(x=x(b, 1, n * n, 2, 2), block_size=n),
    ("response_norm_channels", "M1", 15, 16): lambda b, n: b.local_response_norm(x=x(b, 1, n, 2, 2), size=3),
    ("contraction", "M1", 32768, 32769): lambda b, n: b.matmul(
        x=x(b, n, 1), y=np.zeros((n, 1), np.float16), transpose_x=True
    ),
}  # fmt: skip


def broken(chip: str, network: Network, size: int) -> set[str]:
    b = GraphBuilder()
    b.output(network(b, size))
    return {objection.rule for op in b.graph.ops for objection in objections(op, chips.get(chip))}


@pytest.mark.parametrize(("name", "chip", "last", "first"), EDGES)
def test_the_last_that_passes_and_the_first_that_does_not(name: str, chip: str, last: int, first: int) -> None:
    network = EDGES[name, chip, last, first]
    assert RULE[name] not in broken(chip, network, last)
    assert RULE[name] in broken(chip, network, first)


ELSEWHERE: Sequence[tuple[str, str, Network]] = [
    ("response_norm_channels", "M4", lambda b, n: b.local_response_norm(x=x(b, 1, 64, 2, 2), size=3)),
    ("three_dimensional", "M4", volume_or_map),
    ("shuffle_factor", "M1", lambda b, n: b.pixel_shuffle(x=x(b, 1, 9, 2, 2), upscale_factor=3)),
    ("pad_mode", "M4", lambda b, n: b.pad(x=x(b, 1, 1, 4, 4), pad=[1, 1], mode="reflect")),
    ("pad_mode", "M1", lambda b, n: b.pad(x=x(b, 1, 1, 4, 4), pad=[1, 1], mode="constant", constant_val=np.float16(0))),
    ("sorted_axis", "M4", lambda b, n: b.argsort(x=x(b, 4096, 3), axis=1)),
    ("topk_count", "M4", lambda b, n: b.topk(x=x(b, 1, 9), k=1, axis=-1)[0]),
]


@pytest.mark.parametrize(("name", "chip", "network"), ELSEWHERE, ids=[f"{name}-{chip}" for name, chip, _ in ELSEWHERE])
def test_what_no_limit_speaks_of(name: str, chip: str, network: Network) -> None:
    assert RULE[name] not in broken(chip, network, 1)


def test_a_mirrored_pad_needs_the_texture_engine() -> None:
    mirrored: Network = lambda b, n: b.pad(x=x(b, 1, 1, 4, 4), pad=[1, 1], mode="reflect")  # noqa: E731
    assert RULE["pad_mode"] in broken("M1", mirrored, 1) and RULE["pad_mode"] not in broken("M2", mirrored, 1)
