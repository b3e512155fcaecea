"""How fast an engine image of 10,000 tasks opens, decodes, writes and compares, against reading its bytes alone.

    python benchmarks/image.py [tasks]

The image is made by linking one program many times. Times are also given as multiples of the peer's, measured in the
same run: ``struct.unpack`` of the whole file into integers, which knows nothing of what they mean.
"""

from __future__ import annotations

import struct
import sys

import hexane
from _best import best
from hexane.image import Image, Surface, build_image, diff_images, link
from hexane.isa import Task
from hexane.isa import link as link_tasks


def program() -> Image:
    """A one-task program that writes every register and streams a kernel to all sixteen cores."""
    task = Task("h13")
    for register in task.table.by_key.values():
        if not register[0].startswith("Header"):
            task.set(register[0], 0)
    task.set("Header[8].RBase0", 5)
    task.set("Header[8].RBE0", 1)
    task.set("Header[8].WBase", 4)
    task.set("Header[8].WBE", 1)
    task.set("Header[9].KBase0", 1)
    task.set("Header[9].KBE0", 1)
    task.set("KernelDMASrc.MasterConfig.MasterEnable", 1)
    for core in range(16):
        task.set(f"KernelDMASrc.CoeffDMAConfig[{core}].En", 1)
        task.set(f"KernelDMASrc.CoeffBaseAddr[{core}].Addr", core)
        task.set(f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize", 1)
    surfaces = [Surface("x", "input", (1, 64, 8, 8)), Surface("y", "output", (1, 64, 8, 8))]
    return build_image(link_tasks([task]), bytes(1024), surfaces, "h13", dialect="zin4")


def decoded(data: bytes) -> Image:
    """The image with its tasks taken apart."""
    image = hexane.open_image(data)
    _ = image.tasks
    return image


def main(count: int) -> None:
    one = program()
    data = link(*[one] * count).to_bytes()
    image = decoded(data)
    other = decoded(data)
    other.tasks[-1].set("Common.InDim.Win", 9)
    words = len(data) // 4
    steps = {
        "struct.unpack (the peer)": lambda: struct.unpack(f"<{words}I", data[: 4 * words]),
        "open_image": lambda: hexane.open_image(data),
        "open_image and decode": lambda: decoded(data),
        "the same, a field of each": lambda: [task.get("Common.InDim.Win") for task in decoded(data).tasks],
        "rebuild": lambda: image.rebuild(),
        "link": lambda: link(*[one] * count),
        "diff": lambda: diff_images(image, other),
    }
    peer = best(steps["struct.unpack (the peer)"], 3)
    print(f"{count} tasks, {len(data) / 1e6:.1f} MB")
    print(f"{'':28}{'ms':>9}{'tasks/s':>13}{'MB/s':>9}{'x peer':>9}")
    for name, work in steps.items():
        seconds = best(work, 3)
        rate = len(data) / seconds / 1e6
        print(f"{name:28}{seconds * 1e3:9.1f}{count / seconds:13,.0f}{rate:9.1f}{seconds / peer:9.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
