"""Inputs from files, pictures and seeds: shapes, layouts, normalisation, and what is stated about them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hexane.errors import FormatError, UsageError
from hexane.graph import GraphBuilder
from hexane.program import Port, input_ports
from hexane.session.drawing import drawn_inputs
from hexane.session.inputs import gather, layout_of, normalization, picture

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[..., 0], pixels[..., 1], pixels[..., 2] = 255, np.arange(6) * 51, 0
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


@pytest.mark.parametrize(("shape", "axes"), [((1, 3, 4, 6), "CHW"), ((1, 4, 6, 3), "HWC"), ((3, 4, 6), "CHW")])
def test_the_layout_follows_the_shape(photo: Path, shape: tuple[int, ...], axes: str) -> None:
    array, note = picture(photo, Port("x", shape, "fp32"))
    assert array.shape == shape and axes in note and "resized" not in note
    rgb = array.reshape(3, 4, 6) if axes == "CHW" else array.reshape(4, 6, 3).transpose(2, 0, 1)
    assert np.allclose(rgb[0], 1) and np.allclose(rgb[1, 0], np.arange(6) / 5) and np.allclose(rgb[2], 0)


def test_normalisation_and_size(photo: Path) -> None:
    array, note = picture(photo, Port("x", (1, 3, 8, 12), "fp16"), "imagenet")
    assert "resized from 6x4" in note and "imagenet" in note
    assert np.allclose(array[0, 0], (1 - 0.485) / 0.229)
    assert np.allclose(picture(photo, Port("x", (1, 3, 4, 6), "fp16"), "0.5/0.25")[0][0, 0], 2)
    assert np.array_equal(np.unique(picture(photo, Port("x", (1, 3, 4, 6), "uint8"))[0][0, 0]), [255])
    grey, _ = picture(photo, Port("x", (1, 1, 4, 6), "fp32"))
    assert grey.shape == (1, 1, 4, 6)
    for wrong in ("loud", "1,2/3", "0.5/0", "1,2,3"):
        with pytest.raises(UsageError, match=r"normal|numbers"):
            normalization(wrong)


def test_inputs_that_take_no_picture(photo: Path) -> None:
    with pytest.raises(UsageError, match="takes no picture"):
        layout_of(Port("x", (1, 16, 8, 8), "fp16"))
    (photo.parent / "broken.png").write_bytes(b"no picture")
    with pytest.raises(FormatError, match="no picture"):
        picture(photo.parent / "broken.png", Port("x", (1, 3, 4, 6), "fp16"))


def test_arrays_by_name_and_by_seed(tmp_path: Path) -> None:
    ports = [Port("a/b", (1, 2), "fp32"), Port("mask", (1, 3), "bool")]
    np.savez(tmp_path / "in.npz", a_b=np.ones((1, 2), np.float32))
    given = gather(ports, [str(tmp_path / "in.npz")], seed=3)
    assert np.all(given.arrays["a/b"] == 1) and given.arrays["mask"].dtype == bool
    assert any("seed 3" in note for note in given.notes)
    again = gather(ports, seed=3).arrays["a/b"]
    assert np.array_equal(again, gather(ports, seed=3).arrays["a/b"])
    np.save(tmp_path / "x.npy", np.ones((2,), np.float32))
    assert gather(ports[:1], [str(tmp_path / "x.npy")]).arrays["a/b"].shape == (1, 2)


def test_indices_are_drawn_for_the_table_behind_any_reshape() -> None:
    for view in ("reshape", "flatten2d"):
        b = GraphBuilder()
        ids = b.input("n", (1, 64), "int32")
        flat = b.flatten2d(x=ids) if view == "flatten2d" else b.reshape(x=ids, shape=[64])
        b.output(b.gather(x=np.zeros((1000, 4), np.float16), indices=flat, axis=0))
        arrays, _ = drawn_inputs([Port("n", (1, 64), "int32")], 3, b.graph)
        assert arrays["n"].max() > 1, view


def test_arrays_that_do_not_fit(tmp_path: Path) -> None:
    ports = [Port("x", (1, 2), "fp32"), Port("y", (1,), "fp32")]
    np.save(tmp_path / "x.npy", np.ones((3,), np.float32))
    with pytest.raises(UsageError, match="1x2 fp32"):
        gather(ports, [f"x={tmp_path / 'x.npy'}"], seed=0)
    with pytest.raises(UsageError, match="which input"):
        gather(ports, [str(tmp_path / "x.npy")], seed=0)
    with pytest.raises(UsageError, match="no input 'z'"):
        gather(ports, [f"z={tmp_path / 'x.npy'}"], seed=0)
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY" + b"\0" * 20)
    with pytest.raises(FormatError, match=r"no \.npy"):
        gather(ports, [f"x={tmp_path / 'bad.npy'}"], seed=0)
    (tmp_path / "bad.npz").write_bytes(b"PK\3\4")
    with pytest.raises(FormatError, match=r"no \.npz"):
        gather(ports, [str(tmp_path / "bad.npz")], seed=0)
    np.save(tmp_path / "object.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(FormatError):
        gather(ports, [f"x={tmp_path / 'object.npy'}"], seed=0)
    np.save(tmp_path / "words.npy", np.array([["a", "b"]]))
    with pytest.raises(UsageError, match="dtype"):
        gather(ports, [f"x={tmp_path / 'words.npy'}"], seed=0)


def test_an_optional_input_has_the_models_own_number() -> None:
    b = GraphBuilder()
    b.output(b.add(x=b.input("x", (2,), "fp32"), y=b.input("y", (2,), "fp32")))
    b.graph.metadata["defaults"] = {"y": 9.0}
    ports = input_ports(b.graph)
    for seed in (None, 1):
        gathered = gather(ports[1:], seed=seed, graph=b.graph)
        assert gathered.arrays["y"].tolist() == [9, 9] and gathered.arrays["y"].dtype == np.float32
        assert gathered.notes == ("y: 9, as the model fills it where it is not given",)
    with pytest.raises(UsageError, match="'x' is missing"):
        gather(ports, graph=b.graph)
