"""Language models on the engine: tokens per second of a decoder, and the time of its head.

A token reads every weight once and the cache once. A weight costs the longer of its stream and of the array, which
takes 64 rows (16 from H18 on) for one row of work: that, not a decoder of palettes, is why 4 bits decode no faster than
8 on an M5 Max. The cache goes through products of two run-time operands, far below the stream's rate, over all the
positions that the program holds. Each layer adds norms, softmax and changes between units. SILICON, from published
rates; docs/timing.md has the table and what the model leaves out (speculative decoding, the path's own host work).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from hexane import chips
from hexane.chips import Chip
from hexane.chips.measured import language, values
from hexane.cost.units import Numbers, larger, weight_rate
from hexane.errors import UsageError
from hexane.timing.energy import INT8_SHARE
from hexane.timing.measured import predict_range
from hexane.timing.parameters import TimingParameter
from hexane.timing.ranges import shipped
from hexane.timing.sensitivity import slopes

LANGUAGE_PARAMETERS: tuple[TimingParameter, ...] = (
    TimingParameter("cache_gbs_llm", 20, "GB/s", "keys and values through run-time products", 0.7),
    TimingParameter(
        "decoder_layer_us", 50, "us", "norms, softmax, changes of unit and calls, per layer of a decoder", 0.7
    ),
    TimingParameter("kernel_pass_us", 1, "us", "each filling of the kernel memory beyond its stream", 0.7),
    TimingParameter("int8_bytes", 1.5, "B", "stream of an int8 weight as runtimes load it (2: folded to fp16)", 0.2),
    TimingParameter("host_cache_gbs", 10, "GB/s", "a cache that every token hands in and out through the host", 0.7),
)
"""Fitted to ``llm.csv`` (trust A and B, on the engine, no speculation), everything else being as for other networks."""
DEFAULT_CONTEXT = 512
CACHE_BYTES_PER_LAYER = 4096
"""Keys and values of one position in one layer: two times eight heads of 128, two bytes, the common shape of today."""
QUERIES_PER_KEY, ARRAY_ROWS = 4, 64
PREFILL_SCATTER = 0.45
"""Standard deviation of the logarithm of predicted by published prefill rates, eight rows of ``llm.csv`` that ran whole
on the engine (tests/timing/test_prefill.py)."""
BILLION = 1e9
HOST_CACHE = "cache through the host"


@dataclass(frozen=True)
class LanguageWeights:
    """Storage of a language model: ``bits`` a weight, as ``int8`` integers or not, and where its cache is.

    ``host_cache``: keys and values are inputs and outputs of the program, as Core ML had them before states.
    """

    bits: float
    int8: bool = False
    host_cache: bool = False


_BITS = re.compile(r"(?:u?int|lut|palette)(\d+)|(\d+)(?:/(\d+))?-bit")
_VECTOR = re.compile(r"(\d+)-bit vector lut (\d+)x(\d+)")


def stored_as(fmt: str) -> LanguageWeights:
    """A format as people write it: ``fp16``, ``int8``, ``4-bit palette``, ``int4 per output channel``, ``lut6`` ...

    Several widths count alike; vectors of n entries out of m cost log2(m)/n bits. What a cache is kept in does not
    count; ``, cache through the host`` behind a format says that every token hands it in and out. UsageError for a
    format without a width.
    """
    name = fmt.strip().lower()
    weights, *remarks = name.split(", ")
    host_cache = HOST_CACHE in remarks
    if weights in ("fp16", "float16", "f16", "bf16"):
        return LanguageWeights(16, host_cache=host_cache)
    if weights in ("int8", "w8", "8-bit"):
        return LanguageWeights(8, int8=True, host_cache=host_cache)
    if "low-bit" in weights:
        return LanguageWeights(4, host_cache=host_cache)
    vector = _VECTOR.search(weights)
    if vector:
        return LanguageWeights(math.log2(int(vector.group(3))) / int(vector.group(2)), host_cache=host_cache)
    widths = [int(width) for match in _BITS.finditer(weights) for width in match.groups() if width]
    if not widths or not all(1 <= width <= 16 for width in widths):
        raise UsageError(f"no width of weights in the format {fmt!r}", hint='write "fp16", "int8" or "4-bit palette"')
    return LanguageWeights(sum(widths) / len(widths), host_cache=host_cache)


@dataclass(frozen=True)
class Decoding:
    """One model on one chip: parameters (a count), storage, positions that attention runs over, sequences at a time."""

    chip: Chip
    parameters: float
    stored: LanguageWeights
    context: float
    batch: int

    @property
    def layers(self) -> float:
        """Layers of a decoder of this size: 22 at half a billion, 36 at four, 59 at twenty-seven. A rule of thumb."""
        return 26 * (self.parameters / BILLION) ** 0.25

    @property
    def cache_bytes(self) -> float:
        """Of keys and values of one sequence."""
        return self.context * self.layers * CACHE_BYTES_PER_LAYER

    @property
    def numbers(self) -> dict[str, float]:
        """The chip's constants, and those of language models."""
        return {**values(self.chip), **{name: entry["value"] for name, entry in language()["constants"].items()}}

    def bytes_per_weight(self, c: Numbers) -> Any:
        """Of a stored weight, as the engine reads it."""
        return c["int8_bytes"] if self.stored.int8 else self.stored.bits / 8


