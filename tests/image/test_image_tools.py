"""Link, cut, compare, edit, and kernels out and in."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

import hexane
from facts import fact_folder, fact_params
from hexane.errors import FormatError, UnsupportedError, UsageError
from hexane.formats.kernel_files import extract_kernels, read_changes, replace_kernels
from hexane.image import Surface, build_image, cut, diff_images, edited, link, to_anec
from hexane.image.kernels import read_kernels, with_kernels
from hexane.image.packages import scratch_needed
from hexane.isa import Task
from hexane.isa import link as link_tasks
from image.hostile import small_program

HWX = "hwx/*.hwx"


def real(name: str):
    return hexane.open_image(fact_folder() / "hwx" / f"{name}.hwx")


@pytest.mark.parametrize("path", fact_params(HWX))
def test_a_file_does_not_differ_from_itself(path) -> None:
    assert diff_images(hexane.open_image(path), hexane.open_image(path)) == []


def test_diff_names_fields() -> None:
    left, right = hexane.open_image(small_program()), hexane.open_image(small_program())
    right.tasks[1].Common.InDim.Win = 5
    right.tasks[2].clear("TileDMADst.Fmt")
    found = {d.where: (d.left, d.right) for d in diff_images(left, right)}
    assert found["task[1].Common.InDim.Win"] == (9, 5)
    assert found["task[2].TileDMADst.Fmt.MemFmt"] == (2, "not written")
    assert set(found) == {"task[1].Common.InDim.Win"} | {w for w in found if w.startswith("task[2].TileDMADst.Fmt.")}


def test_diff_sees_constants_surfaces_and_containers() -> None:
    data = small_program()
    image = hexane.open_image(data)
    other = image.replace(const=bytes(255) + b"\x01")
    assert any("const[0x0:0x10]" in d.where for d in diff_images(image, other))
    other = image.with_surface("x", shape=(1, 3, 4, 6))
    assert {d.where for d in diff_images(image, other)} == {"surface[x].shape"}
    spoiled = bytearray(data)
    spoiled[0x18] ^= 1
    assert [d.where for d in diff_images(image, hexane.open_image(bytes(spoiled)))] == ["container.header.flags"]


@pytest.mark.parametrize("path", fact_params(HWX))
def test_linked_twice_and_cut_again(path) -> None:
    image = hexane.open_image(path)
    double = link(image, image)
    opened = hexane.open_image(double.to_bytes())
    count = len(image.tasks)
    assert len(opened.tasks) == 2 * count
    assert opened.const == image.const
    assert [t.get("Header[0].TID") for t in opened.tasks] == list(range(2 * count))
    again = cut(opened, count, 2 * count)
    assert {s.label: s.shape for s in again.surfaces} == {s.label: s.shape for s in image.surfaces}
    for ours, theirs in zip(again.tasks, image.tasks):
        for name in ("Common.InDim.Win", "NE.MACCfg", "KernelDMASrc.CoeffBaseAddr[0]", "TileDMADst.BaseAddr"):
            assert ours.get(name) == theirs.get(name)
    for name, surface in ((s.label, s) for s in again.surfaces):
        role = "input" if surface.role == "input" else "output"
        assert image.surface(name).role == role


def test_linking_moves_constants() -> None:
    """Two convolutions of equal shape and different weights keep their own weights."""
    twos, threes = real("conv_3to3"), real("conv_3to3_golden")
    joined = hexane.open_image(link(twos, threes).to_bytes())
    assert len(joined.const) == 2 * 192
    weights = [reading.value.weights for reading in read_kernels(joined)]
    assert [float(w.flat[0]) for w in weights] == [2.0, 3.0]
    assert len(joined.relocations) == 6
    assert sum(s.name.startswith("K") for s in joined.symbols) == 6
    assert joined.ident.kernel_names == (*twos.ident.kernel_names, *threes.ident.kernel_names)


def test_linking_chains_surfaces_by_name() -> None:
    first = real("relu_w77")
    second = first.with_surface("probs@output", name="last").with_surface("image", name="probs")
    joined = link(first, second)
    assert {s.label: s.role for s in joined.surfaces} == {"image": "input", "probs": "output", "last": "output"}
    written, read = joined.tasks[0].get("Header[8].WBase"), joined.tasks[1].get("Header[8].RBase0")
    assert written == read == joined.surface("probs").channel
    assert {s.label: s.role for s in cut(joined, 1).surfaces} == {"probs": "input", "last": "output"}


def test_every_surface_channel_is_given_out_and_no_more_than_there_are() -> None:
    """Numbers of channels have five bits, and the first four stand for the program's own parts."""
    first = real("relu_w77")
    images = [
        first.with_surface("probs@output", name=f"out{number:02}").with_surface("image", name=f"in{number:02}")
        for number in range(15)
    ]
    joined = link(*images[:14])
    assert sorted(surface.channel or 0 for surface in joined.surfaces) == list(range(4, 32))
    with pytest.raises(UsageError, match="28 channels"):
        link(*images)


