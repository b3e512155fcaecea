"""Nothing is predicted faster than physics allows: peak arithmetic, and compulsory bytes over the memory's peak."""

from __future__ import annotations

import zipfile
from functools import cache

import pytest

from facts import fact_folder
from hexane.chips import CHIPS
from hexane.chips.measured import values
from hexane.cost.model import engines_used, time_work
from hexane.cost.units import STREAM_SHARE, bound_us, weight_rate
from hexane.cost.work import Layer, Work
from hexane.formats.mil.reader import parse_mil
from hexane.timing.from_graph import work_of


@cache
def works() -> tuple[Work, ...]:
    with zipfile.ZipFile(fact_folder() / "perf" / "networks.zip") as packed:
        return tuple(work_of(parse_mil(packed.read(name).decode())) for name in packed.namelist())


@cache
def forms(engines: int) -> tuple[tuple[Layer, int], ...]:
    """Every form of a layer in the networks, with the engines that its program uses."""
    chip = next(chip for chip in CHIPS if (chip.name == "M6") == (engines == 2))
    found = {}
    for work in works():
        used = engines_used(work.layers, chip)
        found.update({(layer.form, used): (layer, used) for layer in work.layers})
    return tuple(found.values())


@pytest.mark.parametrize("chip", CHIPS, ids=str)
def test_no_op_of_any_network_is_faster_than_its_bound(chip):
    layers = forms(2 if chip.name == "M6" else 1)
    assert len(layers) > 500
    for layer, engines in layers:
        (timed,) = time_work(Work((layer,)), chip, values(chip), engines=engines)
        assert timed.cost.us >= bound_us(layer, chip, engines) > 0 or layer.unit not in ("mac", "runtime")


@pytest.mark.parametrize("chip", CHIPS, ids=str)
def test_no_weights_stream_faster_than_the_memory(chip):
    if chip.dram_gbs is None:
        assert chip.name == "M6"
    else:
        assert weight_rate(chip, values(chip)) <= STREAM_SHARE * chip.dram_gbs * 1e3


def test_a_bound_counts_weights_and_edges_but_nothing_between():
    chip = next(chip for chip in CHIPS if chip.name == "A14")
    layer = Layer("x", "conv", "mac", pixels=64, cin=1024, cout=1024, weight_bytes=2.0**21, dense_bytes=2.0**21,
                  in_bytes=2.0**17, out_bytes=2.0**17)  # fmt: skip
    bound = bound_us(layer, chip)
    assert bound == pytest.approx((2**21 + 2 * 1024) / 34.1e3)
    edge = bound_us(Layer(**{**_fields(layer), "reads_input": True}), chip)
    assert edge == pytest.approx(bound + 2**17 / 34.1e3)


def _fields(layer: Layer) -> dict[str, object]:
    names = "name op unit pixels cin cout weight_bytes dense_bytes in_bytes out_bytes".split()
    return {name: getattr(layer, name) for name in names}
