"""Metrics: what a network answers for a sample, how good that is, and how far two answers are apart."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import HexaneError, UsageError
from hexane.studies.pieces import digest

Outputs = Mapping[str, np.ndarray]
NAMES = ("top1", "iou", "cosine", "psnr", "wer")
HIGHEST_PSNR = 150.0
"""Decibels that stand for two equal arrays, whose ratio is infinite."""


@dataclass(frozen=True)
class Judged:
    """One sample: the score is ``above / below``; ``answer`` is what another answer is compared with."""

    above: float
    below: float
    answer: np.ndarray


@dataclass(frozen=True)
class Metric:
    """A way to judge outputs.

    proportion : a sample scores 0 or 1, and the metric is the share.
    discrete : answers are equal or not; where they are not, the sample changed its answer.
    better : "higher" or "lower".
    answer : outputs of one sample -> its answer.
    score : answer and truth -> (above, below).
    apart : this answer, float32's answer and these outputs -> 0 for the same, more for worse.
    content : what decides the result, for keys.
    truth : float32's answer as a label, for data without labels.
    """

    name: str
    proportion: bool
    discrete: bool
    better: str
    answer: Callable[[Outputs, Any], np.ndarray]
    score: Callable[[np.ndarray, Any], tuple[float, float]]
    apart: Callable[[np.ndarray, np.ndarray, Outputs], float]
    content: str = ""
    truth: Callable[[np.ndarray], Any] = np.asarray

    def judge(self, outputs: Outputs, truth: Any) -> Judged:
        """One sample with its label; ``truth`` None compares with nothing (a score of the best)."""
        answer = self.answer(outputs, truth)
        above, below = self.score(answer, truth)
        return Judged(above, below, answer)


def metric_named(name: str, output: str | None = None, alphabet: tuple[str, ...] = ()) -> Metric:
    """The metric of a name, or ``module:function`` of (outputs, label) that gives a number, or a bool.

    output : which output is judged; by default the first.
    """
    content = f"{name} {output} {digest(alphabet)}"
    if name == "top1":
        return Metric(name, True, True, "higher", lambda o, _: _top(_one(o, output)), _top_score, _top_apart(output),
                      content, lambda answer: answer[:1])  # fmt: skip
    if name == "iou":
        return Metric(name, False, True, "higher", lambda o, _: _classes(_one(o, output)), _iou, _iou_apart, content)
    if name == "wer":
        words = lambda a, t: _word_errors(a, t, alphabet)  # noqa: E731
        return Metric(name, False, True, "lower", lambda o, _: _greedy(_one(o, output)), words,
                      lambda a, b, _: float(_distance(_tokens(a), _tokens(b))), content)  # fmt: skip
    if name in ("cosine", "psnr"):
        score = _cosine if name == "cosine" else _psnr
        return Metric(name, False, False, "higher", lambda o, _: np.asarray(_one(o, output), np.float32), score,
                      lambda a, b, _: 0.0, content)  # fmt: skip
    if ":" in name:
        return _of_user(name)
    raise UsageError(f"there is no metric {name!r}", hint=f"{', '.join(NAMES)}, or module:function")


def _one(outputs: Outputs, name: str | None) -> np.ndarray:
    if name is None:
        return next(iter(outputs.values()))
    if name not in outputs:
        raise UsageError(f"there is no output {name!r}", hint=f"the outputs are {', '.join(outputs)}")
    return outputs[name]


def _top(scores: np.ndarray) -> np.ndarray:
    """(class, lead over the second), both float64; class -1 where no score is a number."""
    if scores.size < 2 or sum(extent > 1 for extent in scores.shape) != 1:
        raise UsageError(
            f"the output {scores.shape} has no classes along one axis", hint="another metric, or --output-name"
        )
    flat = scores.ravel().astype(np.float64)
    if np.isnan(flat).any():
        return np.array([-1.0, 0.0])
    best = int(np.argmax(flat))
    second = float(np.max(np.delete(flat, best)))
    return np.array([best, flat[best] - second if np.isfinite(flat[best]) else 0.0])


def _top_score(answer: np.ndarray, truth: Any) -> tuple[float, float]:
    if truth is None:
        return 1.0, 1.0
    label = np.asarray(truth).ravel()
    if label.size != 1 or label.dtype.kind not in "biuf" or not float(label[0]).is_integer():
        raise UsageError(f"top1 takes one class for each sample, not {np.asarray(truth)!r}")
    return float(int(answer[0]) == int(label[0])), 1.0


def _top_apart(output: str | None) -> Callable[[np.ndarray, np.ndarray, Outputs], float]:
    """float32's lead over its second answer, and how far the engine puts another answer before float32's."""

    def apart(here: np.ndarray, there: np.ndarray, outputs: Outputs) -> float:
        if here[0] == there[0]:
            return 0.0
        lead = float(there[1])
        if min(here[0], there[0]) >= 0:
            flat = _one(outputs, output).ravel().astype(np.float64)
            gap = float(flat[int(here[0])] - flat[int(there[0])])
            lead += gap if np.isfinite(gap) else 0.0
        return max(lead, 5e-324)

    return apart


def _classes(scores: np.ndarray) -> np.ndarray:
    """(height, width) int16: the class of every pixel, along the axis before; of one channel, whether above 0.5."""
    maps = scores[0] if scores.ndim == 4 and scores.shape[0] == 1 else scores
    if maps.ndim != 3:
        raise UsageError(f"the output {scores.shape} is no map of classes", hint="iou takes classes x height x width")
    return (maps[0] > 0.5 if maps.shape[0] == 1 else np.argmax(maps, 0)).astype(np.int16)


def _iou(answer: np.ndarray, truth: Any) -> tuple[float, float]:
    """The mean over the classes that occur in either map; pixels whose label is negative do not count."""
    if truth is None:
        return 1.0, 1.0
    label = np.squeeze(np.asarray(truth))
    if label.shape != np.squeeze(answer).shape:
        raise UsageError(f"a map of {answer.shape} and labels of {label.shape}", hint="a class for every pixel")
    here, there = np.squeeze(answer)[label >= 0].astype(np.int64), label[label >= 0].astype(np.int64)
    if not there.size:
        return 1.0, 1.0
    size = int(max(here.max(), there.max())) + 1
    both = np.bincount(here[here == there], minlength=size)
    either = np.bincount(here, minlength=size) + np.bincount(there, minlength=size) - both
    return float(np.mean(both[either > 0] / either[either > 0])), 1.0


def _iou_apart(here: np.ndarray, there: np.ndarray, _: Outputs) -> float:
    return 1.0 - _iou(here, there)[0]


def _greedy(scores: np.ndarray) -> np.ndarray:
    """int32 tokens, -1 behind the last: the best of each step, repetitions once, blanks (0) left out (greedy CTC)."""
    steps = scores.reshape(-1, scores.shape[-1])
    if scores.size != steps.size or scores.ndim < 2 or steps.shape[1] < 2:
        raise UsageError(f"the output {scores.shape} is no sequence of classes", hint="wer takes steps x classes")
    best = np.argmax(np.where(np.isnan(steps), -np.inf, steps), 1)
    first = np.concatenate([[True], best[1:] != best[:-1]]) & (best != 0)
    tokens = np.full(len(best), -1, np.int32)
    tokens[: first.sum()] = best[first]
    return tokens


def _tokens(answer: np.ndarray) -> list[int]:
    return [int(token) for token in np.ravel(answer) if token >= 0]


def _word_errors(answer: np.ndarray, truth: Any, alphabet: tuple[str, ...]) -> tuple[float, float]:
    """Edits between the words of two texts and the words of the truth; of numbers, every one is a word."""
    if truth is None:
        return 0.0, 1.0
    label = np.asarray(truth)
    if label.dtype.kind in "US":
        if not alphabet:
            raise UsageError("labels are text and nothing says what the outputs' numbers mean", hint="add `alphabet`")
        text = "".join(alphabet[token - 1] if token <= len(alphabet) else "\ufffd" for token in _tokens(answer))
        here, there = text.split(), str(label).split()
        return float(_distance(here, there)), float(max(len(there), 1))
    expected = _tokens(label)
    return float(_distance(_tokens(answer), expected)), float(max(len(expected), 1))


def _distance(one: list[Any], other: list[Any]) -> int:
    """Levenshtein's: insertions, deletions and replacements."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def _pair(answer: np.ndarray, truth: Any) -> tuple[np.ndarray, np.ndarray]:
    here, there = np.ravel(answer).astype(np.float64), np.ravel(np.asarray(truth)).astype(np.float64)
    if here.size != there.size:
        raise UsageError(f"an output of {here.size} numbers and a label of {there.size}", hint="labels are as outputs")
    return here, there


