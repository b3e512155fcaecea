"""A data set: samples with labels, from an .npz file, a folder, a Python file, or arrays."""

from __future__ import annotations

import csv
import importlib.util
import io
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import FormatError, HexaneError, UsageError, nearest
from hexane.files import read_text
from hexane.formats.npy import stored_shapes
from hexane.program import Port
from hexane.session.arrays import described
from hexane.session.file_shapes import Extents, Shape, fits
from hexane.session.inputs import PICTURES, gather

LABELS, ALPHABET = ("label", "labels"), "alphabet"
FILES = (*PICTURES, ".npy", ".npz", ".wav", ".txt")
TABLE = "labels.csv"


@dataclass(frozen=True)
class Samples:
    """Some samples: where they stand in the data set, inputs with samples along the first axis, labels if there are."""

    indices: np.ndarray
    inputs: dict[str, np.ndarray]
    labels: np.ndarray | None


@dataclass
class Data:
    """Samples that fit a network.

    batch : samples that the network takes in one call; ``take`` gives a sample in the shape of the network's input
        without its axis of samples, or in that of the whole input where it has none (``batch`` 0).
    alphabet : what the numbers of a sequence stand for, from 1 on; 0 is the blank.
    """

    name: str
    ports: tuple[Port, ...]
    count: int
    batch: int
    has_labels: bool
    alphabet: tuple[str, ...] = ()
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    labels: np.ndarray | None = None
    files: Sequence[tuple[Path, int]] = ()
    given: Any = None
    normalize: str | None = None

    def take(self, indices: np.ndarray) -> Samples:
        """Samples by their index; UsageError for one that does not fit or holds NaN."""
        if self.arrays:
            inputs = {p.name: self.arrays[p.name][indices].reshape(len(indices), *self.shape(p)) for p in self.ports}
            labels = None if self.labels is None else self.labels[indices]
        else:
            rows = [self._one(int(index)) for index in indices]
            inputs = {p.name: np.stack([row[0][p.name].reshape(self.shape(p)) for row in rows]) for p in self.ports}
            labels = np.stack([row[1] for row in rows]) if self.has_labels else None
        for name, array in inputs.items():
            if array.dtype.kind == "f" and (bad := np.isnan(array).reshape(len(indices), -1).any(1)).any():
                first = int(indices[np.argmax(bad)])
                raise UsageError(
                    f"input {name!r} has NaN", where=f"{self.name}, sample {first}",
                    hint="leave the sample out; the engine would compute with infinity in its place",
                )  # fmt: skip
        return Samples(np.asarray(indices, np.int64), inputs, labels)

    def shape(self, port: Port) -> tuple[int, ...]:
        """Of one sample."""
        return port.shape[1:] if self.batch else port.shape

    def _one(self, index: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        where = f"{self.name}, sample {index}"
        if self.files:
            path, label = self.files[index]
            option = str(path) if len(self.ports) == 1 or path.suffix == ".npz" else ""
            if not option:
                raise UsageError("a file of one array for a network of several inputs", where=str(path), hint=".npz")
            return gather(self.ports, [option], normalize=self.normalize).arrays, np.asarray(label, np.int64)
        try:
            sample = self.given[index]
        except HexaneError:
            raise
        except Exception as error:  # whatever a user's code raises
            raise UsageError(f"the data set raises {type(error).__name__}: {error}", where=where) from error
        sample_inputs, label = sample if is_pair(sample) else (sample[0] if isinstance(sample, tuple) else sample, 0)
        if not isinstance(sample_inputs, Mapping):
            if len(self.ports) > 1:
                raise UsageError("a sample is a mapping of input names to arrays", where=where, hint=_names(self.ports))
            sample_inputs = {self.ports[0].name: sample_inputs}
        inputs = {}
        for port in self.ports:
            if port.name not in sample_inputs:
                raise UsageError(f"input {port.name!r} is missing", where=where, hint=_names(self.ports))
            array = np.asarray(sample_inputs[port.name])
            if array.dtype.kind not in "biuf" or array.size != int(np.prod(self.shape(port))):
                raise UsageError(
                    f"{array.dtype} {array.shape} for input {port.name!r}", where=where, hint=f"it is {described(port)}"
                )
            inputs[port.name] = array
        if self.has_labels and not is_pair(sample):
            raise UsageError("the sample has no label, others have one", where=where)
        return inputs, np.asarray(label)


def is_pair(sample: Any) -> bool:
    """True where a sample comes with its label."""
    return isinstance(sample, tuple) and len(sample) == 2 and sample[1] is not None


def _names(ports: Sequence[Port]) -> str:
    return f"the inputs are {', '.join(port.name for port in ports)}"


def read_code(content: Any) -> tuple[Any, str | None]:
    """Result of ``dataset()`` of a Python file, and the file's name; anything else as it is, without a name.

    Raises UsageError for a path that is no data set.
    """
    if not isinstance(content, str | Path):
        return content, None
    path = Path(content)
    if not path.exists():
        raise UsageError("there is no such file or folder", where=str(path))
    if path.suffix == ".py" and path.is_file():
        return from_code(path), str(content)
    if path.suffix != ".npz" and not path.is_dir():
        raise UsageError("is no data set", where=str(path), hint=".npz, a folder, or .py with a function dataset()")
    return content, None


def open_data(content: Any, ports: Sequence[Port], *, normalize: str | None = None, name: str | None = None) -> Data:
    """A data set for a network's inputs.

    content : an ``.npz`` file (an array for each input, samples along the first axis, and ``label``); a folder with a
        folder of files for each class, or files and ``labels.csv``; a ``.py`` file whose ``dataset()`` gives a sequence
        of ``(inputs, label)``; a mapping like the ``.npz`` file, or such a sequence.
    name : of a sequence, where messages speak of it.
    """
    if name is None:
        content, name = read_code(content)
    ports = tuple(ports)
    if not ports:
        raise UsageError("the network has no inputs", hint="there is nothing to evaluate over a data set")
    if isinstance(content, Mapping):
        return _of_arrays(dict(content), ports, "the data")
    if not isinstance(content, str | Path):
        return _of_sequence(content, ports, name or "the data")
    path = Path(content)
    if path.is_dir():
        return _of_folder(path, ports, normalize)
    return _of_arrays(_npz(path), ports, str(path))


def sample_shapes(content: Any, extents: Extents) -> dict[str, Shape]:
    """The shapes of a network's inputs for one sample of a data set, where its arrays tell; ``{}`` for a folder.

    An extent that is known stays; what does not fit is left out: ``open_data`` says what is wrong.
    """
    stored: dict[str, Shape] = {}
    try:
        content, _ = read_code(content)
        if isinstance(content, str | Path) and Path(content).suffix == ".npz":
            stored = {name: shape[1:] for name, shape in stored_shapes(Path(content)).items()}
        elif isinstance(content, Mapping):
            stored = {name: np.shape(array)[1:] for name, array in content.items()}
    except HexaneError:
        return {}
    if not stored and not isinstance(content, str | Path | Mapping) and len(content):
        inputs = content[0][0] if isinstance(content[0], tuple) else content[0]
        if not isinstance(inputs, Mapping):
            inputs = dict.fromkeys(extents, inputs) if len(extents) == 1 else {}
        stored = {name: np.shape(array) for name, array in inputs.items()}
    shapes = {}
    for name, declared in extents.items():
        sample = stored.get(name, stored.get(name.replace("/", "_")))
        if sample is None:
            continue
        first = declared[0] if declared and isinstance(declared[0], int) else 1
        shape = sample if len(sample) == len(declared) else (first, *sample)
        if fits(shape, declared):
            shapes[name] = shape
    return shapes


def _npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError, AttributeError) as error:
        raise FormatError(f"is no .npz file of plain arrays ({error})", where=str(path)) from None


