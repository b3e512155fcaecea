"""The chips that people own.

Sources: docs/reference/generations.md 1.2, docs/reference/performance.md 2, docs/reference/devices.md 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from hexane.chips.evidence import Evidence
from hexane.chips.generations import Generation, generation


@dataclass(frozen=True)
class Chip:
    """One chip as a user names it.

    ``target`` is the name that Apple's compiler takes, ``generation_name`` the register format behind it.
    ``clock_mhz`` is the top step of the neural cores with ``clock_evidence``; ``dram_gbs`` is the peak of the memory,
    of the largest configuration sold (docs/reference/performance.md 3; None: not known). ``engines`` counts engines of
    16 cores. ``macs_per_core_cycle`` is 256 in fp16 on every chip measured (docs/reference/performance.md 2).
    ``winograd``: dense 3x3 and 1x3 kernels at stride 1 run as a one-dimensional F(2,3) transform
    (docs/reference/numerics.md 6). ``sibling`` names the chip whose measured constants stand in where this one has
    none. ``small_cache``: a base chip of a computer, where a residual sum moves all of its three maps; elsewhere only
    what L2 does not hold (SILICON on A16, A17 Pro, M5 Pro, and the other way on M4 and M6; that the system cache makes
    the difference is INFERRED). ``wide_stream``: weights stream about twice as fast as on the base chip.
    """

    name: str
    soc: str
    target: str
    generation_name: str
    clock_mhz: float
    clock_evidence: Evidence
    dram_gbs: float | None
    engines: int = 1
    winograd: bool = False
    sibling: str | None = None
    aliases: tuple[str, ...] = ()
    macs_per_core_cycle: int = 256
    small_cache: bool = False
    wide_stream: bool = False

    def __hash__(self) -> int:
        """Of the name alone: prices are looked up by chip."""
        return hash(self.name)

    @property
    def generation(self) -> Generation:
        """Limits of this chip's engine."""
        return generation(self.generation_name)

    @property
    def cores(self) -> int:
        """Neural cores over all engines of the chip."""
        return self.generation.cores * self.engines

    @property
    def peak_macs_per_us(self) -> float:
        """fp16 multiply-accumulates per microsecond at the top clock, over all engines."""
        return self.cores * self.macs_per_core_cycle * self.clock_mhz

    @property
    def int8_rate(self) -> tuple[float, Evidence] | None:
        """Multiply-accumulates of 8-bit operands over those of fp16, and how that is known; None where it is not."""
        return _INT8_RATES.get(self.generation_name)

    @property
    def advertised_tops(self) -> float | None:
        """Trillions of operations per second as Apple states them; None where no source of this project repeats it."""
        return _ADVERTISED_TOPS.get(self.name)

    def __str__(self) -> str:
        return self.name


_INT8_RATES = {
    "h13": (1.0, Evidence.SILICON),
    "h16": (2.0, Evidence.SILICON),
    "h17": (2.0, Evidence.INFERRED),
    "h18": (2.0, Evidence.INFERRED),
    "h19": (2.0, Evidence.SILICON),
}
"""docs/reference/generations.md 2, docs/reference/compressed.md 7; of H14 and H15 no measurement is public."""
_ADVERTISED_TOPS = {
    "A12": 5.0, "A13": 5.0, "A14": 11.0, "M1": 11.0, "A15": 15.8, "M2": 15.8,
    "M4": 38.0, "M4 Pro": 38.0, "M4 Max": 38.0,
}  # fmt: skip
"""docs/reference/generations.md 2: up to M2 the fp16 rate, on M4 that of 8 bits."""


_TABLE, _GUESS = Evidence.APPLE, Evidence.INFERRED

