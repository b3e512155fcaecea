"""Random sequences of calls with random faults: clear errors, right numbers, nothing left on either side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hexane.errors import HexaneError
from hexane.private_api.faults import ProcessCrash
from hexane.runtime.macos.fake.border import FakeMac
from hexane.runtime.macos.model import MemoryModel, SubmissionWay
from runtime.macos.programs import convolution, difference, mac, staged, values

STEPS = ("new", "compile", "load", "load", "load", "evaluate", "evaluate", "evaluate", "evaluate", "unload", "close")


class Walk:
    """One sequence on one Mac: models come and go, calls fail now and then."""

    def __init__(self, folder: Path, sources: list, wanted: list, side: FakeMac, seed: int) -> None:
        self.folder, self.sources, self.wanted, self.side = folder, sources, wanted, side
        self.random = np.random.default_rng(seed)
        self.models: list[tuple[int, MemoryModel]] = []
        self.right = self.failed = 0

    def step(self) -> None:
        word = STEPS[self.random.integers(len(STEPS))]
        if word == "new" or not self.models:
            kind = int(self.random.integers(len(self.sources)))
            self.models.append(
                (kind, MemoryModel(self.side, self.sources[kind], SubmissionWay(root=self.folder / "tmp")))
            )
            return
        at = int(self.random.integers(len(self.models)))
        kind, model = self.models[at]
        if word == "close" or model.folder is None:  # an error gave everything back
            self.models.pop(at)[1].close()
        elif word == "load":
            if not model.is_loaded:
                model.compile()
                model.load()
        elif word == "evaluate":
            found = model.evaluate(values(self.sources[kind]))
            assert all(np.array_equal(found[name], array) for name, array in self.wanted[kind].items())
            self.right += 1
        else:
            getattr(model, word)()

    def run(self) -> None:
        for _ in range(int(self.random.integers(3, 14))):
            if self.random.random() < 0.15:
                first = self.side.calls + int(self.random.integers(0, 12))
                self.side.settings = replace(self.side.settings, fails_at=first)
            try:
                self.step()
            except ProcessCrash:
                raise
            except HexaneError as error:
                assert len(str(error)) > 20
                self.failed += 1
        self.side.settings = replace(self.side.settings, fails_at=-1)
        for _, model in self.models:
            model.close()
        left = [what for what in self.side.left() if "was released" not in what]
        assert left == [] and staged(self.folder) == [], left
        self.side.heap.freed.clear()
        self.side.heap.complaints.clear()


@pytest.mark.parametrize("count", [150, pytest.param(10_000, marks=pytest.mark.slow)])
def test_random_sequences(tmp_path: Path, count: int) -> None:
    sources = [difference("b", "a"), difference("a", "b"), convolution()]
    side = mac(tmp_path)
    wanted = []
    for source in sources:
        model = MemoryModel(side, source, SubmissionWay(root=tmp_path / "tmp"))
        model.compile()
        model.load()
        wanted.append(model.evaluate(values(source)))
        model.close()
    right = failed = 0
    for seed in range(count):
        walk = Walk(tmp_path, sources, wanted, side, seed)
        walk.run()
        right, failed = right + walk.right, failed + walk.failed
    assert right > count / 10 and failed > count / 10
    print(f"{count} sequences: {right} evaluations with the right bits, {failed} clear errors")
