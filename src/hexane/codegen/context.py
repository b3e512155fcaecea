"""The compilation as code generation sees it: one frozen record for recipes, moves, residency and the linker."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hexane.codegen.fragment import ELEMENT_BYTES, Tensor, four_dimensional, surface_shape
from hexane.codegen.plan import Buffer, Space
from hexane.errors import Reason, UnsupportedError
from hexane.lowering.compilation import Compilation

if TYPE_CHECKING:
    from hexane.chips import Generation
    from hexane.codegen.choices import Choices
    from hexane.codegen.memory.spills import Spill
    from hexane.codegen.targets import Target
    from hexane.graph.ir import Value


class Homes(dict[str, str]):
    """The state in whose buffer a value stands, by the value's name; one object belongs to one network."""

    __hash__ = object.__hash__  # type: ignore[assignment]


NO_HOMES = Homes()


@dataclass(frozen=True)
class Policy:
    """Values that may stay in L2, for tests and studies.

    ``wanted`` refuses tensors by key, ``room`` takes bytes of L2 away, ``eager`` cuts bands at almost any price.
    ``between``: only tensors that tasks of several recipes use; a recipe's own stay as it has them.
    """

    wanted: Callable[[Hashable], bool] = lambda key: True
    room: int | None = None
    eager: bool = False
    between: bool = False


APPLE = Policy(between=True)
"""What Apple's compiler keeps (docs/reference/residency.md)."""


@dataclass(frozen=True, kw_only=True)
class Context(Compilation):
    """A compilation for a target, what may stay in L2 there, and who wants to know why the rest does not.

    ``on_spills`` is called for every program that is linked, with what it moves beyond the least. ``homes``: the
    buffers of states (``hexane.codegen.states``). ``forms``: tasks of this very context (``hexane.codegen.forms``).
    """

    target: Target
    policy: Policy = Policy()
    on_spills: Callable[[tuple[Spill, ...]], None] | None = None
    homes: Homes = NO_HOMES
    forms: dict[Hashable, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def limits(self) -> Generation:
        """Limits of the target's engine."""
        return self.target.limits

    @property
    def choices(self) -> Choices:
        """Choices of the target's compiler where a recipe is the same."""
        return self.target.choices

    def home(self, value: Value) -> str:
        """The name of a value's buffer: its own, or that of the state of which it is the contents."""
        return self.homes.get(value.name, value.name)

    def tensor(self, value: Value) -> Tensor:
        """A runtime value as a plain tensor in DRAM."""
        if value.is_constant:
            raise UnsupportedError(
                f"{value.name} is a constant where the engine needs a tensor that is computed", code=Reason.CONSTANT
            )
        four_dimensional(value.shape)
        return self.surface(value)

    def surface(self, value: Value) -> Tensor:
        """A value as a plain tensor in DRAM. UnsupportedError where the target takes none of its shape or type."""
        extents = _surface_extents(value.shape, value.dtype, self.target, self.chip.name)
        return Tensor(Buffer(self.home(value), Space.SURFACE), *extents, ELEMENT_BYTES[value.dtype])


@lru_cache(2000)
def _surface_extents(shape: tuple[int, ...], dtype: str, target: Target, chip: str) -> tuple[int, int, int, int]:
    """N, C, H and W of a tensor in DRAM. UnsupportedError where the target takes none of its shape or type."""
    if dtype not in ELEMENT_BYTES:
        raise UnsupportedError(f"the engine has no {dtype} surfaces", code=Reason.ELEMENT_TYPE)
    extents = surface_shape(shape)
    if min(extents) < 1:
        raise UnsupportedError(f"a tensor of shape {shape} has no elements", code=Reason.SHAPE)
    beyond = target.limits.beyond(dict(zip("NCHW", extents)))
    if beyond is not None:
        axis, size, limit = beyond
        raise UnsupportedError(f"an extent of {size} along {axis}, and {chip} takes {limit}", code=Reason.EXTENT)
    return extents
