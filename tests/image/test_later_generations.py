"""Programs of H14 to H18 are files like others: written, read, printed, assembled, edited, emulated."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.emulator import run
from hexane.errors import UnsupportedError
from hexane.graph import GraphBuilder
from hexane.image import to_anec
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


def test_a_package_of_h14_comes_back():
    """ABI 2: the header of ABI 1, one output in slot 4, inputs behind it, constants at a multiple of 64."""
    image = compiled("h14")
    package = to_anec(image)
    data = package.to_bytes()
    again = hexane.open_image(data)
    assert (again.generation, again.dialect) == ("h14", "anec")
    assert again.to_bytes() == data == again.rebuild()
    assert [surface.channel for surface in again.outputs] == [4]
    assert [surface.channel for surface in again.inputs] == [5, 6]
    header = again.parts.header
    assert (header.td_count, header.td_size) == (len(image.tasks), image.tasks[0].size)
    at = 0x1000 + -(-header.tsk_size // 64) * 64
    assert data[at : at + header.krn_size] == image.const
    assert data[0x1000:0x1010] == bytes(16)
    names = {surface.channel: surface.label for surface in again.surfaces}
    order = sorted((surface.channel, surface.name) for surface in image.surfaces if surface.role == "input")
    inputs = {names[5 + i]: INPUTS[name] for i, (_, name) in enumerate(order)}
    wanted = hexane.emulate(image, INPUTS)["y"]
    got = hexane.emulate(again, inputs)[names[4]]
    np.testing.assert_array_equal(got.view(np.uint16), wanted.view(np.uint16))


@pytest.mark.parametrize("target", ["h15", "h16"])
def test_later_packages_are_refused_by_name(target):
    with pytest.raises(UnsupportedError, match=f"this is one for {target}"):
        to_anec(compiled(target))
