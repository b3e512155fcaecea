"""``Trainer``: a network trained step by step, its forward and backward passes as programs of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexane import chips
from hexane.chips import Chip
from hexane.errors import UsageError
from hexane.graph.ir import Graph, Value
from hexane.graph.types import TensorType
from hexane.mil import CompileBudget
from hexane.train.batches import Batch, pieces
from hexane.train.losses import Loss, loss_of
from hexane.train.optimizers import Optimizer, clipped, optimizer_of
from hexane.train.programs import Programs, ways_of
from hexane.train.scale import AUTO, loss_scale_of
from hexane.train.schedules import schedule_of
from hexane.train.stage import ENGINE, FLOAT32, LEVELS
from hexane.train.vanishing import FloatStep, Lost
from hexane.train.weights import trainable, with_weights

STATE = ("step", "applied", "loss_scale", "good", "skipped", "seed")
"""Numbers in a state, beside ``weight.NAME`` and the optimiser's ``MOMENT.NAME``."""


@dataclass(frozen=True)
class StepResult:
    """Record of a step: its loss, the norm of the gradients before clipping, the loss scale, the rate, and whether
    weights changed (they do not where a gradient is infinite)."""

    loss: float
    norm: float
    scale: float
    rate: float
    applied: bool


class Trainer:
    """A network and what it learns with.

    Parameters
    ----------
    graph : the network, of any front end; it stays as it is. Its shapes hold for each piece of a batch.
    loss : "cross_entropy" (integer labels), "mse", or a function (output, labels) -> (loss, gradient).
    optimizer : "sgd", "adam", "adamw", or an object of `hexane.train.optimizers`.
    level : "engine" (tasks on the emulator), "graph" (the same arithmetic, without tasks) or "float32".
    loss_scale : None, "auto" (computed, `hexane.train.vanishing`), "dynamic" (guessed, halved and doubled), a number.
    layer_scales : with ``loss_scale="auto"``, every sum of the backward pass that has room for it has a scale of its
        own, too, computed with the other (`hexane.train.layer_scales`); the backward pass is then compiled again.
    chip : whose programs and arithmetic.
    seed : of the order of samples (`hexane.train.Batches` takes it from here); part of the state.
    of : the output that the loss looks at; the first by default.
    train : names of constants to train; see `hexane.train.weights.trainable` for the default.
    clip : the largest norm of all gradients together.
    schedule : `hexane.train.Schedule`, or any function of the step that gives a factor of the rate.
    renew : "inputs", "patch", "mixed", "compile", or None: predicted cost decides (`hexane.train.programs`).
    checkpoint : activations that the backward pass computes again instead of taking them from the forward pass.
    budget : compilations of this process (`hexane.mil.CompileBudget`); renewals by "compile" spend it, before the step
        that needs them begins, so that what its ``save`` writes is whole.
    gradients : where products that give gradients of weights are computed, "host" or "engine".

    Raises UsageError for anything that does not fit, UnsupportedError for an op without a derivative.
    """

    def __init__(
        self,
        graph: Graph,
        loss: str | Loss = "cross_entropy",
        optimizer: str | Optimizer = "sgd",
        level: str = ENGINE,
        loss_scale: str | float | None = None,
        chip: str | Chip = "M1",
        seed: int = 0,
        *,
        of: str | None = None,
        train: Iterable[str] | None = None,
        clip: float | None = None,
        schedule: Callable[[int], float] | str | None = None,
        renew: str | None = None,
        gradients: str = "host",
        layer_scales: bool = False,
        checkpoint: Iterable[str] = (),
        budget: CompileBudget | None = None,
    ) -> None:
        if level not in LEVELS:
            raise UsageError(f"there is no level {level!r}", hint=f"one of {', '.join(LEVELS)}")
        if gradients not in ("host", ENGINE):
            raise UsageError(f"gradients cannot be computed on {gradients!r}", hint="host or engine")
        if layer_scales and loss_scale != AUTO:
            raise UsageError("scales of single sums go with a computed one", hint='loss_scale="auto"')
        self.layer_scales = layer_scales and level != FLOAT32
        self.graph, self.level, self.seed = graph, level, seed
        self.chip = chips.get(chip)
        self.loss, self.optimizer = loss_of(loss), optimizer_of(optimizer)
        self.schedule, self.clip = schedule_of(schedule), clip
        self.scale = loss_scale_of(loss_scale)
        self.of = _output(graph, of)
        names = trainable(graph, train)
        constants = {value.name: value for value in graph.main.constants()}
        self.weights = {name: np.array(constants[name].data, np.float32) for name in names}
        self.moments = self.optimizer.begin(self.weights)
        self.step_count = self.applied = 0
        self.last: StepResult | None = None
        ways = ways_of(renew)
        self.programs = Programs(graph, self.of, self.weights, self.chip, level, gradients == ENGINE, ways,
                                 checkpoint)  # fmt: skip
        self.budget = budget
        self._spend(len(self.programs.compiled) * len(ways))

    @property
    def inputs(self) -> dict[str, TensorType]:
        """The network's inputs by name."""
        return {value.name: value.type for value in self.graph.main.inputs if isinstance(value.type, TensorType)}

    def step(self, batch: Batch) -> float:
        """One step of the optimiser; the loss before it.

        ``batch``: a dict of arrays by input name with the labels under any other name, or (input, labels) for a network
        with one input. Where the first axis is a multiple of the network's, the gradients of the pieces are averaged.
        """
        parts = pieces(batch, self.inputs)
        self._spend(self.programs.compilations)
        if self.scale.is_due:
            self._compute_scales(batch)
        scale = self.scale.value
        total, gradients = 0.0, {name: np.zeros_like(array) for name, array in self.weights.items()}
        for inputs, labels in parts:
            loss, computed = self._backward(inputs, labels, scale)
            total += loss / len(parts)
            for name, gradient in computed.items():
                gradients[name] += gradient
        for gradient in gradients.values():
            gradient /= np.float32(scale * len(parts))
        gradients, norm = clipped(gradients, self.clip)
        applied, rate = bool(np.isfinite(norm)), self.optimizer.lr * self.schedule(self.step_count)
        if applied:
            self.applied += 1
            self.optimizer.apply(self.weights, gradients, self.moments, rate, self.applied)
            self.programs.renew(self.weights)
        self.scale.after(applied)
        self.step_count += 1
        self.last = StepResult(total, norm, scale, rate, applied)
        return total

    def _spend(self, compilations: int) -> None:
        if self.budget is not None:
            for _ in range(compilations):
                self.budget.spend()

    def _compute_scales(self, batch: Batch) -> None:
        inputs, labels = pieces(batch, self.inputs)[0]
        step = self.programs.watched({**inputs, **self.weights}, lambda y: self.loss(y, labels)[1], plain=True)
        self.scale.compute(step.scale())
        if self.layer_scales:
            self.programs.rescale(step.layer_scales(self.scale.value), self.weights)

    def _backward(self, inputs: Mapping[str, np.ndarray], labels: np.ndarray, scale: float) -> tuple[float, Any]:
        values = self.programs.forward({**inputs, **self.weights})
        loss, gradient = self.loss(np.asarray(values[self.of], np.float32), labels)
        return loss, self.programs.backward(values, gradient * np.float32(scale))

    def evaluate(self, batch: Batch) -> tuple[float, np.ndarray]:
        """The loss of a batch and the outputs that it looks at, without a step."""
        losses, outputs = [], []
        for inputs, labels in pieces(batch, self.inputs):
            outputs.append(np.asarray(self.programs.forward({**inputs, **self.weights})[self.of], np.float32))
            losses.append(self.loss(outputs[-1], labels)[0])
        return float(np.mean(losses)), np.concatenate(outputs)

    def watch(self, batch: Batch) -> FloatStep:
        """The first piece of a batch in float32, to count what vanishes at any scale: ``watch(batch).lost(256.0)``."""
        inputs, labels = pieces(batch, self.inputs)[0]
        return self.programs.watched({**inputs, **self.weights}, lambda y: self.loss(y, labels)[1])

    def lost(self, batch: Batch) -> list[Lost]:
        """Products that vanish at the present loss scale, sum by sum."""
        return self.watch(batch).lost(self.scale.value)

    def network(self) -> Graph:
        """The network with the weights as they are now, rounded to their declared types."""
        return with_weights(self.graph, self.weights)

    def state_dict(self) -> dict[str, np.ndarray]:
        """All that the next steps depend on, as arrays: weights in float32, moments, counters, the loss scale."""
        numbers = (self.step_count, self.applied, self.scale.value, self.scale.good, self.scale.skipped, self.seed)
        state = {name: np.array(number) for name, number in zip(STATE, numbers)}
        if self.layer_scales:
            state["layer_scales"] = np.array(list(self.programs.layer_scales.values()), np.int64)
        state.update({f"weight.{name}": array.copy() for name, array in self.weights.items()})
        return state | {name: array.copy() for name, array in self.moments.items()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a state; UsageError where it is of another network or optimiser."""
        own = self.state_dict()
        if set(own) != set(state) or any(own[name].shape != np.shape(state[name]) for name in own):
            odd = sorted(set(own) ^ set(state)) or [n for n in own if own[n].shape != np.shape(state[n])]
            raise UsageError("the state is of another network or optimizer", hint=f"see {', '.join(odd[:3])}")
        for name, array in self.weights.items():
            array[...] = state[f"weight.{name}"]
        for name, array in self.moments.items():
            array[...] = state[name]
        self.step_count, self.applied, self.seed = int(state["step"]), int(state["applied"]), int(state["seed"])
        self.scale.value = float(state["loss_scale"])
        self.scale.good, self.scale.skipped = int(state["good"]), int(state["skipped"])
        if self.layer_scales:
            self.programs.rescale(dict(zip(self.programs.layer_scales, state["layer_scales"].tolist())), self.weights)
        self.programs.renew(self.weights)


def _output(graph: Graph, of: str | None) -> str:
    if graph.main.states:
        raise UsageError("a network with states cannot be trained", hint="train the form without a cache")
    outputs: Sequence[Value] = graph.main.outputs
    names = [value.name for value in outputs]
    if of is not None and of not in names:
        raise UsageError(f"there is no output {of!r}", hint=f"the outputs are {', '.join(names)}")
    return of or names[0]
