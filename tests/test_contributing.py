"""What docs/contributing.md says, tried: a generation is five files, emulator and prices included; a device is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import hexane

CHANGED = {
    "chips/generations.py": {
        '    _later("h19"': '    _later("h20", 25, (20,), 11, extent=65536, kernel_width_measured=15),\n',
        '    "h19": (': '    "h20": ("h20",),\n',
    },
    "chips/table.py": {
        '    Chip("M6"': '    Chip("M7", "T9000", "h20", "h20", 2580.0, _GUESS, None, winograd=True, sibling="M5"),\n',
    },
}
ADDED = {
    "isa/h20.py": "from dataclasses import replace\n\nfrom hexane.isa.h18 import TABLE as _H18\n\n"
    'TABLE = replace(_H18, generation="h20")\n',
    "isa/compose/h20.py": 'from hexane.isa.compose.h18 import RULES\n\n__all__ = ["RULES"]\n',
    "codegen/targets/h20.py": "from hexane.codegen.targets.h17 import H18\n\n\n"
    'class H20(H18):\n    name = generation = "h20"\n',
}
DEVICE = """
from hexane.program.run import Device, OnHost, no_flavour
from hexane.program import Segment


class Mirror(Device):
    name = "mirror"

    def load(self, segment):
        return OnHost(Segment("host", "", segment.ops, segment.inputs, segment.outputs, graph=segment.source))


def open_device(flavour):
    no_flavour(flavour)
    return Mirror()
"""
PROGRAM = """
import numpy as np, hexane
from hexane.graph import GraphBuilder
b = GraphBuilder()
x = b.input("x", (1, 16, 8, 8), "fp16")
b.output(b.relu(x=b.conv(x=x, weight=np.ones((16, 16, 3, 3), np.float16), pad_type="same")), name="y")
program = hexane.compile(b.graph, chip="M7")
program.save("net.hwx")
image = hexane.open_image("net.hwx")
print(image.generation, len(image.tasks), hexane.check(b.graph, "M7").fits, hexane.estimate(b.graph, "M7").chip)
x = {"x": np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float16)}
print(np.array_equal(program.run(x)["y"], program.run(x, level="graph")["y"]))
like = hexane.estimate(b.graph, "M7").engine_us / hexane.estimate(b.graph, "M5").engine_us
print(0.5 < like < 1.5 or like)
with program.on("mirror") as session:
    print(session.run({"x": np.ones((1, 16, 8, 8), np.float16)})["y"].max())
"""


def test_a_new_generation_is_five_files_and_a_new_device_is_one(tmp_path: Path) -> None:
    package = tmp_path / "hexane"
    shutil.copytree(Path(hexane.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "*.nb?"))
    for name, changes in CHANGED.items():
        path = package / name
        text = path.read_text("utf-8")
        for before, line in changes.items():
            assert text.count(before) == 1, f"{before!r} in {name}"
            text = text.replace(before, line + before)
        path.write_text(text, "utf-8")
    for name, text in ADDED.items():
        (package / name).write_text(text, "utf-8")
    (package / "runtime/devices/mirror.py").write_text(DEVICE, "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["h20", "1", "True", "M7", "True", "True", "144.0"], done.stderr
