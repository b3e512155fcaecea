"""A language model from a folder of weights: its programs, and tokens from them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import UsageError
from hexane.language.adapters import ADAPTER_FORMS, BESIDE, INPUTS, MERGED, Adapter, read_adapter
from hexane.language.architecture import Architecture, read_architecture
from hexane.language.backend import LEVELS, Backend, backend_of
from hexane.language.checkpoint import Checkpoint, Weights
from hexane.language.chunks import Chunk, chunks_of
from hexane.language.network import (
    CONTEXT_STEP,
    StepForm,
    adapter_matrices,
    best_words,
    head_graph,
    host_inputs,
    layers_graph,
)
from hexane.language.sampling import Sampling
from hexane.lowering.formats import WeightFormat
from hexane.rounding import align
from hexane.seeds import generator

if TYPE_CHECKING:
    from hexane.graph import Graph
    from hexane.language.plan import DecoderPlan

PREFILL_ROWS = 32


@dataclass(frozen=True)
class Decoder:
    """A decoder and how it is made into programs.

    weights : a format of ``hexane.compress`` for all layers and the head.
    scale : the residual stream is carried times this power of two (``hexane.language.residual``).
    prefill_rows : rows of a prompt at a time, where it has as many.
    divided_gates : silu as x / (1 + exp(-x)): three ops more a layer, and without the error of the engine's table.
    adapter : what was trained beside the weights (``hexane.language.adapters``), in the form ``adapter_form``.
    """

    architecture: Architecture
    checkpoint: Checkpoint
    weights: str = "fp16"
    scale: float = 1.0
    prefill_rows: int = PREFILL_ROWS
    divided_gates: bool = False
    adapter: Adapter | None = None
    adapter_form: str = MERGED
    _graphs: dict[tuple[StepForm, int], Graph] = field(default_factory=dict, repr=False, compare=False)
    _sessions: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        *,
        weights: str = "fp16",
        scale: float = 1.0,
        prefill_rows: int = PREFILL_ROWS,
        divided_gates: bool = False,
        adapter: str | os.PathLike[str] | None = None,
        adapter_form: str = MERGED,
    ) -> Decoder:
        """The model of a folder with ``config.json`` and safetensors; ``adapter`` is the folder of one for it.

        UsageError for a folder without them, UnsupportedError for an architecture that is not known (with those that
        are), FormatError for damaged files.
        """
        path = Path(folder)
        if not path.is_dir():
            raise UsageError("no such folder", where=str(path), hint="a folder with config.json and model.safetensors")
        WeightFormat.of(weights)
        architecture = read_architecture(path)
        base = cls(architecture, Checkpoint(path, architecture), weights, scale, prefill_rows, divided_gates)
        return base if adapter is None else base.with_adapter(adapter, adapter_form)

    def with_scale(self, scale: float) -> Decoder:
        """The same model with its residual stream carried times ``scale``."""
        return replace(self, scale=scale, _graphs={}, _sessions={})

    def with_adapter(self, adapter: Adapter | str | os.PathLike[str] | None, form: str | None = None) -> Decoder:
        """The same model with another adapter, or with none.

        ``form``: "merged", everything is compiled again; "beside", constants that are patched; "inputs". In the last
        two, adapters of the same shapes share the base's programs.
        """
        form = form or self.adapter_form
        if form not in ADAPTER_FORMS:
            raise UsageError(f"an adapter cannot be {form!r}", hint=", ".join(ADAPTER_FORMS))
        if adapter is not None and not isinstance(adapter, Adapter):
            adapter = read_adapter(adapter, self.architecture)
        shapes = [each.shapes for each in (adapter, self.adapter) if each is not None]
        shared = form == self.adapter_form != MERGED and len(shapes) == 2 and shapes[0] == shapes[1]
        graphs = self._graphs if shared and form == INPUTS else {}
        return replace(self, adapter=adapter, adapter_form=form, _graphs=graphs,
                       _sessions=self._sessions if shared else {})  # fmt: skip

    def layer(self, number: int) -> Weights:
        """The weights of a layer, with the adapter merged or beside them."""
        if self.adapter is None or self.adapter_form == MERGED:
            return self.merged_layer(number)
        return self.adapter.beside(number, self.checkpoint.layer(number))

    def merged_layer(self, number: int) -> Weights:
        """The weights of a layer with the adapter in them."""
        weights = self.checkpoint.layer(number)
        return weights if self.adapter is None else self.adapter.merged(number, weights)

    def adapter_products(self, number: int) -> tuple[str, ...]:
        """The products of a layer that an adapter stands beside."""
        pairs = self.adapter.pairs if self.adapter is not None and self.adapter_form != MERGED else ()
        return tuple(sorted(name for layer, name in pairs if layer == number))

    def adapter_matrices(self, number: int) -> dict[str, np.ndarray]:
        """The matrices of the adapter in a chunk by name of constant or input, float32 [rank, inputs] and
        [outputs, rank]; none where it is merged."""
        matrices: dict[str, np.ndarray] = {}
        for layer in self.chunks[number].layers if self.adapter and self.adapter_form != MERGED else ():
            matrices |= adapter_matrices(self.architecture, self.scale, layer, self.layer(layer))
        return matrices

    @cached_property
    def adapter_inputs(self) -> Mapping[str, np.ndarray]:
        """Arrays for calls where the adapter is an input: float32 [1, 1, outputs, inputs] by name."""
        if self.adapter_form != INPUTS:
            return {}
        chunks = range(len(self.chunks))
        return {name: m[None, None] for chunk in chunks for name, m in self.adapter_matrices(chunk).items()}

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        """The programs of a step, in order: layers, then the head."""
        return chunks_of(self.architecture, self.weights)

    def graph(self, number: int, form: StepForm) -> Graph:
        """The graph of a chunk, weights in the decoder's format (fp32 forms: as they are)."""
        key = form, number
        if key not in self._graphs:
            self._graphs[key] = self.in_format(self._plain(self.chunks[number], form), form)
        return self._graphs[key]

    def _plain(self, chunk: Chunk, form: StepForm) -> Graph:
        if chunk.is_head:
            head = self.checkpoint.head()
            return head_graph(self.architecture, form, head, self.checkpoint.final_norm())
        weights = {layer: self.layer(layer) for layer in chunk.layers}
        return layers_graph(self.architecture, form, weights)

    def in_format(self, graph: Graph, form: StepForm) -> Graph:
        """A graph with its weights in the decoder's format; fp32 forms stay."""
        if self.weights == "fp16" or form.dtype != "fp16":
            return graph
        from hexane.studies.compress import compress, layers_of

        if not self.adapter or self.adapter_form != BESIDE:
            return compress(graph, self.weights)
        names = [layer.name for layer in layers_of(graph)]  # an adapter's stay as they are
        return compress(graph, {name: self.weights for name in names if "_lora_" not in name})

    def embed(self, ids: Sequence[int], start: int = 0) -> np.ndarray:
        """The first residual stream of tokens at positions ``start`` on: float32 [1, hidden, 1, tokens], scaled."""
        a = self.architecture
        rows = np.asarray(self._table[np.asarray(ids, np.int64)], np.float32) * np.float32(a.embedding_scale)
        if a.learned_positions:
            rows = rows + self._positions[start : start + len(ids)]
        return np.ascontiguousarray(rows.T)[None, :, None] * np.float32(self.scale)

    @cached_property
    def _table(self) -> np.ndarray:
        return self.checkpoint.embedding()

    @cached_property
    def _positions(self) -> np.ndarray:
        return self.checkpoint.positions()

    def capped(self, logits: np.ndarray) -> np.ndarray:
        """Logits behind the cap of a model that has one."""
        cap = np.float32(self.architecture.logit_cap)
        return cap * np.tanh(logits / cap) if cap else logits

    def plan(self, chip: str = "M4", context: int = 1024, ids: Sequence[int] | None = None) -> DecoderPlan:
        """Programs, places, rates and ranges on a chip, without running it there (``hexane.language.plan``)."""
        from hexane.language.plan import plan

        return plan(self, chip, context, ids)

    def form(self, rows: int, context: int, dtype: str = "fp16") -> StepForm:
        """The form of this decoder's programs."""
        gates, inputs = self.divided_gates and dtype == "fp16", bool(self.adapter) and self.adapter_form == INPUTS
        return StepForm(rows, context, dtype, self.scale, gates, inputs)

    def start(self, context: int, chip: str = "M4", level: str = "graph") -> DecoderRun:
        """A new sequence: caches of ``context`` positions, all empty."""
        if level not in LEVELS:
            raise UsageError(f"there is no level {level!r}", hint=", ".join(LEVELS))
        if context > self.architecture.positions:
            hint = f"the model has {self.architecture.positions}"
            raise UsageError(f"a context of {context} positions", hint=hint)
        return DecoderRun(self, context, backend_of(self, chip, level))

    def stream(
        self,
        ids: Sequence[int],
        n: int,
        chip: str = "M4",
        level: str = "graph",
        seed: int = 0,
        sampling: Sampling | None = None,
        context: int | None = None,
    ) -> Iterator[int]:
        """The tokens of ``generate``, one by one."""
        tokens = self.checked(ids)
        if n < 0:
            raise UsageError(f"{n} tokens to make", hint="0 or more")
        needed = len(tokens) + n
        length = self.context_for(needed) if context is None else context
        if needed > length + 1:  # the last token is never fed
            raise UsageError(f"{len(tokens)} tokens and {n} more do not fit a context of {length}")
        run, random = self.start(length, chip, level), generator(seed)
        sampling, feed = sampling or Sampling(), tokens
        for _ in range(n):
            if sampling.temperature == 0:
                feed = [int(run.best(feed)[0][-1])]
            else:
                feed = [sampling.pick(run.feed(feed)[-1], random)]
            yield feed[0]

    def context_for(self, tokens: int) -> int:
        """The shortest context for so many tokens, at most what the model has."""
        most = self.architecture.positions // CONTEXT_STEP * CONTEXT_STEP
        return min(align(tokens, CONTEXT_STEP), most)

    def checked(self, ids: Sequence[int]) -> list[int]:
        """Tokens as integers; UsageError where there is none, or one that the model lacks."""
        tokens = [int(i) for i in ids]
        wrong = next((i for i in tokens if not 0 <= i < self.architecture.words), None)
        if not tokens or wrong is not None:
            what = "no tokens to start from" if not tokens else f"there is no token {wrong}"
            raise UsageError(what, hint=f"tokens are numbers from 0 to {self.architecture.words - 1}")
        return tokens

    def generate(
        self,
        ids: Sequence[int],
        n: int,
        chip: str = "M4",
        level: str = "graph",
        seed: int = 0,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        context: int | None = None,
    ) -> list[int]:
        """``n`` tokens behind ``ids``; greedy unless ``temperature`` is above 0.

        Parameters
        ----------
        level : "graph", the engine's arithmetic on the compiled graph; "engine", its tasks in the emulator (the same
            bits); "float32", the reference with the weights as they are stored.
        context : positions of the cache, a multiple of 32; by default as many as are needed.
        """
        return list(self.stream(ids, n, chip, level, seed, Sampling(temperature, top_k, top_p), context))


