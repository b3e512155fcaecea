"""A training step on the emulated engine against the same step by PyTorch in float32, on one thread each.

    python benchmarks/training_step.py [--shape golf|small] [--chip M4] [--steps 5]

The step is all of it: forward, backward, clipping, AdamW. Processor time; both start from the same weights and words,
and the losses of the first step stand beside each other. The peer needs `pip install 'hexane[torch]'`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HEXANE_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy reads it

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from llama import EPSILON, Shape, network

SHAPES = {
    "golf": Shape(layers=9, width=512, heads=8, kv_heads=4, inner=1024, words=1024, tokens=64, activation="relu2"),
    "small": Shape(layers=4, width=128, heads=4, kv_heads=4, inner=512, words=76, tokens=128, activation="relu2"),
}
RATE, CLIP, SCALE = 1e-3, 1.0, 65536.0


def by_torch(shape: Shape, weights: dict[str, np.ndarray], torch: Any) -> Callable[[np.ndarray, np.ndarray], float]:
    """A step by PyTorch; the loss before it."""
    torch.set_num_threads(1)
    w = {name: torch.nn.Parameter(torch.from_numpy(array.astype(np.float32))) for name, array in weights.items()}
    optimizer, size = torch.optim.AdamW(w.values(), RATE), shape.head_dim
    angles = np.outer(np.arange(shape.tokens), 10000.0 ** (-np.arange(0, size, 2) / size))
    cos, sin = (torch.from_numpy(np.tile(t, 2).astype(np.float32)) for t in (np.cos(angles), np.sin(angles)))

    def norm(x: Any, name: str) -> Any:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPSILON) * w[name]

    def rotated(x: Any, heads: int) -> Any:
        x = x.view(1, shape.tokens, heads, size).transpose(1, 2)
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat([-high, low], -1) * sin

    def step(tokens: np.ndarray, labels: np.ndarray) -> float:
        x = w["embedding"][torch.from_numpy(tokens.astype(np.int64))]
        for n in range(shape.layers):
            h = norm(x, f"norm{n}a")
            q, k = rotated(h @ w[f"q{n}"].T, shape.heads), rotated(h @ w[f"k{n}"].T, shape.kv_heads)
            v = (h @ w[f"v{n}"].T).view(1, shape.tokens, shape.kv_heads, size).transpose(1, 2)
            k, v = (part.repeat_interleave(shape.heads // shape.kv_heads, 1) for part in (k, v))
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + mixed.transpose(1, 2).reshape(1, shape.tokens, shape.width) @ w[f"o{n}"].T
            wide = torch.relu(norm(x, f"norm{n}b") @ w[f"up{n}"].T) ** 2
            x = x + wide @ w[f"down{n}"].T
        loss = torch.nn.functional.cross_entropy((norm(x, "norm") @ w["embedding"].T)[0], torch.from_numpy(labels[0]))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), CLIP)
        optimizer.step()
        return float(loss.detach())

    return step


def timed(step: Callable[[], float], count: int) -> tuple[float, float]:
    """The loss of the first call and processor seconds of the fastest of the later ones."""
    first, best = step(), float("inf")
    for _ in range(count):
        start = time.process_time()
        step()
        best = min(best, time.process_time() - start)
    return first, best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--chip", default="M4")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("not run: the peer is torch, which is not installed")
        return
    from hexane.train import AdamW, Trainer

    shape = SHAPES[options.shape]
    weights = shape.drawn()
    words = np.random.default_rng(0).integers(0, shape.words, (1, shape.tokens + 1))
    tokens, labels = words[:, :-1].astype(np.int32), words[:, 1:]
    trainer = Trainer(
        network(shape, weights), optimizer=AdamW(RATE), loss_scale=SCALE, chip=options.chip, renew="inputs", clip=CLIP
    )
    peer = by_torch(shape, weights, torch)
    own_loss, own = timed(lambda: trainer.step((tokens, labels)), options.steps)
    peer_loss, other = timed(lambda: peer(tokens, labels), options.steps)
    print(f"{options.shape} on {options.chip}: first loss {own_loss:.4f}, torch {peer_loss:.4f}")
    print(f"a step: emulated engine {own * 1e3:.1f} ms, torch float32 {other * 1e3:.1f} ms, ratio {own / other:.2f}")


if __name__ == "__main__":
    main()
