"""Takes facts from a folder of collected data into ``tests/data``; nothing else reads such a folder.

    PYTHONPATH=src python tools/import_facts.py FOLDER

FOLDER has ``data/`` (``apple``, ``hwx``, ``mil``, ``numerics``, ``perf``, ``plists``) and ``spec/engine-h13.md``. The
same input gives the same bytes. ``tests/data/README.md`` says what each kind is and where it comes from.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import plistlib
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import hexane

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "tests" / "data"
TABLES = ("calibration.csv", "others.csv", "llm.csv", "lm_head.csv")


def pack(name: str, content: Any) -> None:
    data = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9, mtime=0, filename="") as file:
        file.write(data)
    (TARGET / name).write_bytes(buffer.getvalue())


def programs(folder: Path) -> dict[str, Any]:
    """Decoded programs by place (``h13/name``, ``more2/h17/name``); the words of a task are one string."""
    found = {}
    for path in sorted(folder.glob("**/*.json")):
        record = json.loads(path.read_text())
        for task in record["tasks"]:
            task["words"] = "".join(task["words"])
        found[str(path.relative_to(folder).with_suffix(""))] = record
    return found


def mil(folder: Path) -> dict[str, Any]:
    """Every record with hexane's own text of its program; the verdict on it must be that on the text read."""
    records, texts = json.loads((folder / "index.json").read_text()), {}
    for record in records:
        read = (folder / record["file"]).read_text()
        graph = hexane.parse_mil(read)
        text = faulty(graph.to_mil(), [(p.rule, p.message) for p in graph.problems])
        if verdict(read, record) != verdict(text, record):
            raise ValueError(f"{record['file']}: {verdict(read, record)} became {verdict(text, record)}")
        texts[record["file"]] = text
        record["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    return {"records": records, "texts": texts}


def verdict(text: str, record: dict[str, Any]) -> Counter:
    options = {key: record[key] for key in ("chip", "os", "interface", "surfaces")}
    return Counter((f.rule, str(f.severity)) for f in hexane.check_mil(text, **options))


def faulty(text: str, problems: list[tuple[str, str]]) -> str:
    """The text with the faults that reading it had repaired: names defined twice (T7), bare literals (T5)."""
    lines = text.split("\n")
    for rule, message in problems:
        if rule == "T7":
            name = re.match("'(.*?)'", message)[1]
            line = next(line for line in lines if re.search(rf" {name} = const\(\)", line))
            lines.insert(next(i for i, line in enumerate(lines) if line.startswith("    } ->")), line)
        elif rule == "T5":
            at, bare = next(
                (i, m)
                for i, line in enumerate(lines)
                if (m := re.search(r"bool.* (\w+) = const\(\).*\((true|false)\)\)?\]", line))
            )
            del lines[at]
            lines = [line.replace(f"= {bare[1]},", f"= {bare[2]},") for line in lines]
        else:
            raise ValueError(f"a fault that cannot be written again: {rule} {message}")
    return "\n".join(lines)


def networks(data: Path) -> dict[str, Any]:
    """The dictionaries of ``net.plist`` files, what their weight files hold, and what real files say of themselves."""
    paths = [*data.glob("plists/**/*.plist"), *data.glob("hwx/*.plist")]
    nets = {str(p.relative_to(data).with_suffix("")): plistlib.loads(p.read_bytes()) for p in sorted(paths)}
    weights = [*data.glob("plists/**/*.weights"), *data.glob("hwx/*.weights")]
    images = {path.stem: image(path.read_bytes()) for path in sorted(data.glob("hwx/*.hwx"))}
    images["gemm_512"]["zeros"] = {"/tmp/zero": 512 << 10}
    return {
        "networks": nets,
        "weights": {str(p.relative_to(data)): content_of(p.read_bytes()) for p in sorted(weights)},
        "images": images,
    }


def content_of(data: bytes) -> dict[str, Any]:
    """A weight file in numbers."""
    for dtype in ("uint16", "uint8", "float16", "float32"):
        values = np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).astype(np.float64)
        start, step = values[0], values[1] - values[0]
        row = start + step * np.arange(values.size)
        if np.isfinite(row).all() and row.astype(dtype).astype(np.float64).tolist() == values.tolist():
            kind = int if dtype.startswith("u") else float
            return {"dtype": dtype, "start": kind(start), "step": kind(step), "count": values.size}
    return {"words": [f"{word:08x}" for word in np.frombuffer(data, "<u4").tolist()]}


