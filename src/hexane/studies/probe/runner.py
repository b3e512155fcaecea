#!/usr/bin/env python3
"""Run the networks of this folder through Core ML and write what came back: `python3 run.py -o answers.json`.

Needs a Mac with Apple's chip, Python 3.9, NumPy and coremltools (`pip install coremltools numpy`), nothing else. The
networks run with the compute units CPU_AND_NE, three times each, about a minute in all. The file holds the chip, the
system's release and every output, and no name, address or serial number. Read it with `hexane probe --read`.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import platform
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np

CALLS = 3
"""Calls of each program; all have to give the same bits, and the fastest is the time."""


def array_of(entry):
    raw = zlib.decompress(base64.b64decode(entry["data"]))
    return np.frombuffer(raw, entry["dtype"]).reshape(entry["shape"])


def entry_of(array: np.ndarray) -> dict[str, object]:
    """An array as JSON holds it: dtype, shape, compressed bytes."""
    data = np.ascontiguousarray(array)
    text = base64.b64encode(zlib.compress(data.tobytes(), 9)).decode()
    return {"dtype": data.dtype.name, "shape": list(data.shape), "data": text}


def digest_of(array: np.ndarray) -> str:
    """Of dtype, shape and every bit."""
    data = np.ascontiguousarray(array)
    return hashlib.sha256(f"{data.dtype.name}{list(data.shape)}".encode() + data.tobytes()).hexdigest()[:32]


def core_ml(path):
    """A function from inputs to outputs, by name."""
    import coremltools

    model = coremltools.models.MLModel(str(path), compute_units=coremltools.ComputeUnit.CPU_AND_NE)
    return model.predict


def answer_to(row, folder, load):
    """The answer to one network: its outputs, or why there are none."""
    answer = {"question": row["name"], "digest": row["digest"], "outputs": {}, "seconds": None, "error": ""}
    inputs = {name: array_of(entry) for name, entry in row["inputs"].items()}
    try:
        predict = load(folder / "networks" / (row["name"] + ".mlpackage"))
        first = None
        for _ in range(CALLS):
            start = time.perf_counter()
            results = predict(inputs)
            seconds = time.perf_counter() - start
            outputs = {name: np.asarray(results[name]).astype(dtype) for name, dtype in row["outputs"].items()}
            if first is not None and any(outputs[name].tobytes() != first[name].tobytes() for name in outputs):
                raise RuntimeError("two calls with the same inputs gave different bits")
            first = outputs
            answer["seconds"] = min(seconds, answer["seconds"] or seconds)
        answer["outputs"] = {name: entry_of(array) for name, array in first.items()}
    except Exception as error:  # whatever Core ML raises: the next network may still run
        lines = str(error).strip().splitlines() or [type(error).__name__]
        answer.update(error=lines[0][:300], outputs={}, seconds=None)
    return answer


def choices_of(row, chip, answer):
    """The choices whose bits these are; None where nothing is expected of this chip."""
    expected = row["expected"].get(chip)
    if expected is None or not answer["outputs"]:
        return None
    digests = {name: digest_of(array_of(entry)) for name, entry in answer["outputs"].items()}
    return [choice["assumed"] for choice in expected if choice["outputs"] == digests]


def brand():
    """ "M4 Pro" of "Apple M4 Pro"; empty elsewhere."""
    try:
        text = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True).stdout
    except OSError:
        return ""
    return text.strip().removeprefix("Apple ") if text.startswith("Apple ") else ""


def family(chip, names):
    """The chip of the pack whose bits are this one's: M4 for M4 Pro."""
    return next((name for name in names if chip.split(" ")[0] == name), "")


def main(arguments=None, load=core_ml):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("answers.json"))
    parser.add_argument("--chip", default="", help="the chip; default: what the machine says")
    options = parser.parse_args(arguments)
    folder = Path(__file__).resolve().parent
    pack = json.loads((folder / "pack.json").read_text())
    chip = options.chip or brand()
    if not chip:
        parser.error("this is no Mac with Apple's chip; --chip names another")
    answers, as_expected, of = [], 0, 0
    for row in pack["networks"]:
        answer = answer_to(row, folder, load)
        answers.append(answer)
        fits = choices_of(row, family(chip, pack["chips"]), answer)
        of += fits is not None
        as_expected += bool(fits) and fits[0] == row["expected"][family(chip, pack["chips"])][0]["assumed"]
        word = answer["error"] or ("nothing expected" if fits is None else "no choice fits" if not fits else "fits")
        print(f"{row['name']:40} {word} {', '.join(map(str, fits or []))}", flush=True)
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    data = {"schema": "hexane-probe/1", "device": "coreml", "chip": chip, "version": pack["version"]}
    options.output.write_text(json.dumps({**data, "system": system, "answers": answers}, indent=1) + "\n")
    print(f"{as_expected} of {of} as expected; {options.output}: please send it, or hexane probe --read it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
