"""Digests of compiled programs, so that a change which must not change programs can show that it did not.

    python tools/words.py -o before.json [--quick] [FILE.onnx ...]
    python tools/words.py --against before.json [--quick] [FILE.onnx ...]
    python tools/words.py --approve

Compiles the networks that need no other framework, the networks of Apple's decoded programs and the files named, each
for several chips in both dialects. ``--quick`` takes every seventh decoded program and the small networks. With
``--against`` every program that differs is named, and the exit status is 1. ``--approve`` renews the record of small
networks that the tests hold (tests/codegen/approval.py), after a change that was meant to change them: a few minutes.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "src"), str(ROOT / "tests")]

import hexane  # noqa: E402
from codegen.approval import approve, words_of  # noqa: E402
from network_list import NETWORKS  # noqa: E402

CHIPS = {
    "h13": ("M1", "M4"),
    "h14": ("M2", "A16"),
    "h15": ("M3", "A17 Pro"),
    "h16": ("A17 Pro", "M5"),
    "h16g": ("M4", "A19"),
}
NETWORK_CHIPS = ("M1", "M2", "M4", "M5")
SLOW = ("vgg19", "MiniLM", "MobileNet", "DeepLab", "Whisper", "Llama")


def networks(quick: bool, files: list[Path]) -> Iterator[tuple[str, Callable[[], Any], tuple[str, ...]]]:
    for network in NETWORKS:
        if network.name.startswith(SLOW):
            continue
        yield network.name, lambda network=network: network.load()[0], NETWORK_CHIPS[:: 3 if quick else 1]
    for path in files:
        yield path.name, lambda path=path: hexane.load(path), NETWORK_CHIPS[:: 3 if quick else 1]


def decoded(quick: bool) -> Iterator[tuple[str, Callable[[], Any], tuple[str, ...]]]:
    from codegen.programs import graph_of, load
    from facts import fact_files

    paths = [path for pattern in ("apple/h1*/*.json", "apple/more/h1*/*.json") for path in fact_files(pattern)]
    for path in paths[:: 7 if quick else 1]:
        chips = CHIPS.get(path.parent.name)
        if chips:
            yield (
                f"{path.parent.name}/{path.stem}",
                lambda path=path: graph_of(load(path)),
                chips,
            )


def digests(quick: bool, files: list[Path]) -> dict[str, str]:
    rows = {}
    for source in (networks(quick, files), decoded(quick)):
        for name, make, chips in source:
            try:
                graph = make()
            except hexane.HexaneError as error:
                rows[name] = f"{type(error).__name__}"
                continue
            for chip in chips:
                for dialect in ("default", "apple"):
                    try:
                        row = words_of(hexane.compile(graph, chip=chip, dialect=dialect))
                    except (hexane.HexaneError, struct.error) as error:
                        row = type(error).__name__
                    rows[f"{name} | {chip} | {dialect}"] = row
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--approve", action="store_true", help="renew tests/codegen/approved")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.approve:
        print(f"{approve()} lines changed")
        return 0
    start = time.process_time()
    rows = digests(options.quick, options.files)
    print(f"{len(rows)} programs, {time.process_time() - start:.0f} s of processor time")
    if options.output:
        options.output.write_text(json.dumps(rows, indent=1))
    if not options.against:
        return 0
    before = json.loads(options.against.read_text())
    different = sorted(name for name in before if name in rows and before[name] != rows[name])
    for name in different:
        print(f"{name}: {before[name]} before, {rows[name]} now")
    print(f"{len(different)} of {sum(name in before for name in rows)} programs differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
