"""State of a network between calls: arrays that a run changes in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import UsageError
from hexane.graph.types import DTYPES

if TYPE_CHECKING:
    from hexane.program.segment import Port


class State(dict[str, np.ndarray]):
    """State name -> array of the declared shape. One object belongs to one sequence of calls."""


def new_state(ports: tuple[Port, ...]) -> State:
    """All states as zeros, in the dtype that carries the declared one."""
    return State({port.name: np.zeros(port.shape, DTYPES[port.dtype].carrier) for port in ports})


def checked_state(ports: tuple[Port, ...], state: Mapping[str, Any] | None) -> Mapping[str, np.ndarray]:
    """The arrays of a state; new ones where none is given. UsageError for one that is missing or of another shape."""
    if state is None:
        return new_state(ports)
    for port in ports:
        array = state.get(port.name)
        if not isinstance(array, np.ndarray) or array.shape != port.shape:
            what = "is missing" if array is None else f"has shape {getattr(array, 'shape', None)}"
            raise UsageError(f"state {port.name!r} {what}", hint="program.make_state() makes one that fits")
    unknown = set(state) - {port.name for port in ports}
    if unknown:
        raise UsageError(f"there is no state {sorted(unknown)[0]!r}", hint="program.make_state() makes one that fits")
    return state
