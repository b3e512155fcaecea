"""Plan of a decoder on a chip: programs, the place of every op, rates, the range of its residual stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane import chips
from hexane.errors import UnsupportedError, UsageError
from hexane.graph.effects import touched
from hexane.language.cache_writes import CacheWrite, cache_writes
from hexane.language.chunks import SOURCE, Chunk, layer_weights
from hexane.language.network import PIECE, StepForm, head_graph, layers_graph
from hexane.language.residual import ResidualPeak, residual_peaks, scale_of
from hexane.lowering.formats import WeightFormat
from hexane.program.attribution import places_of, visible_ops
from hexane.restrictions.objections import placed_by_apple
from hexane.restrictions.remarks import remarks
from hexane.rounding import ceil_div
from hexane.timing.language import BILLION, decode_rate, prefill_rate, token_energy

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.graph import Graph
    from hexane.language.architecture import Architecture
    from hexane.language.decoder import Decoder

LOOKED_AT = 32
"""Tokens, drawn, on which the residual stream is looked at where nobody gives any."""
WHOLE = ("C4",)
"""Rules on a network as a whole, of which a layer is a part."""
NORM_RANGE = 255.0


@dataclass(frozen=True)
class TokenRate:
    """Tokens per second, with the rates one standard deviation below and above."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class TokenEnergy:
    """Millijoules a token on the engine's rail, with those of the rates one standard deviation above and below."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class DecoderOpPlace:
    """Ops of one type and place in all layers, or in the head: Apple's compiler and hexane's program ("engine", "host";
    "none" where hexane writes no programs for the chip)."""

    function: str
    program: str
    op: str
    count: int
    apple: str
    hexane: str
    reason: str
    evidence: str

    @property
    def why(self) -> str:
        """The reason where not both have the op on the engine."""
        if self.apple != "engine":
            return self.reason
        return "states are kept by the host" if self.hexane == "host" else ""


@dataclass(frozen=True)
class KnownFailure:
    """A published failure that the programs meet: the rule, what it says, what to do, whose word it is."""

    rule: str
    says: str
    remedy: str
    source: str


@dataclass(frozen=True)
class DecoderPlan:
    """``hexane llm``: see docs/language-models.md."""

    chip: str
    context: int
    weights: str
    parameters: int
    prefill_rows: int
    chunks: tuple[Chunk, ...]
    decode_tok_s: TokenRate
    prefill_tok_s: TokenRate
    decode_mj: TokenEnergy
    prefill_mj: TokenEnergy
    places: tuple[DecoderOpPlace, ...]
    residual_peak: tuple[ResidualPeak, ...]
    scale: float
    warnings: tuple[KnownFailure, ...]
    cache_writes: tuple[CacheWrite, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data; of a chunk also its bytes of state at this context and the functions that share its weights."""
        plain = asdict(self)
        for chunk, entry in zip(self.chunks, plain["chunks"]):
            entry |= {"name": chunk.name, "state_bytes": chunk.state_bytes * self.context, "limit": SOURCE,
                      "functions": {"decode": 1, "prefill": 1 if chunk.is_head else self.prefill_rows}}  # fmt: skip
        peaks = [peak.stream for peak in self.residual_peak]
        return plain | {"largest_peak": max(peaks), "norms": self.norms}

    @property
    def timed_as(self) -> str:
        """The format of the weights in the words of ``timing.language``."""
        return timed_as(self.weights)

    @property
    def norms(self) -> str:
        """For which streams the norms are right."""
        if max(peak.stream for peak in self.residual_peak) * self.scale <= NORM_RANGE:
            return "squares of the stream stay below 65504: right under every hypothesis"
        return (
            "right if squares inside a reduction do not end at 65504, which shipped models suggest and nobody measured "
            "(hypothesis reduction-range): the stream goes beyond 255"
        )