def test_linking_refuses_what_does_not_fit() -> None:
    image = hexane.open_image(small_program())
    with pytest.raises(UsageError, match="in one program"):
        link(image, image.with_surface("x", shape=(1, 1, 1, 1)))
    with pytest.raises(UsageError, match="nothing"):
        link()
    with pytest.raises(UsageError, match="cannot cut"):
        cut(image, 2, 9)
    data = bytearray(small_program())
    data[8] = 7
    with pytest.raises(UnsupportedError):
        link(hexane.open_image(bytes(data)))


def test_edit() -> None:
    image = hexane.open_image(small_program())
    changed = edited(
        image,
        [
            "task[1].Common.InDim.Win=0x20",
            "task[*].NE.MACCfg.NonlinearMode=relu",
            "surface[x].shape=1x2x3x4",
            "surface[x].name=renamed",
            "scratch_bytes=0x8000",
            "procedure=main",
        ],
    )
    again = hexane.open_image(changed.rebuild())
    assert again.tasks[1].Common.InDim.Win == 32
    assert [task.NE.MACCfg.NonlinearMode for task in again.tasks] == [1, 1, 1]
    assert again.surface("renamed").shape == (1, 2, 3, 4)
    assert again.scratch_bytes == 0x8000
    assert again.procedure == "main"
    assert image.tasks[1].Common.InDim.Win == 9
    assert edited(again, ["task[0].NE.MACCfg=unwritten"]).tasks[0].written("NE.MACCfg") is False


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("task[0].Common.InDim.Win", "PATH=VALUE"),
        ("task[9].Common.InDim.Win=1", "no task 9"),
        ("task[0].Common.InDim.Wim=1", "Wim"),
        ("task[0].Common.InDim.Win=99999", "does not fit"),
        ("surface[q].shape=1x1x1x1", "no surface"),
        ("surface[x].shape=1x1x1", "shape"),
        ("surface[x].strides=100,100,100,2", "a stride of 100 bytes is no multiple of 64"),
        ("surface[x].flavour=3", "flavour"),
        ("colour=red", "colour"),
        ("scratch_bytes=many", "not a number"),
    ],
)
def test_edit_refuses(setting: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        edited(hexane.open_image(small_program()), [setting])
    assert setting in str(caught.value)


def test_kernels_out_and_in(tmp_path) -> None:
    image = real("conv_3to3")
    (reading,) = extract_kernels(image, tmp_path)
    assert reading.problem is None
    with np.load(tmp_path / "task_0000.npz") as file:
        weights = file["weights"]
    assert weights.shape == (3, 3, 1, 1) and weights.dtype == np.float16 and (weights == 2).all()
    same, changed = replace_kernels(image, tmp_path)
    assert changed == [] and same.rebuild() == image.to_bytes()
    new = np.arange(9, dtype=np.float16).reshape(3, 3, 1, 1)
    np.savez(tmp_path / "task_0000.npz", weights=new)
    other, changed = replace_kernels(image, tmp_path)
    assert changed == [0]
    again = hexane.open_image(other.rebuild())
    assert np.array_equal(read_kernels(again)[0].value.weights, new)
    assert len(other.rebuild()) == len(image.to_bytes())


def test_tables_out_and_in() -> None:
    image = real("sigmoid_w77")
    (reading,) = read_kernels(image)
    assert list(reading.arrays) == ["table"]
    table = reading.arrays["table"].copy()
    assert table.shape == (64,) and table[4] != 0
    table[4] ^= 1
    again = hexane.open_image(with_kernels(image, {0: {"table": table}}).rebuild())
    assert np.array_equal(read_kernels(again)[0].arrays["table"], table)


def test_kernels_refuse(tmp_path) -> None:
    image = real("conv_3to3")
    with pytest.raises(UsageError, match="no kernel"):
        with_kernels(real("relu_w77"), {0: {}})
    with pytest.raises(UsageError, match="no colour"):
        with_kernels(image, {0: {"colour": np.zeros(1)}})
    with pytest.raises(UsageError):
        with_kernels(image, {0: {"weights": np.zeros((2, 2, 1, 1), np.float16)}})
    with pytest.raises(UsageError, match="no such folder"):
        replace_kernels(image, tmp_path / "nothing")
    with pytest.raises(UsageError, match="task_NNNN"):
        replace_kernels(image, tmp_path)
    (tmp_path / "task_0000.npz").write_bytes(b"not a zip file")
    with pytest.raises(FormatError, match="npz"):
        replace_kernels(image, tmp_path)


@pytest.mark.parametrize("path", fact_params(HWX))
def test_packages(path, tmp_path) -> None:
    image = hexane.open_image(path)
    target = tmp_path / "model.anec"
    image.save(target)
    package = hexane.open_image(target)
    assert package.dialect == "anec"
    assert package.to_bytes() == package.rebuild() == target.read_bytes()
    header = package.parts.header
    assert header.td_size == 4 * len(image.tasks[0].words())
    assert header.td_count == len(image.tasks)
    assert header.tiles[0] << 14 > header.tsk_size
    assert all(task.get("Header[0].NID") == 0x40 for task in package.tasks)
    assert [s.role for s in package.surfaces] == [s.role for s in image.surfaces]
    assert sorted(s.channel for s in package.outputs)[0] == 4
    assert min(s.channel for s in package.inputs) == 4 + len(package.outputs)
    for ours, theirs in zip(package.surfaces, image.surfaces):
        assert (ours.shape, ours.strides, ours.dtype) == (theirs.shape, theirs.strides, theirs.dtype)
    back = tmp_path / "model.hwx"
    package.save(back)
    container = hexane.open_image(back)
    assert container.dialect == "default"
    assert container.const == image.const
    assert [t.get("Common.InDim") for t in container.tasks] == [t.get("Common.InDim") for t in image.tasks]


def test_package_of_a_default_program_puts_outputs_first() -> None:
    task = Task("h13")
    task.set("Header[8].RBase0", 4)
    task.set("Header[8].RBE0", 1)
    task.set("Header[8].WBase", 5)
    task.set("Header[8].WBE", 1)
    made = build_image(
        link_tasks([task]), b"", [Surface("x", "input", (1, 1, 1, 8)), Surface("y", "output", (1, 1, 1, 8))], "h13"
    )
    assert (made.surface("x").channel, made.surface("y").channel) == (4, 5)
    package = to_anec(made)
    assert package.tasks[0].get("Header[8].RBase0") == 5
    assert package.tasks[0].get("Header[8].WBase") == 4
    assert made.tasks[0].get("Header[8].RBase0") == 4


def test_a_smaller_header_is_read_too() -> None:
    data = to_anec(hexane.open_image(small_program())).to_bytes()
    short = data[:0x800] + data[0x1000:]
    image = hexane.open_image(short)
    assert image.parts.header_size == 0x800
    assert image.rebuild() == short
    assert len(image.tasks) == 3


def test_scratch_follows_from_the_tasks() -> None:
    task = Task("h13")
    task.set("Header[8].WBase", 3)
    task.set("Header[8].WBE", 1)
    task.set("TileDMADst.BaseAddr.Addr", 0x100)
    task.set("TileDMADst.DepthStride.DepthStride", 0x201)
    assert scratch_needed([task]) == 0x301 * 64
    made = build_image(link_tasks([task]), b"", [Surface("x", "input", (1, 1, 1, 8))], "h13")
    assert to_anec(made).parts.header.tiles[3] == 4


def test_renaming_renumbers_where_names_give_channels() -> None:
    task = Task("h13")
    task.set("Header[8].RBase0", 4)
    task.set("Header[8].RBE0", 1)
    task.set("Header[8].WBase", 5)
    task.set("Header[8].WBE", 1)
    made = build_image(
        link_tasks([task]), b"", [Surface("x", "input", (1, 1, 1, 8)), Surface("y", "output", (1, 1, 1, 8))], "h13"
    )
    renamed = hexane.open_image(made.with_surface("x", name="z").to_bytes())
    assert (renamed.surface("y").channel, renamed.surface("z").channel) == (4, 5)
    assert renamed.tasks[0].get("Header[8].RBase0") == 5
    assert renamed.tasks[0].get("Header[8].WBase") == 4
    assert renamed.surface("y").address < renamed.surface("z").address


def test_kernels_of_other_generations_are_not_called_none(tmp_path) -> None:
    data = bytearray(small_program())
    data[8] = 3  # the CPU subtype of H12
    with pytest.raises(UnsupportedError, match="h12"):
        read_kernels(hexane.open_image(bytes(data)))


def test_a_stream_that_breaks_late_names_its_file(tmp_path) -> None:
    data = bytearray(small_program())
    data[8] = 6  # the CPU subtype of H15, whose streams are decoded when they are asked for
    path = tmp_path / "late.hwx"
    path.write_bytes(data)
    image = hexane.open_image(path)
    with pytest.raises(FormatError, match=r"late\.hwx at byte 0x4000"):
        _ = image.tasks


def test_arrays_of_kernels_are_refused_unread(tmp_path) -> None:
    """A zip member of zeros that unpacks to 512 MiB, a header that no parser ends, 4 TiB in 128 bytes."""
    image = real("conv_3to3")
    with zipfile.ZipFile(tmp_path / "task_0000.npz", "w", zipfile.ZIP_DEFLATED) as file:
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, {"descr": "<f2", "fortran_order": False, "shape": (1 << 28,)})
        file.writestr("weights.npy", head.getvalue() + bytes(1 << 20))
    with pytest.raises(UsageError, match=r"the kernel's is \(3, 3, 1, 1\)"):
        replace_kernels(image, tmp_path)
    for header in ("{'descr': '<f2', (", "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }"):
        path = tmp_path / "damaged.npy"
        path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
        with pytest.raises(FormatError, match=r"is no|does not hold"):
            read_changes([f"task[0].weights={path}"])


def test_a_full_disk_leaves_no_folder(tmp_path, monkeypatch) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(UsageError, match="No space left"):
        extract_kernels(real("conv_3to3"), tmp_path / "kernels")
    assert not (tmp_path / "kernels").exists()
