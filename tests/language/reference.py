"""Decoders a second time, from the published definitions of their families: NumPy in float64, rows as rows, no cache.

Names of tensors and fields are those of the checkpoints. ``folder`` writes a model of random weights as people have it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

Tensors = dict[str, np.ndarray]


def folder(path: Path, config: dict[str, Any], tensors: Tensors, dtype: str = "F32", shards: int = 1) -> Path:
    """A folder with config.json and the tensors in one safetensors file, or several with an index."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    if shards == 1:
        (path / "model.safetensors").write_bytes(safetensors(tensors, dtype))
        return path
    files = {name: f"model-{i % shards}.safetensors" for i, name in enumerate(tensors)}
    for file in set(files.values()):
        part = {name: tensors[name] for name in tensors if files[name] == file}
        (path / file).write_bytes(safetensors(part, dtype))
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return path


def safetensors(tensors: Tensors, dtype: str = "F32") -> bytes:
    """The format's bytes; BF16 cuts float32 short."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in tensors.items():
        raw = array.astype("<f2" if dtype == "F16" else "<f4")
        part = (raw.view("<u4") >> 16).astype("<u2").tobytes() if dtype == "BF16" else raw.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def llama_like(kind: str, seed: int = 0, **changes: Any) -> tuple[dict[str, Any], Tensors]:
    """A small random model of a family of Llama's kind: its configuration and tensors."""
    config: dict[str, Any] = {
        "model_type": kind, "vocab_size": 96, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 10000.0, "tie_word_embeddings": False,
    }  # fmt: skip
    if kind.startswith("gemma"):
        config |= {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 24, "sliding_window": 12,
                   "tie_word_embeddings": True, "rms_norm_eps": 1e-6}  # fmt: skip
    if kind == "gemma3_text":
        config |= {"sliding_window_pattern": 2, "rope_theta": 1e6, "rope_local_base_freq": 10000.0,
                   "num_hidden_layers": 4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}  # fmt: skip
    if kind == "gemma2":
        config |= {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
    config |= changes
    return config, _llama_tensors(config, np.random.default_rng(seed))


def _llama_tensors(c: dict[str, Any], rng: np.random.Generator) -> Tensors:
    kind, d, f, dim = c["model_type"], c["hidden_size"], c["intermediate_size"], c["head_dim"]
    queries, keys = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim

    def matrix(outputs: int, inputs: int) -> np.ndarray:
        return rng.standard_normal((outputs, inputs)).astype(np.float32) * np.float32(1.5 * inputs**-0.5)

    def norm(width: int) -> np.ndarray:
        return np.float32(not kind.startswith("gemma")) + 0.2 * rng.standard_normal(width).astype(np.float32)

    tensors = {"model.embed_tokens.weight": matrix(c["vocab_size"], d)}
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        norms = ["input_layernorm", "post_attention_layernorm"]
        if kind.startswith("gemma"):
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        tensors |= {f"{at}{name}.weight": norm(d) for name in norms}
        products = {"q_proj": (queries, d), "k_proj": (keys, d), "v_proj": (keys, d), "o_proj": (d, queries)}
        if kind == "phi3":
            products = {"qkv_proj": (queries + 2 * keys, d), "o_proj": (d, queries)}
        tensors |= {f"{at}self_attn.{name}.weight": matrix(*shape) for name, shape in products.items()}
        if kind == "qwen2":
            sizes = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
            tensors |= {f"{at}self_attn.{n}.bias": matrix(1, size)[0] * size**0.5 for n, size in sizes.items()}
        if kind in ("qwen3", "gemma3_text"):
            tensors |= {f"{at}self_attn.{name}_norm.weight": norm(dim) for name in ("q", "k")}
        feed = {"gate_up_proj": (2 * f, d)} if kind == "phi3" else {"gate_proj": (f, d), "up_proj": (f, d)}
        feed["down_proj"] = (d, f)
        tensors |= {f"{at}mlp.{name}.weight": matrix(*shape) for name, shape in feed.items()}
    tensors["model.norm.weight"] = norm(d)
    if not c["tie_word_embeddings"]:
        tensors["lm_head.weight"] = matrix(c["vocab_size"], d)
    return tensors


def rms(x: np.ndarray, weight: np.ndarray, eps: float, more: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (weight + more)


def turned(x: np.ndarray, base: float, factor: float) -> np.ndarray:
    """Rotary positions of [tokens, heads, dim]: value i and i + dim/2 are a complex number that turns."""
    half = x.shape[-1] // 2
    z = x[..., :half] + 1j * x[..., half:]
    for token in range(len(x)):
        for i in range(half):
            z[token, :, i] *= np.exp(1j * token / factor / base ** (2 * i / x.shape[-1]))
    return np.concatenate([z.real, z.imag], -1)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, window: int, cap: float) -> np.ndarray:
    """[tokens, heads x dim] of [tokens, heads, dim], head by head and token by token."""
    tokens, heads, dim = q.shape
    out = np.zeros((tokens, heads, dim))
    for head in range(heads):
        own = head * k.shape[1] // heads
        for t in range(tokens):
            first = max(0, t - window + 1) if window else 0
            scores = k[first : t + 1, own] @ q[t, head] * scale
            scores = cap * np.tanh(scores / cap) if cap else scores
            shares = np.exp(scores - scores.max())
            out[t, head] = shares / shares.sum() @ v[first : t + 1, own]
    return out.reshape(tokens, heads * dim)


def llama_logits(c: dict[str, Any], tensors: Tensors, ids: list[int]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Logits [tokens, words] and the residual stream behind every half of a layer, all float64."""
    w = {name.removeprefix("model."): array.astype(np.float64) for name, array in tensors.items()}
    kind, dim, eps = c["model_type"], c["head_dim"], c["rms_norm_eps"]
    gemma = kind.startswith("gemma")
    sizes = [c["num_attention_heads"] * dim, *[c["num_key_value_heads"] * dim] * 2]
    x = w["embed_tokens.weight"][ids] * (math.sqrt(c["hidden_size"]) if gemma else 1)
    streams = []
    for i in range(c["num_hidden_layers"]):
        p = {name.removeprefix(f"layers.{i}."): a for name, a in w.items() if name.startswith(f"layers.{i}.")}
        h = rms(x, p["input_layernorm.weight"], eps, gemma)
        if kind == "phi3":
            parts = np.split(h @ p["self_attn.qkv_proj.weight"].T, np.cumsum(sizes)[:-1], -1)
        else:
            parts = [h @ p[f"self_attn.{n}_proj.weight"].T + p.get(f"self_attn.{n}_proj.bias", 0.0) for n in "qkv"]
        q, k, v = (part.reshape(len(ids), -1, dim) for part in parts)
        if kind in ("qwen3", "gemma3_text"):
            q, k = (rms(a, p[f"self_attn.{n}_norm.weight"], eps, gemma) for a, n in ((q, "q"), (k, "k")))
        near = (kind == "gemma3_text" and (i + 1) % c["sliding_window_pattern"] != 0) or (
            kind == "gemma2" and i % 2 == 0
        )
        base, factor = (c["rope_theta"], (c.get("rope_scaling") or {}).get("factor", 1.0))
        if kind == "gemma3_text" and near:
            base, factor = c["rope_local_base_freq"], 1.0
        q, k = turned(q, base, factor), turned(k, base, factor)
        scale = c["query_pre_attn_scalar"] ** -0.5 if gemma else dim**-0.5
        y = attention(q, k, v, scale, c["sliding_window"] if near else 0, c.get("attn_logit_softcapping", 0.0))
        y = y @ p["self_attn.o_proj.weight"].T
        x = x + (rms(y, p["post_attention_layernorm.weight"], eps, 1) if gemma else y)
        streams.append(x)
        before = "pre_feedforward_layernorm" if gemma else "post_attention_layernorm"
        h = rms(x, p[f"{before}.weight"], eps, gemma)
        if kind == "phi3":
            gate, up = np.split(h @ p["mlp.gate_up_proj.weight"].T, 2, -1)
        else:
            gate, up = h @ p["mlp.gate_proj.weight"].T, h @ p["mlp.up_proj.weight"].T
        gate = gelu(gate) if gemma else gate / (1 + np.exp(-gate))
        y = (gate * up) @ p["mlp.down_proj.weight"].T
        x = x + (rms(y, p["post_feedforward_layernorm.weight"], eps, 1) if gemma else y)
        streams.append(x)
    head = w["embed_tokens.weight"] if c["tie_word_embeddings"] else w["lm_head.weight"]
    logits = rms(x, w["norm.weight"], eps, gemma) @ head.T
    cap = c.get("final_logit_softcapping", 0.0)
    return (cap * np.tanh(logits / cap) if cap else logits), streams


def gpt2(seed: int = 0, **changes: Any) -> tuple[dict[str, Any], Tensors]:
    """A small random GPT-2."""
    config: dict[str, Any] = {
        "model_type": "gpt2", "vocab_size": 96, "n_embd": 48, "n_layer": 2, "n_head": 3, "n_positions": 128,
        "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
    } | changes  # fmt: skip
    rng, d = np.random.default_rng(seed), config["n_embd"]

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32) * np.float32(1.2 * shape[0] ** -0.5)

    tensors = {"wte.weight": normal(config["vocab_size"], d), "wpe.weight": normal(config["n_positions"], d)}
    for i in range(config["n_layer"]):
        sizes = {"attn.c_attn": (d, 3 * d), "attn.c_proj": (d, d), "mlp.c_fc": (d, 4 * d), "mlp.c_proj": (4 * d, d)}
        for name, shape in sizes.items():
            tensors[f"h.{i}.{name}.weight"], tensors[f"h.{i}.{name}.bias"] = normal(*shape), 0.3 * normal(shape[1])
        for name in ("ln_1", "ln_2"):
            tensors[f"h.{i}.{name}.weight"], tensors[f"h.{i}.{name}.bias"] = 1 + normal(d), normal(d)
    return config, tensors | {"ln_f.weight": 1 + normal(d), "ln_f.bias": normal(d)}


def gpt2_logits(c: dict[str, Any], tensors: Tensors, ids: list[int]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The same for GPT-2."""
    w = {name: array.astype(np.float64) for name, array in tensors.items()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(-1, keepdims=True) + c["layer_norm_epsilon"])
        return centred / spread * w[f"{name}.weight"] + w[f"{name}.bias"]

    def layer(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x, heads, streams = w["wte.weight"][ids] + w["wpe.weight"][: len(ids)], c["n_head"], []
    for i in range(c["n_layer"]):
        at = f"h.{i}."
        parts = np.split(layer(norm(x, at + "ln_1"), at + "attn.c_attn"), 3, -1)
        q, k, v = (part.reshape(len(ids), heads, -1) for part in parts)
        x = x + layer(attention(q, k, v, q.shape[-1] ** -0.5, 0, 0.0), at + "attn.c_proj")
        streams.append(x)
        x = x + layer(gelu(layer(norm(x, at + "ln_2"), at + "mlp.c_fc")), at + "mlp.c_proj")
        streams.append(x)
    return norm(x, "ln_f") @ w["wte.weight"].T, streams


def model(kind: str, **changes: Any) -> tuple[dict[str, Any], Tensors]:
    return gpt2(**changes) if kind == "gpt2" else llama_like(kind, **changes)


def logits(config: dict[str, Any], tensors: Tensors, ids: list[int]) -> np.ndarray:
    how = gpt2_logits if config["model_type"] == "gpt2" else llama_logits
    return how(config, tensors, ids)[0]