CHIPS: tuple[Chip, ...] = (
    Chip("A12", "T8020", "h11", "h11", 1000.0, _GUESS, 34.1, sibling="M1", aliases=("a12 bionic",)),
    Chip("A13", "T8030", "h12", "h12", 1200.0, _GUESS, 34.1, sibling="M1", aliases=("a13 bionic",)),
    Chip("A14", "T8101", "h13", "h13", 1428.0, _GUESS, 34.1, sibling="M1", aliases=("a14 bionic",)),
    Chip("M1", "T8103", "h13", "h13", 1428.0, _TABLE, 68.3, small_cache=True),
    Chip("M1 Pro", "T6000", "h13g", "h13", 1464.0, _TABLE, 204.8, sibling="M1 Max"),
    Chip("M1 Max", "T6001", "h13g", "h13", 1464.0, _TABLE, 409.6),
    Chip("M1 Ultra", "T6002", "h13g", "h13", 1464.0, _TABLE, 819.2, engines=2, sibling="M1 Max"),
    Chip("A15", "T8110", "h14", "h14", 1938.0, _GUESS, 34.1, sibling="M2", aliases=("a15 bionic",)),
    Chip("M2", "T8112", "h14", "h14", 1938.0, _TABLE, 102.4, sibling="M2 Pro", small_cache=True),
    Chip("M2 Pro", "T6020", "h14g", "h14", 1938.0, _TABLE, 204.8),
    Chip("M2 Max", "T6021", "h14g", "h14", 1938.0, _TABLE, 409.6),
    Chip("M2 Ultra", "T6022", "h14g", "h14", 1938.0, _TABLE, 819.2, engines=2, sibling="M2 Max"),
    Chip("A16", "T8120", "h15", "h15", 2064.0, _GUESS, 51.2, sibling="M3 Pro", aliases=("a16 bionic",)),
    Chip("M3", "T8122", "h15", "h15", 2064.0, _TABLE, 102.4, sibling="M3 Pro", small_cache=True),
    Chip("M3 Pro", "T6030", "h15g", "h15", 2064.0, _TABLE, 153.6, wide_stream=True),
    Chip("M3 Max", "T6031", "h15g", "h15", 2064.0, _TABLE, 409.6, sibling="M3 Pro", wide_stream=True),
    Chip("M3 Ultra", "T6032", "h15c", "h15", 2064.0, _GUESS, 819.2, engines=2, sibling="M3 Pro", wide_stream=True),
    Chip("A17 Pro", "T8130", "h16", "h16", 2160.0, _GUESS, 51.2, sibling="M4", aliases=("a17",)),
    Chip("M4", "T8132", "h16g", "h16", 2364.0, _TABLE, 120.0, small_cache=True),
    Chip("M4 Pro", "T6040", "h16g", "h16", 2364.0, _TABLE, 273.0, wide_stream=True),
    Chip("M4 Max", "T6041", "h16g", "h16", 2364.0, _TABLE, 546.0, wide_stream=True),
    Chip("A18", "T8140", "h17", "h17", 2172.0, _GUESS, 60.0, winograd=True, sibling="M5"),
    Chip("A18 Pro", "T8140", "h17", "h17", 2172.0, _GUESS, 60.0, winograd=True, sibling="M5"),
    Chip("M5", "T8142", "h17g", "h17", 2172.0, _TABLE, 153.6, winograd=True, small_cache=True),
    Chip("M5 Pro", "T6050", "h17s", "h17", 2364.0, _TABLE, 307.2, winograd=True, wide_stream=True),
    Chip("M5 Max", "T6051", "h17s", "h17", 2364.0, _TABLE, 614.4, winograd=True, sibling="M5 Pro", wide_stream=True),
    Chip("A19", "T8150", "h18", "h18", 2364.0, _GUESS, 68.3, winograd=True, sibling="M5 Pro", aliases=("a19 pro",)),
    Chip("M6", "T8152", "h18g", "h19", 2580.0, _TABLE, None, 2, winograd=True, small_cache=True, wide_stream=True),
)


@cache
def winograd_on(generation: str) -> bool:
    """True where the chips of a generation compute 3x3 and 1x3 windows in Winograd form."""
    return any(chip.winograd for chip in CHIPS if chip.generation_name == generation)
