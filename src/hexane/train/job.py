"""``hexane train``: a run from its file, with checkpoints from which it goes on bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import UsageError
from hexane.files import make_folder
from hexane.formats.safetensors import read_safetensors, write_safetensors
from hexane.frontends.networks import load
from hexane.graph.ir import Graph
from hexane.mil import CompileBudget, resumed
from hexane.private_api.budget import REEXEC
from hexane.program import input_ports
from hexane.studies.evaluation.data import Data, from_code, open_data
from hexane.train.batches import indices_of
from hexane.train.losses import class_axis
from hexane.train.predict import StepCost, step_costs
from hexane.train.settings import TrainSettings
from hexane.train.stage import FLOAT32
from hexane.train.trainer import Trainer
from hexane.train.vanishing import GUESSES, share

CHECKPOINT, WEIGHTS, NETWORK, PAGE = "checkpoint.safetensors", "weights.safetensors", "network.mil", "index.html"
SCHEMA = "hexane-train/1"
CURVES = ("loss", "float32", "norm", "scale", "rate", "applied")

OnStep = Callable[[str, int, int], None]


@dataclass
class TrainingRun:
    """A training run: the trainers (``float32`` beside it, or None), curves by name, and counts of lost products.

    ``watched`` are steps, ``lost`` the share of each sum's products that vanish, a row per such step; ``sums`` the
    columns of these rows as (stage, result, op). ``guesses``: for loss scales, the share that vanishes in all and in
    the backward pass, and the least headroom in bits, at the first step.
    """

    settings: TrainSettings
    trainer: Trainer
    float32: Trainer | None
    data: Data
    curves: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CURVES})
    watched: list[int] = field(default_factory=list)
    lost: list[list[float]] = field(default_factory=list)
    sums: list[tuple[str, str, str]] = field(default_factory=list)
    guesses: list[dict[str, float]] = field(default_factory=list)
    test: dict[str, dict[str, float]] = field(default_factory=dict)
    costs: list[StepCost] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Places of all files."""
        return Path(self.settings["output"])

    def as_dict(self) -> dict[str, Any]:
        """Plain data (schema ``hexane-train/1``)."""
        programs = self.trainer.programs
        return {
            "schema": SCHEMA,
            "settings": dict(self.settings.values),
            "steps": self.trainer.step_count,
            "skipped": self.trainer.scale.skipped,
            "curves": self.curves,
            "watched": self.watched,
            "sums": [list(row) for row in self.sums],
            "lost": self.lost,
            "guesses": self.guesses,
            "test": self.test,
            "renew": {"way": programs.way, "predicted_us": programs.predicted},
            "costs": [row.as_dict() for row in self.costs],
        }


def train(
    settings: TrainSettings, *, resume: bool = False, overwrite: bool = False, on_progress: OnStep | None = None
) -> TrainingRun:
    """A whole run, or the rest of one.

    Writes into the output folder: ``checkpoint.safetensors`` every ``save_every`` steps and at the end,
    ``weights.safetensors`` and ``network.mil`` at the end. UsageError for a checkpoint that is there and not to be
    resumed or overwritten, or that other settings wrote.
    """
    run = _begin(settings)
    path = run.folder / CHECKPOINT
    again = resumed() == str(path)
    if (resume or again) and path.is_file():
        _restore(run, path)
    elif path.is_file() and not overwrite:
        raise UsageError(
            "there is a checkpoint", where=str(path), hint="--resume goes on from it, --overwrite does not"
        )
    make_folder(run.folder)
    if settings["compile_budget"]:
        run.trainer.budget = CompileBudget(settings["compile_budget"], REEXEC, lambda: _saved(run, path))
    steps, every = settings["steps"], settings["save_every"]
    while run.trainer.step_count < steps:
        _step(run)
        count = run.trainer.step_count
        if on_progress is not None:
            on_progress("steps", count, steps)
        if count == steps or (every and count % every == 0):
            _save(run, path)
    if settings["test"]:
        run.test = {name: _tested(run, trainer) for name, trainer in _trainers(run)}
    run.costs = step_costs(run.trainer.programs)
    write_safetensors(run.folder / WEIGHTS, run.trainer.weights)
    run.trainer.network().save(run.folder / NETWORK)
    return run


def _saved(run: TrainingRun, path: Path) -> str:
    _save(run, path)
    return str(path)


def _begin(settings: TrainSettings) -> TrainingRun:
    graph = _network(settings)
    scale, shared = settings["loss_scale"], {"chip": settings["chip"], "seed": settings["seed"]}
    options = {
        "of": settings["of"] or None,
        "train": settings["train"] or None,
        "clip": settings["clip"] or None,
        "schedule": settings.schedule,
        "loss": settings["loss"],
        "optimizer": settings.optimizer,
    }
    renew = None if settings["renew"] == "auto" else settings["renew"]
    level = settings["level"]
    trainer = Trainer(
        graph, level=level, loss_scale=None if scale == "off" else scale, renew=renew,
        gradients=settings["gradients"], layer_scales=settings["layer_scales"],
        checkpoint=settings["checkpoint"], **shared, **options,
    )  # fmt: skip
    beside = Trainer(graph, level=FLOAT32, **shared, **options) if settings["compare"] and level != FLOAT32 else None
    return TrainingRun(settings, trainer, beside, _data(settings["data"], graph, settings))


def _network(settings: TrainSettings) -> Graph:
    path = Path(settings["network"])
    if path.suffix == ".py":
        graph = from_code(path, "network", settings["seed"])
        if not isinstance(graph, Graph):
            raise UsageError(f"network() gave a {type(graph).__name__}", where=str(path), hint="a hexane Graph")
        return graph
    return load(path, shapes=settings["shapes"] or None)


