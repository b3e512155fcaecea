"""What one layer costs on one chip: arithmetic, weights, activations, planar work (spec/performance §4-§7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from hexane.chips import CORES, KERNEL_BYTES_PER_CORE, L2_BYTES, Chip
from hexane.timing.work import Layer

FURTHER_TASK_US = 0.013
"""A further task descriptor costs at most this on an M6 (spec/performance §7)."""
PLANAR_CLOCK_MHZ = 2580.0
"""Clock of the neural cores (M6) that the planar rates are given for."""
PLANAR_ONLY = ("unary", "binary", "reduce", "pool", "move")
"""Units that run on the planar engine alone; softmax and norms alternate with the neural cores (§7)."""
PACKED = ("palette", "sparse")
Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Cost:
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


def weight_rate(c: Numbers) -> float:
    """Bytes per microsecond of the weight stream, one pool for all engines (§5.1)."""
    return c["weights_gbs"] * 1e3


def activation_rate(c: Numbers, engines: int) -> float:
    """Bytes per microsecond of activation DMA (§6.2)."""
    return c["activations_gbs"] * 1e3 * engines


def kernel_passes(layer: Layer) -> int:
    """Passes over the kernel memory: output channels that fit a core's 64 KiB at a time (§5.2)."""
    width = 1 if layer.int8 else 2
    per_channel = layer.cin * layer.kh * layer.kw * width / layer.groups
    fit = 1
    while fit < 16 and 2 * fit * per_channel <= KERNEL_BYTES_PER_CORE:
        fit *= 2
    return ceil(layer.cout / (CORES * fit))


def is_rewritten(layer: Layer, chip: Chip) -> bool:
    """Kernels 9 to 15 wide run as two shifted copies at stride 2 on H16 and later (§4.1)."""
    return layer.kw >= 9 and chip.generation_name in ("h16", "h17", "h18", "h19")


def is_winograd(layer: Layer, chip: Chip) -> bool:
    """Dense fp16 3x3 and 1x3 at stride 1 from H17 on (§4.1, spec/numerics §6)."""
    return (
        chip.winograd
        and (layer.kh, layer.kw) in ((3, 3), (1, 3))
        and layer.stride == layer.dilation == layer.groups == 1
        and layer.density == 1
        and not layer.int8
    )


def compute_us(layer: Layer, chip: Chip, c: Numbers, engines: int, clock_mhz: float, tiles: int) -> float:
    """Array time of a convolution or linear layer (§4.1, §4.2)."""
    unit = 32 if chip.generation_name in ("h18", "h19") else 64
    pixels = layer.pixels / engines
    pixels = max(ceil(pixels / unit) * unit if pixels < 4 * unit else pixels, unit)
    taps = layer.kh * (layer.kw + 1 if is_rewritten(layer, chip) else layer.kw)
    cycles = pixels * layer.cin / layer.groups * taps * ceil(layer.cout / CORES) / chip.macs_per_core_cycle
    cycles /= c["mac_rate"]
    if engines > 1 and tiles > 1:
        cycles *= ceil(tiles / engines) * engines / tiles / c["mac_rate_tiled"]
    if layer.int8:
        cycles /= 2 * c["int8_rate"]
    if is_winograd(layer, chip):
        cycles /= c["winograd_gain"]
    if layer.dilation > 1:
        cycles /= c["dilation_rate"]
    if layer.density < 1:
        cycles *= c["sparse_base"] + c["sparse_slope"] * layer.density
    return cycles / clock_mhz


def _weights_us(layer: Layer, chip: Chip, c: Numbers, engines: int) -> tuple[float, float, float]:
    """Microseconds of the weight stream, bytes, and halo time of a layer cut by rows over two engines (§4.2, §5)."""
    per_core = layer.dense_bytes / chip.generation.cores
    stored = layer.weight_bytes
    if is_rewritten(layer, chip) and layer.density == 1:
        stored = layer.cin * layer.cout * layer.kh * (4 * layer.kw + (layer.kw + 1) / 4)
    copies, halo = 1, 0.0
    cut_by_channel = ceil(per_core / KERNEL_BYTES_PER_CORE) % 2 == 0 and not is_winograd(layer, chip)
    if engines > 1 and not cut_by_channel:
        copies = engines
        halo = c["halo_us"] if layer.kh > 1 else 0.0
    if layer.weight_key is not None and per_core <= KERNEL_BYTES_PER_CORE:  # one set for several layers, read once
        return 0.0, 0.0, halo
    rate = weight_rate(c)
    wide = layer.kh * layer.kw == 1 and layer.cin >= 4096 and layer.cin & (layer.cin - 1) == 0
    if chip.generation_name == "h16" and layer.op == "conv" and wide and 32 <= layer.pixels < 256:
        rate = c["weights_power_of_two_gbs"] * 1e3
    bytes_ = stored * copies
    us = bytes_ / rate
    if layer.weight_format in PACKED:
        us *= c["packed_stream"]
    return us, bytes_, halo


