"""Decoders against transformers' own models in float32, random weights from small configurations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexane.language import Decoder

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES: dict[str, Any] = {
    "vocab_size": 200, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}  # fmt: skip
PARTIAL = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}
MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "llama3": lambda: transformers.LlamaConfig(**SIZES, tie_word_embeddings=True, rope_parameters=LLAMA3),
    "mistral": lambda: transformers.MistralConfig(**SIZES, sliding_window=16),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=32),
    "smollm3": lambda: transformers.SmolLM3Config(**{**SIZES, "num_hidden_layers": 5}, pad_token_id=0),
    "phi3": lambda: transformers.Phi3Config(**SIZES, pad_token_id=0, sliding_window=20),
    "phi4": lambda: transformers.Phi3Config(
        **{**SIZES, "num_attention_heads": 2}, pad_token_id=0, rope_parameters=PARTIAL
    ),
    "gemma2": lambda: transformers.Gemma2Config(**SIZES, head_dim=32, query_pre_attn_scalar=24, sliding_window=16),
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **{**SIZES, "num_hidden_layers": 7}, head_dim=32, query_pre_attn_scalar=24, sliding_window=16
    ),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=200, n_embd=64, n_layer=3, n_head=4, n_positions=256),
}


@pytest.mark.parametrize("name", MODELS)
def test_prefill_and_64_decode_steps_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = transformers.AutoModelForCausalLM.from_config(MODELS[name]()).eval().float()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3)
            else:
                parameter.add_(0.3 * torch.randn_like(parameter))
    module.save_pretrained(tmp_path)
    ids = np.random.default_rng(1).integers(1, 200, 104).tolist()
    wanted = module(torch.tensor([ids])).logits[0].detach().numpy()
    model = Decoder.from_pretrained(tmp_path)
    for level, bound in (("float32", 1e-5), ("graph", 0.05)):
        run = model.start(128, "M4", level)
        given = np.concatenate([run.feed(ids[:40]), *(run.feed([i]) for i in ids[40:])])
        assert np.abs(given - wanted).max() < bound * np.abs(wanted).max(), level
