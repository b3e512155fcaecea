"""Lists sorted by score: rows are paired, noise at their end says nothing, what is really another box is said."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.graph import Graph, GraphBuilder
from hexane.session.agreement import Agreement, agreements
from hexane.session.lists import ROW, lists_of
from hexane.session.run import run_network
from hexane.session.verdict import word_for

K = 40


def detector(joined: bool = True) -> Graph:
    """The K best of 200 boxes with their scores, in one output or in two."""
    b = GraphBuilder()
    scores, boxes = b.input("scores", (1, 200), "fp32"), b.input("boxes", (1, 200, 4), "fp32")
    best, index = b.topk(x=b.sigmoid(x=scores), k=K, axis=1)
    rows = b.gather_along_axis(x=boxes, indices=b.tile(x=b.expand_dims(x=index, axes=[2]), reps=[1, 1, 4]), axis=1)
    column = b.expand_dims(x=best, axes=[2])
    if joined:
        b.output(b.concat(values=[rows, column], axis=2), name="rows")
    else:
        b.output(rows, name="boxes_of")
        b.output(best, name="scores_of")
    return b.graph


@pytest.fixture
def boxes() -> np.ndarray:
    """K rows: four corners and a score, two of them sure and the others noise."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 300, (K, 5))
    rows[:, 4] = np.sort(rng.uniform(1e-5, 1e-3, K))[::-1]
    rows[:2, 4] = 0.77, 0.4
    return rows[None].astype(np.float32)


def compared(got: np.ndarray, expected: np.ndarray) -> Agreement:
    (row,) = agreements({"rows": got}, {"rows": expected}, detector())
    assert row.answer is not None and row.answer.kind == ROW
    return row


def test_where_lists_are() -> None:
    assert {name: place.axis for name, place in lists_of(detector()).items()} == {"rows": 1}
    assert set(lists_of(detector(joined=False))) == {"boxes_of", "scores_of"}
    b = GraphBuilder()
    best, _ = b.topk(x=b.input("x", (1, 200), "fp32"), k=K, axis=1)
    b.output(b.linear(x=best, weight=np.ones((3, K), np.float32), bias=np.zeros(3, np.float32)), name="y")
    assert lists_of(b.graph) == {}  # a layer behind the list: no rows any more


def test_noise_in_another_order_is_the_same_list(boxes: np.ndarray) -> None:
    got = boxes.copy()
    got[0, 2:, :4] = np.random.default_rng(1).uniform(0, 300, (K - 2, 4))
    got[0, 0, 4] = 0.75
    row = compared(got, boxes)
    assert (row.answer.decisions, row.answer.changed) == (2, 0)
    assert word_for(row) in ("same", "close") and row.relative < 1e-3 and row.shape == (1, K, 5)


def test_two_sure_boxes_may_change_places(boxes: np.ndarray) -> None:
    got = boxes.copy()
    got[0, [0, 1]] = got[0, [1, 0]]
    got[0, :2, 4] = 0.6, 0.59
    boxes[0, :2, 4] = 0.6, 0.59
    assert compared(got, boxes).answer.changed == 0


def test_a_box_elsewhere_a_lost_one_and_one_too_many(boxes: np.ndarray) -> None:
    elsewhere, lost, more = boxes.copy(), boxes.copy(), boxes.copy()
    elsewhere[0, 0, :4] += 100
    lost[0, 1, 4] = 0.01  # still in the list, and of no weight: that is an error of its score
    more[0, 2, 4] = 0.3
    assert word_for(compared(elsewhere, boxes)) == "changed"
    assert compared(elsewhere, boxes).answer.changed == 2  # float32's box is not there, and the engine's is nobody's
    assert compared(lost, boxes).relative > 1e-4
    row = compared(more, boxes)
    assert (row.answer.changed, word_for(row)) == (1, "changed")


def test_nothing_found_is_nothing_changed(boxes: np.ndarray) -> None:
    boxes[0, :2, 4] = 1.2e-3, 1.1e-3
    got = boxes.copy()
    got[0, :, :4] = 0
    assert word_for(compared(got, boxes)) == "same"
    got[0, 0, 4] = 0.5
    assert word_for(compared(got, boxes)) == "changed"


def test_nan_is_broken_and_equal_lists_are_the_same(boxes: np.ndarray) -> None:
    got = boxes.copy()
    got[0, 5, 1] = np.nan
    assert word_for(compared(got, boxes)) == "broken"
    (row,) = agreements({"rows": boxes}, {"rows": boxes.copy()}, detector())
    assert row.identical and word_for(row) == "same"


def test_outputs_of_one_sorting_are_paired_together(boxes: np.ndarray) -> None:
    got = boxes.copy()
    got[0, 2:] = got[0, 2:][::-1]
    got[0, 2:, 4] = boxes[0, 2:, 4]
    split = [{"boxes_of": a[..., :4], "scores_of": a[..., 4]} for a in (got, boxes)]
    row, scores = agreements(*split, detector(joined=False))
    assert row.answer is not None and (row.answer.decisions, row.answer.changed) == (2, 0)
    assert word_for(row) == "same" and scores.identical


def test_a_detector_on_the_engine_finds_the_same_boxes() -> None:
    rng = np.random.default_rng(3)
    b = GraphBuilder()
    x = b.input("x", (1, 32, 20, 20), "fp32")
    raw = b.conv(x=x, weight=(rng.normal(size=(1, 32, 3, 3)) * 0.02).astype(np.float32), pad_type="same",
                 bias=np.full(1, -7, np.float32))  # fmt: skip
    best, index = b.topk(x=b.sigmoid(x=b.reshape(x=raw, shape=[1, 400])), k=100, axis=1)
    corners = b.conv(x=x, weight=(rng.normal(size=(4, 32, 1, 1)) * 10).astype(np.float32), pad_type="valid")
    rows = b.transpose(x=b.reshape(x=corners, shape=[1, 4, 400]), perm=[0, 2, 1])
    rows = b.gather_along_axis(x=rows, indices=b.tile(x=b.expand_dims(x=index, axes=[2]), reps=[1, 1, 4]), axis=1)
    b.output(b.concat(values=[rows, b.expand_dims(x=best, axes=[2])], axis=2), name="rows")
    picture = rng.normal(size=(1, 32, 20, 20)).astype(np.float32)
    done = run_network(b.graph, {"x": picture}, name="detector", compare="reference")
    (row,) = done.agreements
    assert row.answer is not None and row.answer.kind == ROW and done.verdict is not None
    assert done.verdict.good, done.verdict.text
