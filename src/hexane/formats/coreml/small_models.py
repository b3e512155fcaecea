"""Core ML's small models as ops: scalers, imputers, normalisers, vectorisers, encoders, generalised linear models.

They stand before and behind the networks of a pipeline (converted scikit-learn pipelines are made of nothing else).
Formulas are those of the format's own description (Scaler.proto, Normalizer.proto, GLMClassifier.proto ...).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hexane.counts import counted
from hexane.errors import FormatError, UnsupportedError
from hexane.formats.coreml.description import predicted_features
from hexane.graph import GraphBuilder, Value


@dataclass(frozen=True)
class SmallModel:
    """One model while it is translated: its message, its inputs by name, and where ops go."""

    model: Any
    kind: str
    ops: GraphBuilder
    given: Mapping[str, Value]
    where: str

    @property
    def params(self) -> Any:
        return getattr(self.model, self.kind)

    @property
    def outputs(self) -> list[str]:
        return [feature.name for feature in self.model.description.output]

    def single(self) -> Value:
        """The one input, in fp32."""
        if len(self.given) != 1:
            raise FormatError(f"a {self.kind} with {counted(len(self.given), 'input')}", where=self.where)
        return self.wide(next(iter(self.given.values())))

    def wide(self, value: Value) -> Value:
        return value if value.dtype == "fp32" else self.ops.cast(x=value, dtype="fp32")

    def result(self, value: Value) -> dict[str, Value]:
        """The value under the name of the one output, as whole numbers where that is declared."""
        if len(self.outputs) != 1:
            raise FormatError(f"a {self.kind} with {counted(len(self.outputs), 'output')}", where=self.where)
        kind = self.model.description.output[0].type.WhichOneof("Type")
        if kind == "int64Type" and value.dtype != "int32":
            value = self.ops.cast(x=value, dtype="int32")
        return {self.outputs[0]: value}

    def flat(self) -> Value:
        """All inputs in one row, in the order of the description."""
        parts = [self.wide(value) for value in self.given.values()]
        rows = [part if part.rank == 1 else self.ops.reshape(x=part, shape=np.array([-1], np.int32)) for part in parts]
        return rows[0] if len(rows) == 1 else self.ops.concat(values=tuple(rows), axis=0)


def _constant(numbers: Any, default: float, value: Value, where: str) -> np.ndarray:
    """Numbers of a message for an array: one for all, or one for each element."""
    array = np.array(numbers if len(numbers) else [default], np.float32)
    if array.size == 1:
        return np.float32(array[0])  # type: ignore[return-value]
    if array.size != prod(value.shape):
        raise FormatError(f"{array.size} numbers for {prod(value.shape)} elements", where=where)
    return array.reshape(value.shape)


def _identity(m: SmallModel) -> dict[str, Value]:
    """Inputs handed on under the names of the outputs, in order."""
    return {name: m.ops.identity(x=value) for name, value in zip(m.outputs, m.given.values())}


def _scaler(m: SmallModel) -> dict[str, Value]:
    """``scale * (x + shift)``."""
    x = m.single()
    shifted = m.ops.add(x=x, y=_constant(m.params.shiftValue, 0.0, x, m.where))
    return m.result(m.ops.mul(x=shifted, y=_constant(m.params.scaleValue, 1.0, x, m.where)))


def _imputer(m: SmallModel) -> dict[str, Value]:
    """A missing value (NaN, or a number that stands for it) replaced."""
    x = m.single()
    params = m.params
    by, missing = params.WhichOneof("ImputedValue"), params.WhichOneof("ReplaceValue")
    if by in ("imputedDoubleValue", "imputedInt64Value"):
        numbers: Any = [getattr(params, by)]
    elif by in ("imputedDoubleArray", "imputedInt64Array"):
        numbers = getattr(params, by).vector
    else:
        raise UnsupportedError(f"an imputer of kind {by}: hexane computes with numbers", where=m.where)
    if missing not in (None, "replaceDoubleValue", "replaceInt64Value"):
        raise UnsupportedError("an imputer of strings", where=m.where)
    stands = float(getattr(params, missing)) if missing else float("nan")
    absent = m.ops.not_equal(x=x, y=x) if stands != stands else m.ops.equal(x=x, y=np.float32(stands))
    fill = np.broadcast_to(_constant(numbers, 0.0, x, m.where), x.shape).astype(np.float32)
    return m.result(m.ops.select(cond=absent, a=fill, b=x))


def _normalizer(m: SmallModel) -> dict[str, Value]:
    """Divided by the largest element, the sum of magnitudes, or the Euclidean norm; an array of zeros stays."""
    x = m.single()
    axes = np.arange(x.rank, dtype=np.int32)
    op = ("reduce_max", "reduce_l1_norm", "reduce_l2_norm")
    norm = m.ops.op(op[m.params.normType], x=x, axes=axes, keep_dims=True)
    zero = m.ops.equal(x=norm, y=np.float32(0))
    ones = np.ones(norm.shape, np.float32)
    return m.result(m.ops.real_div(x=x, y=m.ops.select(cond=zero, a=ones, b=norm)))


def _vectorizer(m: SmallModel) -> dict[str, Value]:
    """Features in one row, in the order of its list."""
    rows = []
    for column in m.params.inputList:
        if column.inputColumn not in m.given:
            raise FormatError(f"takes {column.inputColumn!r}, which is no input of it", where=m.where)
        value = m.wide(m.given[column.inputColumn])
        if prod(value.shape) != column.inputDimensions:
            raise FormatError(
                f"{column.inputColumn!r} has {prod(value.shape)} elements, not {column.inputDimensions}", where=m.where
            )
        rows.append(m.ops.reshape(x=value, shape=np.array([-1], np.int32)))
    if not rows:
        raise FormatError("a vectorizer without inputs", where=m.where)
    return m.result(rows[0] if len(rows) == 1 else m.ops.concat(values=tuple(rows), axis=0))


def _extractor(m: SmallModel) -> dict[str, Value]:
    """Elements by their index."""
    x = m.flat()
    indices = np.array(m.params.extractIndex, np.int64)
    if not indices.size or indices.max() >= x.shape[0]:
        raise FormatError(f"indices {indices.tolist()[:8]} of {x.shape[0]} elements", where=m.where)
    return m.result(m.ops.gather(x=x, indices=indices.astype(np.int32), axis=0))


def _one_hot(m: SmallModel) -> dict[str, Value]:
    """One at the place of the category; zeros for a category that is not in the list."""
    if m.params.WhichOneof("CategoryType") != "int64Categories" or m.params.outputSparse:
        raise UnsupportedError("an encoder of strings, or into a dictionary", where=m.where)
    categories = np.array(m.params.int64Categories.vector, np.int64)
    if categories.size and abs(categories).max() > np.iinfo(np.int32).max:
        raise UnsupportedError("categories beyond 32 bits", where=m.where)
    x = m.ops.cast(x=m.single(), dtype="int32")
    hit = m.ops.equal(x=x, y=categories.astype(np.int32))
    return m.result(m.ops.cast(x=hit, dtype="fp32"))


def _linear(m: SmallModel) -> Value:
    x = m.flat()
    rows = [list(row.value) for row in m.params.weights]
    if not rows or any(len(row) != x.shape[0] for row in rows):
        raise FormatError(f"weights of {[len(row) for row in rows]} for {x.shape[0]} features", where=m.where)
    bias = np.array(m.params.offset if len(m.params.offset) else [0.0] * len(rows), np.float32)
    if len(bias) != len(rows):
        raise FormatError(f"{len(bias)} offsets for {len(rows)} rows of weights", where=m.where)
    row = m.ops.expand_dims(x=x, axes=np.array([0], np.int32))
    y = m.ops.linear(x=row, weight=np.array(rows, np.float32), bias=bias)
    return m.ops.squeeze(x=y, axes=np.array([0], np.int32))


def _probit(m: SmallModel, x: Value) -> Value:
    """The normal distribution function."""
    inner = m.ops.erf(x=m.ops.mul(x=x, y=np.float32(0.5**0.5)))
    return m.ops.mul(x=m.ops.add(x=inner, y=np.float32(1)), y=np.float32(0.5))


def _regressor(m: SmallModel) -> dict[str, Value]:
    """A generalised linear regressor: weights, offset, and a function at the end."""
    y = _linear(m)
    if m.params.postEvaluationTransform == 1:
        y = m.ops.sigmoid(x=y)
    elif m.params.postEvaluationTransform == 2:
        y = _probit(m, y)
    return m.result(y)


def _classifier(m: SmallModel) -> dict[str, Value]:
    """A generalised linear classifier: label and probabilities.

    With a reference class the first class has the score 0 and the others one row of weights each (softmax over all, or
    the two sides of one function); one against the rest has a row for each class, and their sum is made 1.
    """
    params = m.params
    kind = params.WhichOneof("ClassLabels")
    if kind is None:
        raise FormatError("a classifier without classes", where=m.where)
    labels = list(getattr(params, kind).vector)
    scores = _linear(m)
    if params.classEncoding == 0:
        if scores.shape[0] != len(labels) - 1:
            raise FormatError(f"{scores.shape[0]} rows of weights for {len(labels)} classes", where=m.where)
        if scores.shape[0] == 1:
            one = m.ops.sigmoid(x=scores) if params.postEvaluationTransform == 0 else _probit(m, scores)
            rest = m.ops.sub(x=np.ones(1, np.float32), y=one)
            probabilities = m.ops.concat(values=(rest, one), axis=0)
        elif params.postEvaluationTransform == 0:
            zero = m.ops.mul(x=m.ops.slice_by_size(x=scores, begin=[0], size=[1]), y=np.float32(0))
            probabilities = m.ops.softmax(x=m.ops.concat(values=(zero, scores), axis=0), axis=0)
        else:
            raise FormatError("probit is for two classes", where=m.where)
    else:
        if scores.shape[0] != len(labels):
            raise FormatError(f"{scores.shape[0]} rows of weights for {len(labels)} classes", where=m.where)
        each = m.ops.sigmoid(x=scores) if params.postEvaluationTransform == 0 else _probit(m, scores)
        total = m.ops.reduce_sum(x=each, axes=np.array([0], np.int32), keep_dims=True)
        probabilities = m.ops.real_div(x=each, y=total)
    classes = np.array(labels, np.int64 if kind == "int64ClassLabels" else np.str_)
    label, chances = m.ops.op("classify", probabilities=probabilities, classes=classes)
    m.ops.graph.metadata["classes"] = labels
    names = predicted_features(m.model)
    label_name = names[0] or (m.outputs or ["classLabel"])[0]
    rest = [name for name in m.outputs if name != label_name]
    return {label_name: label, names[1] or (rest or ["classProbability"])[0]: chances}


SMALL_MODELS: dict[str, Callable[[SmallModel], dict[str, Value]]] = {
    "identity": _identity,
    "scaler": _scaler,
    "imputer": _imputer,
    "normalizer": _normalizer,
    "featureVectorizer": _vectorizer,
    "arrayFeatureExtractor": _extractor,
    "oneHotEncoder": _one_hot,
    "glmRegressor": _regressor,
    "glmClassifier": _classifier,
}
"""Kind of model -> its ops, outputs by name."""