def _data(path: str, graph: Graph, settings: TrainSettings) -> Data:
    data = open_data(path, input_ports(graph), normalize=settings["normalize"] or None)
    if not data.has_labels:
        raise UsageError(
            "the samples have no labels", where=path, hint="`hexane evaluate --help` says where they stand"
        )
    return data


def _batch(run: TrainingRun, data: Data, indices: np.ndarray) -> dict[str, np.ndarray]:
    """Samples as the trainer takes them: along the first axis, also where a sample is a whole input."""
    samples = data.take(indices)
    arrays = {**samples.inputs, "labels": np.asarray(samples.labels)}
    if "labels" in samples.inputs:
        raise UsageError("an input is called labels", where=str(run.settings.path), hint="rename it")
    if not data.batch:
        arrays = {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}
    return arrays


def _size(run: TrainingRun) -> int:
    """Samples of a step; UsageError where they are no multiple of the network's."""
    own = max(run.data.batch, 1)
    size = run.settings["batch"] or own
    if size % own or size > run.data.count:
        hint = f"a multiple of {own}, at most the {run.data.count} samples"
        raise UsageError(f"batch = {size}", where=str(run.settings.path), hint=hint)
    return size


def _step(run: TrainingRun) -> None:
    trainer = run.trainer
    indices = indices_of(trainer.step_count, run.data.count, _size(run), trainer.seed)
    batch, every = _batch(run, run.data, indices), run.settings["watch_every"]
    if every and trainer.step_count % every == 0 and trainer.level != FLOAT32:
        _watch(run, batch)
    trainer.step(batch)
    last = trainer.last
    assert last is not None
    beside = run.float32.step(batch) if run.float32 is not None else float("nan")
    for name, value in zip(CURVES, (last.loss, beside, last.norm, last.scale, last.rate, float(last.applied))):
        run.curves[name].append(value)


def _watch(run: TrainingRun, batch: dict[str, np.ndarray]) -> None:
    step = run.trainer.watch(batch)
    if not run.guesses:
        own = step.scale()
        for scale in dict.fromkeys((*GUESSES, own)):
            rows = step.lost(scale)
            bits = min((row.headroom_bits for row in rows if row.stage != "forward"), default=float("inf"))
            run.guesses.append(
                {"scale": scale, "lost": share(rows), "backward": share(rows, "backward"), "headroom_bits": bits,
                 "computed": float(scale == own)}
            )  # fmt: skip
    trainer = run.trainer
    rows = step.lost(step.scale() if trainer.scale.is_due else trainer.scale.value)
    run.sums = [(row.stage, row.name, row.op) for row in rows]
    run.watched.append(trainer.step_count)
    run.lost.append([row.dropped for row in rows])


def _tested(run: TrainingRun, trainer: Trainer) -> dict[str, float]:
    """Loss, and for cross entropy the share of right answers, over the test samples (whole calls only)."""
    data = _data(run.settings["test"], trainer.graph, run.settings)
    size, losses, right = max(data.batch, 1), [], []
    for start in range(0, data.count - size + 1, size):
        batch = _batch(run, data, np.arange(start, start + size))
        loss, outputs = trainer.evaluate(batch)
        losses.append(loss)
        if run.settings["loss"] == "cross_entropy":
            answers = outputs.argmax(class_axis(outputs.shape, batch["labels"]))
            right.append(float((answers == batch["labels"])[batch["labels"] >= 0].mean()))
    if not losses:
        raise UsageError(f"fewer test samples than a call takes ({size})", where=run.settings["test"])
    return {"loss": float(np.mean(losses)), **({"accuracy": float(np.mean(right))} if right else {})}


def _trainers(run: TrainingRun) -> Iterator[tuple[str, Trainer]]:
    yield "trained", run.trainer
    if run.float32 is not None:
        yield FLOAT32, run.float32


def _save(run: TrainingRun, path: Path) -> None:
    arrays = {f"{name}/{key}": array for name, trainer in _trainers(run) for key, array in trainer.state_dict().items()}
    arrays |= {f"curve/{name}": np.array(values, np.float64) for name, values in run.curves.items()}
    arrays |= {"watch/steps": np.array(run.watched, np.int64), "watch/lost": np.array(run.lost, np.float64)}
    notes = {"schema": SCHEMA, "settings": run.settings.decisive, "sums": run.sums, "guesses": run.guesses}
    arrays["notes"] = np.frombuffer(json.dumps(notes, sort_keys=True).encode(), np.uint8)
    write_safetensors(path, arrays)


def _restore(run: TrainingRun, path: Path) -> None:
    arrays = {name: np.array(tensor.read()) for name, tensor in read_safetensors(path).items()}
    try:
        notes = json.loads(arrays["notes"].tobytes())
        before, run.guesses = notes["settings"], notes["guesses"]
        run.sums = [tuple(row) for row in notes["sums"]]
        run.curves = {name: arrays[f"curve/{name}"].tolist() for name in CURVES}
        run.watched, run.lost = arrays["watch/steps"].tolist(), arrays["watch/lost"].tolist()
    except (KeyError, ValueError) as error:
        raise UsageError(f"is no checkpoint of hexane train ({error})", where=str(path)) from None
    for name, value in before.items():
        if run.settings.decisive.get(name) != value:
            raise UsageError(
                f"the checkpoint was written with {name} = {value!r}", where=str(path), hint="--overwrite begins anew"
            )
    for name, trainer in _trainers(run):
        start = f"{name}/"
        trainer.load_state_dict({k.removeprefix(start): a for k, a in arrays.items() if k.startswith(start)})
