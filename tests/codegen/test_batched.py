"""Computed products and attention of H14 and later: on the engine, in as few tasks as Apple's compiler has, right."""

from __future__ import annotations

import numpy as np
import pytest

import hexane
from hexane.formats.mil import parse_mil

from .levels import agreed

rng = np.random.default_rng(3)

PROGRAM = """program(1.3)
{{
    func main<ios18>({inputs}) {{
        bool no = const()[name = string("no"), val = bool(false)];
        bool yes = const()[name = string("yes"), val = bool(true)];
        {body}
    }} -> (y);
}}"""


def tensor(shape):
    return f"tensor<fp16, [{', '.join(map(str, shape))}]>"


def product(batch, m, k, n, turned_x, turned_y):
    """(program, shapes of the inputs)"""
    shapes = {"x": (*batch, k, m) if turned_x else (*batch, m, k), "w": (*batch, n, k) if turned_y else (*batch, k, n)}
    word = {False: "no", True: "yes"}
    body = (
        f"{tensor((*batch, m, n))} y = matmul(transpose_x = {word[turned_x]}, transpose_y = {word[turned_y]}, "
        'x = x, y = w)[name = string("y")];'
    )
    inputs = ", ".join(f"{tensor(shape)} {name}" for name, shape in shapes.items())
    return parse_mil(PROGRAM.format(inputs=inputs, body=body)), shapes


def run(graph, shapes, target, tasks):
    program = hexane.compile(graph, target)
    assert [segment.kind for segment in program.segments] == ["engine"]
    assert len(program.images[0].tasks) == tasks
    rng = np.random.default_rng(7)
    given = {name: rng.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}
    found = program.run(given)["y"].astype(np.float64)
    wanted = np.asarray(graph.evaluate({name: x.astype(np.float32) for name, x in given.items()})["y"], np.float64)
    assert np.abs(found - wanted).max() <= 0.01 * np.abs(wanted).max()
    return program


@pytest.mark.parametrize("target", ["h14", "h16"])
@pytest.mark.parametrize(
    ("batch", "m", "k", "n", "turned_x", "turned_y", "tasks"),
    [
        ((), 16, 64, 40, False, False, 1),  # straight from the surface, one row per core
        ((16,), 1, 24, 33, False, False, 1),  # the same, all batches
        ((), 17, 40, 30, False, False, 2),  # staged, the last block of eight with one row
        ((2,), 375, 24, 64, False, False, 2),
        ((4, 2), 33, 17, 19, True, True, 3),  # both turned
        ((3,), 40, 24, 130, True, False, 2),
        ((), 48, 2048, 1024, False, True, 3),  # the turned operand does not fit L2
        ((3,), 375, 512, 16, False, False, 4),  # kernels of more than 1 MiB: a product per batch
    ],
)
def test_computed_products(target, batch, m, k, n, turned_x, turned_y, tasks):
    program = run(*product(batch, m, k, n, turned_x, turned_y), target, tasks)
    assert {task.get("KernelDMASrc.MasterConfig.KernelStream") for task in program.images[0].tasks[-1:]} == {1}


@pytest.mark.parametrize("target", ["h14", "h16"])
@pytest.mark.parametrize("rows", [64, 256])
def test_attention_is_nine_tasks(target, rows):
    """However many queries there are: the kernel DMA steps through passes of the cores."""
    q, s = (1, rows, 64), (1, rows, rows)
    body = f"""
        {tensor(s)} a = matmul(transpose_x = no, transpose_y = yes, x = q, y = k)[name = string("a")];
        fp16 f = const()[name = string("f"), val = fp16(0.125)];
        {tensor(s)} b = mul(x = a, y = f)[name = string("b")];
        int32 last = const()[name = string("last"), val = int32(-1)];
        {tensor(s)} c = softmax(axis = last, x = b)[name = string("c")];
        {tensor(q)} y = matmul(transpose_x = no, transpose_y = no, x = c, y = v)[name = string("y")];"""
    inputs = ", ".join(f"{tensor(q)} {name}" for name in "qkv")
    run(parse_mil(PROGRAM.format(inputs=inputs, body=body)), dict.fromkeys("qkv", q), target, 9)


def test_h13_steps_through_no_batches():
    graph, _ = product((4,), 32, 24, 40, False, False)
    assert len(hexane.compile(graph, "h13").images[0].tasks) > len(hexane.compile(graph, "h14").images[0].tasks)


@pytest.mark.parametrize("target", ["h14", "h16"])
def test_an_operand_beyond_l2(target):
    """Its rows cannot pass through L2 as kernels at once: another recipe takes the product."""
    graph, shapes = product((), 2100, 520, 16, False, False)
    program = hexane.compile(graph, target)
    assert [segment.kind for segment in program.segments] == ["engine"]
    given = {name: rng.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}
    wanted = graph.evaluate({name: x.astype(np.float32) for name, x in given.items()})["y"]
    assert np.abs(agreed(program, given)["y"] - wanted).max() <= 0.01 * np.abs(wanted).max()


@pytest.mark.parametrize("turned_y", [False, True])
def test_one_planar_copy_stages_all_batches_on_h13(turned_y):
    graph, shapes = product((3,), 64, 32, 48, False, turned_y)
    program = run(graph, shapes, "h13", 7 if turned_y else 4)
    given = {name: rng.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}
    assert np.array_equal(program.run(given)["y"], program.run(given, level="graph")["y"])
    units = [plan.unit for plan in program.segments[0].plans]
    assert units[0] == "PE" and "PE" not in units[1:]
