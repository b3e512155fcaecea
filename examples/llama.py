"""A decoder of Llama's form that can be trained, of any shape, and the folder that `hexane llm` reads.

Tokens in, logits out: norms by the root mean square, rotated queries and keys, shared heads of keys, a gated or a plain
feed-forward part, a head that may be the embedding's transpose.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hexane.formats.safetensors import write_safetensors
from hexane.graph import Graph, GraphBuilder, Value
from hexane.language.rotation import Rotation

EPSILON = 1e-5


@dataclass(frozen=True)
class Shape:
    """Counts of a decoder; ``tokens`` of a sequence. ``activation``: "silu" (gated) or "relu2", a square behind relu.
    ``piece``: words of the head in one product; 2,048 rows of 768 fit the engine's buffer as a computed kernel.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    words: int
    tokens: int
    tied: bool = True
    activation: str = "silu"
    piece: int = 2048

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """The shape of every trained array by name, products as [outputs, inputs]."""
        keys = self.kv_heads * self.head_dim
        sizes = {"q": (self.width, self.width), "k": (keys, self.width), "v": (keys, self.width),
                 "o": (self.width, self.width), "up": (self.inner, self.width),
                 "down": (self.width, self.inner)}  # fmt: skip
        if self.activation == "silu":
            sizes["gate"] = (self.inner, self.width)
        whole: dict[str, tuple[int, ...]] = {"embedding": (self.words, self.width), "norm": (self.width,)}
        for n in range(self.layers):
            whole |= {f"norm{n}a": (self.width,), f"norm{n}b": (self.width,)}
            whole |= {f"{part}{n}": size for part, size in sizes.items()}
        return whole if self.tied else whole | {"head": (self.words, self.width)}

    def drawn(self, seed: int = 0) -> dict[str, np.ndarray]:
        """First weights in fp16: norms are ones, products normal, those that are added to the stream smaller."""
        rng, deep = np.random.default_rng(seed), (2 * self.layers) ** -0.5
        arrays = {}
        for name, size in self.weights.items():
            spread = 0.02 * (deep if name[0] == "o" or name.startswith("down") else 1)
            values = rng.standard_normal(size, np.float32) * spread if len(size) > 1 else np.ones(size)
            arrays[name] = values.astype(np.float16)
        return arrays


def network(shape: Shape, weights: Mapping[str, np.ndarray]) -> Graph:
    """``tokens`` int32 [1, tokens] to ``logits`` fp16 [1, tokens, words]; constants as ``weights`` names them."""
    return _Network(shape, weights).graph()