def _cosine(answer: np.ndarray, truth: Any) -> tuple[float, float]:
    if truth is None:
        return 1.0, 1.0
    here, there = _pair(answer, truth)
    size = float(np.sqrt(np.sum(here * here)) * np.sqrt(np.sum(there * there)))
    return (float(np.sum(here * there)) / size if size else float(not np.any(here - there))), 1.0


def _psnr(answer: np.ndarray, truth: Any) -> tuple[float, float]:
    """Decibels. The peak is 255 for labels of bytes, else the truth's own range."""
    if truth is None:
        return HIGHEST_PSNR, 1.0
    here, there = _pair(answer, truth)
    peak = 255.0 if np.asarray(truth).dtype == np.uint8 else float(np.ptp(there)) or 1.0
    error = float(np.mean((here - there) ** 2))
    if not np.isfinite(error):
        return float("-inf"), 1.0
    return (min(HIGHEST_PSNR, 10 * log10(peak * peak / error)) if error else HIGHEST_PSNR), 1.0


def _of_user(name: str) -> Metric:
    """A function of somebody else's: its number is the score; a bool is an answer too, right or wrong."""
    function, source = _imported(name)

    def answer(outputs: Outputs, label: Any) -> np.ndarray:
        try:
            score = function(outputs, label)
            return np.array([float(score), isinstance(score, bool | np.bool_)])
        except HexaneError:
            raise
        except Exception as error:
            raise UsageError(f"the metric {name} raises {type(error).__name__}: {error}") from error

    return Metric(
        name, False, True, "higher", answer, lambda a, _: (float(a[0]), 1.0),
        lambda a, b, _: float(abs(a[0] - b[0])) if a[1] else 0.0, f"{name} {digest(source)}", lambda _: None,
    )  # fmt: skip


def _imported(name: str) -> tuple[Callable[[Outputs, Any], Any], str]:
    """The function and its module's source, which goes to other processes by value."""
    module_name, _, function_name = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
        function = getattr(module, function_name)
    except Exception as error:
        raise UsageError(f"there is no metric {name!r} ({error})", hint="module:function") from None
    if not callable(function):
        raise UsageError(f"{name!r} is no function")
    try:
        source = inspect.getsource(module)
    except (OSError, TypeError):
        source = name
    here = Path(getattr(module, "__file__", "") or "")
    if "site-packages" not in here.parts:
        try:
            import cloudpickle

            cloudpickle.register_pickle_by_value(module)
        except ImportError:  # without Dask there are no other processes
            pass
    return function, source
