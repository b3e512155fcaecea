"""One answer to "how long": what the program takes, what Apple's compiler would reach, and why they differ.

Two programs can be made of one network. hexane's own has launches wherever an op stays on the host, and tasks that
are not always those of Apple's compiler. Apple's is estimated as one program, cut only where the engine refuses an op.
Both are counted in the same parts, so that their difference is the difference of these parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hexane.counts import counted
from hexane.errors import HexaneError
from hexane.timing import estimate

if TYPE_CHECKING:
    from hexane.chips import Chip
    from hexane.graph import Graph
    from hexane.timing import Estimate

APPLE, HEXANE = "Apple's compiler", "hexane's program"
LEAST_US = 1.0
"""A host's time below it is no time: nothing that is known was counted."""
PARTS = (("launch_us", "launches"), ("host_us", "host"), ("copies_us", "copies"), ("engine_us", "engine"))


@dataclass(frozen=True)
class HowLong:
    """A network's two estimates on one chip; ``program`` is None where there is none, ``missing`` says why."""

    network: Estimate
    program: Estimate | None
    missing: str = ""

    @property
    def answer(self) -> str:
        """Number to believe, in one sentence."""
        if not self.network.parts.launches and (self.program is None or not self.program.parts.launches):
            us = self.network.latency_us
            host = f"the host takes about {us:.0f} us" if us >= LEAST_US else "what the host takes is not known"
            return f"{self.network.chip}: nothing of it runs on the engine; {host}"
        reaches = "reach" if self.network.parts.launches else "leave it to the host:"
        reach = f"Apple's compiler would {reaches} {_takes(self.network)}"
        if self.program is None:
            return f"{self.network.chip}: {reach}; of hexane's own program nothing is known: {self.missing}"
        takes = f"the program that hexane writes takes {_takes(self.program)}"
        takes += "" if self.program.parts.launches else ", on the host alone"
        return f"{self.network.chip}: {takes}; {reach}{self.why}"

    @property
    def why(self) -> str:
        """The parts that make most of the difference between the two."""
        if self.program is None:
            return ""
        differences = {name: getattr(self.program.parts, key) - getattr(self.network.parts, key) for key, name in PARTS}
        total = sum(differences.values())
        if abs(total) < 0.1 * max(self.network.latency_us, 1e-9):
            return ", nearly the same"
        leading = sorted(differences.items(), key=lambda item: -abs(item[1]))
        phrases = [f"{name} {us:+.0f} us" for name, us in leading if abs(us) >= 0.1 * abs(total)]
        return f". The difference: {', '.join(phrases)}"

    def as_dict(self) -> dict[str, Any]:
        """Plain data: the answer, and the estimate of hexane's program or None."""
        return {"answer": self.answer, "program": self.program.as_dict() if self.program else None}


def _takes(one: Estimate) -> str:
    launches = one.parts.launches
    if not launches and one.latency_us < LEAST_US:
        return "a time that is not known"
    return f"about {one.latency_us:.0f} us with {counted(launches, 'launch', 'launches')}"


def how_long(graph: Graph, network: Estimate, chip: Chip, interface: str) -> HowLong:
    """Compile a network for a chip and time the program, where hexane can do both."""
    from hexane.codegen import compile

    try:
        return HowLong(network, estimate(compile(graph, chip=chip), chip, interface=interface))
    except HexaneError as error:
        return HowLong(network, None, error.message)