class DecoderRun:
    """One sequence: positions so far, and the caches behind them."""

    def __init__(self, decoder: Decoder, context: int, backend: Backend) -> None:
        self.decoder, self.context, self.backend = decoder, context, backend
        self.position = 0
        dtype, own = self.form(1).numpy, decoder.adapter_inputs
        self._adapter: dict[str, np.ndarray] = {name: np.asarray(array, dtype) for name, array in own.items()}
        self._states = [backend.state(chunk, self.form(1)) for chunk in range(len(decoder.chunks))]

    def form(self, rows: int) -> StepForm:
        """The form of programs for so many rows."""
        return self.decoder.form(rows, self.context, self.backend.dtype)

    def feed(self, ids: Sequence[int]) -> np.ndarray:
        """Logits behind each of the tokens, float32 [tokens, words]; they join the sequence.

        Whole blocks of ``prefill_rows`` go through programs of so many rows, the rest one by one.
        """
        return np.concatenate([self.step(block) for block in self._blocks(ids)])

    def best(self, ids: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The word with the largest logit behind each of the tokens, the first of several, and that logit: int64 and
        float32 [tokens]. The head's programs find both; the tokens join the sequence as with `feed`."""
        pairs = [best_words(self._results(block, largest_alone=True)) for block in self._blocks(ids)]
        words, values = (np.concatenate(part) for part in zip(*pairs))
        return words, self.decoder.capped(values)

    def together(self, ids: Sequence[int]) -> np.ndarray:
        """The word with the largest logit behind each of 1 to 8 tokens, all of them in one call: int64 [tokens]."""
        return best_words(self._results(self.decoder.checked(ids), largest_alone=True))[0]

    def _blocks(self, ids: Sequence[int]) -> Iterator[list[int]]:
        tokens = self.decoder.checked(ids)
        if self.position + len(tokens) > self.context:
            raise UsageError(f"{self.position + len(tokens)} tokens in a context of {self.context}")
        while tokens:
            most = self.decoder.prefill_rows
            rows = 1 if self.position % most or len(tokens) < most or self.context % most else most
            yield tokens[:rows]
            tokens = tokens[rows:]

    def step(self, ids: Sequence[int]) -> np.ndarray:
        """One call of every program for all the tokens: logits, float32 [tokens, words]."""
        results = self._results(ids)
        logits = np.concatenate([results[name] for name in results], axis=1)[0, :, 0].T
        return self.decoder.capped(np.asarray(logits, np.float32))

    def _results(self, ids: Sequence[int], *, largest_alone: bool = False) -> dict[str, np.ndarray]:
        """Output of the head's program after one call of every program."""
        decoder, form = self.decoder, self.form(len(ids))
        x = decoder.embed(ids, self.position)
        inputs = host_inputs(decoder.architecture, form, self.position) | self._adapter
        for number, chunk in enumerate(decoder.chunks):
            own = replace(form, largest_alone=chunk.is_head and largest_alone)
            results = self.backend.run(number, own, {**inputs, "x": x.astype(form.numpy)}, self._states[number])
            if not chunk.is_head:
                x = results["y"]
        self.position += len(ids)
        return results
