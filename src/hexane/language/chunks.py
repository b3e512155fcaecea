"""A decoder cut into programs by the bytes of their weights."""

from __future__ import annotations

from dataclasses import dataclass

from hexane.language.architecture import Architecture
from hexane.lowering.formats import WeightFormat
from hexane.restrictions.compiling import MUCH_WEIGHT_BYTES
from hexane.rounding import ceil_div

SOURCE = "rule C2: models of 1.0 to 1.4 GB are published to leave the engine (VivaDicta 68)"


@dataclass(frozen=True)
class Chunk:
    """A program: layers in order, or the head; bytes of its weights in their format, and of its state in fp16
    for each position of the context."""

    layers: tuple[int, ...]
    weight_bytes: int
    state_bytes: int = 0

    @property
    def is_head(self) -> bool:
        return not self.layers

    @property
    def name(self) -> str:
        return "head" if self.is_head else f"layers {self.layers[0]} to {self.layers[-1]}"


def product_shapes(a: Architecture) -> dict[str, tuple[int, int]]:
    """The products of a layer by name, (outputs, inputs)."""
    queries, keys = a.heads * a.head_dim, a.kv_heads * a.head_dim
    shapes = {"q": (queries, a.hidden), "k": (keys, a.hidden), "v": (keys, a.hidden), "o": (a.hidden, queries)}
    shapes |= dict.fromkeys(("gate", "up") if a.gated else ("up",), (a.inner, a.hidden))
    return shapes | {"down": (a.hidden, a.inner)}


def layer_weights(a: Architecture) -> int:
    """Weights of the products of one layer."""
    return sum(outputs * inputs for outputs, inputs in product_shapes(a).values())


def chunks_of(a: Architecture, weights: str, most: int = MUCH_WEIGHT_BYTES) -> tuple[Chunk, ...]:
    """As few chunks of layers as stay within ``most`` bytes each, of even length, and the head."""
    form = WeightFormat.of(weights)
    layer = sum(form.bytes_of((outputs, inputs, 1, 1)) for outputs, inputs in product_shapes(a).values())
    each = 2 * 2 * a.kv_heads * a.head_dim
    count = ceil_div(a.layers, max(1, most // layer))
    ends = [a.layers * (i + 1) // count for i in range(count)]
    parts = [tuple(range(begin, end)) for begin, end in zip([0, *ends], ends)]
    chunks = [Chunk(part, len(part) * layer, len(part) * each) for part in parts]
    return (*chunks, Chunk((), form.bytes_of((a.words, a.hidden, 1, 1))))
