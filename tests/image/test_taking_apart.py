"""What commands say of a program that one takes apart: places of tasks, offsets of words, weights that differ."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import hexane
from hexane.cli.main import app
from hexane.emulator.placement import placements
from hexane.graph import GraphBuilder
from hexane.image import Image
from hexane.image.diff import diff_images
from hexane.image.edit import edited


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A 1x1 convolution that doubles, and a copy of each row and column that a transposition follows."""
    b = GraphBuilder()
    x = b.input("x", (1, 4, 8, 8), "fp16")
    y = b.conv(x=x, weight=(2 * np.eye(4)).astype(np.float16).reshape(4, 4, 1, 1))
    y = b.upsample_nearest_neighbor(x=y, scale_factor_height=2.0, scale_factor_width=2.0)
    b.output(b.transpose(x=y, perm=[0, 2, 1, 3], name="y"))
    path = tmp_path_factory.mktemp("apart") / "a.hwx"
    hexane.compile(b.graph).images[0].save(path)
    return path


def opened(path: Path) -> Image:
    return hexane.open_image(path)


def test_every_offset_is_where_the_word_stands(program: Path) -> None:
    """Held against the bytes: the word at the offset of a register's line is what the task has of that register."""
    text = run("disasm", program, "--offsets").stdout
    tasks = iter(opened(program).tasks)
    task, seen = next(tasks), 0
    for line in text[text.index("task t0") :].splitlines():
        if line.startswith("task ") and not line.startswith("task t0"):
            task = next(tasks)
        match = re.match(r" {4}(?:zero )?([A-Z]\w*(?:\.\w+)?(?:\[\d+)?)", line)
        byte = re.search(r"; byte (0x[0-9a-f]+)$", line)
        if not match or not byte:
            continue
        name = match[1] + ("]" if "[" in match[1] else "")
        key = task.handle(name).key
        assert int(byte[1], 16) == 4 * task.layout.position[key], line
        seen += 1
    assert seen > 300
    plain = run("disasm", program).stdout
    assert "; byte 0x128" not in plain
    assert re.sub(r"\s*;.*", "", text) == re.sub(r"\s*;.*", "", plain)


def test_info_says_where_tasks_read_and_write(program: Path) -> None:
    """The same places as a run of the emulator notes."""
    rows = json.loads(run("info", program, "--json").stdout)["tasks"]
    np.save(program.with_name("x.npy"), np.zeros((1, 4, 8, 8), np.float16))
    told = json.loads(run("emulate", program, "--input", f"x={program.with_name('x.npy')}", "--json").stdout)["tasks"]
    names = {f"channel {surface.channel}": surface.name for surface in opened(program).surfaces}
    assert len(rows) == len(told)
    for row, task in zip(rows, told):
        places = task["source"], task["destination"]
        for channel, name in names.items():
            places = places[0].replace(channel, name), places[1].replace(channel, name)
        assert (", ".join(row["reads"]), row["writes"]) == places
    assert rows[0]["reads"] == ["x + 0x0"] and rows[-1]["writes"].startswith("y + ")
    assert "a row of 32 bytes every 512" in rows[-1]["does"]


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (lambda b, x: b.conv(x=x, weight=np.ones((8, 8, 3, 3), np.float16), pad=[1] * 4, pad_type="custom"),
         "convolution, padding 1 x 1"),
        (lambda b, x: b.conv(x=x, weight=np.ones((8, 8, 5, 3), np.float16), strides=[2, 2], pad=[2, 2, 1, 1],
                             pad_type="custom"), "convolution, stride 2 x 2, padding 2 x 1"),
        (lambda b, x: b.conv(x=x, weight=np.ones((8, 1, 3, 3), np.float16), groups=8, pad_type="valid"),
         "depthwise convolution"),
        (lambda b, x: b.conv(x=x, weight=np.ones((8, 8, 1, 1), np.float16), pad_type="valid"), "convolution"),
        (lambda b, x: b.max_pool(x=x, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid"), "maximum, stride 2 x 2"),
    ],
)  # fmt: skip
def test_info_says_what_goes_over_the_input(chip: str, layer, words: str, tmp_path: Path) -> None:
    """Stride and padding as the network has them."""
    b = GraphBuilder()
    b.output(layer(b, b.input("x", (1, 8, 16, 16), "fp16")), name="y")
    hexane.compile(b.graph, chip=chip).images[0].save(tmp_path / "a.hwx")
    (row,) = json.loads(run("info", tmp_path / "a.hwx", "--json").stdout)["tasks"]
    assert row["does"] == words


@pytest.mark.parametrize(
    ("rows", "stride", "words"),
    [
        (2, 0, "takes rows that overlap (0 bytes apart, 16 long)"),
        (2, 64, ""),
        (2, 128, "takes a row of 16 bytes every 128"),
        (1, 0, ""),
        (1, 64, ""),
        (1, 128, ""),
    ],
)
def test_info_speaks_of_steps_between_rows_where_there_are_several(rows: int, stride: int, words: str) -> None:
    """Rows of 16 bytes, which lie 64 bytes apart where nothing else is wanted."""
    b = GraphBuilder()
    b.output(b.relu(x=b.input("x", (1, 2, rows, 8), "fp16"), name="y"))
    strides = [f"task[0].TileDMASrc.{name}={value}" for name, value in (("RowStride", stride), ("PlaneStride", 0))]
    steps, ended = placements(edited(hexane.compile(b.graph).images[0], strides))
    assert not ended and steps[0].does == words


def test_info_ends_where_a_task_is_refused(program: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.hwx"
    done = run("edit", program, "--set", "task[1].Common.InDim.Win=32", "-o", broken)
    assert done.exit_code == 0 and "the emulator refuses this program" in done.stderr and "task[1]" in done.stderr
    answer = json.loads(run("info", broken, "--json").stdout)
    assert answer["tasks"][0]["reads"] == ["x + 0x0"] and answer["tasks"][1]["reads"] == []
    assert "task[1]" in answer["not_followed"]
    again = run("edit", broken, "--set", "procedure=other", "-o", tmp_path / "again.hwx")
    assert "so was the program that was read" in again.stderr


def test_an_edited_program_runs_without_being_written(program: Path) -> None:
    image = edited(opened(program), ["task[0].Header[2].LogEvents=0"])
    x = {"x": np.ones((1, 4, 8, 8), np.float16)}
    assert np.array_equal(hexane.emulate(image, x)["y"], hexane.emulate(opened(program), x)["y"])


def test_a_good_edit_is_silent_and_diff_names_the_weight(program: Path, tmp_path: Path) -> None:
    weights = (2 * np.eye(4)).astype(np.float16).reshape(4, 4, 1, 1)
    weights[1, 1], weights[3, 2] = 3, -0.5
    np.save(tmp_path / "w.npy", weights)
    other = tmp_path / "b.hwx"
    done = run("edit", program, "--kernel", f"task[0].weights={tmp_path / 'w.npy'}", "-o", other)
    assert done.exit_code == 0 and done.stderr == ""
    first = diff_images(opened(program), opened(other))[0]
    assert first.where == "task[0].weights[1,1,0,0] (2 of 16 elements differ, by 1 at most)"
    assert (first.left, first.right) == (2.0, 3.0)
