"""How fast a task stream of 10,000 tasks decodes, reads and encodes, against ``struct.unpack`` of the same bytes.

    python benchmarks/isa.py [tasks]

Prints tasks per second, megabytes per second, and the time as a multiple of the peer's, measured in the same run. The
peer turns the bytes into integers and knows nothing of tasks.
"""

from __future__ import annotations

import struct
import sys

from _best import best
from hexane.isa import Task, decode_stream, encode_stream, link
from hexane.isa.assembly import assemble, disassemble


def full_task(generation: str) -> Task:
    """A task that writes every register of every block, as Apple's H13 compiler does."""
    task = Task(generation)
    for name, _ in task.table.by_key.values():
        if not name.startswith("Header"):
            task.set(name, 1)
    task.set("Common.TaskInfo.NID", 1)
    return task


def main(count: int) -> None:
    for generation in ("h13", "h14"):
        tasks = link([full_task(generation)] * count)
        data = encode_stream(tasks, generation)
        peer = best(lambda data=data: struct.unpack(f"<{len(data) // 4}I", data))
        decoded = decode_stream(data, generation)
        few = link(decoded[:200])
        text = disassemble(few)
        width = tasks[0].handle("Common.InDim.Win")
        steps = {
            "struct.unpack (the peer)": lambda data=data: struct.unpack(f"<{len(data) // 4}I", data),
            "decode_stream": lambda data=data, g=generation: decode_stream(data, g),
            "decode, one field of each": lambda data=data, g=generation, w=width: [
                task.read(w) for task in decode_stream(data, g)
            ],
            "read one field by handle": lambda ts=decoded, w=width: [task.read(w) for task in ts],
            "read one field by name": lambda ts=decoded: [task.get("Common.InDim.Win") for task in ts],
            "read one field by attribute": lambda ts=decoded: [task.Common.InDim.Win for task in ts],
            "encode_stream": lambda ts=decoded, g=generation: encode_stream(ts, g),
            "link": lambda ts=decoded: link(ts),
            "fields() of 200": lambda ts=few: [task.fields() for task in ts],
            "disassemble 200": lambda ts=few: disassemble(ts),
            "assemble 200": lambda text=text: assemble(text),
        }
        print(f"{generation}: {count} tasks, {len(data) / 1e6:.1f} MB")
        print(f"  {'':30}{'tasks/s':>12}{'MB/s':>10}{'x peer':>9}")
        for name, work in steps.items():
            size = 200 if "200" in name else count
            seconds = best(work, 3)
            share = size / count
            print(
                f"  {name:30}{size / seconds:12,.0f}{len(data) * share / seconds / 1e6:10.1f}"
                f"{seconds / (peer * share):9.2f}"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
