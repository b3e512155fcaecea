"""Apple's decoded programs as tests of kernels need them: tasks, and constants filled as the compiler saw them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np

from hexane.isa import Task, decode_stream
from hexane.kernels import KernelLayout


def load(path: Path) -> dict:
    return json.loads(path.read_text())


def tasks(program: dict) -> list[Task]:
    """The program's tasks, decoded from its text section."""
    end = max(task["offset"] + 4 * len(task["words"]) for task in program["tasks"])
    text = bytearray(end)
    for task in program["tasks"]:
        words = [int(word, 16) for word in task["words"]]
        text[task["offset"] : task["offset"] + 4 * len(words)] = struct.pack(f"<{len(words)}I", *words)
    return decode_stream(bytes(text), program["generation"])


def fill(constant: dict, weight: dict | None) -> np.ndarray:
    """The constant's halfwords; the fill rules are those of the data's README."""
    count = int(np.prod(constant["shape"], dtype=int))
    rule = constant["value"] or "mil-half"
    if rule.startswith("every element fp16 0x"):
        return np.full(count, int(rule[-4:], 16), "<u2")
    if rule == "index":
        return np.arange(1, count + 1).astype("<u2")
    if constant["role"] == "bias" and weight is not None:
        return fill(weight, None)[:count]
    head = np.zeros(64, "<u2")
    head[:4] = 1, 0, 2, 0
    head[32:34] = np.array([0xDEADBEEF], "<u4").view("<u2")
    head[34:42] = np.array([2 * count, 128], "<u8").view("<u2")
    body = np.full(count, 0x3800, "<u2") if rule == "mil-half" else np.arange(1, count + 1).astype("<u2")
    return np.concatenate((head, body))[:count]


def constants(program: dict) -> dict[str, np.ndarray]:
    """Name to float16 array in the declared shape."""
    rows = program["network"]["constants"]
    weight = next((row for row in rows if row["role"] == "weight"), None)
    return {row["name"]: fill(row, weight).view("<f2").reshape(row["shape"]) for row in rows}


def table_layout(cores: int) -> KernelLayout:
    """The layout of a task that has a look-up table and no weights; ``cores`` read the same 128 bytes."""
    return KernelLayout(1, 1, unicast=True, weighted=False, table=True, cores=cores)
