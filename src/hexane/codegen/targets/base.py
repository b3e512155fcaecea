"""A target: how the compiler meets one generation. A generation overrides what it does otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hexane.chips import Generation, generation
from hexane.codegen.choices import Choices
from hexane.codegen.cost import duration_us
from hexane.codegen.plan import Buffer, Plan, Space
from hexane.errors import Reason, UnsupportedError
from hexane.frozen import slot_init
from hexane.isa import Task
from hexane.isa.channels import CHANNELS
from hexane.isa.roles import roles_of

COUNTERS = {
    "w": ("columns", "Common.InDim.Win"),
    "h": ("rows", "Common.InDim.Hin"),
    "wout": ("columns of results", "Common.OutDim.Wout"),
    "hout": ("rows of results", "Common.OutDim.Hout"),
    "c": ("channels", "Common.Cin.Cin"),
    "cout": ("channels of results", "Common.Cout.Cout"),
    "groups": ("images or groups", "Common.GroupConvCfg.NumGroups"),
}
"""What a plan counts, and the field that the count is written to (docs/reference/limits.md 1.1)."""


@slot_init
@dataclass(frozen=True, slots=True)
class Places:
    """Places of a task's operands by the linker: a buffer's distance from its channel, its channel, its kernel's bytes.

    ``kernel_slot`` is the channel of kernels that no task wrote.
    """

    offset: Callable[[Buffer], int]
    channel: Callable[[Buffer], int]
    kernel_offset: int = 0
    kernel_slot: int = Space.CONST.value


class Target:
    """One generation as the compiler sees it.

    Attributes
    ----------
    name : the name that Apple's compiler takes (``"h13"``, ``"h16g"``).
    generation : the register table (``hexane.isa``), and with ``limits`` the row of ``hexane.chips``.
    choices : what recipes ask.
    examples : recipes of which programs by Apple's compiler for this generation are known; the tasks of all others are
        inferred from the nearest generation.
    most_tasks : tasks of one program.
    waits_for_readers : whether a destination waits for the task that read the place (docs/reference/hazards.md 2).
    sources_apart : whether each source says what it waits for.
    kernel_section : whether weights and tables have a section of their own behind the surfaces.
    """

    name: str
    generation: str
    first_surface: int
    last_channel: int = CHANNELS - 1
    most_tasks: int = 0x10000
    waits_for_readers: bool = False
    sources_apart: bool = False
    kernel_section: bool = False
    choices: Choices = Choices()
    examples: frozenset[str] = frozenset()

    @cached_property
    def limits(self) -> Generation:
        return generation(self.generation)

    @cached_property
    def counters(self) -> tuple[tuple[str, str, int], ...]:
        """A count in a task: the name in a plan, in words, and the largest number that the field holds."""
        roles = roles_of(self.generation)
        return tuple((name, words, roles.handle(role).limit) for name, (words, role) in COUNTERS.items())

    def require_fields(self, plan: Plan) -> None:
        """UnsupportedError for a task that counts further than a field of this generation does."""
        for name, words, most in self.counters:
            number = getattr(plan, name)
            if number > most:
                counted = f"a task of {number} {words}, and {self.generation.upper()} counts to {most}"
                raise UnsupportedError(counted, code=Reason.EXTENT)

    @property
    def most_surfaces(self) -> int:
        """Inputs and outputs of one program; a section of kernels takes one slot behind them."""
        return self.last_channel + 1 - self.first_surface - self.kernel_section

    def shows(self, recipe: str) -> bool:
        """True where programs of Apple's compiler have what a recipe makes."""
        return recipe in self.examples

    def channels(self, inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, int]:
        """Channel (or slot) of every surface: in the order of their names (docs/reference, channels)."""
        names = sorted({*inputs, *outputs}, key=lambda name: name.encode())
        if len(names) > self.most_surfaces:
            raise UnsupportedError(
                f"{len(names)} inputs and outputs; the engine has {self.most_surfaces} channels for them",
                code=Reason.SURFACES,
            )
        return {name: self.first_surface + i for i, name in enumerate(names)}

    def kernel_slot(self, surfaces: Mapping[str, int]) -> int:
        """Channel of the section that holds kernels."""
        if not self.kernel_section:
            return Space.CONST.value
        return max(surfaces.values(), default=self.first_surface - 1) + 1

    def stored(self, plan: Plan) -> bytes:
        """The bytes of a plan's kernel as the program holds them."""
        assert plan.kernel is not None
        return plan.kernel.data

    def adapt(self, plan: Plan) -> Plan:
        """A recipe's plan where this target always chooses otherwise."""
        return plan

    def duration(self, plan: Plan) -> int:
        """Estimated microseconds of a task."""
        return duration_us(plan)

    def assemble(self, plans: Sequence[Plan], places: Sequence[Places]) -> list[Task]:
        """The tasks of a program, linked."""
        raise NotImplementedError
