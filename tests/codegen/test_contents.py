"""Equal bytes are found again, and bytes that differ in one place only are not taken for equal."""

from __future__ import annotations

import numpy as np

from hexane.codegen.contents import Contents


def test_as_a_dictionary_does():
    rng = np.random.default_rng(0)
    data = [bytes(rng.integers(0, 2, n, np.uint8)) for n in (0, 1, 2, 3, 255, 256, 257, 5000) for _ in range(6)]
    for whole in data[-6:]:  # one byte differs
        for at in range(0, len(whole), 333):
            changed = bytearray(whole)
            changed[at] ^= 1
            data.append(bytes(changed))
    known: dict[bytes, int] = {}
    contents: Contents[int] = Contents()
    for place, each in enumerate([*data, *data]):
        assert contents.find(bytes(bytearray(each))) == known.get(each)
        known.setdefault(each, place)
        contents.add(each, place)
    assert len(known) < len(data) + 1 and all(contents.find(each) == place for each, place in known.items())
