"""The layout of today's dialect against what is recorded of 144 programs of Apple's compiler of macOS 26."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

import hexane
from facts import fact_files, fact_params
from hexane.image import Surface, build_image
from hexane.image.packages import scratch_needed
from hexane.image.text import assemble_image, disassemble_image
from hexane.isa import Task, decode_stream
from hexane.rounding import align

H13 = "apple/h13/*.json"


@cache
def record(path: Path) -> dict:
    return json.loads(path.read_text())


def tasks_of(path: Path) -> list[Task]:
    stream = bytearray()
    for task in record(path)["tasks"]:
        stream.extend(bytes(task["offset"] - len(stream)))
        stream.extend(b"".join(int(word, 16).to_bytes(4, "little") for word in task["words"]))
    return decode_stream(bytes(stream), record(path)["generation"])


def surfaces_of(path: Path) -> list[Surface]:
    surfaces = []
    for tensor in record(path)["tensors"]:
        strides = tuple(tensor["strides"][axis] for axis in ("batch", "channel", "row", "element"))
        surfaces.append(Surface(tensor["name"], tensor["role"], tensor["surface_shape"], strides, tensor["dtype"]))
    return surfaces


def image_of(path: Path) -> hexane.image.Image:
    tasks = tasks_of(path)
    recorded = record(path)["program"]["scratch_bytes"]
    scratch = align(scratch_needed(tasks), 0x4000) if recorded is None else recorded
    const = bytes(record(path)["constant_section"]["size"] or 0)
    return build_image(tasks, const, surfaces_of(path), "h13", scratch_bytes=scratch)


def known(key: str) -> list:
    """The programs of which an address or a size is recorded."""
    return [path for path in fact_files(H13) if record(path)["program"][key] is not None]


def each(values: list) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", values, ids=lambda path: getattr(path, "stem", "absent"))


@each(known("text_address"))
def test_text_and_const_addresses(path: Path) -> None:
    program, thread = record(path)["program"], image_of(path).program_thread
    assert thread.text_address == program["text_address"]
    if program["const_address"] is not None:
        assert thread.channels[1] == program["const_address"]


@each(known("surface_addresses"))
def test_surface_addresses(path: Path) -> None:
    assert sorted(s.address for s in image_of(path).surfaces) == sorted(record(path)["program"]["surface_addresses"])


@pytest.mark.parametrize("path", fact_params(H13))
def test_channels_text_and_round_trip(path: Path) -> None:
    image = image_of(path)
    data = image.to_bytes()
    again = hexane.open_image(data)
    assert len(again.contents.text) == record(path)["program"]["text_bytes"]
    assert again.rebuild() == data
    assert not again.parts.remainders
    assert [task.words() for task in again.tasks] == [
        [int(word, 16) for word in task["words"]] for task in record(path)["tasks"]
    ]
    if record(path)["names_recorded"]:
        assert {s.label: s.channel for s in again.surfaces} == {
            tensor["name"]: tensor["channel"] for tensor in record(path)["tensors"]
        }


@pytest.mark.parametrize("path", fact_params("apple/h13/*_same.json"))
def test_as_text_and_back(path: Path) -> None:
    image = image_of(path)
    assert assemble_image(disassemble_image(image)).rebuild() == image.to_bytes()


def test_scratch_sizes() -> None:
    """The rule gives the recorded sizes; in one program it is larger, and never smaller.

    Source: docs/reference/engine-h13.md 3.
    """
    paths = [path for path in fact_files(H13) if record(path)["program"]["scratch_bytes"] is not None]
    recorded = [record(path)["program"]["scratch_bytes"] for path in paths]
    needed = [align(scratch_needed(tasks_of(path)), 0x4000) for path in paths]
    assert sum(map(int.__eq__, needed, recorded)) == len(paths) - 1 == 23
    assert all(map(int.__ge__, needed, recorded))
