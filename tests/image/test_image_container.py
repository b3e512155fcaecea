"""The container of real files: parse, write from parts, build from values."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest

import hexane
from facts import fact_params
from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.graph import GraphBuilder
from hexane.image import Image, Surface
from hexane.image.container import Container
from hexane.image.hwx import read_hwx
from hexane.image.parts import OpaqueCommand, ProgramThread, Segment, TensorThread
from hexane.image.rebuild import follows_the_rule

HWX = fact_params("hwx/*.hwx")


@pytest.mark.parametrize("path", HWX)
def test_parts_write_the_same_bytes(path) -> None:
    data = path.read_bytes()
    container = read_hwx(data)
    assert container.write() == data
    assert not container.remainders
    assert not container.all_of(OpaqueCommand)


@pytest.mark.parametrize("path", HWX)
def test_rebuild_and_to_bytes(path) -> None:
    data = path.read_bytes()
    image = hexane.open_image(path)
    assert image.to_bytes() == data
    assert image.rebuild() == data
    assert [task.words() for task in image.tasks] == [task.words() for task in hexane.open_image(data).tasks]
    assert image.rebuild() == data


@pytest.mark.parametrize("path", HWX)
def test_every_byte_follows_from_the_values(path) -> None:
    """Tasks, constants, surfaces and identification are enough to make the file again."""
    data = path.read_bytes()
    image = hexane.open_image(data)
    assert image.ident.text is None, "the identification text follows from its two paths"
    surfaces = [replace(surface, address=0, channel=None) for surface in image.surfaces]
    const = b"" if not any(image.const) and not image.kernels else image.const
    tasks = [task.copy() for task in image.tasks]
    made = hexane.build_image(tasks, const, surfaces, "h13", dialect="zin4", ident=image.ident)
    assert made.rebuild() == made.to_bytes() == data
    assert follows_the_rule(image)


@pytest.mark.parametrize("path", HWX)
def test_a_lost_field_would_show(path) -> None:
    """No field of the program thread is written from elsewhere than the parts."""
    data = path.read_bytes()
    container = read_hwx(data)
    thread = container.first(ProgramThread)
    assert isinstance(thread, ProgramThread)
    changed = 0
    for item in fields(thread):
        if item.metadata.get("code") != "I" or item.name in ("size", "procedure_offset"):
            continue
        other = replace(thread, **{item.name: getattr(thread, item.name) ^ 1})
        commands = tuple(other if c is thread else c for c in container.commands)
        written = replace(container, commands=commands).write()
        assert written != data
        changed += 1
    assert changed > 8


@pytest.mark.parametrize("path", fact_params("hwx/relu_w77.hwx"))
def test_what_a_real_file_says(path) -> None:
    image = hexane.open_image(path)
    assert image.generation == "h13"
    assert image.dialect == "zin4"
    assert image.surfaces == [
        Surface("image", "input", (1, 1, 1, 77), (192, 192, 192, 2), "float16", 0x30008000, 5),
        Surface("probs@output", "output", (1, 1, 1, 77), (192, 192, 192, 2), "float16", 0x3000C000, 4),
    ]
    assert image.surface("probs").name == "probs@output"
    assert image.section("__TEXT", "__const") == bytes(0x4000)
    assert len(image.section("__TEXT", "__text")) == 0x274
    assert [segment.name for segment in image.segments] == ["__PAGEZERO", "__TEXT", "__FVMLIB", "__FVMLIB"]
    assert image.symbols[0].name == "image"
    assert image.scratch_bytes == 0
    assert len(image.tensor_threads) == 2
    with pytest.raises(UsageError, match="__TEXT,__text"):
        image.section("__TEXT", "__bss")
    with pytest.raises(UsageError, match="image"):
        image.surface("nothing")


@pytest.mark.parametrize("path", fact_params("hwx/sum_c64.hwx"))
def test_changed_tasks_are_written(path) -> None:
    image = hexane.open_image(path)
    image.tasks[0].Common.InDim.Win = 3
    again = hexane.open_image(image.rebuild())
    assert again.tasks[0].Common.InDim.Win == 3
    assert image.to_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", HWX)
def test_renaming_and_reshaping_lays_out_anew(path) -> None:
    image = hexane.open_image(path)
    name = image.inputs[0].name
    renamed = hexane.open_image(image.with_surface(name, name="a_much_longer_name").rebuild())
    assert not renamed.parts.remainders
    assert renamed.inputs[0].name == "a_much_longer_name"
    assert [s.name for s in renamed.symbols].count("a_much_longer_name") == 1
    assert any(s.name.startswith("a_much_longer_name:t11=") for s in renamed.symbols)
    assert renamed.tasks == image.tasks
    back = renamed.with_surface("a_much_longer_name", name=name)
    assert back.rebuild() == path.read_bytes()

    larger = hexane.open_image(image.with_surface(name, shape=(1, 5, 7, 500)).rebuild())
    first = larger.surface(name)
    assert first.shape == (1, 5, 7, 500)
    assert first.strides == (5 * 7 * 1024, 7 * 1024, 1024, 2)
    ends = sorted((s.address, s.address + s.nbytes) for s in larger.surfaces)
    assert all(a[1] <= b[0] for a, b in pairwise(ends))
    thread = larger.program_thread
    assert all(thread.channels[s.channel] == s.address for s in larger.surfaces)


@pytest.mark.parametrize("path", HWX)
@pytest.mark.parametrize("dialect", ["zin5", "zin7", "default"])
def test_other_dialects_parse_and_build_again(path, dialect) -> None:
    image = hexane.open_image(path)
    written = image.replace(dialect=dialect, scratch_bytes=5000).rebuild()
    again = hexane.open_image(written)
    assert again.dialect == dialect
    assert again.scratch_bytes == 0x4000
    assert not again.parts.remainders
    assert again.rebuild() == written
    assert follows_the_rule(again)
    assert again.tasks == image.tasks
    assert {s.label: s.shape for s in again.surfaces} == {s.label: s.shape for s in image.surfaces}
    assert {s.label: s.channel for s in again.surfaces} == {s.label: s.channel for s in image.surfaces}


@pytest.mark.parametrize("path", fact_params("hwx/gemm_512.hwx"))
def test_kernels_come_from_registers(path) -> None:
    image = hexane.open_image(path)
    (kernel,) = image.kernels
    assert [(c.core, c.offset, c.size) for c in kernel.chunks] == [(i, i * 0x8000, 0x8000) for i in range(16)]
    assert len(image.relocations) == 16
    assert image.relocations[0].section == 2


def test_build_refuses_what_no_program_can_hold() -> None:
    from hexane.isa import Task, link

    tasks = link([Task("h13")])
    x = Surface("x", "input", (1, 1, 1, 8))
    with pytest.raises(UsageError, match="two surfaces are called"):
        hexane.build_image(tasks, b"", [x, x], "h13")
    with pytest.raises(UsageError, match="channel"):
        hexane.build_image(tasks, b"", [replace(x, channel=2)], "h13")
    with pytest.raises(UsageError, match="at least one task"):
        hexane.build_image([], b"", [x], "h13")
    with pytest.raises(UsageError, match="dialect"):
        hexane.build_image(tasks, b"", [x], "h13", dialect="zin99")
    with pytest.raises(UsageError, match="h14"):
        hexane.build_image(tasks, b"", [x], "h14")
    with pytest.raises(UnsupportedError, match="h19"):
        hexane.build_image(tasks, b"", [x], "h19")
    with pytest.raises(UsageError, match="memory"):
        hexane.build_image(tasks, b"", [Surface("x", "input", (1, 1 << 16, 1 << 10, 1 << 10))], "h13")
    many = [Surface(f"s{i}", "input", (1, 1, 1, 8)) for i in range(29)]
    with pytest.raises(UsageError, match="28 channels"):
        hexane.build_image(tasks, b"", many, "h13")


def test_other_generations_keep_their_parts() -> None:
    """A program for a generation without a task format opens, says so, and is written back as it was."""
    from hexane.isa import Task, link

    made = hexane.build_image(link([Task("h13")]), b"", [{"name": "x", "role": "input", "shape": (1, 1, 1, 8)}], "h13")
    data = bytearray(made.rebuild())
    data[8] = 12
    image = hexane.open_image(bytes(data))
    assert image.generation == "v31"
    assert image.rebuild() == bytes(data)
    assert isinstance(image.parts, Container)
    with pytest.raises(UnsupportedError, match="v31"):
        _ = image.tasks


def test_errors_say_where() -> None:
    with pytest.raises(FormatError, match="byte 0x0") as caught:
        hexane.open_image(b"not a program at all" * 4)
    assert caught.value.offset == 0
    with pytest.raises(FormatError):
        hexane.open_image(b"")
    with pytest.raises(UsageError, match="cannot read"):
        hexane.open_image("no/such/file.hwx")


def test_repr_is_one_line() -> None:
    from hexane.isa import Task, link

    made = hexane.build_image(link([Task("h13")]), b"", [Surface("x", "input", (1, 1, 1, 8))], "h13")
    assert isinstance(made, Image)
    assert "\n" not in repr(made) and "1 task" in repr(made)
    assert all("\n" not in repr(part) for part in made.segments if isinstance(part, Segment))
    assert all(isinstance(t, TensorThread) for t in made.tensor_threads)


def test_surfaces_in_any_form() -> None:
    """Values, mappings and other objects with the same names describe the same surface."""
    from types import SimpleNamespace

    import numpy as np

    from hexane.image.surface import as_surface

    wanted = Surface("x", "input", (1, 2, 3, 4), (384, 192, 64, 2), "float16")
    assert as_surface({"name": "x", "role": "input", "shape": [1, 2, 3, 4]}) == wanted
    assert as_surface(SimpleNamespace(name="x", role="input", shape=(1, 2, 3, 4), dtype=np.float16)) == wanted
    assert as_surface({"name": "x", "role": "input", "shape": (1, 2, 3, 4), "dtype": np.dtype("bool")}).dtype == "uint8"
    with pytest.raises(UsageError, match="a surface without role, shape"):
        as_surface({"name": "x"})
    with pytest.raises(UsageError, match="element type"):
        as_surface({"name": "x", "role": "input", "shape": (1, 1, 1, 1), "dtype": object()})


def test_kernels_of_equal_name_stay_apart() -> None:
    """The compiler gives kernels of equal shape one name; each keeps its symbols."""
    from hexane.image import Ident
    from hexane.isa import Task, link

    tasks = []
    for i in range(3):
        task = Task("h13")
        task.set("KernelDMASrc.MasterConfig.MasterEnable", 1)
        for core in range(2):
            task.set(f"KernelDMASrc.CoeffDMAConfig[{core}].En", 1)
            task.set(f"KernelDMASrc.CoeffBaseAddr[{core}].Addr", 2 * i + core)
            task.set(f"KernelDMASrc.CoeffBfrSize[{core}].MemBfrSize", 1)
        task.set("TileDMADst.Fmt", 1)
        tasks.append(task)
    same, other = "AB" * 32, "CD" * 32
    made = hexane.build_image(
        link(tasks),
        bytes(384),
        [Surface("x", "input", (1, 1, 1, 8))],
        "h13",
        dialect="zin4",
        ident=Ident(kernel_names=(same, same, other)),
    )
    again = hexane.open_image(made.to_bytes())
    assert again.ident.kernel_names == (same, same, other)
    assert follows_the_rule(again)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": None}, "list of tasks"),
        ({"tasks": ["task"]}, "a str among the tasks"),
        ({"const": None}, "constants are bytes"),
        ({"const": 5}, "constants are bytes"),
        ({"scratch_bytes": 1.5}, "scratch_bytes is an integer"),
        ({"surfaces": None}, "list of surfaces"),
        ({"surfaces": [{"name": "x", "role": "input", "shape": "1234"}]}, "the shape is '1234'"),
        ({"surfaces": [{"name": "x", "role": "input", "shape": (1, 1, 1, 8.5)}]}, "integers are needed"),
        ({"surfaces": [{"name": "x", "role": "input", "shape": (1, 1, 1, 8), "channel": "5"}]}, "the channel is"),
        ({"surfaces": [{"name": 5, "role": "input", "shape": (1, 1, 1, 8)}]}, "the name is 5"),
        ({"surfaces": [{"name": "x", "role": "input", "shape": (1, 1, 1, 8), "stride": 2}]}, "a surface with stride"),
    ],
)
def test_what_no_program_can_be_built_from(change, message) -> None:
    from hexane.isa import Task, link

    parts = {"tasks": link([Task("h13")]), "const": b"", "surfaces": [], "scratch_bytes": 0} | change
    with pytest.raises(UsageError, match=message):
        hexane.build_image(**parts, generation="h13")


@pytest.mark.parametrize("source", [None, 5, [1, 2], "a\0b"])
def test_what_no_program_can_be_opened_from(source) -> None:
    with pytest.raises(UsageError):
        hexane.open_image(source)


def test_kernels_from_surfaces_and_scratch_are_not_relocated() -> None:
    """A relocation names the constant section; a kernel that is computed at run time does not stand there."""
    b = GraphBuilder()
    x, y = b.input("x", (1, 1, 64, 64), "fp16"), b.input("y", (1, 1, 64, 64), "fp16")
    product = b.matmul(x=x, y=y)
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)
    b.output(b.linear(x=product, weight=weight), name="out")
    (image,) = hexane.compile(b.graph, chip="M1").images
    constant = [task for task in image.tasks if task.get("Header[9].KBE0") and task.get("Header[9].KBase0") == 1]
    others = [task for task in image.tasks if task.get("Header[9].KBE0") and task.get("Header[9].KBase0") != 1]
    assert constant and others
    cores = sum(task.get(f"KernelDMASrc.CoeffDMAConfig[{core}].En") for task in constant for core in range(16))
    assert len(image.relocations) == cores
