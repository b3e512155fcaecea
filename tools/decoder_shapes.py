"""Decoders of real shapes with drawn weights: their programs, compile time, memory and rates (docs/language-models.md).

    python tools/decoder_shapes.py [--model SmolLM2-135M] [--chip M4,M5] [--context 1024] [--weights int8]

Each row is a process of its own, since its memory is the process's largest. SmolLM2 takes 2 GB, Qwen3 5 GB in fp16.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from hexane.formats.safetensors import write_safetensors  # noqa: E402
from hexane.language import Decoder  # noqa: E402
from hexane.language.architecture import read_architecture  # noqa: E402
from hexane.language.chunks import product_shapes  # noqa: E402

COMMON = {"hidden_act": "silu", "tie_word_embeddings": True, "rope_theta": 100000.0, "rms_norm_eps": 1e-5,
          "max_position_embeddings": 8192}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "SmolLM2-135M": {"model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
                     "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152},
    "Qwen3-0.6B": {"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
                   "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936},
    "Llama-3.2-1B": {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
                     "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256},
}  # fmt: skip
"""The shapes that the models' public configurations state."""
HEAD = ("model", "chip", "weights", "chunks, MB", "engine programs", "tasks", "compiled, s", "program, MB",
        "memory, GB", "first step, s", "step, s", "decode, tok/s")  # fmt: skip


def write(folder: Path, name: str) -> None:
    """A folder of the shape with normal weights in fp16."""
    (folder / "config.json").write_text(json.dumps(COMMON | MODELS[name]))
    a, rng = read_architecture(folder), np.random.default_rng(0)

    def drawn(outputs: int, inputs: int) -> np.ndarray:
        return (rng.standard_normal((outputs, inputs), np.float32) * inputs**-0.5).astype(np.float16)

    arrays = {"model.embed_tokens.weight": drawn(a.words, a.hidden), "model.norm.weight": np.ones(a.hidden, np.float16)}
    for layer in range(a.layers):
        at = f"model.layers.{layer}."
        for product, shape in product_shapes(a).items():
            arrays[f"{at}{'self_attn' if product in 'qkvo' else 'mlp'}.{product}_proj.weight"] = drawn(*shape)
        norms = {"input_layernorm": a.hidden, "post_attention_layernorm": a.hidden}
        norms |= {f"self_attn.{part}_norm": a.head_dim for part in ("qk" if a.head_norms else "")}
        arrays |= {f"{at}{norm}.weight": np.ones(width, np.float16) for norm, width in norms.items()}
    write_safetensors(folder / "model.safetensors", arrays)


def row(name: str, chip: str, context: int, weights: str) -> list[str]:
    """A decoder's decode step on a chip."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        write(folder, name)
        model = Decoder.from_pretrained(folder, weights=weights)
        before = time.perf_counter()
        run = model.start(context, chip)
        programs = [run.backend.program(number, run.form(1)) for number in range(len(model.chunks))]
        compiled = time.perf_counter() - before
        seconds = []
        for token in (1, 2, 3):
            before = time.perf_counter()
            run.feed([token])
            seconds.append(time.perf_counter() - before)
        rate = model.plan(chip, context).decode_tok_s
        stats = [program.stats() for program in programs]
        size = sum(entry["const_bytes"] for entry in stats) + sum(
            len(image.text()) for program in programs for image in program.images
        )
        return [
            name, chip, weights, ", ".join(f"{chunk.weight_bytes / 1e6:.0f}" for chunk in model.chunks),
            str(sum(entry["engine_segments"] for entry in stats)), f"{sum(entry['tasks'] for entry in stats):,}",
            f"{compiled:.0f}", f"{size / 1e6:.0f}", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f}",
            f"{seconds[0]:.1f}", f"{min(seconds[1:]):.1f}", f"{rate.value:.0f} ({rate.low:.0f} to {rate.high:.0f})",
        ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=",".join(MODELS), help="names with commas")
    parser.add_argument("--chip", default="M4,M5", help="names with commas")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--weights", default="fp16", help="format of all weights")
    arguments = parser.parse_args()
    pairs = [(name, chip) for name in arguments.model.split(",") for chip in arguments.chip.split(",")]
    if len(pairs) == 1:
        print("| " + " | ".join(row(*pairs[0], arguments.context, arguments.weights)) + " |", flush=True)
        return
    print("| " + " | ".join(HEAD) + " |", flush=True)
    for name, chip in pairs:
        call = [sys.executable, __file__, "--model", name, "--chip", chip, "--context", str(arguments.context),
                "--weights", arguments.weights]  # fmt: skip
        subprocess.run(call, check=True)


if __name__ == "__main__":
    main()
