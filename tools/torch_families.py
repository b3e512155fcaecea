"""One small model of each family of torchvision and transformers, random weights, through ``torch.compile``: a page.

Models are built from their configuration, so nothing is downloaded. Batch norms get the statistics of one random batch.
Parts are compiled for M1; their programs run with the engine's arithmetic on the graph (``level="graph"``, the bits of
the emulated tasks). A model counts as

* pass: every result is within the tolerance of torch in float32, and something ran on the engine;
* refused: nothing is for the engine, or the model itself does not run here (its reason is listed);
* wrong, crash: anything else.

    python tools/torch_families.py                      all, and the page docs/torch-families.md
    python tools/torch_families.py --only resnet18 bert
"""

from __future__ import annotations

import argparse
import json
import logging
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "torch-families.md"
TOLERANCE = 5e-2
"""Root mean square of the error over that of the result; from here on hexane itself calls a layer gone wrong."""
KINDS = ("pass", "refused", "wrong", "crash")

VISION = {
    "squeezenet1_1": 64, "mobilenet_v3_small": 64, "shufflenet_v2_x0_5": 64, "mnasnet0_5": 64, "resnet18": 64,
    "mobilenet_v2": 64, "regnet_x_400mf": 64, "regnet_y_400mf": 64, "lraspp_mobilenet_v3_large": 64,
    "efficientnet_b0": 64, "googlenet": 64, "deeplabv3_mobilenet_v3_large": 64, "alexnet": 64, "convnext_tiny": 64,
    "resnext50_32x4d": 64, "inception_v3": 96, "swin_t": 64, "densenet121": 64, "vgg11": 64, "wide_resnet50_2": 64,
    "efficientnet_v2_s": 64, "vit_b_32": 224, "swin_v2_t": 64, "fcn_resnet50": 64, "maxvit_t": 224,
}  # fmt: skip
"""torchvision's families: a member and the size of its picture."""

TEXT = (
    "albert", "bart", "bert", "bloom", "camembert", "codegen", "convbert", "ctrl", "deberta", "deberta-v2",
    "distilbert", "electra", "ernie", "falcon", "fnet", "gemma", "gpt2", "gpt_neo", "gpt_neox", "gptj", "granite",
    "ibert", "layoutlm", "llama", "longformer", "m2m_100", "mamba", "mbart", "megatron-bert", "mistral",
    "mobilebert", "mpnet", "mpt", "olmo", "opt", "pegasus", "persimmon", "phi", "qwen2", "qwen3", "rembert",
    "roberta", "roformer", "smollm3", "squeezebert", "stablelm", "starcoder2", "t5", "xglm", "xlm-roberta", "xlnet",
)  # fmt: skip
PICTURES = (
    "beit", "bit", "convnext", "convnextv2", "cvt", "deit", "dinov2", "dpt", "efficientnet", "focalnet", "levit",
    "mobilenet_v1", "mobilenet_v2", "mobilevit", "poolformer", "pvt", "regnet", "resnet", "segformer", "swin", "swinv2",
    "vit", "vit_mae", "yolos",
)  # fmt: skip
SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99,
    "max_position_embeddings": 64, "num_key_value_heads": 2, "head_dim": 8, "d_model": 32, "encoder_layers": 2,
    "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4, "embedding_size": 32,
    "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "image_size": 32, "patch_size": 8, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "initializer_range": 0.1, "use_cache": False,
    "rotary_dim": 4,
    "attention_window": 4, "attention_types": [[["global", "local"], 1]], "ffn_dim": 64, "word_embed_proj_dim": 32,
}  # fmt: skip
"""Small configurations. Weights of 0.1 (0.02 times the root of 768 / 32): signals then are as large as in a model of
the usual width."""


def vision_model(name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A model of torchvision with statistics in its batch norms, and an input."""
    from torchvision import models

    torch.manual_seed(16)
    more = {"weights_backbone": None} if name.startswith(("deeplab", "lraspp", "fcn")) else {}
    more |= {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model = models.get_model(name, weights=None, **more)
    size = VISION[name]
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
                part.momentum = None
        model.train()(torch.randn(4, 3, size, size))
    return model.eval(), (torch.randn(1, 3, size, size),), {}


def transformer(name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A model of transformers with a small configuration, and an input."""
    from transformers import CONFIG_MAPPING, AutoModel

    torch.manual_seed(16)
    kind = CONFIG_MAPPING[name]
    plain = kind()
    made_up = {key for key in SMALL if isinstance(getattr(kind, key, None), property)}  # follows from other settings
    given = {key: value for key, value in SMALL.items() if hasattr(plain, key) and key not in made_up}
    if name in PICTURES and isinstance(getattr(plain, "depths", None), list | tuple):
        given = {key: value for key, value in given.items() if key in ("image_size",)}
        given["depths"] = [1] * len(plain.depths)
        given["image_size"] = 64
    model = AutoModel.from_config(kind(**given), attn_implementation="eager").eval()
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
                part.running_var.uniform_(0.5, 1.5)
    if name in PICTURES:
        size = getattr(model.config, "image_size", 64)
        size = size if isinstance(size, int) else 64
        return model, (), {"pixel_values": torch.randn(1, 3, max(size, 32), max(size, 32))}
    ids = torch.randint(3, 99, (1, 8))
    if getattr(model.config, "is_encoder_decoder", False):
        return model, (), {"input_ids": ids, "decoder_input_ids": torch.randint(3, 99, (1, 6))}
    return model, (), {"input_ids": ids}


def tensors(found: Any) -> list[torch.Tensor]:
    """Floating-point results of any nesting."""
    if hasattr(found, "to_tuple"):
        found = found.to_tuple()
    leaves = [leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, torch.Tensor)]
    return [leaf for leaf in leaves if leaf.is_floating_point()]


