"""Programs of H14 to H18 are files like others: written, read, printed, assembled, edited, emulated."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.emulator import run
from hexane.graph import GraphBuilder
from hexane.image.kernels import read_kernels, with_kernels
from hexane.image.selectors import channels_used, renumbered
from hexane.image.text import assemble_image, disassemble_image

TARGETS = ("h14", "h15", "h16", "h17", "h18")
RNG = np.random.default_rng(3)
WEIGHTS = [(RNG.standard_normal((32, 16, 3, 3)) / 12).astype(np.float16) for _ in range(2)]
INPUTS = {name: RNG.standard_normal((1, 16, 6, 7)).astype(np.float16) for name in ("a", "b")}


def compiled(target: str, weights: np.ndarray = WEIGHTS[0]):
    """A convolution of a sum and a table behind it: weights, a table, two surfaces that are read."""
    b = GraphBuilder()
    a, c = (b.input(name, x.shape, "fp16") for name, x in INPUTS.items())
    b.output(b.sigmoid(x=b.conv(x=b.sub(x=a, y=c), weight=weights, pad_type="same")), name="y")
    program = hexane.compile(b.graph, chip=target)
    (image,) = program.images
    return image


@pytest.mark.parametrize("target", TARGETS)
def test_a_file_is_read_and_written_again(target):
    image = compiled(target)
    data = image.to_bytes()
    again = hexane.open_image(data)
    assert again.generation == target
    assert again.to_bytes() == data == again.rebuild()
    assert (again.surfaces, again.const, again.kernel_section) == (image.surfaces, image.const, image.kernel_section)
    assert again.kernel_channel == image.kernel_channel
    assert [task.words() for task in again.tasks] == [task.words() for task in image.tasks]
    wanted = hexane.emulate(image, INPUTS)["y"]
    np.testing.assert_array_equal(hexane.emulate(data, INPUTS)["y"].view(np.uint16), wanted.view(np.uint16))


@pytest.mark.parametrize("target", TARGETS)
def test_a_listing_gives_the_program_again(target):
    image = compiled(target)
    again = assemble_image(disassemble_image(image))
    assert [task.words() for task in again.tasks] == [task.words() for task in image.tasks]
    wanted = hexane.emulate(image, INPUTS)["y"]
    np.testing.assert_array_equal(hexane.emulate(again, INPUTS)["y"].view(np.uint16), wanted.view(np.uint16))


@pytest.mark.parametrize("target", TARGETS)
def test_weights_are_read_and_replaced(target):
    image = compiled(target)
    (first, *_) = [reading for reading in read_kernels(image) if "weights" in reading.arrays]
    np.testing.assert_array_equal(first.arrays["weights"], WEIGHTS[0])
    changed = with_kernels(image, {first.task: {"weights": WEIGHTS[1]}})
    wanted = hexane.emulate(compiled(target, WEIGHTS[1]), INPUTS)["y"]
    got = hexane.emulate(hexane.open_image(changed.to_bytes()), INPUTS)["y"]
    np.testing.assert_array_equal(got.view(np.uint16), wanted.view(np.uint16))


@pytest.mark.parametrize("target", TARGETS)
def test_slots_can_be_exchanged(target):
    """Inputs that take each other's slots are each other's values: a - b becomes b - a."""
    image = compiled(target)
    slots = {surface.name: surface.channel for surface in image.surfaces if surface.role == "input"}
    assert channels_used(image.tasks) == {
        surface.channel: {surface.role} for surface in image.surfaces if surface.channel is not None
    }
    tasks = renumbered(image.tasks, {slots["a"]: slots["b"], slots["b"]: slots["a"]})
    swapped = image.replace(tasks=tasks)
    exchanged = {"a": INPUTS["b"], "b": INPUTS["a"]}
    wanted = hexane.emulate(image, exchanged)["y"]
    np.testing.assert_array_equal(hexane.emulate(swapped, INPUTS)["y"].view(np.uint16), wanted.view(np.uint16))


@pytest.mark.parametrize("target", TARGETS)
def test_a_report_names_what_each_task_does(target):
    report = run(compiled(target), INPUTS, observe=True).report
    operations = " | ".join(task.operation for task in report.tasks)
    assert "sub" in operations and "conv 3x3" in operations and "table" in operations
    assert {task.unit for task in report.tasks} == {"PE", "NE"}