def plan(decoder: Decoder, chip: str, context: int, ids: Sequence[int] | None = None) -> DecoderPlan:
    """A decoder on a chip at a context; ``ids``: tokens on which the residual stream is looked at, drawn if None.

    Layers of a kind are alike, so one of each is compiled, in both functions; of the head its first piece.
    """
    a, target = decoder.architecture, chips.get(chip)
    if context > a.positions:
        raise UsageError(f"a context of {context} positions", hint=f"the model has {a.positions}")
    rows = decoder.prefill_rows
    forms = {"decode": decoder.form(1, context), "prefill": decoder.form(rows, context)}
    tokens = list(ids) if ids else np.random.default_rng(0).integers(0, a.words, LOOKED_AT).tolist()
    peaks = residual_peaks(decoder, tokens[: min(len(tokens), 512)])
    counts: dict[tuple[DecoderOpPlace, bool], int] = {}
    warnings: dict[str, KnownFailure] = {}
    for function, form in forms.items():
        for name, count, graph in _representatives(decoder, form, function):
            for key, n in _places(graph, target, function, name).items():
                counts[key] = len(decoder.chunks) - 1 if key[1] else counts.get(key, 0) + n * count
            warnings.update(_warnings(graph, target))
    places: Counter[DecoderOpPlace] = Counter()
    for (place, _), n in counts.items():
        places[place] += n
    size, fmt = parameters_of(a), timed_as(decoder.weights)
    return DecoderPlan(
        target.name, context, decoder.weights, size, rows, decoder.chunks,
        TokenRate(*decode_rate(target, size / BILLION, fmt, context)),
        TokenRate(*prefill_rate(target, size / BILLION, fmt, context, rows)),
        TokenEnergy(*token_energy(target, size / BILLION, fmt, context)),
        TokenEnergy(*token_energy(target, size / BILLION, fmt, context, rows)),
        tuple(DecoderOpPlace(**{**asdict(place), "count": n}) for place, n in places.items()),
        peaks, scale_of(peaks, norms_behind=a.norms_behind), tuple(warnings.values()), cache_writes(a, target, context),
    )  # fmt: skip


def _representatives(decoder: Decoder, form: StepForm, function: str) -> Iterator[tuple[str, int, Graph]]:
    """One layer of each kind with how many there are, then the head's first piece (with its largest logit) and how
    many pieces there are."""
    a = decoder.architecture
    kinds: dict[Any, list[int]] = {}
    for layer in range(a.layers):
        kinds.setdefault((a.rotations[layer], a.windows[layer], decoder.adapter_products(layer)), []).append(layer)
    for layers in kinds.values():
        graph = layers_graph(a, form, {layers[0]: decoder.layer(layers[0])})
        yield "layers", len(layers), decoder.in_format(graph, form)
    if function == "decode":
        own = replace(form, largest_alone=True)
        head = head_graph(a, own, decoder.checkpoint.head()[:PIECE], decoder.checkpoint.final_norm())
        yield "head", ceil_div(a.words, PIECE), decoder.in_format(head, form)


def _places(graph: Graph, chip: Chip, function: str, program: str) -> Counter[tuple[DecoderOpPlace, bool]]:
    """Number of ops of a graph by place, and whether they touch a state, of which a program has one."""
    from hexane.codegen import compile

    try:
        whole = compile(graph, chip=chip)
        segments, states = whole.segments, "engine" if whole.state_results else "host"
    except UnsupportedError:
        segments, states = (), "none"
    ours = places_of(graph, segments)
    counts: Counter[tuple[DecoderOpPlace, bool]] = Counter()
    for op in [*visible_ops(graph), *(op for op in graph.main.ops if not op.outputs)]:
        apple = placed_by_apple(op, chip)
        place = ours.get(op.outputs[0].name) if op.outputs else None
        where = states if touched(op) else "engine" if segments else "none"
        where = segments[place.segment].kind if place is not None else where
        joins = any(user.type == "write_state" for value in op.outputs for user in value.users)
        entry = DecoderOpPlace(function, program, op.type, 0, apple.where, where, apple.reason, str(apple.evidence))
        counts[entry, joins or bool(touched(op))] += 1
    return counts


def _warnings(graph: Graph, chip: Chip) -> dict[str, KnownFailure]:
    """Published failures of the ops of a graph, once for each rule."""
    entries = [remark for several in remarks(graph, chip).values() for remark in several if remark.rule not in WHOLE]
    return {entry.rule: KnownFailure(entry.rule, entry.says, entry.remedy, entry.source) for entry in entries}


def parameters_of(a: Architecture) -> int:
    """Weights of all products and of the head."""
    return a.layers * layer_weights(a) + a.words * a.hidden


def timed_as(weights: str) -> str:
    """A format in the words of ``timing.language``; sparse weights by the bits that they take."""
    form = WeightFormat.of(weights)
    if form.kind != "sparse":
        return weights
    return f"{min(16, max(1, round(form.bytes_of((1024, 1024)) * 8 / 1024**2)))}-bit"
