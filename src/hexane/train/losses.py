"""Losses, computed on the host: the number, and its gradient by the network's output, which seeds the backward pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hexane.errors import UsageError

Loss = Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]
"""(output, labels) -> (loss, gradient in float32, of the output's shape)."""


def mse(output: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean of squared differences; ``labels`` of the output's shape."""
    if labels.shape != output.shape:
        raise UsageError(f"the labels have shape {labels.shape}", hint=f"mse compares them with {output.shape}")
    difference = output.astype(np.float64) - labels
    return float(np.mean(difference**2)), (2 / difference.size * difference).astype(np.float32)


def cross_entropy(output: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean of -log softmax at the labels: integers, of the output's shape without its axis of classes.

    The axis of classes is the last one where that fits, else the first that does (images, layouts with channels in
    front). Labels below zero do not count (padding). Computed in float64. UsageError for labels that do not fit.
    """
    axis = class_axis(output.shape, labels)
    logits = np.moveaxis(output.astype(np.float64), axis, -1)
    counted = labels >= 0
    count = max(int(counted.sum()), 1)
    with np.errstate(invalid="ignore", over="ignore"):
        shifted = logits - logits.max(-1, keepdims=True)
        probabilities = np.exp(shifted)
        total = probabilities.sum(-1, keepdims=True)
        at = np.where(counted, labels, 0)[..., None].astype(np.int64)
        each = np.log(total[..., 0]) - np.take_along_axis(shifted, at, -1)[..., 0]
        probabilities /= total
    np.put_along_axis(probabilities, at, np.take_along_axis(probabilities, at, -1) - 1, -1)
    gradient = np.moveaxis(probabilities * counted[..., None] / count, -1, axis)
    return float(np.where(counted, each, 0).sum() / count), np.ascontiguousarray(gradient, np.float32)


def class_axis(shape: tuple[int, ...], labels: np.ndarray) -> int:
    """The axis of ``shape`` that ``labels`` lacks; UsageError where there is none, or a label is no class."""
    for axis in (len(shape) - 1, *range(len(shape) - 1)):
        if labels.shape == shape[:axis] + shape[axis + 1 :]:
            break
    else:
        expected = shape[:-1]
        raise UsageError(
            f"the labels have shape {labels.shape}", hint=f"cross entropy of {shape} takes integers of shape {expected}"
        )
    if labels.dtype.kind not in "iu":
        raise UsageError(f"the labels are of dtype {labels.dtype}", hint="cross entropy takes numbers of classes")
    if labels.size and int(labels.max()) >= shape[axis]:
        raise UsageError(f"there is no class {int(labels.max())}", hint=f"classes are 0 to {shape[axis] - 1}")
    return axis


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "mse": mse}


def loss_of(loss: str | Loss) -> Loss:
    """A loss by name, or the function itself; UsageError for another name."""
    if callable(loss):
        return loss
    if loss not in LOSSES:
        raise UsageError(f"there is no loss {loss!r}", hint=f"one of {', '.join(LOSSES)}, or a function")
    return LOSSES[loss]
