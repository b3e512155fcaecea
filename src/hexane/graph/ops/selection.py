"""Non-maximum suppression (docs/reference/mil.md 5.7)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexane.errors import GraphError
from hexane.graph.ops.sorting import sorted_indices
from hexane.graph.registry import op
from hexane.graph.types import TensorType


def _check(boxes: TensorType, scores: TensorType, max_boxes: int, last: bool) -> None:
    if boxes.rank != 3 or scores.rank != 3 or boxes.shape[1 if last else 2] != 4:
        raise GraphError(f"boxes {boxes.shape} and scores {scores.shape} do not go together")
    counts = (boxes.shape[2], scores.shape[2]) if last else (boxes.shape[1], scores.shape[1])
    if boxes.shape[0] != scores.shape[0] or counts[0] != counts[1] or max_boxes < 0:
        raise GraphError(f"boxes {boxes.shape} and scores {scores.shape} do not go together")


def _overlap(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union of a box with others; centre and size, x before y."""
    low = np.maximum(box[:2] - box[2:] / 2, others[:, :2] - others[:, 2:] / 2)
    high = np.minimum(box[:2] + box[2:] / 2, others[:, :2] + others[:, 2:] / 2)
    shared = np.prod(np.maximum(high - low, 0), axis=1)
    union = np.prod(box[2:]) + np.prod(others[:, 2:], axis=1) - shared
    return np.where(union > 0, shared / np.where(union > 0, union, 1), 0)


def suppress(
    boxes: np.ndarray, scores: np.ndarray, count: int, *, iou_threshold: float, score_threshold: float,
    per_class_suppression: bool,
) -> list[int]:  # fmt: skip
    """Indices of the boxes that survive, best first.

    A box is judged by its best class; with ``per_class_suppression`` it suppresses boxes of that class only. (MIL's
    definition does not say how a box with several classes is judged.)
    """
    best = scores.max(axis=1)
    kind = scores.argmax(axis=1)
    order = sorted_indices(best, 0, False)
    alive = best >= score_threshold
    survivors: list[int] = []
    for index in order:
        if len(survivors) == count:
            break
        if not alive[index]:
            continue
        survivors.append(int(index))
        hit = _overlap(boxes[index], boxes) > iou_threshold
        alive &= ~(hit & (kind == kind[index])) if per_class_suppression else ~hit
    return survivors


def _nms_type(
    boxes: TensorType, scores: TensorType, max_boxes: int
) -> tuple[TensorType, TensorType, TensorType, TensorType]:
    _check(boxes, scores, max_boxes, last=False)
    n, _count, classes = scores.shape
    return (
        boxes.with_shape((n, max_boxes, 4)),
        scores.with_shape((n, max_boxes, classes)),
        TensorType("int32", (n, max_boxes)),
        TensorType("int32", (n,)),
    )


@op(
    "non_maximum_suppression",
    "boxes:T scores:T iou_threshold:float score_threshold:float max_boxes:int per_class_suppression:bool=False",
    infer=_nms_type,
    derivative="which boxes survive is constant between its jumps: gather the boxes by the indices",
)
def non_maximum_suppression(
    boxes: np.ndarray, scores: np.ndarray, max_boxes: int, **limits: Any
) -> tuple[np.ndarray, ...]:
    """Boxes [n, B, 4], scores [n, B, K]: the best boxes, their scores and indices (padded with 0 and -1), how many."""
    n, _, classes = scores.shape
    picked_boxes = np.zeros((n, max_boxes, 4), boxes.dtype)
    picked_scores = np.zeros((n, max_boxes, classes), scores.dtype)
    indices = np.full((n, max_boxes), -1, np.int32)
    counts = np.zeros(n, np.int32)
    for b in range(n):
        survivors = suppress(boxes[b], scores[b], max_boxes, **limits)
        counts[b] = len(survivors)
        picked_boxes[b, : len(survivors)] = boxes[b, survivors]
        picked_scores[b, : len(survivors)] = scores[b, survivors]
        indices[b, : len(survivors)] = survivors
    return picked_boxes, picked_scores, indices, counts


def _nms17_type(boxes: TensorType, scores: TensorType, max_boxes: int) -> tuple[TensorType, TensorType, TensorType]:
    _check(boxes, scores, max_boxes, last=True)
    n, classes, _count = scores.shape
    return (
        boxes.with_shape((n, 4, max_boxes)),
        scores.with_shape((n, classes, max_boxes)),
        TensorType("int32", (n, max_boxes)),
    )


@op(
    "non_maximum_suppression",
    "boxes:T scores:T iou_threshold:float max_boxes:int per_class_suppression:bool=False",
    infer=_nms17_type,
    since=17,
    derivative="which boxes survive is constant between its jumps: gather the boxes by the indices",
)
def non_maximum_suppression_17(boxes: np.ndarray, scores: np.ndarray, **limits: Any) -> tuple[np.ndarray, ...]:
    """The same with boxes [n, 4, B] and scores [n, K, B], no least score and no count."""
    limits["score_threshold"] = -np.inf
    outputs = non_maximum_suppression(boxes.swapaxes(1, 2), scores.swapaxes(1, 2), **limits)
    return outputs[0].swapaxes(1, 2), outputs[1].swapaxes(1, 2), outputs[2]
