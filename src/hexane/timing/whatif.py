"""The same network, otherwise: another batch, other weights, another resolution; without a new model file."""

from __future__ import annotations

from dataclasses import replace

from hexane.cost.work import Job, Layer, Work
from hexane.errors import UnsupportedError, UsageError
from hexane.lowering.formats import WeightFormat
from hexane.rounding import ceil_div
from hexane.timing.weights import StoredWeights, compiled_bytes

WEIGHT_FORMATS = {"sparse": "sparse:0.5"}
"""Short names; all others are those of `hexane.lowering.formats.WeightFormat`."""


def changed(
    job: Job,
    *,
    batch: int | None = None,
    weights: str | None = None,
    resolution: float | None = None,
    activations: str | None = None,
) -> Job:
    """``job`` with its batch multiplied, its constant weights stored otherwise, or its maps scaled.

    ``activations``: "int8" for bytes in place of fp16, and for products of 8-bit activations and weights.

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
    form = None if weights is None else WeightFormat.of(WEIGHT_FORMATS.get(weights, weights))
    if form is not None and form.kind == "integer" and form.group:
        raise UnsupportedError(
            f"{form.name}: scales of blocks of inputs leave the layers to the host",
            hint="`hexane compress --weights` estimates the network with such weights; int4 has one scale per output",
        )
    if activations not in (None, "fp16", "int8"):
        raise UsageError(f"no activations are called {activations!r}", hint="fp16, int8")
    host = tuple(replace(op, flop=op.flop * scale, bytes=op.bytes * scale) for op in job.host)
    return replace(job, launches=tuple(_changed(work, scale, form, activations) for work in job.launches), host=host)


def _changed(work: Work, scale: float, weights: WeightFormat | None, activations: str | None) -> Work:
    return replace(
        work,
        layers=tuple(_activated(_stored(_scaled(layer, scale), weights), activations) for layer in work.layers),
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


def _activated(layer: Layer, activations: str | None) -> Layer:
    """With activations of a byte; products of a byte double where the weights are no wider."""
    if activations != "int8" or layer.int8:
        return layer
    layer = replace(layer, in_bytes=layer.in_bytes / 2, out_bytes=layer.out_bytes / 2)
    if layer.unit != "mac" or layer.weight_format not in ("int8", "palette"):
        return layer
    return replace(layer, int8=True, dense_bytes=layer.dense_bytes / 2)


def _stored(layer: Layer, form: WeightFormat | None) -> Layer:
    """Its constant weights in another format, as its kernel is compiled; strided and dilated kernels stay fp16."""
    if form is None or layer.unit != "mac" or not layer.dense_bytes:
        return layer
    count = round(layer.dense_bytes / (1 if layer.int8 else 2))
    plain = replace(layer, weight_format="fp16", weight_bytes=2.0 * count, density=1.0, tables=1)
    if form.kind == "fp16" or (form.kind != "sparse" and (layer.stride > 1 or layer.dilation > 1)):
        return plain
    if form.kind == "sparse":
        nonzero = count - int(count * form.sparsity)
        return replace(
            plain,
            weight_format="sparse",
            weight_bytes=count / 8 + nonzero * form.bits / 8,
            density=nonzero / max(count, 1),
        )
    name = "int8" if form.kind == "integer" and form.bits == 8 else "palette"
    tables = ceil_div(layer.cout, form.group) if form.group else 1
    form_stored = StoredWeights(
        name, count, count * form.bits / 8, bits=form.bits, tables=tables, scales=form.per_output
    )
    size = compiled_bytes(form_stored, layer.cout, layer.cin, layer.kh, layer.kw, layer.groups)
    return replace(plain, weight_format=name, weight_bytes=size, tables=tables)
