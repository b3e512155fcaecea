"""``.anec`` packages of compiled networks: header by reader, surfaces in the network's order, names beside them."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import hexane
from hexane.cli.main import app
from hexane.errors import UsageError
from hexane.graph import Graph, GraphBuilder


def cell() -> Graph:
    """An LSTM-like cell: inputs x, h, c and outputs new_h, carry; neither list is in the order of its names."""
    b = GraphBuilder()
    x, h, c = (b.input(name, (1, 16, 4, 4), "fp16") for name in "xhc")
    carry = b.add(x=b.mul(x=c, y=b.sigmoid(x=x)), y=h, name="carry")
    new_h = b.mul(x=b.tanh(x=carry), y=h, name="new_h")
    b.output(new_h, carry)
    return b.graph


def read_as_libane(data: bytes, header: int) -> dict[str, list]:
    """What a client in C takes from the file: the content at a fixed offset, counts, and rows by channel."""
    size, _td_size, _count, text, _const, sources, destinations = struct.unpack_from("<QIIQQII", data)
    assert len(data) == header + size
    shapes = [struct.unpack_from("<6Q", data, 0x28 + 4 * 32 + 48 * channel) for channel in range(32)]
    first = 4
    return {
        "text": [data[header : header + text]],
        "outputs": shapes[first : first + destinations],
        "inputs": shapes[first + destinations : first + destinations + sources],
    }


@pytest.mark.parametrize("header", [None, 0x1000, 0x800])
def test_the_content_lies_where_the_reader_looks(tmp_path: Path, header: int | None) -> None:
    program = hexane.compile(cell(), chip="M1")
    path = tmp_path / "cell.anec"
    program.save(path, anec_header=header)
    package = read_as_libane(path.read_bytes(), header or 0x1000)
    assert package["text"][0][:4] != bytes(4)  # the first task's header, not padding
    x = {
        name: np.random.default_rng(i).standard_normal((1, 16, 4, 4)).astype(np.float16) for i, name in enumerate("xhc")
    }
    expected = program.run(x)
    got = hexane.emulate(hexane.open_image(path), {"input0": x["x"], "input1": x["h"], "input2": x["c"]})
    assert np.array_equal(got["output0"], expected["new_h"]) and np.array_equal(got["output1"], expected["carry"])


@pytest.mark.parametrize(("header", "reader", "other"), [(0x1000, "omarchy", "0x800"), (0x800, "libane", "0x1000")])
def test_the_command_says_who_reads_the_header(tmp_path: Path, header: int, reader: str, other: str) -> None:
    network, path = tmp_path / "cell.mil", tmp_path / "cell.anec"
    network.write_text(cell().to_mil())
    arguments = ["compile", str(network), "--chip", "M1", "--anec-header", f"{header:#x}", "-o", str(path)]
    lines = CliRunner().invoke(app, arguments).output.splitlines()
    (line,) = [line for line in lines if "header of" in line]
    said = re.fullmatch(r"  header of (0x\w+) bytes, for (.*) \(.*: --anec-header (0x\w+)\)", line)
    assert said and reader in said[2] and said[3] == other
    assert read_as_libane(path.read_bytes(), int(said[1], 16))["text"][0][:4] != bytes(4)


def test_names_order_and_layout_stand_beside_the_package(tmp_path: Path) -> None:
    program = hexane.compile(cell(), chip="M1")
    path = tmp_path / "cell.anec"
    program.save(path)
    rows = json.loads((tmp_path / "cell.anec.json").read_text())["surfaces"]
    assert [(r["role"], r["index"], r["name"]) for r in rows] == [
        ("output", 0, "new_h"), ("output", 1, "carry"), ("input", 0, "x"), ("input", 1, "h"), ("input", 2, "c"),
    ]  # fmt: skip
    package = read_as_libane(path.read_bytes(), 0x1000)
    assert [[*r["shape"], r["plane_bytes"], r["row_bytes"]] for r in rows] == list(
        map(list, package["outputs"] + package["inputs"])
    )
    header = tmp_path / "cell.anec.h"
    assert "#define CELL_INPUT_C 2" in header.read_text()
    if compiler := shutil.which("cc"):
        subprocess.run([compiler, "-fsyntax-only", "-Wall", "-Werror", "-x", "c", str(header)], check=True)


def test_other_headers_and_other_formats_are_refused(tmp_path: Path) -> None:
    program = hexane.compile(cell(), chip="M1")
    with pytest.raises(UsageError, match="0x900"):
        program.save(tmp_path / "cell.anec", anec_header=0x900)
    with pytest.raises(UsageError, match="no header"):
        program.save(tmp_path / "cell.hwx", anec_header=0x800)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_a_single_program_has_its_surfaces_types_and_its_generation(chip: str, tmp_path: Path) -> None:
    """Bytes are numbers, not truth values; the chip is one that the program was compiled for."""
    b = GraphBuilder()
    x, scale = b.input("x", (1, 4, 8, 8), "fp16"), np.float16(0.05)
    b.output(b.quantize(input=x, scale=scale, zero_point=np.uint8(100), output_dtype="uint8", name="y"))
    program = hexane.compile(b.graph, chip)
    program.save(tmp_path / "m.hwx")
    again = hexane.load_program(tmp_path / "m.hwx")
    values = {"x": np.random.default_rng(1).standard_normal((1, 4, 8, 8)).astype(np.float16)}
    np.testing.assert_array_equal(again.run(values)["y"], program.run(values)["y"])
    assert again.chip == chip == hexane.estimate(tmp_path / "m.hwx").chip
    told = CliRunner().invoke(app, ["estimate", str(tmp_path / "m.hwx"), "--json"], catch_exceptions=False)
    assert json.loads(told.stdout)["estimates"][0]["chip"] == chip
