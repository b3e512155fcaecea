"""The largest logit and its word, found by the head's programs: against NumPy's arg-max of all logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.language import Decoder
from hexane.language.network import LARGEST, PIECE, StepForm, best_words, head_graph
from language import reference

IDS = np.random.default_rng(7).integers(0, 96, 12).tolist()


@pytest.mark.parametrize("chip", ["M1", "M2", "M4", "M5"])
@pytest.mark.parametrize("words", [96, PIECE + 700])
def test_word_and_logit_are_those_of_all_logits_and_the_first_of_several(words: int, chip: str, tmp_path: Path) -> None:
    config, tensors = reference.model("llama")
    reference.folder(tmp_path, config, tensors)
    a = Decoder.from_pretrained(tmp_path).architecture
    rng = np.random.default_rng(words)
    head, x = rng.standard_normal((words, a.hidden)), rng.standard_normal((1, a.hidden, 1, 4)).astype(np.float16)
    head[[1, words // 3, words // 2, words - 1]] = 3 * x[0, :, 0, 0]  # the largest of row 0, four times
    head[[words - 30, words - 2]] = 3 * x[0, :, 0, 2]
    norm = {"norm": np.ones(a.hidden, np.float32)}
    answers = {}
    for alone in (True, False):
        graph = head_graph(a, StepForm(4, 32, largest_alone=alone), head, norm)
        program = hexane.compile(graph, chip=chip)
        assert [segment.kind for segment in program.segments] == ["engine"]
        answers[alone] = program.run({"x": x})
        same = program.run({"x": x}, level="graph")
        assert all(np.array_equal(answers[alone][name], same[name]) for name in same)
    logits = np.concatenate([answers[False][name] for name in answers[False]], axis=1)[0, :, 0]
    found, values = best_words(answers[True])
    assert np.array_equal(found, logits.argmax(0)) and np.array_equal(values, logits.max(0).astype(np.float32))
    assert (logits[:, 0] == logits[:, 0].max()).sum() == 4 and found[0] == 1 and found[2] == words - 30
    assert len(answers[True]) == len(LARGEST) * -(-words // PIECE)


@pytest.mark.parametrize("level", ["engine", "graph", "float32"])
@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_greedy_tokens_are_those_of_the_largest_logits(kind: str, level: str, tmp_path: Path) -> None:
    config, tensors = reference.model(kind)
    reference.folder(tmp_path, config, tensors)
    model = Decoder.from_pretrained(tmp_path)
    run, feed, wanted = model.start(32, level=level), IDS[:3], []
    for _ in range(4):
        feed = [int(run.feed(feed)[-1].argmax())]
        wanted += feed
    assert model.generate(IDS[:3], 4, level=level) == wanted
    words, values = model.start(32, level=level).best(IDS[:3])
    logits = model.start(32, level=level).feed(IDS[:3])
    assert np.array_equal(values, logits.max(1)) and np.array_equal(words, logits.argmax(1))


def test_a_plan_has_every_op_of_the_choice_on_the_engine(tmp_path: Path) -> None:
    config, tensors = reference.model("llama")
    reference.folder(tmp_path, config, tensors)
    places = [place for place in Decoder.from_pretrained(tmp_path).plan("M4", 32).places if place.program == "head"]
    ours = {place.op: (place.count, place.hexane) for place in places}
    assert ours["reduce_max"] == (3, "engine") and ours["equal"] == (2, "engine") == ours["cast"]
    assert all(place.hexane == place.apple == "engine" for place in places)