def image(data: bytes) -> dict[str, Any]:
    """What a file carries beyond its network (docs/reference/engine-h13.md 2.13), and its hash."""
    names = dict.fromkeys(m.decode() for m in re.findall(rb"\0K([0-9A-F]{64})", data))
    paths = {option: re.search(rb"\t-" + option + rb" ([^\n\0]*)", data).group(1).decode() for option in (b"i", b"o")}
    ident = {"input_path": paths[b"i"], "output_path": paths[b"o"], "kernel_names": list(names)}
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "ident": ident, "zeros": {}}


LISTINGS = {
    "less": "z = less(",
    "cast": "y[1,1,64,1] fp16 = cast(",
    "logical_not": "y bool [1,1,64,64] = logical_not(",
    "select": "y = select(cond bool, a, b)",
    "floor": "y = floor(",
    "atan2": "atan2 (",
}
"""Programs that a page lists by registers, and the start of the line above each."""


def listing(page: str, start: str) -> list[dict[str, Any]]:
    """The tasks listed under a line: unit, header words, registers by address, and what the kernel DMA reads."""
    tasks: list[dict[str, Any]] = []
    for line in page[page.index(f"\n# {start}") + 1 :].splitlines()[1:]:
        if not line.startswith(" ") or line.strip().startswith("("):
            break
        if head := re.match(r"^ +T\d+ (NE|PE) hdr (.*)$", line):
            tasks.append({"unit": head[1], "header": head[2].split(), "groups": {}, "kernel": {}})
            continue
        for part in map(str.strip, line.split("|")):
            task = tasks[-1]
            if same := re.match(r"^([A-Z](?:, [A-Z])*) as T(\d+)$", part):
                task["groups"] |= {name: tasks[int(same[2])]["groups"][name] for name in same[1].split(", ")}
                continue
            name, *items = part.split()
            values = dict(item.split("=") for item in items if "=" in item)
            if name == "K":
                task["kernel"] = values
            else:
                task["groups"][name] = values
    for task in tasks:
        task["registers"] = {
            address: value for group in task.pop("groups").values() for address, value in group.items()
        }
    return tasks


def table(source: Path, target: Path) -> None:
    """A table of numbers, rewritten with one kind of line end and quotes only where they are needed."""
    with open(source, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    target.parent.mkdir(exist_ok=True)
    with open(target, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    data = folder / "data"
    TARGET.mkdir(exist_ok=True)
    pack("programs.json.gz", programs(data / "apple"))
    pack("mil.json.gz", mil(data / "mil"))
    (TARGET / "networks.json").write_text(json.dumps(networks(data), indent=1, ensure_ascii=False) + "\n")
    page = (folder / "spec" / "engine-h13.md").read_text()
    listings = {name: listing(page, start) for name, start in LISTINGS.items()}
    (TARGET / "listings.json").write_text(json.dumps(listings, indent=1) + "\n")
    for name in ("dev.csv", "m5_functions.csv"):
        table(data / "numerics" / name, TARGET / "numerics" / name)
    for name in ("dev_oracles.json", "luts.json"):
        content = json.loads((data / "numerics" / name).read_text())
        (TARGET / "numerics" / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    for name in TABLES:
        table(data / "perf" / name, TARGET / "perf" / name)
    size = sum(path.stat().st_size for path in TARGET.glob("**/*") if path.is_file() and "unpacked" not in path.parts)
    print(f"{size / 1e6:.2f} MB in {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
