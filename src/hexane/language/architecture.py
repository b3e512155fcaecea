"""Architecture of a decoder, whatever its family: read from the ``config.json`` beside its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from hexane.errors import FormatError, UnsupportedError
from hexane.files import read_text
from hexane.formats.safetensors import json_object
from hexane.language.rotation import Rotation

MOST = 1 << 24
MOST_LAYERS = 1024
ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh",
               "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh", "relu": "relu"}  # fmt: skip
SLIDING = "sliding_attention"


@dataclass(frozen=True)
class Architecture:
    """A decoder in numbers.

    hidden, layers, heads, kv_heads, head_dim, inner, words, positions : counts; ``positions`` at most.
    epsilon, norm : "rms", or "layer" with mean and bias. ``one_more``: a norm's factor is 1 + its weight.
    norms_behind : a norm behind attention and feed-forward, too. head_norms : queries and keys are normalised by head.
    activation, gated : of the feed-forward part.
    rotations : by layer; None where positions do not turn. learned_positions : a table is added to the embedding.
    windows : by layer, how far attention looks back; 0: everywhere.
    attention_scale, score_cap, logit_cap : factor of scores; caps (tanh), 0 without.
    embedding_scale, tied : factor of the embedding; whether the head is its transpose.
    """

    family: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    words: int
    positions: int
    epsilon: float
    activation: str
    rotations: tuple[Rotation | None, ...]
    windows: tuple[int, ...]
    attention_scale: float
    norm: str = "rms"
    one_more: bool = False
    norms_behind: bool = False
    head_norms: bool = False
    gated: bool = True
    learned_positions: bool = False
    score_cap: float = 0.0
    logit_cap: float = 0.0
    embedding_scale: float = 1.0
    tied: bool = False

    @property
    def group(self) -> int:
        """Query heads that share a head of keys and values."""
        return self.heads // self.kv_heads


class Keys:
    """The fields of a configuration; FormatError for one that is missing or makes no sense."""

    def __init__(self, fields: dict[str, Any], where: str) -> None:
        self.fields, self.where = fields, where

    def get(self, name: str, default: Any = None) -> Any:
        value = self.fields.get(name)
        return default if value is None else value

    def count(self, name: str, default: int | None = None, most: int = MOST) -> int:
        value = self.get(name, default)
        if type(value) is not int or not 1 <= value <= most:
            raise FormatError(f"{name} is {value!r}, not a number from 1 to {most}", where=self.where)
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self.get(name, default)
        if type(value) not in (int, float) or not 0 < value < 1e12 or not isfinite(value):
            raise FormatError(f"{name} is {value!r}, not a positive number", where=self.where)
        return float(value)

    def per_layer(self, name: str, layers: int) -> list[Any] | None:
        value = self.get(name)
        if value is not None and (not isinstance(value, list) or len(value) != layers):
            raise FormatError(f"{name} does not have an entry for each of {layers} layers", where=self.where)
        return value

    def activation(self, *names: str) -> str:
        name = next((self.fields[key] for key in names if self.fields.get(key)), None)
        if not isinstance(name, str) or name not in ACTIVATIONS:
            raise UnsupportedError(
                f"the activation {name!r}", where=self.where, hint=f"known: {', '.join(ACTIVATIONS)}"
            )
        return ACTIVATIONS[name]


def read_architecture(folder: Path) -> Architecture:
    """The decoder that a folder's ``config.json`` describes.

    UnsupportedError for a family, a kind of positions or an activation that is not known, with those that are;
    FormatError for a damaged file.
    """
    path = folder / "config.json"
    fields = json_object(read_text(path), str(path))
    family = str(fields.get("model_type"))
    inner = fields.get("text_config")
    if isinstance(inner, dict) and inner.get("model_type") in FAMILIES:  # a decoder inside a model of pictures and text
        fields, family = {"tie_word_embeddings": fields.get("tie_word_embeddings"), **inner}, inner["model_type"]
    read = FAMILIES.get(family)
    if read is None:
        names = ", ".join(FAMILIES)
        raise UnsupportedError(f"the architecture {family!r} is not known", where=str(path), hint=f"known are {names}")
    return read(Keys(fields, str(path)), family.removesuffix("_text"))


def _llama(c: Keys, family: str) -> Architecture:
    """Llama and what is built like it: SmolLM, Mistral."""
    hidden, heads = c.count("hidden_size"), c.count("num_attention_heads")
    layers, kv_heads = c.count("num_hidden_layers", most=MOST_LAYERS), c.count("num_key_value_heads", heads)
    head_dim = c.count("head_dim", hidden // heads)
    if heads % kv_heads:
        raise FormatError(f"{heads} heads for {kv_heads} heads of keys", where=c.where)
    return Architecture(
        family, hidden, layers, heads, kv_heads, head_dim, c.count("intermediate_size"), c.count("vocab_size"),
        c.count("max_position_embeddings", 1 << 20), c.number("rms_norm_eps", 1e-6), c.activation("hidden_act"),
        (rotation(c, head_dim),) * layers, windows(c, layers, lambda _: family == "mistral"), head_dim**-0.5,
        tied=c.get("tie_word_embeddings") is True,
    )  # fmt: skip


def _qwen2(c: Keys, family: str) -> Architecture:
    first = c.get("max_window_layers", 0) if c.get("use_sliding_window") else MOST
    base = _llama(c, family)
    return replace(base, windows=windows(c, base.layers, lambda i: i >= first, use=first != MOST))


def _qwen3(c: Keys, family: str) -> Architecture:
    return replace(_qwen2(c, family), head_norms=True)


def _phi3(c: Keys, family: str) -> Architecture:
    base = _llama(c, family)
    width = int(base.head_dim * c.number("partial_rotary_factor", _partial(c)))
    turns = (rotation(c, width),) * base.layers
    return replace(base, rotations=turns, windows=windows(c, base.layers, lambda _: True))


def _smollm3(c: Keys, family: str) -> Architecture:
    base = _llama(c, family)
    every = c.count("no_rope_layer_interval", 4)
    turning = c.per_layer("no_rope_layers", base.layers) or [(i + 1) % every for i in range(base.layers)]
    turns = tuple(turn if on else None for turn, on in zip(base.rotations, turning))
    return replace(base, rotations=turns, windows=windows(c, base.layers, lambda _: False))


def _gemma2(c: Keys, family: str) -> Architecture:
    c.fields["hidden_act"] = c.get("hidden_activation", "gelu_pytorch_tanh")
    base = _llama(c, family)
    return replace(
        base, one_more=True, norms_behind=True, embedding_scale=base.hidden**0.5,
        tied=c.get("tie_word_embeddings", True), attention_scale=c.number("query_pre_attn_scalar", 256) ** -0.5,
        score_cap=_cap(c, "attn_logit_softcapping"), logit_cap=_cap(c, "final_logit_softcapping"),
        windows=windows(c, base.layers, lambda i: i % 2 == 0),
    )  # fmt: skip


def _gemma3(c: Keys, family: str) -> Architecture:
    base = _gemma2(c, family)
    every = c.count("sliding_window_pattern", 6)
    looking = windows(c, base.layers, lambda i: (i + 1) % every != 0)
    near = rotation(c, base.head_dim, SLIDING)
    far = rotation(c, base.head_dim, "full_attention")
    return replace(base, head_norms=True, windows=looking, rotations=tuple(near if w else far for w in looking))


def _gpt2(c: Keys, family: str) -> Architecture:
    hidden, heads = c.count("n_embd"), c.count("n_head")
    layers, positions = c.count("n_layer", most=MOST_LAYERS), c.count("n_positions")
    if c.get("scale_attn_by_inverse_layer_idx") or c.get("scale_attn_weights") is False:
        raise UnsupportedError("attention with another scale in each layer", where=c.where)
    return Architecture(
        family, hidden, layers, heads, heads, hidden // heads, c.count("n_inner", 4 * hidden), c.count("vocab_size"),
        positions, c.number("layer_norm_epsilon", 1e-5), c.activation("activation_function"), (None,) * layers,
        (0,) * layers, (hidden // heads) ** -0.5, norm="layer", gated=False, learned_positions=True,
        tied=c.get("tie_word_embeddings", True),
    )  # fmt: skip


FAMILIES: dict[str, Callable[[Keys, str], Architecture]] = {
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "smollm3": _smollm3,
    "phi3": _phi3,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
}
"""``model_type`` of a configuration -> what it says. SmolLM and SmolLM2 are ``llama``."""


def windows(c: Keys, layers: int, slides: Callable[[int], bool], *, use: bool = True) -> tuple[int, ...]:
    """Window of each layer: where ``layer_types`` says so, else where ``slides`` does."""
    if not use or c.get("sliding_window") is None:
        return (0,) * layers
    width = c.count("sliding_window")
    kinds = c.per_layer("layer_types", layers)
    return tuple(width if (kinds[i] == SLIDING if kinds else slides(i)) else 0 for i in range(layers))


def rotation(c: Keys, width: int, kind: str = "") -> Rotation:
    """The rotation of a configuration, or of its layers of a ``kind``; ``rope_parameters`` or the older fields."""
    parameters = c.get("rope_parameters")
    if isinstance(parameters, dict):
        scaling = parameters.get(kind, parameters) if kind else parameters
        base = scaling.get("rope_theta", c.get("rope_theta", 10000.0))
    else:
        near = kind == SLIDING
        scaling = {} if near else c.get("rope_scaling", {})
        base = c.get("rope_local_base_freq", 10000.0) if near else c.get("rope_theta", 1e6 if kind else 10000.0)
    if not isinstance(scaling, dict):
        raise FormatError("rope_scaling is no object", where=c.where)
    entries = Keys({"rope_theta": base, **scaling}, c.where)
    kind_name = entries.get("rope_type", entries.get("type", "default"))
    if width % 2 or width < 2:
        raise FormatError(f"{width} values of a head turn in pairs", where=c.where)
    plain = Rotation(width, entries.number("rope_theta"))
    if kind_name == "default":
        return plain
    if kind_name == "linear":
        return replace(plain, factor=entries.number("factor"))
    if kind_name == "llama3":
        names = ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        low, high, original = (entries.number(name) for name in names)
        if low >= high:
            raise FormatError(f"low_freq_factor {low} is not below high_freq_factor {high}", where=c.where)
        return replace(plain, factor=entries.number("factor"), bands=(low, high, original))
    raise UnsupportedError(f"positions of type {kind_name!r}", where=c.where, hint="known are default, linear, llama3")


def _partial(c: Keys) -> float:
    parameters = c.get("rope_parameters")
    return parameters.get("partial_rotary_factor", 1.0) if isinstance(parameters, dict) else 1.0


def _cap(c: Keys, name: str) -> float:
    return c.number(name) if c.get(name) is not None else 0.0
