"""A decoder's weights under one set of names, whatever its family calls and fuses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hexane.errors import FormatError
from hexane.formats.safetensors import Tensors, read_safetensors
from hexane.language.architecture import Architecture

PREFIXES = ("model.", "", "transformer.", "language_model.model.", "model.language_model.")
BEHIND = {"attention_norm": "input_layernorm", "attention_behind": "post_attention_layernorm",
          "feed_norm": "pre_feedforward_layernorm", "feed_behind": "post_feedforward_layernorm"}  # fmt: skip
BEFORE = {"attention_norm": "input_layernorm", "feed_norm": "post_attention_layernorm"}

Weights = Mapping[str, np.ndarray]
"""Products [outputs, inputs] ``q k v o gate up down``, norms ``attention_norm feed_norm q_norm k_norm ...``, and
``NAME.bias`` where there is one; float32."""


class Checkpoint:
    """The tensors of a folder for one architecture; arrays are made when they are asked for."""

    def __init__(self, folder: Path, architecture: Architecture) -> None:
        self.architecture = architecture
        self.tensors: Tensors = read_safetensors(folder)
        self._table = "wte.weight" if architecture.learned_positions else "embed_tokens.weight"
        prefix = next((p for p in PREFIXES if p + self._table in self.tensors), None)
        if prefix is None:
            raise FormatError(f"no tensor ends in {self._table}", where=self.tensors.where)
        self._prefix = prefix

    def _get(self, name: str, *shape: int) -> np.ndarray:
        return np.asarray(self.tensors.array(self._prefix + name, shape), np.float32)

    def embedding(self) -> np.ndarray:
        """[words, hidden], mapped from the file where its dtype allows."""
        return self.tensors.array(self._prefix + self._table, (self.architecture.words, self.architecture.hidden))

    def positions(self) -> np.ndarray:
        """The table of learned positions, [positions, hidden]."""
        return self._get("wpe.weight", self.architecture.positions, self.architecture.hidden)

    def head(self) -> np.ndarray:
        """[words, hidden]: the embedding's own where they are tied, or where there is no other."""
        name = next((p + "lm_head.weight" for p in ("", "language_model.") if p + "lm_head.weight" in self.tensors), "")
        if self.architecture.tied or not name:
            return self.embedding()
        return self.tensors.array(name, (self.architecture.words, self.architecture.hidden))

    def final_norm(self) -> Weights:
        """``norm`` and, where there is one, ``norm.bias``."""
        return self._norm("norm", "ln_f" if self.architecture.norm == "layer" else "norm", self.architecture.hidden)

    def layer(self, number: int) -> Weights:
        """The weights of a layer."""
        if self.architecture.norm == "layer":
            return self._gpt2(f"h.{number}.")
        a, at = self.architecture, f"layers.{number}."
        names = BEHIND if a.norms_behind else BEFORE
        weights = {key: value for name, theirs in names.items() for key, value in self._norm(name, at + theirs).items()}
        queries, keys = a.heads * a.head_dim, a.kv_heads * a.head_dim
        weights.update(self._products(at + "self_attn.", {"q": queries, "k": keys, "v": keys}, a.hidden, "qkv_proj"))
        weights.update(self._products(at + "self_attn.", {"o": a.hidden}, queries))
        weights.update(self._products(at + "mlp.", {"gate": a.inner, "up": a.inner}, a.hidden, "gate_up_proj"))
        weights.update(self._products(at + "mlp.", {"down": a.hidden}, a.inner))
        for name in ("q_norm", "k_norm") if a.head_norms else ():
            weights.update(self._norm(name, f"{at}self_attn.{name}", a.head_dim))
        return weights

    def _norm(self, name: str, theirs: str, width: int = 0) -> dict[str, np.ndarray]:
        width = width or self.architecture.hidden
        weights = {name: self._get(theirs + ".weight", width) + np.float32(self.architecture.one_more)}
        if self.architecture.norm == "layer":
            weights[name + ".bias"] = self._get(theirs + ".bias", width)
        return weights

    def _products(self, at: str, outputs: Mapping[str, int], inputs: int, fused: str = "") -> dict[str, np.ndarray]:
        """Products by name, with their biases, each under its own name or cut from one ``fused`` tensor."""
        weights: dict[str, np.ndarray] = {}
        if fused and f"{self._prefix}{at}{fused}.weight" in self.tensors:
            whole = self._get(f"{at}{fused}.weight", sum(outputs.values()), inputs)
            ends = np.cumsum(list(outputs.values()))[:-1]
            return dict(zip(outputs, np.split(whole, ends)))
        for name, count in outputs.items():
            weights[name] = self._get(f"{at}{name}_proj.weight", count, inputs)
            if f"{self._prefix}{at}{name}_proj.bias" in self.tensors:
                weights[name + ".bias"] = self._get(f"{at}{name}_proj.bias", count)
        return weights

    def _gpt2(self, at: str) -> dict[str, np.ndarray]:
        """Its products stand as [inputs, outputs], queries, keys and values in one."""
        a = self.architecture
        weights = {**self._norm("attention_norm", at + "ln_1"), **self._norm("feed_norm", at + "ln_2")}
        sizes = {"attn.c_attn": (a.hidden, 3 * a.hidden), "attn.c_proj": (a.hidden, a.hidden),
                 "mlp.c_fc": (a.hidden, a.inner), "mlp.c_proj": (a.inner, a.hidden)}  # fmt: skip
        names = {"attn.c_attn": ("q", "k", "v"), "attn.c_proj": ("o",), "mlp.c_fc": ("up",), "mlp.c_proj": ("down",)}
        for theirs, (inputs, outputs) in sizes.items():
            matrix = self._get(f"{at}{theirs}.weight", inputs, outputs).T
            bias = self._get(f"{at}{theirs}.bias", outputs)
            parts = len(names[theirs])
            for name, rows, own in zip(names[theirs], np.split(matrix, parts), np.split(bias, parts)):
                weights[name], weights[name + ".bias"] = np.ascontiguousarray(rows), own
        return weights
