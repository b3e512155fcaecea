"""Nothing is predicted faster than physics allows: peak arithmetic, and compulsory bytes over the memory's peak."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from functools import cache
from math import prod
from typing import NamedTuple

import pytest

import hexane
from facts import fact_files, fact_folder
from formats.zoo import ZOO, light_model
from hexane.chips import CHIPS, Chip, get
from hexane.chips.measured import values
from hexane.cost.model import engines_used, tile_count, time_work
from hexane.cost.units import STREAM_SHARE, bound_us, weight_rate
from hexane.cost.work import Layer, Work
from hexane.errors import HexaneError, UnsupportedError
from hexane.formats.mil.reader import parse_mil
from hexane.graph import Graph, GraphBuilder, Op
from hexane.timing.from_graph import work_of
from hexane.timing.job import job_of
from hexane.timing.rows import blank

WINOGRAD_LEAST = 4 / 9
"""Multiplications of F(2x2, 3x3) over those of the plain form."""


@cache
def forms(engines: int) -> tuple[tuple[Layer, int], ...]:
    """Every form of a layer in the networks, with the engines that its program uses."""
    chip = next(chip for chip in CHIPS if (chip.name == "M6") == (engines == 2))
    found = {}
    for network in networks():
        layers = network.work.layers
        used = engines_used(layers, chip)
        found.update({(layer.form, used): (layer, used) for layer in layers})
    return tuple(found.values())


@pytest.mark.parametrize("chip", CHIPS, ids=str)
def test_no_op_of_any_network_is_faster_than_its_bound(chip):
    layers = forms(2 if chip.name == "M6" else 1)
    assert len(layers) > 500
    for layer, engines in layers:
        (timed,) = time_work(Work((layer,)), chip, values(chip), engines=engines)
        bound = bound_us(layer, chip, engines)
        assert timed.cost.us >= bound, layer
        assert bound > 0 or layer.unit not in ("mac", "runtime"), layer


@pytest.mark.parametrize("chip", CHIPS, ids=str)
def test_no_weights_stream_faster_than_the_memory(chip):
    if chip.dram_gbs is None:
        assert chip.name == "M6"
    else:
        assert weight_rate(chip, values(chip)) <= STREAM_SHARE * chip.dram_gbs * 1e3


@pytest.mark.parametrize(
    ("count", "pixels", "tiles"),
    [(40, 2048, 2), (96, 4096, 3), (40, 24576, 13), (3, 2047, 1), (2, 4095, 1), (2, 4096, 2)],
)
def test_tiles_of_a_chain_as_on_an_m6(count, pixels, tiles):
    """A tile per whole MiB, of two layers per 2 MiB, and one more.

    40 to 96 layers of 256 channels, 1x2048 to 1x24576, were measured.
    """
    layer = Layer("x", "conv", "mac", pixels=pixels, cin=256, cout=256, in_bytes=512.0 * pixels, count=count)
    assert tile_count(Work((layer,), chain=True)) == tiles
    assert tile_count(Work((layer,))) == 1


def test_a_bound_counts_weights_and_edges_but_nothing_between():
    chip = next(chip for chip in CHIPS if chip.name == "A14")
    layer = Layer("x", "conv", "mac", pixels=64, cin=1024, cout=1024, weight_bytes=2.0**21, dense_bytes=2.0**21,
                  in_bytes=2.0**17, out_bytes=2.0**17)  # fmt: skip
    bound = bound_us(layer, chip)
    assert bound == pytest.approx((2**21 + 2 * 1024) / 34.1e3)
    edge = bound_us(Layer(**{**_fields(layer), "reads_input": True}), chip)
    assert edge == pytest.approx(bound + 2**17 / 34.1e3)


@pytest.mark.parametrize("size, what", [(56, "arithmetic"), (1, "compulsory bytes")])
def test_an_estimate_says_what_no_program_can_be_below(size, what):
    """Two convolutions: the array does all of both, the map between them need not leave the chip."""
    b = GraphBuilder(opset="ios17")
    x = b.input("x", (1, 512, size, size), "fp16")
    for _ in range(2):
        x = b.conv(x=x, weight=blank(b, "fp16", (512, 512, 1, 1)), pad_type="same")
    b.output(x)
    found, chip = hexane.estimate(b.graph, "M1"), get("M1")
    macs, moved = 2 * 512 * 512 * size**2, 2 * 2 * (512 * 512 + 512) + 2 * 2 * 512 * size**2
    array = macs / (16 * 256 * chip.clock_mhz)
    assert found.bound_us == pytest.approx(max(array, moved / (chip.dram_gbs * 1e3)))
    assert found.bound_us <= found.engine_us
    assert any(f"at least {found.bound_us:.1f} us: {what}" in note for note in found.notes)


def _fields(layer: Layer) -> dict[str, object]:
    names = "name op unit pixels cin cout weight_bytes dense_bytes in_bytes out_bytes".split()
    return {name: getattr(layer, name) for name in names}


def multiplications(op: Op) -> int:
    """Of a convolution or a product of matrices, counted from shapes."""
    if op.type == "conv":
        return prod(op.output.shape) * prod(op.arg("weight").shape[1:])
    if op.type == "conv_transpose":
        return prod(op.arg("x").shape) * prod(op.arg("weight").shape[1:])
    if op.type == "linear":
        return prod(op.output.shape) * op.arg("x").shape[-1]
    if op.type == "matmul":
        return prod(op.output.shape) * op.arg("x").shape[-2 if op.arg("transpose_x") else -1]
    return 0


def bytes_of_kernels(ops: Iterable[Op]) -> int:
    """Each distinct fp16 kernel once; compressed ones, whose streams are shorter, are left out."""
    kernels = {op.arg("weight") for op in ops if op.type in ("conv", "linear")}
    return sum(2 * prod(kernel.shape) for kernel in kernels if kernel.is_constant and kernel.dtype in ("fp16", "fp32"))


def require_bounded(work: Work, chip: Chip) -> None:
    """Every layer, timed among its neighbours, takes no less than its own bound.

    A task that runs patch by patch behind one of the other unit counts for what it takes longer: the two together take
    no less than either.
    """
    engines, together = engines_used(work.layers, chip), 0.0
    for layer, timed in zip(work.layers, time_work(work, chip, values(chip), engines=engines), strict=True):
        together = timed.cost.us + (together if layer.follows else 0.0)
        assert together >= bound_us(layer, chip, engines) * (1 - 1e-12), (layer, chip.name)


class Network(NamedTuple):
    """A network as the model sees it, and what is counted here of it."""

    name: str
    work: Work
    multiplications: int
    kernel_bytes: int
    eight_bits: bool

    @classmethod
    def of(cls, name: str, graph: Graph) -> Network:
        ops = [op for op in graph.main.walk() if all(None not in value.shape for value in op.outputs)]
        eight_bits = any(op.type == "quantize" for op in ops)
        return cls(name, work_of(graph), sum(map(multiplications, ops)), bytes_of_kernels(ops), eight_bits)

    def require_possible(self, chip: Chip) -> None:
        """Predicted to take no less than its multiplications at the peak, and its kernels over the memory."""
        engines = engines_used(self.work.layers, chip)
        share = (WINOGRAD_LEAST if chip.winograd else 1) * (1 / 2 if self.eight_bits else 1)
        rate = chip.generation.cores * chip.macs_per_core_cycle * chip.clock_mhz * engines
        least = max(
            share * self.multiplications / rate, self.kernel_bytes / (chip.dram_gbs * 1e3) if chip.dram_gbs else 0
        )
        timed = time_work(self.work, chip, values(chip), engines=engines)
        assert sum(layer.us for layer in timed) >= least, (self.name, chip.name)
        require_bounded(self.work, chip)


@cache
def networks() -> tuple[Network, ...]:
    """The packed networks of other people."""
    with zipfile.ZipFile(fact_folder() / "perf" / "networks.zip") as packed:
        return tuple(Network.of(name, parse_mil(packed.read(name).decode())) for name in packed.namelist())


@pytest.mark.parametrize("index", range(len(CHIPS)), ids=[chip.name for chip in CHIPS])
def test_some_networks_are_not_faster_than_their_arithmetic(index):
    for network in networks()[index :: len(CHIPS)]:
        network.require_possible(CHIPS[index])


@pytest.fixture(scope="module")
def more(tmp_path_factory) -> tuple[Network, ...]:
    """Those, nine networks of the zoo, and every text of the facts that has a product."""
    found = list(networks())
    for name in ZOO:
        file = tmp_path_factory.mktemp("zoo") / f"{name}.onnx"
        file.write_bytes(light_model(name).SerializeToString())
        found.append(Network.of(name, hexane.load(file)))
        file.unlink()
    for path in fact_files("mil/**/*.mil"):
        try:
            graph = parse_mil(path.read_text())
        except HexaneError:
            continue  # texts that Apple's compiler refuses are facts too
        network = Network.of(path.name, graph)
        found += [network] if network.multiplications else []
    return tuple(found)


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS, ids=str)
def test_no_network_is_faster_than_its_arithmetic(more, chip):
    assert len(more) >= 60
    for network in more:
        network.require_possible(chip)


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_no_task_of_a_compiled_network_is_faster_than_its_bound(name, tmp_path):
    (tmp_path / "x.onnx").write_bytes(light_model(name).SerializeToString())
    graph, jobs = hexane.load(tmp_path / "x.onnx"), {}
    for chip in CHIPS:
        generation = chip.generation_name
        if generation not in jobs:
            try:
                jobs[generation] = job_of(hexane.compile(graph, chip=chip), chip)
            except UnsupportedError:  # no program is written for it
                continue
        for work in jobs[generation].launches:
            require_bounded(work, chip)
    assert len(jobs) >= 4
