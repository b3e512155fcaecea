"""The file of ``hexane train``: every key with its kind, default and meaning, checked when the file is read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hexane.errors import UsageError, nearest
from hexane.files import read_toml
from hexane.train.losses import LOSSES
from hexane.train.optimizers import OPTIMIZERS, Optimizer
from hexane.train.programs import WAYS
from hexane.train.schedules import KINDS, Schedule
from hexane.train.stage import ENGINE, LEVELS

FILE, TEXT, COUNT, NUMBER, FLAG, NAMES, PAIR, SHAPES, SCALE = (
    "path", "text", "count", "number", "true or false", "list of names", "two numbers", "table", "text or number",
)  # fmt: skip
AUTO = "auto"


@dataclass(frozen=True)
class Key:
    """A key of the file: ``default`` None where it must be there, ``options`` the texts that it may be."""

    name: str
    kind: str
    default: Any
    meaning: str
    options: tuple[str, ...] = ()


KEYS = (
    Key("network", FILE, None, "The network: any file that hexane reads, or a .py file with `network(seed)`."),
    Key("data", FILE, None, "Samples with labels: .npz, a folder, or .py with `dataset()`, as for `hexane evaluate`."),
    Key("test", FILE, "", "Samples with labels for the figures at the end."),
    Key("output", FILE, "", "Folder for all results; by default the file's name without suffix."),
    Key("steps", COUNT, 1000, "Steps of the optimiser."),
    Key("batch", COUNT, 0, "Samples of a step: a multiple of the network's; more are accumulated. 0: the network's."),
    Key("seed", COUNT, 0, "Of the order of samples, and of a `network(seed)`."),
    Key("shapes", SHAPES, {}, "Shapes by input name, where the network leaves them open."),
    Key("normalize", TEXT, "", "How pixels of pictures become numbers, as for `hexane run`."),
    Key("loss", TEXT, "cross_entropy", "What is made small.", tuple(LOSSES)),
    Key("of", TEXT, "", "The output that the loss looks at; by default the first."),
    Key("train", NAMES, [], "Constants that are trained; by default all weights (docs/training.md)."),
    Key("level", TEXT, ENGINE, "Arithmetic: tasks on the emulator, the same without tasks, or float32.", LEVELS),
    Key("chip", TEXT, "M1", "Whose programs and arithmetic."),
    Key("loss_scale", SCALE, AUTO, '"off", a number, "dynamic", or "auto": computed from headroom and lost products.'),
    Key("layer_scales", FLAG, False, "Scales of single sums beside a computed one, where there is room for them."),
    Key("clip", NUMBER, 0.0, "Largest norm of all gradients together; 0 leaves them."),
    Key("renew", TEXT, AUTO, "How programs get new weights; \"auto\" is what is predicted fastest.", (AUTO, *WAYS)),
    Key("compile_budget", COUNT, 0, "Compilations of one process, which then saves and starts again; 0: no limit."),
    Key("checkpoint", NAMES, [], "Activations that the backward pass computes again instead of taking them."),
    Key("gradients", TEXT, "host", "Where products that give gradients of weights are computed.", ("host", ENGINE)),
    Key("compare", FLAG, True, "Train in float32 beside it, for the curves."),
    Key("save_every", COUNT, 100, "Steps between checkpoints."),
    Key("watch_every", COUNT, 50, "Steps between counts of lost products; 0 counts none."),
    Key("optimizer.name", TEXT, "sgd", "The optimiser.", tuple(OPTIMIZERS)),
    Key("optimizer.lr", NUMBER, 0.0, "Rate; 0 is the optimiser's own (sgd 0.01, adam and adamw 0.001)."),
    Key("optimizer.weight_decay", NUMBER, 0.0, "Share of each weight in its gradient; for adamw beside it (0: 0.01)."),
    Key("optimizer.momentum", NUMBER, 0.0, "Of sgd."),
    Key("optimizer.nesterov", FLAG, False, "Of sgd: Nesterov's form of the momentum."),
    Key("optimizer.betas", PAIR, [0.9, 0.999], "Of adam and adamw: how much the moments remember."),
    Key("optimizer.eps", NUMBER, 1e-8, "Of adam and adamw: added to the root of the second moment."),
    Key("schedule.kind", TEXT, "constant", "How the rate changes.", KINDS),
    Key("schedule.warm_up", COUNT, 0, "Steps of a straight line up to the rate."),
    Key("schedule.lowest", NUMBER, 0.0, "Of a cosine: the last rate, as a share of the first."),
    Key("schedule.every", COUNT, 0, "Of \"step\": steps between falls."),
    Key("schedule.factor", NUMBER, 0.1, "Of \"step\": what each fall multiplies the rate with."),
)  # fmt: skip
TABLES = ("optimizer", "schedule")
MAY_CHANGE = frozenset(("output", "test", "save_every", "compile_budget"))
"""Keys that may be others when a run is resumed: no bit of the result depends on them."""


@dataclass(frozen=True)
class TrainSettings:
    """Settings of a file, with defaults, by key; paths are absolute."""

    values: Mapping[str, Any]
    path: Path

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def decisive(self) -> dict[str, Any]:
        """Settings that decide the bits of a result; paths from the file's folder, so that a run may be moved."""
        home = self.path.resolve().parent
        files = {key.name for key in KEYS if key.kind == FILE}
        return {
            name: os.path.relpath(value, home) if name in files and value else value
            for name, value in self.values.items()
            if name not in MAY_CHANGE
        }

    @property
    def optimizer(self) -> Optimizer:
        """The optimiser; UsageError for a key that it does not have."""
        kind = OPTIMIZERS[self["optimizer.name"]]
        own = {field.name for field in fields(kind)}
        options: dict[str, Any] = {}
        for key in KEYS:
            table, _, name = key.name.partition(".")
            value = self[key.name]
            if table != "optimizer" or name == "name" or value == key.default:
                continue
            if name not in own:
                raise UsageError(
                    f"{self['optimizer.name']} has no {name}", where=str(self.path), hint=f"it has {', '.join(own)}"
                )
            options[name] = tuple(value) if isinstance(value, list) else value
        return kind(**options)

    @property
    def schedule(self) -> Schedule:
        """The schedule; a cosine ends with the last step."""
        names = ("kind", "warm_up", "lowest", "every", "factor")
        return Schedule(steps=self["steps"], **{name: self[f"schedule.{name}"] for name in names})


