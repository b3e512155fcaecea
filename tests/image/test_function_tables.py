"""Another function in a program: Apple's sigmoid from Apple's relu, and the bits of a program compiled for it."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from facts import fact_folder
from hexane.errors import HexaneError
from hexane.graph import GraphBuilder
from hexane.image import diff_images
from hexane.image.function_tables import with_tables


def program(kind: str, channels: int = 40, chip: str = "M1") -> hexane.Image:
    b = GraphBuilder()
    b.output(getattr(b, kind)(x=b.input("x", (1, channels, 8, 8), "fp16"), name="y"))
    return hexane.compile(b.graph, chip=chip).images[0]


def test_apples_relu_becomes_apples_sigmoid() -> None:
    relu, sigmoid = (hexane.open_image(fact_folder() / "hwx" / f"{name}_w77.hwx") for name in ("relu", "sigmoid"))
    made = with_tables(relu, ["sigmoid"]).replace(ident=sigmoid.ident)
    assert made.rebuild() == sigmoid.to_bytes()
    assert relu.tasks[0].get("NE.MACCfg.NonlinearMode") == 1, "the program that was given stays as it is"


@pytest.mark.parametrize("channels", [1, 5, 40, 512])
def test_on_every_core_that_works(channels: int) -> None:
    x = np.random.default_rng(channels).normal(size=(1, channels, 8, 8)).astype(np.float16) * 3
    (made,) = hexane.emulate(with_tables(program("relu", channels), ["task[0]=sigmoid"]), {"x": x}).values()
    (expected,) = hexane.emulate(program("sigmoid", channels), {"x": x}).values()
    assert np.array_equal(made, expected)
    assert np.allclose(made.astype(float), 1 / (1 + np.exp(-x.astype(float))), atol=5e-3)  # the table is this far off


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_a_table_in_the_place_of_another(chip: str) -> None:
    made = with_tables(program("sigmoid", chip=chip), ["tanh"])
    assert diff_images(made, program("sigmoid", chip=chip))
    x = np.linspace(-3, 3, 2560).astype(np.float16).reshape(1, 40, 8, 8)
    assert np.allclose(next(iter(hexane.emulate(made, {"x": x}).values())), np.tanh(x.astype(float)), atol=5e-3)


@pytest.mark.parametrize(
    ("image", "option"),
    [("relu", "sine"), ("relu", "task[7]=tanh"), ("relu", "task[0]"), ("relu on M4", "tanh"), ("conv_3to3", "tanh")],
)
def test_what_is_refused(image: str, option: str) -> None:
    given = program("relu", chip="M4") if image.endswith("M4") else program("relu")
    if image == "conv_3to3":
        given = hexane.open_image(fact_folder() / "hwx" / "conv_3to3.hwx")
    with pytest.raises(HexaneError):
        with_tables(given, [option])
