"""Kernels of a program as ``.npz`` files, one per task: ``task_0003.npz`` with weights OIHW, bias and table."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from hexane.errors import UsageError
from hexane.files import make_folder, whole_file
from hexane.formats.npy import Fit, most_bytes, read_array, read_arrays
from hexane.image import Image
from hexane.image.kernels import PARTS, KernelReading, read_kernels, with_kernels

_NAME = re.compile(r"task_(\d+)\.npz")


def file_name(task: int) -> str:
    """The file of a task's kernel."""
    return f"task_{task:04d}.npz"


def extract_kernels(image: Image, folder: Path) -> list[KernelReading]:
    """Write every constant kernel that can be taken apart; the readings say which could not, and why."""
    readings = read_kernels(image)
    is_new = not folder.exists()
    make_folder(folder)
    try:
        for reading in readings:
            if reading.value is not None:
                with whole_file(folder / file_name(reading.task)) as file:
                    np.savez(file, **reading.arrays)  # type: ignore[arg-type]
    except BaseException:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return readings


def replace_kernels(image: Image, folder: Path) -> tuple[Image, list[int]]:
    """The program with the kernels of a folder in place of its own, and the tasks whose kernels changed."""
    if not folder.is_dir():
        raise UsageError("there is no such folder", where=str(folder))
    paths_by_task = {int(m.group(1)): path for path in sorted(folder.iterdir()) if (m := _NAME.fullmatch(path.name))}
    if not paths_by_task:
        raise UsageError("no task_NNNN.npz in the folder", where=str(folder), hint="hexane kernels FILE --extract DIR")
    own = {reading.task: reading.arrays for reading in read_kernels(image)}
    changes = {}
    for task, path in paths_by_task.items():
        arrays = _load(path, own.get(task, {}))
        if task not in own or not _same(own[task], arrays):
            changes[task] = arrays
    return with_kernels(image, changes), sorted(changes)


_CHANGE = re.compile(r"task\[(\d+)\]\.(\w+)=(.+)", re.DOTALL)


def read_changes(options: Iterable[str]) -> dict[int, dict[str, np.ndarray]]:
    """``task[3].weights=FILE.npy`` options as changes for ``with_kernels``."""
    changes: dict[int, dict[str, np.ndarray]] = {}
    for option in options:
        match = _CHANGE.fullmatch(option)
        if match is None or match[2] not in PARTS:
            raise UsageError(f"{option!r} is not task[N].PART=FILE", hint=f"PART is one of {', '.join(PARTS)}")
        changes.setdefault(int(match[1]), {})[match[2]] = read_array(Path(match[3]))
    return changes


def _load(path: Path, own: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a task's file; each has the size of the kernel's own before it is read."""

    def fit(name: str) -> Fit:
        where = f"{path}: {name}"
        if name not in PARTS:
            raise UsageError(f"a kernel has no {name}", where=str(path), hint=f"it has {', '.join(PARTS)}")
        if name not in own:
            return most_bytes(8 * sum(array.size for array in own.values()), where)

        def same_shape(shape: tuple[int, ...], dtype: np.dtype) -> None:
            if shape != own[name].shape:
                raise UsageError(f"an array of shape {shape}; the kernel's is {own[name].shape}", where=where)
            most_bytes(8 * own[name].size, where)(shape, dtype)

        return same_shape

    return read_arrays(path, fit)


def _same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> bool:
    """True where every array given equals ours bit for bit."""
    return all(
        name in ours
        and ours[name].dtype == array.dtype
        and ours[name].shape == array.shape
        and ours[name].tobytes() == array.tobytes()
        for name, array in theirs.items()
    )
