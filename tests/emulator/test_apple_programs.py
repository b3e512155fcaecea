"""Every decoded program of data/apple, H13 to H16, executes and gives what its network says, judged by `reference`.

Programs whose tasks all rest on measured rules are compared bit by bit: with a second statement of the rules, and with
`hexane.numerics` for a chip of the generation.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from emulator import apple_programs, engine_numerics, reference
from facts import fact_files
from hexane import kernels, numerics
from hexane.emulator import run
from kernels import apple

QUICK = {"h13": 100_000_000}
OTHER_QUICK = 5_000_000
LARGEST_SURFACE = 300_000
"""Products, and bytes of a surface from H14 on; larger programs run in the slow suite."""

FOLDERS = (
    "h13",
    "h14",
    "more/h13",
    "more/h14",
    "more/h15",
    "more/h16",
    "more/h16g",
    "more2/h13",
    "more2/h14",
    "more2/h15",
    "more2/h16",
    "more2/h16g",
)
BEYOND = {
    **dict.fromkeys(
        ("floor_r_1x64x1x1", "less_bool_rr_1x64x1x1", "logical_not_1x1x64x64"),
        "tables of rounding and comparison are not in `apple_programs.TABLES`; test_listings runs such programs",
    ),
    **dict.fromkeys(
        ("chain_block_d256_s64_proj0", "chain_block_d256_s64_proj1"),
        "Common.Cfg.Unk23 of H14, which Apple sets in chains of layers, has no known effect",
    ),
    **dict.fromkeys(
        ("chain_pair_ln_gelu_d256_s64", "chain_attn_s512_dh64"),
        "3.2 units of the last place off; the bound of 3 is for one layer",
    ),
    "chain_pair_softmax_mm_d256_s64": "27 units of the last place off, not explained",
    **dict.fromkeys(
        ("space_to_depth_1x32x64x64_b4", "depth_to_space_1x256x32x32_b4", "s2d_conv1x1_d2s_c8_s128_b4"),
        "the second opinion (`reference`) has no such op",
    ),
    **dict.fromkeys(
        ("unary_rsqrt_1x1x256x256", "unary_rsqrt_1x1x512x512", "unary_rsqrt_1x1x1024x1024"),
        "rsqrt near its largest value is 2.1 units of the last place off, the bound is 2",
    ),
    "conv_c256_n256_k3x3_s2_g256_1500x64_bias": "the kernel's windows have other sizes than the packing gives",
    "chain_ffn_d256_s64_biasfull": "a bias of the whole result is no operand that `apple_programs` can place",
    **dict.fromkeys(
        ("w8a8_conv1x1_c64_s64_L3", "w8a8_conv1x1_c64_s64_L4", "w8a8_conv1x1_c64_s64_L5"),
        "`apple_programs` gives no 8-bit weights to convolutions in a row",
    ),
}
"""Programs of the last set that do not run here yet, and why; each must fail until it is taken out."""
CHIPS = {"h13": "M1", "h14": "M2", "h15": "M3", "h16": "M4"}

OVERLAPPING = {"conv_probe_k1_c64_n64_s128_st1_g1_bias0_same"}
"""Of H16G, put together from a public encoder's tables: the rows of its source overlap in L2 (64 channels of 0x100
bytes in rows of 0x2000, the whole map in one tile). The sanitizer refuses that; without it the numbers are right."""


TABLE_FITS = {"sigmoid": 3.4e-3, "tanh": 1.7e-3, "gelu": 6.2e-3, "silu": 1.5e-2}
"""Largest difference between a table and its function, from docs/reference/numerics.md 8; fits are part of the
tables."""

ULPS = {"product-mode": 3, "table-input": 4, "reduction-sum": 3}
"""How far programs that rest on a hypothesis may be from float64, in units of the last place of the largest result: a
few fp16 roundings one after the other, an exponent of a rounded logarithm (product-mode), a fitted table
(table-input), a sum of up to 32768 terms (reduction-sum). Small results of a sum of large terms are off by as much,
which is many units of their own."""
OTHER_ULPS = 2

MEASURED_BOUND = 1e-3
"""The same for programs that do not, relative to the largest result, besides the fit of a table; their bits are
compared as well."""


def _parameters() -> list:
    quick, slow = [], []
    for folder in FOLDERS:
        for path in fact_files(f"apple/{folder}/*.json"):
            program = apple_programs.load(path)
            large = program.multiplications > QUICK.get(folder, OTHER_QUICK)
            large |= folder != "h13" and max(x.nbytes for x in program.inputs.values()) > LARGEST_SURFACE
            marks = [pytest.mark.slow] if large else []
            if folder.startswith("more2") and path.stem in BEYOND:
                marks.append(pytest.mark.xfail(reason=BEYOND[path.stem], strict=True))
            (slow if large else quick).append(pytest.param(path, id=f"{folder}-{path.stem}", marks=marks))
    return [*quick, *slow]


def _tables() -> dict[str, np.ndarray]:
    names = ("sigmoid", "silu", "sqrt", "tanh", "recip")
    return {name: np.frombuffer(kernels.known_table(name).to_bytes(), np.uint16) for name in names}


@pytest.mark.parametrize("path", _parameters())
def test_program_gives_its_network(path: Path) -> None:
    program = apple_programs.load(path)
    values = {**program.inputs, **program.constants}
    result = run(program.program(), program.inputs, sanitize=program.name not in OVERLAPPING)
    wanted = reference.evaluate(program.network, values)
    for name, exact in wanted.items():
        got = result.outputs[name].reshape(exact.shape)
        error, largest = np.abs(got.astype(np.float64) - exact).max(), np.abs(exact).max()
        if result.report.measured:
            fits = sum(TABLE_FITS.get(operation, 0) for operation in program.operations)
            if "mul" in program.operations:
                fits *= max(float(np.abs(array).max()) for array in program.inputs.values())
            assert error <= MEASURED_BOUND * largest + fits
            _assert_engine_bits(program, values, name, got)
            if _pads_by_convolution(program):
                continue  # the graph level pads by copying
            by_rules = numerics.evaluate(program.graph(), _by_declaration(program), CHIPS[program.generation])[name]
            _assert_same_bits(got, by_rules.reshape(got.shape), np.ones(got.shape, bool))
        else:
            ulps = max(ULPS.get(name, OTHER_ULPS) for name in result.report.hypotheses)
            assert error <= ulps * _ulp(largest)


def _by_declaration(program: apple_programs.AppleProgram) -> dict:
    """Inputs in the shapes and types that the network declares."""
    rows = {row["name"]: row for row in program.network["inputs"]}
    return {
        name: array.reshape(rows[name]["shape"]).astype(bool if rows[name]["dtype"] == "bool" else np.float16)
        for name, array in program.inputs.items()
    }


def _assert_engine_bits(program: apple_programs.AppleProgram, values: dict, name: str, got: np.ndarray) -> None:
    try:
        wanted = _engine_bits(program, values)[name]
    except reference.NoMeasuredRule:
        return  # the second opinion has no such table; hexane.numerics is asked below
    _assert_same_bits(got, *wanted)


def _ulp(value: float) -> float:
    """One unit in the last place of fp16 numbers of this size."""
    return float(2.0 ** (max(np.floor(np.log2(max(value, 2.0**-14))), -14) - 10))


def _pads_by_convolution(program: apple_programs.AppleProgram) -> bool:
    return any(task.get("NE.KernelCfg.SparseBinary") for task in program.tasks)


def _engine_bits(program: apple_programs.AppleProgram, values: dict) -> dict:
    if _pads_by_convolution(program):
        # Apple pads with a convolution by a shifted 1.0, which rounds its input to units
        # (docs/reference/numerics.md 3.6).
        x = values["x"]
        units = engine_numerics.products(x, np.ones_like(x))
        values = {**values, "x": engine_numerics.half_away(units * engine_numerics.UNIT)}
    return reference.engine_bits(program.network, values, _tables())


def _assert_same_bits(got: np.ndarray, wanted: np.ndarray, computed: np.ndarray) -> None:
    assert computed.any()
    np.testing.assert_array_equal(
        (got[computed] + np.float16(0)).view(np.uint16), (wanted[computed] + np.float16(0)).view(np.uint16)
    )


def _recorded() -> list:
    found = []
    for folder in FOLDERS[1:2] + FOLDERS[3:]:
        for path in fact_files(f"apple/{folder}/*.json"):
            record = json.loads(path.read_text())
            for key in ("constant_section", "kernel_section"):
                section = record.get(key) or {}
                if section.get("sha256") and section.get("content") != "zero":
                    large = section["size"] > LARGEST_SECTION
                    marks = [pytest.mark.slow] if large else []
                    found.append(pytest.param(path, key, id=f"{folder}-{path.stem}-{key[:6]}", marks=marks))
    return found


LARGEST_SECTION = 1_000_000

NO_TABLE = {"env_act_gelu_1x768x1x1_sigmoid_approximation"}
"""Apple's table of this function is not published; a fitted one stands in, with other bytes."""


@pytest.mark.parametrize(("path", "key"), _recorded())
def test_sections_are_apples(path: Path, key: str) -> None:
    """The bytes that the emulator reads, made from the constants as the compiler saw them, have the recorded hash."""
    record = json.loads(path.read_text())
    program = apple_programs.load(path)
    single = {row["name"] for row in record["network"]["constants"] if not row["shape"]}  # a literal, not a blob
    program.constants |= {name: array for name, array in apple.constants(record).items() if name not in single}
    wanted, sections = record[key], program.sections()
    own = [channel for channel in sections if channel != 1]
    section = sections[own[0] if key == "kernel_section" else 1][: wanted["size"]]
    assert len(section) == wanted["size"]
    matches = hashlib.sha256(section).hexdigest() == wanted["sha256"]
    assert matches != (program.name in NO_TABLE)
