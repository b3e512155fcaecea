"""A program that runs again, on the machine that it ran on before, gives what a new machine gives."""

from __future__ import annotations

import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import numpy as np
import pytest

import hexane
from hexane.arithmetic import assume
from hexane.emulator import EmulatedProgram, run
from hexane.errors import EmulationError, UsageError
from hexane.graph import GraphBuilder


def network() -> hexane.image.Image:
    """Convolutions, a table, a depthwise convolution, an average, element-wise operations: tasks of both units."""
    rng = np.random.default_rng(1)

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.prod(shape[1:]) ** 0.5).astype(np.float16)

    b = GraphBuilder()
    x = b.input("x", (1, 6, 21, 19), "fp16")
    y = b.sigmoid(x=b.conv(x=x, weight=weights(20, 6, 3, 3), pad_type="same"))
    z = b.conv(x=y, weight=weights(20, 1, 3, 3), pad_type="same", groups=20)
    m = b.reduce_mean(x=z, axes=[2, 3], keep_dims=True)
    b.output(b.add(x=b.mul(x=y, y=m), y=z))
    (image,) = hexane.compile(b.graph, dialect="apple").images  # whose tasks write to memory
    return image


def inputs(seed: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((1, 6, 21, 19)).astype(np.float16)}


def fresh(image: hexane.image.Image, given: dict[str, np.ndarray], **options: str) -> np.ndarray:
    """The only output, from a machine that nobody has used."""
    (value,) = run(image, given, **options).outputs.values()
    return value


def again(source: object, given: dict[str, np.ndarray], **options: str) -> np.ndarray:
    (value,) = hexane.emulate(source, given, **options).values()
    return value


def test_the_same_bits_in_every_run_and_for_every_input() -> None:
    image = network()
    for seed in (0, 1, 2, 0, 1):
        np.testing.assert_array_equal(again(image, inputs(seed)), fresh(image, inputs(seed)))


def test_the_bytes_between_rows_stay_as_on_a_new_machine() -> None:
    image = network()
    raw = {"x": np.random.default_rng(3).integers(0, 60, image.inputs[0].nbytes).astype(np.uint8)}
    wanted = fresh(image, raw, layout="raw")
    for other in (raw, {"x": raw["x"][::-1].copy()}, raw):
        found = again(image, other, layout="raw")
    np.testing.assert_array_equal(found, wanted)


def test_another_hypothesis_is_not_the_machine_of_the_first() -> None:
    image = network()
    for _ in range(3):
        usual = again(image, inputs(0))
    with assume("reduction-finish", "every-step"):
        np.testing.assert_array_equal(again(image, inputs(0)), fresh(image, inputs(0)))
    np.testing.assert_array_equal(again(image, inputs(0)), usual)


def test_a_changed_task_is_seen() -> None:
    image = network()
    before = [again(image, inputs(0)) for _ in range(3)][-1]
    scaled = next(task for task in image.tasks if task.get("NE.PostScale.PostScale", None) == 0x3C00)
    assert not image.tasks_changed
    scaled.set("NE.PostScale.PostScale", 0x4000)
    assert image.tasks_changed
    after = again(image, inputs(0))
    assert not np.array_equal(after, before)
    np.testing.assert_array_equal(after, fresh(image, inputs(0)))


def test_a_wrong_input_does_no_harm() -> None:
    image = network()
    wanted = [again(image, inputs(0)) for _ in range(2)][-1]
    with pytest.raises(UsageError):
        again(image, {"x": np.zeros((1, 6, 21, 18), np.float16)})
    for _ in range(2):
        np.testing.assert_array_equal(again(image, inputs(0)), wanted)


def test_an_error_comes_in_every_run() -> None:
    image = network()
    image.tasks[-1].set("TileDMADst.BaseAddr.Addr", 0x3FFFFF)
    for _ in range(3):
        with pytest.raises(EmulationError, match="TileDMADst"):
            again(image, inputs(0))


def test_two_threads_do_not_meet() -> None:
    image = network()
    wanted = {seed: fresh(image, inputs(seed)) for seed in range(4)}

    def work(i: int) -> bool:
        return np.array_equal(again(image, inputs(i % 4)), wanted[i % 4])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))


def test_the_machine_goes_with_its_program() -> None:
    program = EmulatedProgram.of(network().to_bytes())
    for _ in range(2):
        again(program, inputs(0))
    machine = weakref.ref(program.idle[0])
    assert machine() is not None
    del program
    gc.collect()
    assert machine() is None


@pytest.mark.parametrize("chip", ["M1", "M2", "M5"])
def test_kernels_that_tasks_compute_are_read_by_jobs(chip: str) -> None:
    b = GraphBuilder()
    q, k, v = (b.input(name, (1, 3, 40, 24), "fp16") for name in "qkv")
    weights = b.softmax(x=b.matmul(x=q, y=k, transpose_y=True), axis=-1)
    b.output(b.matmul(x=weights, y=v))
    (image,) = hexane.compile(b.graph, chip, dialect="apple").images
    program, rng = EmulatedProgram.of(image), np.random.default_rng(4)
    for seed in range(4):
        given = {name: rng.standard_normal((1, 3, 40, 24)).astype(np.float16) * 2**seed for name in "qkv"}
        np.testing.assert_array_equal(again(program, given), fresh(image, given))
    products = [step for step in program.idle[0].chain.steps if step.work.operation.startswith("runtime product")]
    assert products
    assert all(step.jobs() is not None for step in products)


def test_a_copy_starts_without_machines() -> None:
    program = EmulatedProgram.of(network())
    wanted = [again(program, inputs(0)) for _ in range(2)][-1]
    for copy in (pickle.loads(pickle.dumps(program)), deepcopy(program)):
        assert not copy.idle
        np.testing.assert_array_equal(again(copy, inputs(0)), wanted)
