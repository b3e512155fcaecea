"""Byte strings that were stored before, found again by what they hold.

Kernels are megabytes, and few are equal: a hash of every byte would cost more than storing them. So strings are told
apart by their length and a sample; only where those agree all bytes are compared.
"""

from __future__ import annotations

from typing import Generic, TypeVar

SAMPLE = 256  # bytes

Place = TypeVar("Place")


class Contents(Generic[Place]):
    """A mapping from byte strings to where they stand."""

    def __init__(self) -> None:
        self._alike: dict[tuple[int, bytes], list[tuple[bytes, Place]]] = {}

    def find(self, data: bytes) -> Place | None:
        """Place of equal bytes; None where there are none."""
        for content, place in self._alike.get(_sample(data), ()):
            if content == data:
                return place
        return None

    def add(self, data: bytes, place: Place) -> None:
        """Remember a place, unless equal bytes stand somewhere already."""
        alike = self._alike.setdefault(_sample(data), [])
        if all(content != data for content, _ in alike):
            alike.append((data, place))


def _sample(data: bytes) -> tuple[int, bytes]:
    return len(data), data[:SAMPLE] + data[:: len(data) // SAMPLE + 1]