def read_settings(path: Path) -> TrainSettings:
    """The settings in a TOML file; relative paths are from its folder.

    Raises SyntaxProblem for what is no TOML, UsageError for an unknown key (with the nearest known) or a wrong value.
    """
    flat: dict[str, Any] = {}
    for name, value in read_toml(path).items():
        inside = name in TABLES and isinstance(value, dict)
        flat.update({f"{name}.{inner}": item for inner, item in value.items()} if inside else {name: value})
    names = [key.name for key in KEYS]
    for name in flat:
        if name not in names:
            hint = nearest(name, names) or f"there are {', '.join(names)}"
            raise UsageError(f"there is no key {name!r}", where=str(path), hint=hint)
    values = {}
    for key in KEYS:
        if key.name not in flat and key.default is None:
            raise UsageError(f"lacks {key.name!r}", where=str(path), hint=key.meaning)
        values[key.name] = _checked(key, flat.get(key.name, key.default), path)
    values["output"] = values["output"] or str(path.resolve().with_suffix(""))
    return TrainSettings(values, path)


def _checked(key: Key, value: Any, path: Path) -> Any:
    """A value of the key's kind; UsageError for another."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    right = {
        COUNT: isinstance(value, int) and number and value >= 0,
        NUMBER: number and value >= 0,
        FLAG: isinstance(value, bool),
        NAMES: isinstance(value, list) and all(isinstance(item, str) for item in value),
        PAIR: isinstance(value, list) and len(value) == 2 and all(isinstance(item, float) for item in value),
        SHAPES: isinstance(value, dict),
        SCALE: isinstance(value, str) or number,
    }.get(key.kind, isinstance(value, str))
    if right and (not key.options or value in key.options):
        return str(path.resolve().parent / value) if key.kind == FILE and value else value
    hint = f"one of {', '.join(key.options)}" if key.options else f"a {key.kind}"
    raise UsageError(f"{key.name} = {value!r}", where=str(path), hint=hint)


def settings_table() -> str:
    """The keys as a table, for the documentation."""
    rows = ["| key | kind | default | meaning |", "|---|---|---|---|"]
    for key in KEYS:
        default = "" if key.default in (None, "", [], {}) else f"`{_toml(key.default)}`"
        options = f" One of {', '.join(f'`{option}`' for option in key.options)}." if key.options else ""
        need = " Required." if key.default is None else ""
        rows.append(f"| `{key.name}` | {key.kind} | {default} | {key.meaning}{options}{need} |")
    return "\n".join(rows)


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else json.dumps(value)