class _Network:
    def __init__(self, shape: Shape, weights: Mapping[str, np.ndarray]) -> None:
        self.shape, self.b = shape, GraphBuilder()
        self.weights = {name: self.b.const(array.astype(np.float16), name=name) for name, array in weights.items()}
        cos, sin = Rotation(shape.head_dim, 10000.0).tables(np.arange(shape.tokens), shape.head_dim)
        self.cos, self.sin = (np.ascontiguousarray(t.transpose(0, 1, 3, 2)).astype(np.float16) for t in (cos, sin))
        mask = np.triu(np.full((shape.tokens, shape.tokens), -30000.0, np.float16), 1)
        self.mask = np.tile(mask, (shape.heads // shape.kv_heads, 1))

    def graph(self) -> Graph:
        b, shape = self.b, self.shape
        tokens = b.input("tokens", (1, shape.tokens), "int32")
        x = b.gather(x=self.weights["embedding"], indices=tokens, axis=0)
        for n in range(shape.layers):
            x = b.add(x=x, y=self.attention(n, self.norm(x, f"norm{n}a")))
            x = b.add(x=x, y=self.feed(n, self.norm(x, f"norm{n}b")))
        b.output(self.head(self.norm(x, "norm")), name="logits")
        return b.graph

    def norm(self, x: Value, name: str) -> Value:
        """The root mean square as `layer_norm` of [x, -x], whose squares are not stored (rule N4)."""
        b, size = self.b, list(x.shape)
        pair = b.concat(values=[x, b.mul(x=x, y=np.float16(-1))], axis=2)
        y = b.layer_norm(x=pair, axes=[2], epsilon=np.float16(EPSILON))
        return b.mul(x=b.slice_by_size(x=y, begin=[0, 0, 0], size=size), y=self.weights[name])

    def split(self, x: Value, heads: int) -> Value:
        rows = self.b.reshape(x=x, shape=[1, self.shape.tokens, heads, self.shape.head_dim])
        return self.b.transpose(x=rows, perm=[0, 2, 1, 3])

    def turned(self, x: Value, heads: int) -> Value:
        """Heads with each pair of their values turned by its position."""
        b, half = self.b, self.shape.head_dim // 2
        size = [1, heads, self.shape.tokens, half]
        halves = [b.slice_by_size(x=x, begin=[0, 0, 0, begin], size=size) for begin in (half, 0)]
        return b.add(x=b.mul(x=x, y=self.cos), y=b.mul(x=b.concat(values=halves, axis=3), y=self.sin))

    def attention(self, n: int, x: Value) -> Value:
        b, s = self.b, self.shape
        q, k, v = (b.linear(x=x, weight=self.weights[f"{part}{n}"]) for part in "qkv")
        q = self.turned(self.split(b.mul(x=q, y=np.float16(s.head_dim**-0.5)), s.heads), s.heads)
        k, v = self.turned(self.split(k, s.kv_heads), s.kv_heads), self.split(v, s.kv_heads)
        rows = s.heads // s.kv_heads * s.tokens
        q = b.reshape(x=q, shape=[1, s.kv_heads, rows, s.head_dim])
        shares = b.softmax(x=b.add(x=b.matmul(x=q, y=k, transpose_y=True), y=self.mask), axis=-1)
        mixed = b.reshape(x=b.matmul(x=shares, y=v), shape=[1, s.heads, s.tokens, s.head_dim])
        joined = b.reshape(x=b.transpose(x=mixed, perm=[0, 2, 1, 3]), shape=[1, s.tokens, s.width])
        return b.linear(x=joined, weight=self.weights[f"o{n}"])

    def feed(self, n: int, x: Value) -> Value:
        b = self.b
        up = b.linear(x=x, weight=self.weights[f"up{n}"])
        if self.shape.activation == "silu":
            wide = b.mul(x=b.silu(x=b.linear(x=x, weight=self.weights[f"gate{n}"])), y=up)
        else:
            wide = b.square(x=b.relu(x=up))
        return b.linear(x=wide, weight=self.weights[f"down{n}"])

    def head(self, x: Value) -> Value:
        b, weight = self.b, self.weights["embedding" if self.shape.tied else "head"]
        words, width, piece = self.shape.words, self.shape.width, self.shape.piece
        if words <= piece:
            return b.linear(x=x, weight=weight)
        parts = []
        for begin in range(0, words, piece):
            rows = b.slice_by_size(x=weight, begin=[begin, 0], size=[min(piece, words - begin), width])
            parts.append(b.matmul(x=x, y=rows, transpose_y=True))
        return b.concat(values=parts, axis=2)


def save(folder: Path, shape: Shape, weights: Mapping[str, np.ndarray]) -> None:
    """A folder with config.json and model.safetensors (fp16), as `hexane llm` reads it; of gated shapes."""
    config: dict[str, Any] = {
        "model_type": "llama", "vocab_size": shape.words, "hidden_size": shape.width, "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.tokens, "rms_norm_eps": EPSILON, "hidden_act": "silu", "rope_theta": 10000.0,
        "tie_word_embeddings": shape.tied,
    }  # fmt: skip
    names = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
    for n in range(shape.layers):
        at = f"model.layers.{n}."
        names |= {f"norm{n}a": f"{at}input_layernorm", f"norm{n}b": f"{at}post_attention_layernorm"}
        names |= {f"{part}{n}": f"{at}self_attn.{part}_proj" for part in "qkvo"}
        names |= {f"{part}{n}": f"{at}mlp.{part}_proj" for part in ("gate", "up", "down")}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tensors = {f"{names[name]}.weight": array.astype(np.float16) for name, array in weights.items()}
    write_safetensors(folder / "model.safetensors", tensors)
