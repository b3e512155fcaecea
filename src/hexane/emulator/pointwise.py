"""Functions of one fp16 value over large arrays: there are 65536 values, so each is computed once and remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

import numpy as np

from hexane.arithmetic.hypotheses import in_force

WORTH_IT = 1 << 13
"""Elements from which gathering from a table of all results beats computing."""
MOST_TABLES = 256
"""Tables remembered: 128 KiB each."""

_tables: OrderedDict[Hashable, np.ndarray] = OrderedDict()


def pointwise(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, *key: Hashable) -> np.ndarray:
    """``function`` of every element of a float16 array; the same bits as calling it on the array.

    ``key`` names the function and its numbers: equal keys mean equal functions under the same hypotheses.
    """
    if x.size < WORTH_IT:
        return function(x)
    name = (key, in_force())
    table = _tables.get(name)
    if table is None:
        if x.size < 1 << 16:  # not worth a table of its own
            return function(x)
        every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
        table = _tables[name] = function(every).view(np.uint16)
        if len(_tables) > MOST_TABLES:
            _tables.popitem(last=False)
    else:
        _tables.move_to_end(name)
    return table[x.view(np.uint16)].view(np.float16)
