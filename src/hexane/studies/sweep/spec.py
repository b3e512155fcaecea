"""The file of a sweep: what is crossed with what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from hexane import chips
from hexane.errors import UsageError, nearest
from hexane.files import read_toml
from hexane.lowering.formats import WeightFormat
from hexane.studies.evaluation.network import checked_level

JOBS = ("check", "estimate", "compile", "evaluate")
KEYS = ("models", "chips", "weights", "batch", "shapes", "options", "jobs", "evaluate")
MODEL_KEYS = ("path", "name", "shapes", "bind", "evaluate")
OPTION_KEYS = ("dialect", "without", "as_", "accuracy")
EVALUATE_KEYS = ("data", "metric", "level", "limit", "until", "output", "layers", "normalize")


@dataclass(frozen=True)
class SweepPoint:
    """One place of the cross product. ``batch`` 0: as the file has it. ``evaluate``: arguments of that job."""

    model: str
    path: Path
    chip: str
    weights: str
    batch: int
    shapes: Mapping[str, tuple[int, ...]]
    bind: Mapping[str, Any]
    options: Mapping[str, Any]
    evaluate: Mapping[str, Any]

    @property
    def columns(self) -> dict[str, Any]:
        """Key of the point, in plain words."""
        shapes = " ".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in self.shapes.items())
        options = " ".join(
            f"{name}={'+'.join(value) if isinstance(value, tuple) else value}" for name, value in self.options.items()
        )
        return {
            "model": self.model, "chip": self.chip, "weights": self.weights, "batch": self.batch, "shapes": shapes,
            "options": options,
        }  # fmt: skip


@dataclass(frozen=True)
class Spec:
    """A sweep: its points in order, and the jobs that are done at each."""

    points: tuple[SweepPoint, ...]
    jobs: tuple[str, ...]
    path: Path = field(default_factory=Path)


def read_spec(path: Path) -> Spec:
    """The sweep in a TOML file; relative paths are from the file's folder.

    Raises SyntaxProblem for what is no TOML, UsageError for keys and values that there are not, with the nearest known.
    """
    return spec_of(read_toml(path), path)


def spec_of(data: Mapping[str, Any], path: Path = Path("sweep.toml")) -> Spec:
    """The same from plain data."""
    where, home = str(path), path.parent
    _known(data, KEYS, where)
    models = [_model(entry, home, where) for entry in _list(data, "models", where)]
    if not models:
        raise UsageError("no models are named", where=where, hint='models = ["network.onnx"]')
    jobs = tuple(_list(data, "jobs", where, ["check", "estimate"]))
    for job in jobs:
        _among(job, JOBS, "job", where)
    targets = [chip.name for chip in chips.parse_list(",".join(map(str, _list(data, "chips", where, ["M1"]))))]
    formats = [WeightFormat.of(str(name)).name for name in _list(data, "weights", where, ["fp16"])]
    batches = _list(data, "batch", where, [0])
    if not all(isinstance(batch, int) and batch >= 0 for batch in batches):
        raise UsageError(f"batch = {batches}", where=where, hint="numbers of 1 or more")
    shapes = [_shapes(entry, where) for entry in _list(data, "shapes", where, [{}])]
    options = [_options(entry, where) for entry in _list(data, "options", where, [{}])]
    common = _evaluate(data.get("evaluate", {}), home, where)
    points = tuple(
        SweepPoint(model["name"], model["path"], chip, form, batch, {**model["shapes"], **shape}, model["bind"], option,
              {**common, **model["evaluate"]})
        for model, shape, batch, form, option, chip in product(models, shapes, batches, formats, options, targets)
    )  # fmt: skip
    if "evaluate" in jobs and any("data" not in point.evaluate for point in points):
        raise UsageError("evaluate needs data", where=where, hint='[evaluate] data = "test.npz"')
    return Spec(points, jobs, path)


def _list(data: Mapping[str, Any], key: str, where: str, default: list[Any] | None = None) -> list[Any]:
    value = data.get(key, default or [])
    items = value if isinstance(value, list) else [value]
    if key in data and not items:
        raise UsageError(f"{key} is empty", where=where, hint="leave it out, or name one")
    return items


def _known(data: Any, keys: Iterable[str], where: str) -> None:
    if not isinstance(data, Mapping):
        raise UsageError(f"{data!r} is no table", where=where)
    for key in data:
        _among(key, keys, "key", where)


def _among(name: Any, choices: Iterable[str], what: str, where: str) -> None:
    if name not in choices:
        hint = nearest(name, choices) or f"there are {', '.join(choices)}"
        raise UsageError(f"there is no {what} {name!r}", where=where, hint=hint)


def _model(entry: Any, home: Path, where: str) -> dict[str, Any]:
    table: Any = {"path": entry} if isinstance(entry, str) else entry
    _known(table, MODEL_KEYS, where)
    if not isinstance(table.get("path"), str):
        raise UsageError("a model has no path", where=where)
    path = home / table["path"]
    return {
        "path": path, "name": str(table.get("name", path.name)), "shapes": _shapes(table.get("shapes", {}), where),
        "bind": dict(table.get("bind", {})), "evaluate": _evaluate(table.get("evaluate", {}), home, where),
    }  # fmt: skip


def _shapes(table: Any, where: str) -> dict[str, tuple[int, ...]]:
    if not isinstance(table, Mapping) or not all(
        isinstance(shape, list) and all(isinstance(extent, int) and extent > 0 for extent in shape)
        for shape in table.values()
    ):
        raise UsageError(f"shapes {table!r}", where=where, hint="{x = [1, 3, 224, 224]}")
    return {name: tuple(shape) for name, shape in table.items()}


def _options(table: Any, where: str) -> dict[str, Any]:
    _known(table, OPTION_KEYS, where)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


def _evaluate(table: Any, home: Path, where: str) -> dict[str, Any]:
    _known(table, EVALUATE_KEYS, where)
    settings = dict(table)
    if "level" in settings:
        checked_level(settings["level"])
    if "data" in settings:
        settings["data"] = str(home / settings["data"])
    return settings
