"""Apple's own programs as files through the virtual drivers: H13 by ABI 1, H14 by ABI 2, with the emulator's bits.

Nothing here ran on an engine: the words are Apple's, the drivers and the engine behind them are ours.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hexane
from emulator import apple_programs
from facts import fact_files, fact_params
from hexane.image import Image
from hexane.runtime.devices.linux import LinuxEngine
from hexane.runtime.virtual.core import PATH
from runtime.drivers import driver

FLAVOURS = {"h13": ("eiln", "omarchy", "intree"), "h14": ("abi2", "intree2")}
QUICK = {"h13": 9, "h14": 8}
MULTIPLICATIONS, SURFACE_BYTES = 5_000_000, 150_000
"""Larger programs run in the slow suite."""


def _parameters() -> list:
    found = []
    for generation in FLAVOURS:
        small = 0
        for folder in (generation, f"more/{generation}"):
            for path in fact_files(f"apple/{folder}/*.json"):
                program = apple_programs.load(path)
                bytes_in = max((x.nbytes for x in program.inputs.values()), default=0)
                quick = program.multiplications <= MULTIPLICATIONS and bytes_in <= SURFACE_BYTES
                small += quick
                slow = not quick or small % 6 or small > 6 * QUICK[generation]
                found.append(pytest.param(path, id=f"{folder}-{path.stem}", marks=[pytest.mark.slow] if slow else []))
    return found


def _image(program: apple_programs.AppleProgram) -> Image:
    if program.generation == "h13":
        return program.image()
    return hexane.build_image(program.tasks, program.const(), program.surfaces, "h14", program.scratch_bytes)


@pytest.mark.parametrize("path", _parameters())
def test_a_decoded_program_as_a_file(path: Path, tmp_path: Path) -> None:
    recorded = apple_programs.load(path)
    image = _image(recorded)
    file = tmp_path / "program.hwx"
    image.save(file)
    program = hexane.load_program(file)
    assert [task.words() for task in program.images[0].tasks] == [task.words() for task in recorded.tasks]
    wanted = program.run(recorded.inputs)
    for flavour in FLAVOURS[recorded.generation]:
        device = driver(flavour)
        with program.on(LinuxEngine(PATH, device)) as session:
            found = [session.run(recorded.inputs) for _ in range(2)]
        for outputs in found:
            assert all(np.array_equal(outputs[name], wanted[name], equal_nan=True) for name in wanted)
        assert device.problems == [] and device.left_behind() == []


@pytest.mark.parametrize("path", fact_params("hwx/*.hwx"))
def test_a_file_of_apple_s_compiler(path: Path) -> None:
    program = hexane.load_program(path)
    rng = np.random.default_rng(0)
    inputs = {p.name: rng.standard_normal(p.shape).astype(np.float16) for p in program.inputs}
    wanted = program.run(inputs)
    for flavour in FLAVOURS["h13"]:
        device = driver(flavour)
        found = program.run(inputs, device=LinuxEngine(PATH, device))
        assert all(np.array_equal(found[name], wanted[name], equal_nan=True) for name in wanted)
        assert device.problems == [] and device.left_behind() == []
