"""Cost of one layer on one chip: arithmetic, weights, activations, planar work (docs/timing.md).

Constants may come as numbers or as arrays of numbers: a fit moves each constant a little and gets all times at once.
So rules choose between constants by ``larger`` and ``smaller`` and never branch on one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from hexane.chips import Chip
from hexane.cost.kernel import KernelCost, kernel_of
from hexane.cost.work import Layer
from hexane.frozen import slot_init

FURTHER_TASK_US = 0.013
"""A further task descriptor costs at most this on an M6. SILICON."""
PLANAR_CLOCK_MHZ = 2580.0
"""Clock of the neural cores (M6) that the planar rates are given for."""
PLANAR_ONLY = ("unary", "binary", "reduce", "pool", "move")
"""Units that run on the planar engine alone; softmax and norms alternate with the neural cores."""
PORT_BYTES = 64
"""What the on-chip store delivers per cycle and direction. Dense layers share it among many outputs and do not feel it;
a depth-wise layer uses each value once. INFERRED: nobody has published a time of one."""
PORT_CLOCK = 0.72
"""The store's clock over the neural cores': 1.81 to 2.51 GHz on M6, 1.78 to 2.36 on M4."""
STREAM_SHARE = 0.9
"""Share of a memory's peak that a weight stream reaches at most: 59 of 68.3 GB/s on M1, the chip whose stream comes
nearest. INFERRED for others; 0.9 halves the error of A14 and A15, 1.0 and 0.8 leave more (docs/timing.md)."""
TABLE_US = 1.95
"""Each palette that a core takes up, beside its stream. SILICON, A17 Pro: a decoder of 493,000 outputs takes 59.1 ms
with a table for each output and 30.7 with one for two (1.92 and 1.99 us for each table of a core), 17.1 with one for
four, where the stream takes 14.8 (coremltools' guides, OPT-1.3B)."""
WINOGRAD_MOST = 1.5
"""What a one-dimensional F(2,3) transform saves at most (docs/reference/numerics.md 6)."""
Numbers = Mapping[str, Any]


def larger(a: Any, b: Any) -> Any:
    """The larger of two numbers, or of two arrays place by place."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.maximum(a, b)
    return a if a > b else b


def smaller(a: Any, b: Any) -> Any:
    """The smaller of two numbers, or of two arrays place by place."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.minimum(a, b)
    return a if a < b else b


@slot_init
@dataclass(frozen=True, slots=True)
class LayerCost:
    """Times of one repetition of a layer in microseconds, and the bytes behind them.

    ``us`` is what the layer takes: the longer of arithmetic and DMA (they overlap inside a task), plus ``extra_us``.
    ``unit`` names what computes: the ``array`` of the neural cores or the ``planar engine``.
    """

    us: float
    compute_us: float
    weights_us: float
    activations_us: float
    extra_us: float
    dma_bytes: float
    unit: str = "array"

    @property
    def bottleneck(self) -> str:
        """The largest part: the ``unit`` that computes, ``weights``, ``activations`` or ``overhead``."""
        parts = {
            self.unit: self.compute_us,
            "weights": self.weights_us,
            "activations": self.activations_us,
            "overhead": self.extra_us,
        }
        return max(parts, key=lambda name: parts[name])


def stream_factor(chip: Chip, c: Numbers) -> Any:
    """Rate at which a chip streams, over a base chip of its generation."""
    return c["big_chip_stream"] if chip.wide_stream else 1.0


def weight_rate(chip: Chip, c: Numbers) -> Any:
    """Bytes per microsecond of the weight stream, one pool for all engines."""
    rate = c["weights_gbs"] * stream_factor(chip, c) * 1e3
    return rate if chip.dram_gbs is None else smaller(rate, STREAM_SHARE * chip.dram_gbs * 1e3)


def bounds_us(layer: Layer, chip: Chip, engines: int = 1, clock_mhz: float | None = None) -> tuple[float, float]:
    """Least times of one repetition of a layer: arithmetic at the array's peak, compulsory bytes at the memory's peak.

    Compulsory are weights, and what a program is handed and hands out: whatever lies between may stay on the chip.
    """
    traffic = layer.in_bytes * layer.reads_input + layer.out_bytes * layer.writes_output
    array = 0.0
    if layer.unit in ("mac", "runtime"):
        rate = chip.generation.cores * chip.macs_per_core_cycle * (clock_mhz or chip.clock_mhz) * engines
        array = layer.macs / layer.count / rate
    if layer.unit == "mac":
        kernel = kernel_of(layer, chip)
        array *= layer.density / (2 if layer.int8 else 1)
        array /= WINOGRAD_MOST if is_winograd(layer, kernel, chip) else 1
        traffic += 0.0 if layer.weight_key is not None and kernel.resident else kernel.stored_bytes
    return array, traffic / (chip.dram_gbs * 1e3) if chip.dram_gbs else 0.0


def bound_us(layer: Layer, chip: Chip, engines: int = 1, clock_mhz: float | None = None) -> float:
    """Least time of one repetition of a layer, the longer of `bounds_us`."""
    return max(bounds_us(layer, chip, engines, clock_mhz))


def palette_bytes(stored: float, weights: float, chip: Chip) -> float:
    """Stream of a palette: on M6 indices of 3 and 6 bits take the time of 4 and 8. SILICON, M6 only."""
    if not chip.generation.whole_indices or not weights:
        return stored
    bits = 8 * stored / weights
    return stored * next((width for width in (1, 2, 4, 8) if bits <= width * 1.05), bits) / bits


def activation_rate(c: Numbers, engines: int) -> Any:
    """Bytes per microsecond of activation DMA."""
    return c["activations_gbs"] * 1e3 * engines


def is_winograd(layer: Layer, kernel: KernelCost, chip: Chip) -> bool:
    """Dense fp16 3x3 and 1x3 at stride 1 from H17 on."""
    return (
        chip.winograd
        and (layer.kh, layer.kw) in ((3, 3), (1, 3))
        and layer.stride == layer.dilation == layer.groups == 1
        and kernel.density == 1
        and not layer.int8
    )


@dataclass(frozen=True)
class OperatingPoint:
    """A chip with constants (names of ``hexane.timing.parameters``), the engines that share a layer, and their clock.

    ``chain``: layers one behind the other, ``tiles``: pieces of a map.
    """

    chip: Chip
    numbers: Numbers
    engines: int
    clock_mhz: float
    chain: bool = False
    tiles: int = 1


def compute_us(layer: Layer, kernel: KernelCost, at: OperatingPoint) -> Any:
    """Array time of a convolution or linear layer.

    A layer of one row is bound by the rows that the array takes at least, whatever its weights are stored in: 4096 to
    4096 channels take 108 us in int8 and in 4 bits alike on an M5 Max (64 rows' worth of arithmetic: 111), and 26 us in
    1 bit on an M6 (16 rows': 26).
    """
    chip, c, engines, tiles = at.chip, at.numbers, at.engines, at.tiles
    pixels = layer.pixels / engines
    unit = chip.generation.pixel_unit
    pixels = max(ceil(pixels / unit) * unit if pixels < 256 else pixels, unit)
    rounds = ceil(layer.cout / chip.generation.cores)
    cycles: Any = pixels * layer.cin / layer.groups * kernel.taps * rounds / chip.macs_per_core_cycle
    cycles = cycles / smaller(c["mac_rate"], 1.0)
    if engines > 1 and tiles > 1:
        cycles = cycles * (ceil(tiles / engines) * engines / tiles) / c["mac_rate_tiled"]
    if layer.int8:
        cycles = cycles / (2 * c["int8_rate"])
    if is_winograd(layer, kernel, chip):
        cycles = cycles / c["winograd_gain"]
    if kernel.density < 1:
        cycles = cycles * (c["sparse_base"] + c["sparse_slope"] * kernel.density)
    if layer.groups > 1:
        cycles = larger(cycles, max(layer.in_bytes, layer.out_bytes) / (PORT_BYTES * PORT_CLOCK * engines))
    return cycles / at.clock_mhz


def _weights_us(layer: Layer, kernel: KernelCost, chip: Chip, c: Numbers, engines: int) -> tuple[Any, float, Any]:
    """Microseconds of the weight stream, bytes, and halo time of a layer cut by rows over two engines."""
    copies, halo = 1, 0.0
    cut_by_channel = kernel.blocks % 2 == 0 and not is_winograd(layer, kernel, chip)
    if engines > 1 and not cut_by_channel:
        copies = engines
        halo = c["halo_us"] if layer.kh > 1 else 0.0
    if layer.weight_key is not None and kernel.resident:  # one set for several layers, read once
        return 0.0, 0.0, halo
    rate = weight_rate(chip, c)
    wide = layer.kh * layer.kw == 1 and layer.cin >= 4096 and layer.cin & (layer.cin - 1) == 0
    if chip.generation.slow_power_of_two and layer.op == "conv" and wide and 32 <= layer.pixels < 256:
        rate = c["weights_power_of_two_gbs"] * 1e3
    bytes_ = kernel.stored_bytes * copies
    if layer.weight_format == "palette":
        bytes_ = palette_bytes(kernel.stored_bytes, kernel.weights, chip) * copies
        return bytes_ / rate * c["palette_stream"], bytes_, halo
    return bytes_ / rate * (c["sparse_stream"] if layer.weight_format == "sparse" else 1.0), bytes_, halo


def _traffic(layer: Layer, kernel: KernelCost, chip: Chip, engines: int, chain: bool) -> float:
    """Activation bytes that cross to memory; an input that L2 does not hold is read in every kernel pass."""
    room = chip.generation.l2_bytes * engines
    passes = kernel.passes if layer.in_bytes >= 0.95 * room else 1
    if chain and layer.int8 and engines > 1:  # quantised activations leave the chip between layers
        return kernel.passes * layer.in_bytes + layer.out_bytes
    inside = not (chain or layer.placed or layer.reads_input or layer.writes_output)
    if inside and layer.in_bytes + layer.out_bytes > room:
        return passes * layer.in_bytes + layer.out_bytes
    return (passes * layer.in_bytes if layer.reads_input else 0) + (layer.out_bytes if layer.writes_output else 0)


def _mac(layer: Layer, at: OperatingPoint) -> LayerCost:
    chip, c, engines = at.chip, at.numbers, at.engines
    kernel = kernel_of(layer, chip)
    compute = compute_us(layer, kernel, at)
    weights, weight_bytes, halo = _weights_us(layer, kernel, chip, c, engines)
    traffic = _traffic(layer, kernel, chip, engines, at.chain)
    activations = traffic / activation_rate(c, engines)
    extra = halo + FURTHER_TASK_US + (c["engine_sync_us"] if engines > 1 else 0.0)
    us = larger(compute, weights + activations)
    if layer.tables > 1:
        us = larger(us, ceil(layer.tables / chip.generation.cores) * TABLE_US)
    return LayerCost(us + extra, compute, weights, activations, extra, weight_bytes + traffic)


def _runtime(layer: Layer, chip: Chip, c: Numbers, engines: int, clock_mhz: float) -> LayerCost:
    compute = layer.macs / layer.count / (chip.generation.cores * chip.macs_per_core_cycle * clock_mhz)
    compute = compute / c["runtime_rate"]
    edge = layer.reads_input or layer.writes_output
    traffic = layer.in_bytes + layer.out_bytes
    if not edge and traffic <= chip.generation.l2_bytes:
        traffic = 0.0
    if layer.placed:
        traffic = (layer.in_bytes if layer.reads_input else 0.0) + (layer.out_bytes if layer.writes_output else 0.0)
    activations = traffic / activation_rate(c, engines)
    extra = layer.batches * c["runtime_task_us"]  # while one matrix multiplies, the operands of the next come in
    return LayerCost(larger(compute + extra, activations), compute, 0.0, activations, extra, traffic)


def element_us(layer: Layer, chip: Chip, c: Numbers, engines: int, chain: bool) -> Any:
    """Microseconds of one element on one engine.

    Work of the planar engine alone goes with its clock, which keeps a fixed share of the neural cores'.
    """
    short = 0 < layer.axis < chip.generation.reduce_by_transpose
    planar_clock = 1e3 * chip.clock_mhz / PLANAR_CLOCK_MHZ
    one_pass = 1 / (c["unary_rate"] * planar_clock)
    if layer.op == "rms_norm" and layer.batches:
        return c["rms_row_us"] * layer.batches / layer.elements + one_pass
    if rounds := norm_rounds(layer):
        return rounds * (1 / (c["reduce_rate"] * planar_clock) + one_pass)
    if layer.unit == "softmax":
        return 1 / (c["short_softmax_rate" if short else "softmax_rate"] * 1e3)
    if layer.unit == "norm":
        return 1 / (c["short_norm_rate" if short else "layer_norm_rate"] * 1e3)
    if layer.unit == "binary":
        large = chain and layer.in_bytes > 0.65 * chip.generation.l2_bytes * engines
        rate = smaller(c["binary_rate"], c["binary_large_rate"]) if large else c["binary_rate"]
        return 1 / (rate * planar_clock)
    rate = c[f"{layer.unit}_rate"]
    return 1 / (rate * (planar_clock if layer.unit in PLANAR_ONLY else 1e3))


def norm_rounds(layer: Layer) -> int:
    """Sums of a norm, each with a pass over the map behind it; 0 where its tasks are timed together.

    The sum of squares and the scale; of a layer norm over a map the mean and the difference before (APPLE,
    docs/reference/engine-h13.md 13; its times on maps: docs/timing.md).
    """
    if layer.op in ("rms_norm", "l2_norm"):
        return 1
    return 2 if layer.op == "layer_norm" and not layer.batches else 0


def _planar(layer: Layer, chip: Chip, c: Numbers, engines: int, chain: bool) -> LayerCost:
    compute = layer.elements / engines * element_us(layer, chip, c, engines, chain)
    inside = not (chain or layer.placed or layer.reads_input or layer.writes_output)
    traffic = (layer.in_bytes if layer.reads_input else 0) + (layer.out_bytes if layer.writes_output else 0)
    if inside and layer.in_bytes + layer.out_bytes > chip.generation.l2_bytes * engines:
        traffic = layer.in_bytes + layer.out_bytes
        if layer.unit == "binary" and not chip.small_cache:
            traffic -= chip.generation.l2_bytes * engines
    extra = c["binary_task_us" if layer.unit == "binary" else "unary_task_us"]
    extra = extra * max(2 * norm_rounds(layer), 1)
    if chip.generation.caches_maps:
        cache = c["cache_mb"] * 1e6
        activations = smaller(traffic, cache) / (c["cache_gbs"] * 1e3 * engines)
        activations = activations + larger(traffic - cache, 0) / (c["planar_dram_gbs"] * 1e3 * engines)
        us = compute + activations if chain else larger(compute, activations)
    else:
        activations = traffic / activation_rate(c, engines)
        us = larger(compute, activations)
    return LayerCost(us + extra, compute, 0.0, activations, extra, traffic, "planar engine")


def layer_cost(layer: Layer, at: OperatingPoint) -> LayerCost:
    """The cost of one repetition of a layer; never below ``bound_us``, whatever the constants are."""
    cost = _cost(layer, at)
    us = larger(cost.us, bound_us(layer, at.chip, at.engines, at.clock_mhz))
    return cost if us is cost.us else replace(cost, us=us)


def _cost(layer: Layer, at: OperatingPoint) -> LayerCost:
    c = at.numbers
    if layer.unit == "mac":
        return _mac(layer, at)
    if layer.unit == "runtime":
        return _runtime(layer, at.chip, c, at.engines, at.clock_mhz)
    if layer.unit == "sdpa":
        us = layer.elements * c["sdpa_row_us"]
        return LayerCost(us, us, 0.0, 0.0, 0.0, 0.0)
    if layer.unit == "topk":
        return LayerCost(c["topk_us"], c["topk_us"], 0.0, 0.0, 0.0, 0.0, "planar engine")
    return _planar(layer, at.chip, c, at.engines, at.chain)
