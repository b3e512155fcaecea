"""The staging folder between threads and processes: whole files, and nobody removes what another one uses."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path

import pytest

from hexane.errors import HexaneError
from hexane.runtime.macos.staging import TEXT, stage, unstage

NAME = "ABCDEF0123456789"
TEXT_BYTES, WEIGHTS = b"program" * 999, {"@model_path/weights/w.bin": bytes(range(256)) * 64}


def stage_often(root: Path, times: int) -> None:
    """Exits with an exception where a file is missing or cut while this process uses the folder."""
    for _ in range(times):
        folder = stage(root, NAME, TEXT_BYTES, WEIGHTS)
        assert (folder / TEXT).read_bytes() == TEXT_BYTES
        assert (folder / "weights/w.bin").read_bytes() == WEIGHTS["@model_path/weights/w.bin"]
        unstage(folder)


def test_threads(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            stage_often(tmp_path, 200)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and not list(tmp_path.iterdir())


def test_processes(tmp_path: Path) -> None:
    workers = [multiprocessing.Process(target=stage_often, args=(tmp_path, 150)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0] and not list(tmp_path.iterdir())


def test_a_child_takes_nothing_from_its_parent(tmp_path: Path) -> None:
    folder = stage(tmp_path, NAME, TEXT_BYTES, WEIGHTS)
    child = multiprocessing.get_context("fork").Process(target=unstage, args=(folder,))
    child.start()
    child.join()
    assert child.exitcode == 0 and (folder / TEXT).exists()
    unstage(folder)
    assert not folder.exists()


def test_an_ended_process_left_its_folder(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / TEXT).write_text("old")
    (tmp_path / f"{NAME}.lock").touch()
    stage_often(tmp_path, 1)


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HexaneError, match="cannot be staged"):
        stage(tmp_path, NAME, TEXT_BYTES, WEIGHTS)
    assert not list((tmp_path / "elsewhere").iterdir())