def weights_us(work: Decoding, c: Numbers) -> Any:
    """Microseconds in which all weights are read and multiplied once."""
    width = work.bytes_per_weight(c)
    palette = c["palette_stream"] if work.stored.bits < 8 else 1.0
    stream = work.parameters * width * palette / weight_rate(work.chip, c)
    rows = max(work.batch, work.chip.generation.pixel_unit)
    engines = work.chip.engines if work.chip.generation.joins_engines else 1
    array = work.parameters * rows / (work.chip.peak_macs_per_us / work.chip.engines * engines * c["mac_rate"])
    return larger(stream, array)


def token_us(work: Decoding, c: Numbers) -> Any:
    """Microseconds of one step: one token of every sequence."""
    cache = work.batch * work.context * work.layers * CACHE_BYTES_PER_LAYER
    limits = work.chip.generation
    passes = 2 * work.parameters / (limits.cores * limits.kernel_bytes_per_core)
    us = weights_us(work, c) + passes * c["kernel_pass_us"] + work.layers * c["decoder_layer_us"]
    us = us + cache / (c["cache_gbs_llm"] * 1e3)
    if work.stored.host_cache:
        us = us + 2 * cache / (c["host_cache_gbs"] * 1e3)
    return us


def decoding(chip: str | Chip, params: float, fmt: str, context: float | None, batch: int) -> Decoding:
    """The model as numbers; UsageError for a size, context or batch that makes no sense."""
    if not math.isfinite(params) or params <= 0:
        raise UsageError(f"a model of {params} parameters", hint="a count, or billions (below 100,000)")
    if batch < 1:
        raise UsageError(f"a batch of {batch}", hint="1 or more")
    if context is not None and (not math.isfinite(context) or context < 0):
        raise UsageError(f"a context of {context} tokens", hint="0 or more")
    count = params * BILLION if params < 1e5 else params
    length = DEFAULT_CONTEXT if context is None else context
    target = chips.get(chip.split(" (")[0].rstrip("?") if isinstance(chip, str) else chip)
    return Decoding(target, count, stored_as(fmt), length, batch)


def decode_rate(
    chip: str | Chip, params: float, fmt: str, context: float | None = None, batch: int = 1
) -> tuple[float, float, float]:
    """Tokens per second over all sequences, with the rates one standard deviation below and above.

    Parameters
    ----------
    chip : what people call it; a device in brackets behind it says nothing more ("A19 Pro (iPhone 17 Pro)").
    params : weights of the model, as a count or in billions (below 100,000): 4 and 4e9 are the same model.
    fmt : how they are stored, see ``stored_as``.
    context : positions that attention runs over, the program's capacity where that is padded; 512 when not given.
    batch : sequences decoded at a time.

    Greedy decoding, one token a step: speculative decoding multiplies the rate by the tokens that a step accepts.
    Raises UsageError for an unknown chip or format, or numbers that make no sense.
    """
    work = decoding(chip, params, fmt, context, batch)
    numbers = work.numbers
    us = float(token_us(work, numbers))
    sigma = _sigma(work, numbers)
    rate = 1e6 * batch / us
    return rate, rate * math.exp(-sigma), rate * math.exp(sigma)


def prefill_rate(
    chip: str | Chip, params: float, fmt: str, context: float | None = None, rows: int = 64
) -> tuple[float, float, float]:
    """Tokens per second of a prompt that goes through in steps of ``rows``, with the rates a standard deviation off.

    Weights, norms and calls as in ``decode_rate``; keys and values are read for every 64 rows of the array, of which a
    position has as many as query heads share its keys. INFERRED: no constant is fitted to prefill, and the range is the
    scatter of the published rows (``PREFILL_SCATTER``).
    """
    rate = 1e6 * rows / rows_us(decoding(chip, params, fmt, context, rows))
    return rate, rate * math.exp(-PREFILL_SCATTER), rate * math.exp(PREFILL_SCATTER)