def _traffic(layer: Layer, engines: int, chain: bool) -> float:
    """Activation bytes that cross to memory (§6.2); an input that L2 does not hold is read in every kernel pass."""
    room = L2_BYTES * engines
    passes = kernel_passes(layer) if layer.in_bytes >= 0.95 * room else 1
    if chain and layer.int8 and engines > 1:  # quantised activations leave the chip between layers (§4.1)
        return kernel_passes(layer) * layer.in_bytes + layer.out_bytes
    inside = not chain and not layer.reads_input and not layer.writes_output
    if inside and layer.in_bytes + layer.out_bytes > room:
        return passes * layer.in_bytes + layer.out_bytes
    return (passes * layer.in_bytes if layer.reads_input else 0) + (layer.out_bytes if layer.writes_output else 0)


def _mac(layer: Layer, chip: Chip, c: Numbers, engines: int, clock_mhz: float, chain: bool, tiles: int) -> Cost:
    compute = compute_us(layer, chip, c, engines, clock_mhz, tiles)
    weights, weight_bytes, halo = _weights_us(layer, chip, c, engines)
    traffic = _traffic(layer, engines, chain)
    activations = traffic / activation_rate(c, engines)
    extra = halo + FURTHER_TASK_US + (c["engine_sync_us"] if engines > 1 else 0.0)
    us = max(compute, weights + activations) + extra
    return Cost(us, compute, weights, activations, extra, weight_bytes + traffic)


def _runtime(layer: Layer, chip: Chip, c: Numbers, engines: int, clock_mhz: float) -> Cost:
    compute = layer.macs / layer.count / (chip.generation.cores * chip.macs_per_core_cycle * clock_mhz)
    compute /= c["runtime_rate"]
    edge = layer.reads_input or layer.writes_output
    traffic = layer.in_bytes + layer.out_bytes if edge or layer.in_bytes + layer.out_bytes > L2_BYTES else 0.0
    activations = traffic / activation_rate(c, engines)
    extra = layer.batches * c["runtime_task_us"]  # while one matrix multiplies, the operands of the next come in
    return Cost(max(compute + extra, activations), compute, 0.0, activations, extra, traffic)


def planar_rate(layer: Layer, chip: Chip, c: Numbers, engines: int, chain: bool) -> float:
    """Elements per microsecond and engine (§7).

    Work of the planar engine alone goes with its clock, which keeps a fixed share of the neural cores' (§8).
    """
    short = 0 < layer.axis < chip.generation.reduce_by_transpose
    planar_clock = chip.clock_mhz / PLANAR_CLOCK_MHZ
    if layer.op == "rms_norm":
        return 1 / (c["rms_row_us"] / layer.axis + 1 / (c["unary_rate"] * 1e3 * planar_clock))
    if layer.unit == "softmax":
        name = "short_softmax_rate" if short else "softmax_rate"
    elif layer.unit == "norm":
        name = "short_norm_rate" if short else "layer_norm_rate"
    elif layer.unit == "binary":
        large = chain and layer.in_bytes > 0.65 * L2_BYTES * engines
        name = "binary_large_rate" if large and c["binary_large_rate"] < c["binary_rate"] else "binary_rate"
    else:
        name = f"{layer.unit}_rate"
    return c[name] * 1e3 * (planar_clock if layer.unit in PLANAR_ONLY else 1.0)


def _planar(layer: Layer, chip: Chip, c: Numbers, engines: int, chain: bool) -> Cost:
    compute = layer.elements / (planar_rate(layer, chip, c, engines, chain) * engines)
    inside = not chain and not layer.reads_input and not layer.writes_output
    traffic = (layer.in_bytes if layer.reads_input else 0) + (layer.out_bytes if layer.writes_output else 0)
    if inside and layer.in_bytes + layer.out_bytes > L2_BYTES * engines:
        traffic = layer.in_bytes + layer.out_bytes
    extra = c["binary_task_us" if layer.unit == "binary" else "unary_task_us"]
    if chip.generation_name == "h19":
        cache = c["cache_mb"] * 1e6
        activations = min(traffic, cache) / (c["cache_gbs"] * 1e3 * engines)
        activations += max(traffic - cache, 0) / (c["planar_dram_gbs"] * 1e3 * engines)
        us = compute + activations if chain else max(compute, activations)
    else:
        activations = traffic / activation_rate(c, engines)
        us = max(compute, activations)
    return Cost(us + extra, compute, 0.0, activations, extra, traffic, "planar engine")


def layer_cost(
    layer: Layer, chip: Chip, c: Numbers, *, engines: int, clock_mhz: float, chain: bool, tiles: int
) -> Cost:
    """The cost of one repetition of a layer with the constants ``c`` (names of ``hexane.timing.parameters``)."""
    if layer.unit == "mac":
        return _mac(layer, chip, c, engines, clock_mhz, chain, tiles)
    if layer.unit == "runtime":
        return _runtime(layer, chip, c, engines, clock_mhz)
    if layer.unit == "sdpa":
        return Cost(layer.elements * c["sdpa_row_us"], layer.elements * c["sdpa_row_us"], 0, 0, 0, 0)
    if layer.unit == "topk":
        return Cost(c["topk_us"], c["topk_us"], 0, 0, 0, 0)
    return _planar(layer, chip, c, engines, chain)
