"""Statistics of a model that look like the real ones, and say that they are estimates."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Statistics:
    """Statistics as of ``_ANEPerformanceStats``, and the counts made here.

    ``hw_execution_ns`` is the timing model's estimate of one evaluation on the chip (``estimated`` is always True: no
    engine is here), and stays 0 unless the model was made with a statistics mask, as on the real runtime. Counts and
    ``seconds`` (of the emulation) are measured.
    """

    hw_execution_ns: int = 0
    estimated: bool = True
    estimate_range_us: tuple[float, float] | None = None
    level: str = ""
    compiles: int = 0
    loads: int = 0
    evaluations: int = 0
    unloads: int = 0
    updates: int = 0
    seconds: float = 0.0
    qos: dict[int, int] = field(default_factory=dict)

    def count(self, what: str, qos: int) -> None:
        """One more call of a kind, with its quality of service."""
        setattr(self, what, getattr(self, what) + 1)
        self.qos[qos] = self.qos.get(qos, 0) + 1

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)