def rows_us(work: Decoding, cache_bytes: float | None = None) -> float:
    """Microseconds of one call for ``work.batch`` rows of one sequence; ``cache_bytes``: keys and values of a sequence,
    where more is known than the rule of thumb."""
    numbers, limits = work.numbers, work.chip.generation
    passes = 2 * work.parameters / (limits.cores * limits.kernel_bytes_per_core)
    cache = work.cache_bytes if cache_bytes is None else cache_bytes
    cache *= max(1.0, work.batch * QUERIES_PER_KEY / ARRAY_ROWS)
    us = weights_us(work, numbers) + passes * numbers["kernel_pass_us"] + work.layers * numbers["decoder_layer_us"]
    return float(us + cache / (numbers["cache_gbs_llm"] * 1e3))


def token_energy(
    chip: str | Chip, params: float, fmt: str, context: float | None = None, rows: int = 1
) -> tuple[float, float, float]:
    """Millijoules of the engine's rail for one of ``rows`` tokens of a step, with those at the rates' two ends.

    Multiply-accumulates, bytes of weights and cache, and the engine awake for the step, by the constants of other
    networks (docs/timing.md); DRAM's own rail is not in it. INFERRED: no energy of a decoder is published on this rail.
    The range is that of the time alone.
    """
    work = decoding(chip, params, fmt, context, 1)
    numbers = work.numbers
    width, cache = work.bytes_per_weight(numbers), work.cache_bytes
    mac = numbers["energy_mac_pj"] * (INT8_SHARE if work.stored.int8 else 1.0)
    macs = work.parameters + cache / 2 * QUERIES_PER_KEY
    reads = work.parameters * width / rows + cache * max(1 / rows, QUERIES_PER_KEY / ARRAY_ROWS)
    work_mj = (macs * mac + reads * numbers["energy_byte_pj"]) * 1e-9
    rates = decode_rate(chip, params, fmt, context) if rows == 1 else prefill_rate(chip, params, fmt, context, rows)
    awake = [1e3 * numbers["idle_w"] / rate for rate in rates]
    return work_mj + awake[0], work_mj + awake[2], work_mj + awake[1]


def _sigma(work: Decoding, numbers: Mapping[str, float]) -> float:
    """One standard deviation of a rate's logarithm: the constants' errors and the scatter of models left out."""
    gradient, fitted = slopes(partial(token_us, work), numbers), language()
    errors = {name: math.log(entry["factor"]) for name, entry in fitted["constants"].items()}
    own = sum((gradient[name] * errors[name]) ** 2 for name in errors if name in gradient)
    others = {name: slope for name, slope in gradient.items() if name not in errors}
    return math.sqrt(own + shipped().constants_variance(work.chip, others) + fitted["scatter"] ** 2)


HEAD_INNER, HEAD_WORDS = 4096, 128256
HEADS = {"fp16": "fp16", "palette6": "p6"}


def head_row(chip: str, wfmt: str) -> dict[str, str]:
    """A language model's head in the columns of ``calibration.csv``: one row, one Core ML call."""
    shape = {"m": "1", "k": str(HEAD_INNER), "nn": str(HEAD_WORDS)}
    fixed = {"kind": "gemv", "op": "linear", "includes": "call_coreml", "engines": "1"}
    return {"chip": chip, "wfmt": wfmt, **fixed, **shape}


def lm_head_range_us(chip: str | Chip, fmt: str = "fp16", sigmas: float = 1.0) -> tuple[float, float, float]:
    """A head of 4096 inputs and 128,256 words on one row: microseconds of the call, and ``sigmas`` below and above.

    ``fmt`` is ``fp16`` or ``palette6`` (6-bit indices); UsageError for anything else.
    """
    if fmt not in HEADS:
        raise UsageError(f"no head in the format {fmt!r}", hint=f"one of {', '.join(HEADS)}")
    return predict_range(head_row(chips.get(chip).name, HEADS[fmt]), sigmas)


def lm_head_us(chip: str | Chip, fmt: str = "fp16") -> float:
    """Microseconds of one Core ML call of that head; ``lm_head_range_us`` says how far to trust it."""
    return lm_head_range_us(chip, fmt)[0]
