"""Growth of a decoder's residual stream, and the power of two that brings it into fp16.

The stream only meets norms, and a norm of ``s x`` with ``s^2 epsilon`` is the norm of x. So embedding and whatever is
added may be carried times a power of two: in exact arithmetic no logit changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import TYPE_CHECKING

import numpy as np

from hexane.errors import UsageError
from hexane.language.network import CONTEXT_STEP, StepForm, host_inputs, layers_graph
from hexane.restrictions.ranges import LARGEST_HALF, SUM_END
from hexane.rounding import align

if TYPE_CHECKING:
    from hexane.language.decoder import Decoder

MOST_TOKENS = 512


@dataclass(frozen=True)
class ResidualPeak:
    """Largest magnitudes behind a half of a layer ("attention" or "feed"): of the stream, and of what was added."""

    layer: int
    half: str
    stream: float
    change: float


def residual_peaks(decoder: Decoder, ids: Sequence[int]) -> tuple[ResidualPeak, ...]:
    """The peaks of the unscaled stream in float32, on these tokens (at most 512), two for each layer.

    Layer by layer, so that only one layer's weights are in memory.
    """
    tokens = decoder.checked(ids)
    if len(tokens) > MOST_TOKENS:
        raise UsageError(f"{len(tokens)} tokens to look for peaks", hint=f"at most {MOST_TOKENS}")
    a, rows = decoder.architecture, align(len(tokens), CONTEXT_STEP)
    if rows > a.positions:
        raise UsageError(f"{len(tokens)} tokens, and the model has {a.positions} positions")
    form = StepForm(rows, rows, "fp32")
    x = decoder.with_scale(1.0).embed(tokens + tokens[-1:] * (rows - len(tokens)))
    inputs, peaks = host_inputs(a, form, 0), []
    for layer in range(a.layers):
        graph = layers_graph(a, form, {layer: decoder.merged_layer(layer)}, taps=True)
        own = {value.name: inputs[value.name] for value in graph.main.inputs if value.name in inputs}
        state = np.zeros((1, 2 * a.kv_heads, a.head_dim, rows), np.float32)
        streams = graph.evaluate({**own, "x": x, "cache": state})
        for half in ("attention", "feed"):
            after = streams[f"layer{layer}_{half}"]
            both = (np.abs(part[..., : len(tokens)]).max() for part in (after, after - x))
            peaks.append(ResidualPeak(layer, half, *map(float, both)))
            x = after
    return tuple(peaks)


def scale_of(peaks: Sequence[ResidualPeak], *, norms_behind: bool) -> float:
    """The largest power of two, at most 1, with which the stream stays below 65504 and sums that are added to it below
    32768, where sums of the engine end; behind a norm what is added is no sum."""
    stream = max(peak.stream for peak in peaks) / LARGEST_HALF
    change = max(peak.change for peak in peaks) / (LARGEST_HALF if norms_behind else SUM_END)
    over = max(stream, change)
    return 2.0 ** -max(0, ceil(log2(over))) if over > 0 else 1.0