def _of_arrays(arrays: dict[str, Any], ports: tuple[Port, ...], name: str) -> Data:
    columns = {key: np.asarray(value) for key, value in arrays.items()}
    renamed = {port.name.replace("/", "_"): port.name for port in ports}
    names_allowed = [*(port.name for port in ports), *LABELS, ALPHABET]
    inputs: dict[str, np.ndarray] = {}
    labels: np.ndarray | None = None
    alphabet: tuple[str, ...] = ()
    for key, array in columns.items():
        if key in LABELS:
            labels = array
        elif key == ALPHABET:
            alphabet = tuple(str(letter) for letter in array)
        elif key in names_allowed or key in renamed:
            inputs[key if key in names_allowed else renamed[key]] = array
        else:
            raise UsageError(
                f"there is no input {key!r}", where=name, hint=nearest(key, names_allowed) or _names(ports)
            )
    missing = [port.name for port in ports if port.name not in inputs]
    if missing:
        raise UsageError(
            f"input {missing[0]!r} is missing", where=name, hint=f"it has {', '.join(columns) or 'nothing'}"
        )
    counts = {key: array.shape[0] if array.ndim else 0 for key, array in inputs.items()}
    if labels is not None:
        counts["label"] = labels.shape[0] if labels.ndim else 0
    if len(set(counts.values())) > 1:
        raise UsageError(f"arrays of different lengths: {counts}", where=name, hint="samples go along the first axis")
    batches = {_batch(inputs[port.name], port, name) for port in ports}
    if len(batches) > 1:
        raise UsageError("inputs whose first axes disagree about the batch", where=name, hint=_names(ports))
    (batch,) = batches
    return Data(name, ports, _some(next(iter(counts.values())), name), batch, labels is not None, alphabet, inputs,
                labels)  # fmt: skip


