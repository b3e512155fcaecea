"""Error of a decoder on the engine by layer: that of the residual stream behind every half of a layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.graph.types import tensor_of
from hexane.language.network import StepForm, host_inputs, layers_graph

if TYPE_CHECKING:
    from hexane.graph import Graph
    from hexane.language.decoder import Decoder

MOST_TOKENS = 64
DIFFERS = 0.01
"""Share of the stream from which on a layer counts as different."""


@dataclass(frozen=True)
class LayerError:
    """Root mean square of the engine's error behind a half of a layer ("attention" or "feed"), over that of the stream:
    ``stream`` with the errors of all layers before, ``alone`` where the layer was given float32's stream."""

    layer: int
    half: str
    stream: float
    alone: float


def layer_errors(decoder: Decoder, ids: Sequence[int], chip: str) -> tuple[LayerError, ...]:
    """The errors on the first tokens (at most 64), two for each layer: a chip's arithmetic on the decoder's format of
    the weights beside float32 on the weights as they are stored. Layer by layer, so that only one is in memory."""
    from hexane.numerics import evaluate

    tokens, a = decoder.checked(ids)[:MOST_TOKENS], decoder.architecture
    rows = decoder.context_for(len(tokens))
    tokens = tokens[:rows]
    exact_form, form = StepForm(rows, rows, "fp32", decoder.scale), decoder.form(rows, rows)
    exact = decoder.embed(tokens + tokens[-1:] * (rows - len(tokens)))
    ours = exact
    inputs = host_inputs(a, exact_form, 0), host_inputs(a, form, 0) | dict(decoder.adapter_inputs)
    errors = []
    for layer in range(a.layers):
        plain = layers_graph(a, exact_form, {layer: decoder.merged_layer(layer)}, taps=True)
        engine = decoder.in_format(layers_graph(a, form, {layer: decoder.layer(layer)}, taps=True), form)
        right = plain.evaluate(_given(plain, inputs[0], exact, np.float32))
        alone, along = (evaluate(engine, _given(engine, inputs[1], x, np.float16), chip) for x in (exact, ours))
        for half in ("attention", "feed"):
            name = f"layer{layer}_{half}"
            exact, ours = right[name], along[name]
            both = (_relative(part[name], exact, len(tokens)) for part in (along, alone))
            errors.append(LayerError(layer, half, *both))
    return tuple(errors)


def first_to_differ(errors: Sequence[LayerError]) -> LayerError | None:
    """The first half of a layer behind which the stream is off by a hundredth, or is no number."""
    return next((error for error in errors if not error.stream < DIFFERS), None)


def _given(graph: Graph, inputs: Mapping[str, np.ndarray], x: np.ndarray, dtype: type) -> dict[str, Any]:
    """Inputs of a layer's graph, with an empty cache."""
    own: dict[str, Any] = {v.name: np.asarray(inputs[v.name], dtype) for v in graph.main.inputs if v.name in inputs}
    states = {state.name: tensor_of(state.type) for state in graph.main.states}
    with np.errstate(over="ignore"):
        x = x.astype(dtype)
    return {**own, "x": x, **{name: np.zeros(tensor.shape, dtype) for name, tensor in states.items()}}


def _relative(ours: np.ndarray, exact: np.ndarray, tokens: int) -> float:
    a, b = (np.asarray(part[..., :tokens], np.float64) for part in (ours, exact))
    with np.errstate(all="ignore"):
        return float(np.sqrt(np.mean((a - b) ** 2) / np.mean(b**2)))
