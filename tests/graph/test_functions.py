"""Several functions of a program: weights once, one state, in files and in the runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.errors import UsageError
from hexane.frontends.networks import to_text
from hexane.graph import Graph, GraphBuilder
from hexane.graph.functions import joined

RNG = np.random.default_rng(3)
WEIGHT = RNG.standard_normal((8, 8, 1, 1)).astype(np.float16)
WHOLE = (1, 8, 1, 32)


def step(begin: int, rows: int, weight: np.ndarray = WEIGHT, whole: tuple[int, ...] = WHOLE) -> Graph:
    """New columns at a constant place of a state; the sum of the state times a matrix."""
    b = GraphBuilder()
    state, x = b.state("cache", whole, "fp16"), b.input("x", (1, 8, 1, rows), "fp16")
    new = b.slice_update(x=b.read_state(input=state), update=x, begin=[0, 0, 0, begin], end=[1, 8, 1, begin + rows])
    b.write_state(data=new, input=state)
    y = b.conv(x=b.read_state(input=state), weight=b.const(weight.copy(), name="w"))
    b.output(b.reduce_sum(x=y, axes=[3], keep_dims=True), name="y")
    return b.graph


def program() -> Graph:
    return joined({"decode": step(16, 1), "prefill": step(0, 16)})


PROMPT, NEXT = (RNG.standard_normal((1, 8, 1, rows)).astype(np.float16) for rows in (16, 1))


def exact(columns: list[np.ndarray]) -> np.ndarray:
    total = np.concatenate(columns, axis=3).astype(np.float64).sum(3)
    return np.einsum("oi,bih->boh", WEIGHT[:, :, 0, 0].astype(np.float64), total)[..., None]


@pytest.mark.parametrize("suffix", ["mlpackage", "mil"])
def test_decode_reads_what_prefill_wrote_through_a_written_file(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"net.{suffix}"
    program().save(path)
    state, given = None, []
    for name, x in (("prefill", PROMPT), ("decode", NEXT)):
        graph = hexane.load(path, function=name)
        compiled = hexane.compile(graph, chip="M4")
        state = compiled.make_state() if state is None else state
        given.append(compiled.run({"x": x}, state=state)["y"])
    for y, columns in zip(given, ([PROMPT], [PROMPT, NEXT])):
        assert np.abs(y - exact(columns)).max() < 0.01 * np.abs(exact(columns)).max()
    assert np.array_equal(state["cache"][..., :17], np.concatenate([PROMPT, NEXT], axis=3))


@pytest.mark.parametrize("suffix", ["mlpackage", "mil"])
def test_weights_stand_in_the_file_once_however_often_it_is_written(suffix: str, tmp_path: Path) -> None:
    sizes = []
    for number, graph in enumerate((program(), None)):
        path = tmp_path / str(number) / f"net.{suffix}"
        path.parent.mkdir()
        (graph or hexane.load(tmp_path / "0" / path.name)).save(path)
        (file,) = path.parent.rglob("*.bin")
        sizes.append(file.read_bytes().count(WEIGHT.tobytes()))
    assert sizes == [1, 1]


def test_coremltools_sees_both_functions_over_one_record(tmp_path: Path) -> None:
    pytest.importorskip("coremltools")
    from coremltools.models.utils import load_spec

    program().save(tmp_path / "net.mlpackage")
    model = load_spec(str(tmp_path / "net.mlpackage"))
    places = []
    for function in model.mlProgram.functions.values():
        (block,) = function.block_specializations.values()
        blobs = [op.attributes["val"].blobFileValue for op in block.operations if op.type == "const"]
        places.append({(blob.fileName, blob.offset) for blob in blobs if blob.fileName})
    assert places[0] == places[1] and len(places[0]) == 1
    states = [[f.name for f in entry.state] for entry in model.description.functions]
    assert states == [["cache"], ["cache"]] and model.description.defaultFunctionName == "decode"


def test_a_loaded_model_keeps_one_state_for_all_its_functions() -> None:
    with hexane.mil.Model(to_text(program()), chip="M4") as model:
        model.evaluate_async({"x": PROMPT}, function="prefill").result()
        y = model.evaluate({"x": NEXT})["y"]
        assert np.abs(y - exact([PROMPT, NEXT])).max() < 0.01 * np.abs(exact([PROMPT, NEXT])).max()
        with pytest.raises(UsageError, match="no function 'other'"):
            model.evaluate({"x": NEXT}, function="other")
        doubled = model.update({"w": WEIGHT * 2})
        assert doubled.how == "replaced" and doubled.elements == 2 * WEIGHT.size
        model.evaluate({"x": PROMPT}, function="prefill")
        assert np.abs(model.evaluate({"x": NEXT})["y"] - 2 * exact([PROMPT, NEXT])).max() < 0.1
        with pytest.raises(UsageError, match="no constant 'v'"):
            model.update({"v": WEIGHT})
    with model:
        assert np.abs(model.evaluate({"x": NEXT})["y"] - 2 * exact([NEXT])).max() < 0.1


def test_states_of_one_name_are_of_one_type() -> None:
    with pytest.raises(UsageError, match="state 'cache' is"):
        joined({"decode": step(16, 1), "prefill": step(0, 16, whole=(1, 8, 1, 64))})
    with pytest.raises(UsageError, match="no functions"):
        joined({})


def masked(whole: bool) -> Graph:
    """A cache that is written whole, or one column by a mask; the state times two."""
    b = GraphBuilder()
    state, x = b.state("cache", WHOLE, "fp16"), b.input("x", WHOLE if whole else (1, 8, 1, 1), "fp16")
    if not whole:
        here, keep = (b.input(name, (1, 1, 1, WHOLE[3]), "fp16") for name in ("here", "keep"))
        x = b.add(x=b.mul(x=b.read_state(input=state), y=keep), y=b.mul(x=x, y=here))
    else:
        x = b.relu(x=x)
    b.write_state(data=x, input=state)
    b.output(b.mul(x=b.read_state(input=state), y=np.float16(2)), name="y")
    return b.graph


@pytest.mark.parametrize("chip", ["M1", "M4"])
@pytest.mark.parametrize("device", ["emulator", "virtual:macos"])
def test_functions_share_states_on_every_device_and_through_its_queue(device: str, chip: str) -> None:
    """On the emulator as tasks; the in-memory class gets a text for each function, with the state going in and out."""
    text = to_text(joined({"decode": masked(False), "prefill": masked(True)}))
    prompt = np.abs(RNG.standard_normal(WHOLE)).astype(np.float16)
    new = RNG.standard_normal((1, 8, 1, 1)).astype(np.float16)
    here = (np.arange(WHOLE[3]) == 3).astype(np.float16).reshape(1, 1, 1, -1)
    wanted = prompt.copy()
    wanted[..., 3:4] = new
    step = {"x": new, "here": here, "keep": np.float16(1) - here}
    with hexane.mil.Model(text, chip=chip, device=device) as model:
        assert model.level == ("engine" if device == "emulator" else device)
        futures = [model.evaluate_async({"x": prompt}, function="prefill"), model.evaluate_async(step)]
        assert np.array_equal(futures[0].result()["y"], 2 * prompt)
        assert np.array_equal(futures[1].result()["y"], 2 * wanted)
        assert np.array_equal(model.evaluate(step, function="decode")["y"], 2 * wanted)
    with model:
        assert np.array_equal(model.evaluate(step)["y"], 2 * new * here)  # zeros again
