"""The compiled kernel of a layer: the bytes that its stream carries, and the passes over the kernel memory.

Each core holds 64 KiB of kernel at a time, bias included. Beside what a network stores, Apple's compiler makes zeros of
its own: kernels 9 to 15 wide become two shifted copies read at stride 2, dilated kernels are spread over their whole
window. Both are streamed as values and one mask bit per place. APPLE, from the sizes that M6 programs were compiled to
(docs/timing.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hexane.chips import Chip, Generation
from hexane.cost.work import Layer
from hexane.frozen import slot_init

BIAS_BYTES = 2
"""A bias is one fp16 per output, and lies in the same memory."""
WIDE_COPIES = 2


@slot_init
@dataclass(frozen=True, slots=True)
class KernelCost:
    """One layer's kernel on one chip.

    ``stored_bytes`` go through the weight stream, ``per_core_bytes`` lie in one core, bias included, ``taps`` cost
    arithmetic, ``density`` is the share of them that is not zero, ``weights`` counts what the network stores,
    ``core_bytes`` is the kernel memory of a core.
    """

    stored_bytes: float
    per_core_bytes: float
    taps: int
    density: float
    weights: float
    passes: int
    core_bytes: int

    @property
    def blocks(self) -> int:
        """Kernel memories that it fills in every core."""
        return ceil(self.per_core_bytes / self.core_bytes)

    @property
    def resident(self) -> bool:
        """True where all of it fits the cores at once, so that layers which share it read it once."""
        return self.per_core_bytes <= self.core_bytes


def is_wide(layer: Layer, chip: Chip) -> bool:
    """Kernels 9 to 15 wide run as two shifted copies at stride 2 on H16 and later."""
    return layer.kw >= 9 and chip.generation.shifted_kernels


def window_taps(layer: Layer) -> int:
    """Places of a dilated kernel's window, those between its taps included."""
    d = layer.dilation
    return (d * (layer.kh - 1) + 1) * (d * (layer.kw - 1) + 1)


def kernel_of(layer: Layer, chip: Chip) -> KernelCost:
    """The compiled kernel of a convolution or linear layer."""
    pairs = layer.cin * layer.cout / layer.groups
    width = 1 if layer.int8 else 2
    taps, density, stored_bytes = layer.kh * layer.kw, layer.density, layer.weight_bytes
    if is_wide(layer, chip):
        taps = layer.kh * (layer.kw + 1)
        if layer.density == 1:  # int8 does not shorten them: measured at the time of fp16
            stored_bytes = pairs * layer.kh * WIDE_COPIES * (2 * layer.kw + (layer.kw + 1) / 8)
    elif layer.dilation > 1:
        density *= taps / window_taps(layer)
        taps = window_taps(layer)
        stored_bytes += pairs * taps / 8
    stored_bytes += BIAS_BYTES * layer.cout
    stream_bytes = (
        stored_bytes if density < 1 or layer.weight_format == "palette" else layer.dense_bytes + BIAS_BYTES * layer.cout
    )
    per_output = pairs / layer.cout * layer.kh * layer.kw * width if layer.cout else 0.0
    return KernelCost(
        stored_bytes=stored_bytes,
        per_core_bytes=stream_bytes / chip.generation.cores,
        taps=taps,
        density=density,
        weights=pairs * layer.kh * layer.kw,
        passes=passes(per_output, layer.cout, chip.generation),
        core_bytes=chip.generation.kernel_bytes_per_core,
    )


def passes(bytes_per_output: float, outputs: int, limits: Generation) -> int:
    """Passes over the kernel memory: a power of two of outputs per core at a time, at most 16."""
    fit = 1
    while fit < 16 and 2 * fit * bytes_per_output <= limits.kernel_bytes_per_core:
        fit *= 2
    return ceil(outputs / (limits.cores * fit))
