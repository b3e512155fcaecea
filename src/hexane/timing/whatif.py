"""The same network, otherwise: another batch, other weights, another resolution; without a new model file."""

from __future__ import annotations

from dataclasses import replace

from hexane.errors import UsageError
from hexane.timing.work import Job, Layer, Work

WEIGHT_FORMATS = {
    "fp16": ("fp16", 2.0, 1.0),
    "int8": ("int8", 1.0, 1.0),
    "int4": ("palette", 0.5, 1.0),
    "sparse": ("sparse", 1.125, 0.5),
}
"""Name to stored format, bytes per weight and density; ``sparse`` keeps half of the weights (docs/timing.md)."""


def changed(job: Job, *, batch: int | None = None, weights: str | None = None, resolution: float | None = None) -> Job:
    """``job`` with its batch multiplied, its constant weights stored otherwise, or its maps scaled.

    ``resolution`` is a factor on height and width of every map (2 doubles both); rows of linear layers and reduced
    axes scale with the same area, which is right for convolutional networks only.
    """
    scale = 1.0
    if batch is not None:
        if batch < 1:
            raise UsageError(f"a batch of {batch}", hint="1 or more")
        scale *= batch
    if resolution is not None:
        if not 0 < resolution <= 64:
            raise UsageError(f"a resolution factor of {resolution}", hint="above 0, at most 64")
        scale *= resolution * resolution
    if weights is not None and weights not in WEIGHT_FORMATS:
        raise UsageError(f"unknown weight format {weights!r}", hint=f"one of {', '.join(WEIGHT_FORMATS)}")
    host = tuple(replace(op, flop=op.flop * scale, bytes=op.bytes * scale) for op in job.host)
    return replace(job, launches=tuple(_changed(work, scale, weights) for work in job.launches), host=host)


def _changed(work: Work, scale: float, weights: str | None) -> Work:
    return replace(
        work,
        layers=tuple(_stored(_scaled(layer, scale), weights) for layer in work.layers),
        host_in_bytes=work.host_in_bytes * scale,
        host_out_bytes=work.host_out_bytes * scale,
        host_in_padded=work.host_in_padded * scale,
        host_out_padded=work.host_out_padded * scale,
    )


def _scaled(layer: Layer, scale: float) -> Layer:
    if scale == 1.0:
        return layer
    return replace(
        layer,
        pixels=max(round(layer.pixels * scale), 1) if layer.pixels else 0,
        in_bytes=layer.in_bytes * scale,
        out_bytes=layer.out_bytes * scale,
        elements=layer.elements * scale,
    )


def _stored(layer: Layer, weights: str | None) -> Layer:
    if weights is None or layer.unit != "mac" or not layer.dense_bytes:
        return layer
    name, width, density = WEIGHT_FORMATS[weights]
    count = layer.dense_bytes / (1 if layer.int8 else 2)
    return replace(layer, weight_format=name, weight_bytes=count * width, density=density)
