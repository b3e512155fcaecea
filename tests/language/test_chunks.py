"""A decoder cut into programs: bytes of weights and of the cache by hand, and as few chunks as a limit takes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from hexane.language.chunks import chunks_of, layer_weights, product_shapes

SMALL = SimpleNamespace(
    hidden=64, heads=4, kv_heads=2, head_dim=16, inner=96, gated=True, layers=7, words=1000
)  # fmt: skip
LAYER = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 64 * 96


def test_weights_of_a_layer() -> None:
    assert product_shapes(SMALL)["k"] == (32, 64) and product_shapes(SMALL)["down"] == (64, 96)
    assert layer_weights(SMALL) == LAYER
    plain = SimpleNamespace(**{**vars(SMALL), "gated": False})
    assert "gate" not in product_shapes(plain) and layer_weights(plain) == LAYER - 64 * 96


@pytest.mark.parametrize(
    ("layers", "parts"),
    [(7, [7]), (6, [3, 4]), (4, [3, 4]), (3, [2, 2, 3]), (2, [1, 2, 2, 2]), (1, [1] * 7), (0.5, [1] * 7)],
)
def test_as_few_chunks_as_stay_below_the_limit(layers, parts) -> None:
    """Two bytes a weight; keys and values of a layer are 2 x 2 bytes x 2 heads x 16 numbers for each position."""
    chunks = chunks_of(SMALL, "fp16", int(2 * LAYER * layers))
    assert [len(chunk.layers) for chunk in chunks] == [*parts, 0]
    assert [n for chunk in chunks for n in chunk.layers] == list(range(7))
    assert [chunk.weight_bytes for chunk in chunks] == [*(2 * LAYER * n for n in parts), 2 * 1000 * 64]
    assert [chunk.state_bytes for chunk in chunks] == [*(2 * 2 * 2 * 16 * n for n in parts), 0]
    assert chunks[-1].is_head and chunks[-1].name == "head" and not chunks[0].is_head
    assert chunks[0].name == f"layers 0 to {parts[0] - 1}"
    assert replace(chunks[0], layers=()).is_head