def _batch(array: np.ndarray, port: Port, name: str) -> int:
    """Samples in one call of the network: its first extent, or 0 where a sample is a whole input."""
    if array.dtype.kind not in "biuf":
        raise UsageError(f"input {port.name!r} is of {array.dtype}", where=name, hint=f"it is {described(port)}")
    plain = lambda shape: tuple(extent for extent in shape if extent != 1)  # noqa: E731
    sample = array.shape[1:]
    if port.shape and plain(sample) == plain(port.shape[1:]) and sample != port.shape:
        return port.shape[0]
    if plain(sample) == plain(port.shape):
        return 1 if port.shape and port.shape[0] == 1 else 0
    raise UsageError(
        f"samples of {sample} for input {port.name!r}", where=name, hint=f"it is {described(port)}; samples go along "
        "the first axis"
    )  # fmt: skip


def _some(count: int, name: str) -> int:
    if not count:
        raise UsageError("the data set is empty", where=name)
    return count


def _of_sequence(samples: Any, ports: tuple[Port, ...], name: str) -> Data:
    try:
        count = len(samples)
        first = samples[0] if count else None
    except Exception as error:
        raise UsageError(f"is no sequence of samples ({error})", where=name) from None
    _some(count, name)
    labelled = is_pair(first)
    firsts = {port.shape[0] if port.shape else 0 for port in ports}
    batch = firsts.pop() if len(firsts) == 1 else 0
    sample = first[0] if isinstance(first, tuple) else first
    array = np.asarray(next(iter(sample.values())) if isinstance(sample, Mapping) else sample)
    if batch > 1 and array.size == int(np.prod(ports[0].shape)):
        batch = 0
    alphabet = tuple(getattr(samples, ALPHABET, ()))
    return Data(name, ports, count, batch, labelled, alphabet, given=samples)


def from_code(path: Path, name: str = "dataset", *args: Any) -> Any:
    """Result of a function of a Python file."""
    spec = importlib.util.spec_from_file_location(f"{path.stem} of {path.parent}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    try:
        spec.loader.exec_module(module)
        make = getattr(module, name, None)
        if make is None:
            raise UsageError(f"has no function {name}()", where=str(path))
        return make(*args)
    except HexaneError:
        raise
    except Exception as error:  # whatever a user's code raises
        raise UsageError(f"raises {type(error).__name__}: {error}", where=str(path)) from error


def _of_folder(path: Path, ports: tuple[Port, ...], normalize: str | None) -> Data:
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    classes = [entry for entry in entries if entry.is_dir()]
    single = tuple(port.shape[0] if port.shape else 0 for port in ports)
    if any(extent > 1 for extent in single):
        raise UsageError(
            f"the network takes {max(single)} samples in a call", where=str(path), hint="an .npz file has batches"
        )
    batch = 1 if all(single) else 0
    files: list[tuple[Path, int]] = []
    labelled = True
    if classes:
        numbers = all(entry.name.isdigit() for entry in classes)
        for position, entry in enumerate(classes):
            label = int(entry.name) if numbers else position
            files += [(file, label) for file in sorted(entry.iterdir()) if file.suffix.lower() in FILES]
    elif (path / TABLE).is_file():
        files = _labelled(path)
    else:
        files = [(entry, 0) for entry in entries if entry.suffix.lower() in FILES]
        labelled = False
    return Data(str(path), ports, _some(len(files), str(path)), batch, labelled, files=files, normalize=normalize)


def _labelled(path: Path) -> list[tuple[Path, int]]:
    """The rows of labels.csv: a file's name and its class."""
    files = []
    for number, row in enumerate(csv.reader(io.StringIO(read_text(path / TABLE))), 1):
        if not row or (number == 1 and not row[-1].strip().lstrip("-").isdigit()):
            continue
        where = f"{path / TABLE}:{number}"
        if len(row) != 2 or not row[1].strip().isdigit():
            raise FormatError("is no file's name and class", where=where, hint="write NAME,NUMBER")
        if not (path / row[0]).is_file():
            raise UsageError(f"there is no file {row[0]!r}", where=where)
        files.append((path / row[0], int(row[1])))
    return files
