"""What a program computes stays the same in another container, as a package, linked and cut."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

import hexane
from facts import fact_params
from hexane.image import Image, cut, link, to_anec
from hexane.image.text import assemble_image, disassemble_image


def values_for(image: Image) -> list[np.ndarray]:
    numbers = count(-3)
    return [
        (np.arange(np.prod(s.shape)).reshape(s.shape) % 17 / 4 + next(numbers)).astype(np.float16) for s in image.inputs
    ]


def results(image: Image, values: list[np.ndarray], order: list[str] | None = None) -> list[np.ndarray]:
    """Outputs in the order of their surfaces; inputs by label, or in order where a package has no names."""
    names = [s.name for s in image.inputs]
    labels = {s.name: s.label for s in image.inputs}
    if order is not None and set(order) == set(labels.values()):
        inputs = {name: values[order.index(labels[name])] for name in names}
    else:
        inputs = dict(zip(names, values))
    return list(hexane.emulate(image, inputs).values())


@pytest.mark.slow
@pytest.mark.parametrize("path", fact_params("hwx/*.hwx"))
def test_the_container_does_not_matter(path) -> None:
    image = hexane.open_image(path)
    values, order = values_for(image), [s.label for s in image.inputs]
    expected = results(image, values, order)
    others = {
        "today's dialect": image.replace(dialect="default"),
        "package": to_anec(image),
        "text": assemble_image(disassemble_image(image)),
        "cut out of three": cut(link(image, image, image), len(image.tasks), 2 * len(image.tasks)),
    }
    for what, other in others.items():
        found = results(hexane.open_image(other.to_bytes()), values, order)
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True)), what


@pytest.mark.parametrize("path", fact_params("hwx/relu_w77.hwx"))
def test_linked_programs_run_one_after_the_other(path) -> None:
    """relu, then the same task without ReLU and with the factor 2."""
    first = hexane.open_image(path)
    second = first.with_surface("probs@output", name="last").with_surface("image", name="probs")
    second.tasks[0].NE.MACCfg.NonlinearMode = "none"
    second.tasks[0].NE.PostScale.PostScale = 0x4000
    x = np.linspace(-5, 5, 77).astype(np.float16).reshape(1, 1, 1, 77)
    outputs = hexane.emulate(hexane.open_image(link(first, second).to_bytes()), {"image": x})
    last = next(value for name, value in outputs.items() if name.startswith("last"))
    assert np.array_equal(last, np.maximum(x, 0) * 2)