def tried(build: Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]) -> dict[str, Any]:
    """One row: kind, reason, error, seconds, what ran where."""
    from torch._dynamo.utils import counters

    from hexane.integrations.torch import backend

    try:
        model, args, kwargs = build()
        with torch.no_grad():
            wanted = tensors(model(*args, **kwargs))
    except Exception as error:
        return {"kind": "refused", "why": f"not built here: {type(error).__name__}: {str(error).splitlines()[:1]}"}
    torch._dynamo.reset()
    counters["graph_break"].clear()
    start = time.perf_counter()
    try:
        with backend.collected() as reports, torch.no_grad():
            compiled = torch.compile(model, backend=backend.hexane_backend, options={"level": "graph"})
            found = tensors(compiled(*args, **kwargs))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "hexane" in f.filename]
        return {"kind": "crash", "why": f"{type(error).__name__}: {str(error)[:200]} ({' '.join(ours[-2:])})"}
    parts = [part for report in reports for part in report.parts]
    left = [one for report in reports for one in report.left]
    errors = [
        float((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-6)) if b.numel() else 0.0
        for a, b in zip(found, wanted)
    ]
    row: dict[str, Any] = {
        "error": max(errors, default=0.0),
        "seconds": time.perf_counter() - start,
        "graphs": len(reports),
        "parts": len(parts),
        "tasks": sum(part.tasks for part in parts),
        "engine": sum(part.engine_ops for part in parts),
        "host": sum(len(part.host) for part in parts),
        "torch": sum(len(one.nodes) for one in left),
        "left": sorted({one.operator.split(",")[0] for one in left}),
        "breaks": len(counters["graph_break"]),
    }
    if not parts:
        return {**row, "kind": "refused", "why": "nothing is for the engine"}
    if len(found) != len(wanted) or any(a.shape != b.shape for a, b in zip(found, wanted)):
        return {**row, "kind": "wrong", "why": "results of other shapes"}
    good = row["error"] <= TOLERANCE
    return {**row, "kind": "pass" if good else "wrong", "why": "" if good else f"error {row['error']:.3g}"}


def names(only: list[str] | None = None) -> list[tuple[str, str]]:
    """(library, family) of every row."""
    vision = [("torchvision", name) for name in VISION]
    found = [*vision[:5], *(("transformers", name) for name in (*TEXT, *PICTURES)), *vision[5:]]
    return [pair for pair in found if not only or pair[1] in only]


def run(only: list[str] | None = None, say: bool = False, minutes: float = 1e9) -> dict[str, dict[str, Any]]:
    """Row by "library/family". No model is begun when the minutes are over."""
    end = time.monotonic() + 60 * minutes
    logging.getLogger("hexane.torch").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    rows = {}
    for library, name in names(only):
        if time.monotonic() > end:
            break
        build = vision_model if library == "torchvision" else transformer
        rows[f"{library}/{name}"] = row = tried(lambda build=build, name=name: build(name))  # type: ignore[misc]
        if say:
            print(library, name, json.dumps(row), flush=True)
    return rows


def page(rows: dict[str, dict[str, Any]]) -> str:
    """The page: totals, and a row for each family."""
    total = Counter(row["kind"] for row in rows.values())
    lines = [
        "# Families of models through `torch.compile`",
        "",
        "Generated by `tools/torch_families.py`; do not edit.",
        "",
        'One small model of each family with random weights, `torch.compile(model, backend="hexane")` for M1, parts run'
        " with the engine's arithmetic on the graph. Right means that the root mean square of the error of every"
        f" floating-point result is within {TOLERANCE} of the result's own, against torch in float32.",
        "",
        f"torch {torch.__version__.partition('+')[0]}. "
        + ", ".join(f"{kind}: {total[kind]}" for kind in KINDS)
        + f" of {len(rows)}.",
        "",
        "| family | | error | graphs, parts | ops on the engine, tasks | ops on the host | left to torch |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        if "parts" not in row:
            why = row["why"].replace("|", "\\|")[:160]
            lines.append(f"| {name} | {row['kind']}: {why} | | | | | |")
            continue
        left = f"{row['torch']}" + (f" ({', '.join(row['left'][:6])})" if row["left"] else "")
        lines.append(
            f"| {name} | {row['kind']} | {row['error']:.1e} | {row['graphs']}, {row['parts']} |"
            f" {row['engine']}, {row['tasks']} | {row['host']} | {left} |"
        )
    left = [name for library, name in names() if f"{library}/{name}" not in rows]
    if left:
        lines += ["", f"Not run for this page: {', '.join(left)}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = run(options.only or None, say=True, minutes=options.minutes)
    print(Counter(row["kind"] for row in rows.values()))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if not options.only:
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
