"""``functools.cached_property`` without the lock that it takes before Python 3.12.

A search over forms of a program asks for thousands of such properties once each: the lock is most of what one costs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property:
        """Found at the first access and kept in the instance's dictionary, which is asked first from then on."""

        def __init__(self, find: Callable[[Any], Any]) -> None:
            self.find = find
            self.__doc__ = find.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = vars(instance)[self.name] = self.find(instance)
            return value


__all__ = ["cached_property"]
