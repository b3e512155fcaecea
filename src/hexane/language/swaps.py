"""Cost of changing a decoder's adapter."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from hexane.errors import UsageError
from hexane.language.adapters import BESIDE, INPUTS, MERGED
from hexane.language.backend import Compiled

if TYPE_CHECKING:
    from hexane.language.decoder import Decoder

INSTANCE_MS, ADAPTER_MS_PER_MB = 61.6 - 4.6, 4.6 / 9.2
"""Of an instance on M5 Pro, and of the adapter in it (docs/reference/adapters.md; 20 swaps). SILICON, one source."""
HOW = {MERGED: "compiled again", BESIDE: "patched", INPUTS: "given with every call"}
"""What becomes of programs with another adapter, by its form."""


@dataclass(frozen=True)
class AdapterSwap:
    """An adapter in a form: ``bytes`` of its matrices in fp16; for constants beside the base what became of the decode
    programs here: ``how`` ("patched", or "recompiled" with the reason), ``seconds``, and ``places_seconds`` for finding
    where the elements stand, which the first adapter alone needs. ``m5_pro_ms``: a new instance over the resident base
    with so many bytes, as one project's M5 Pro takes it (docs/reference/adapters.md); INFERRED for other sizes.
    """

    name: str
    form: str
    rank: int
    products: tuple[str, ...]
    bytes: int
    how: str = ""
    seconds: float = 0.0
    places_seconds: float = 0.0
    m5_pro_ms: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def with_adapters(decoder: Decoder, folders: Iterable[str | os.PathLike[str]], form: str) -> list[Decoder]:
    """The model with each of several adapters, over one base where their shapes and the form allow."""
    models: list[Decoder] = []
    for folder in folders:
        models.append((models[0] if models else decoder).with_adapter(folder, form))
    return models


def swap_of(model: Decoder, chip: str, level: str, context: int | None) -> AdapterSwap:
    """The cost of going over to a model's adapter; with a ``context`` its programs are prepared, and that is timed."""
    adapter, form = model.adapter, model.adapter_form
    if adapter is None:
        raise UsageError("a model without an adapter has none to go over to")
    there = INSTANCE_MS + ADAPTER_MS_PER_MB * adapter.nbytes / 1e6 if form == BESIDE else 0.0
    swap = AdapterSwap(adapter.name, form, adapter.rank, adapter.products, adapter.nbytes, HOW[form], m5_pro_ms=there)
    run = model.start(context, chip, level) if context is not None and form == BESIDE else None
    if run is None or not isinstance(run.backend, Compiled):
        return swap
    for number in range(len(model.chunks)):
        run.backend.program(number, run.form(1))
    updates = run.backend.updates
    how = "; ".join(dict.fromkeys(f"{u.how}: {u.reason}" if u.reason else u.how for u in updates))
    times = sum(u.seconds for u in updates), sum(u.prepared_seconds for u in updates)
    return replace(swap, how=how, seconds=times[0], places_seconds=times[1])
