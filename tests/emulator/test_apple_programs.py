"""Every decoded H13 program of data/apple executes and gives what its network says, judged by `reference`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from conftest import shared_files, shared_params
from emulator import apple_programs, reference
from emulator import engine_numerics as numerics
from hexane import kernels
from hexane.emulator import run

QUICK = 100_000_000
"""Products; larger programs run in the slow suite."""

TABLE_FITS = {"sigmoid": 3.4e-3, "tanh": 1.7e-3, "gelu": 6.2e-3, "silu": 1.5e-2}
"""Largest difference between a table and its function, from spec/numerics §8; fits are part of the tables."""

ULPS = {"product-mode": 3, "table-input": 4}
"""How far programs that rest on a hypothesis may be from float64, in units of the last place of the largest result: a
few fp16 roundings one after the other, an exponent of a rounded logarithm (product-mode), a fitted table (table-input).
Small results of a sum of large terms are off by as much, which is many units of their own."""
OTHER_ULPS = 2

MEASURED_BOUND = 1e-3
"""The same for programs that do not, relative to the largest result, besides the fit of a table; their bits are
compared as well."""


def _parameters() -> list:
    quick, slow = [], []
    for path in shared_files("apple/h13/*.json"):
        large = apple_programs.load(path).multiplications > QUICK
        (slow if large else quick).append(pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if large else []))
    return [*quick, *slow] or shared_params("apple/h13/*.json")


def _tables() -> dict[str, np.ndarray]:
    names = ("sigmoid", "silu", "sqrt", "tanh", "recip")
    return {name: np.frombuffer(kernels.known_table(name).to_bytes(), np.uint16) for name in names}


@pytest.mark.parametrize("path", _parameters())
def test_program_gives_its_network(path: Path) -> None:
    program = apple_programs.load(path)
    values = {**program.inputs, **program.constants}
    result = run(program.image(), program.inputs)
    wanted = reference.evaluate(program.network, values)
    for name, exact in wanted.items():
        got = result.outputs[name].reshape(exact.shape)
        error, largest = np.abs(got.astype(np.float64) - exact).max(), np.abs(exact).max()
        if result.report.measured:
            fits = sum(TABLE_FITS.get(operation, 0) for operation in program.operations)
            assert error <= MEASURED_BOUND * largest + fits
            _assert_same_bits(got, *_engine_bits(program, values)[name])
        else:
            ulps = max(ULPS.get(name, OTHER_ULPS) for name in result.report.hypotheses)
            assert error <= ulps * _ulp(largest)


def _ulp(value: float) -> float:
    """One unit in the last place of fp16 numbers of this size."""
    return float(2.0 ** (max(np.floor(np.log2(max(value, 2.0**-14))), -14) - 10))


def _engine_bits(program: apple_programs.AppleProgram, values: dict) -> dict:
    if any(task.get("NE.KernelCfg.SparseBinary") for task in program.tasks):
        # Apple pads with a convolution by a shifted 1.0, which rounds its input to units (spec/numerics §3.6)
        x = values["x"]
        units = numerics.products(x, np.ones_like(x))
        values = {**values, "x": numerics.half_away(units * numerics.UNIT)}
    return reference.engine_bits(program.network, values, _tables())


def _assert_same_bits(got: np.ndarray, wanted: np.ndarray, computed: np.ndarray) -> None:
    assert computed.any()
    np.testing.assert_array_equal(
        (got[computed] + np.float16(0)).view(np.uint16), (wanted[computed] + np.float16(0)).view(np.uint16)
    )
