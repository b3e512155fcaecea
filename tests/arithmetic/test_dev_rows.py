"""Every measured row that a rule covers comes out bit for bit; the rows without a rule are named, with the reason."""

from __future__ import annotations

import numpy as np
import pytest

from arithmetic import measured
from facts import fact_folder
from hexane.arithmetic import elementwise
from hexane.arithmetic.formats import LIMIT, round_half_away

PATH = fact_folder() / "numerics" / "dev.csv"
ROWS = [r for r in measured.rows(PATH) if r["valid"] == "1"]
# Near 0 the ulp error of gelu and silu grows; the list of tested inputs was not published, only where its worst lay.
WORST_INPUT = {
    ("max_ulp", "gelu_exact"): -(2.0**-16),
    ("max_ulp", "gelu_tanh"): -(2.0**-16),
    ("max_ulp", "silu"): -1.5 * 2.0**-16,
}
NO_TABLE = {"erf", "sin", "softsign"}


def covered(row: dict[str, str]) -> bool:
    """Rows for which docs/reference/numerics.md states a rule and whose operands or tables were published."""
    return row["family"] != "error_chain" and not NO_TABLE & {row["test"], row["op"]}


def params(*families: str) -> list:
    return [pytest.param(r, id=r["id"]) for r in ROWS if r["family"] in families and covered(r)]


@pytest.mark.parametrize("exact", [True, False], ids=["plain", "fast"])
@pytest.mark.parametrize(
    "row", params("mac_fp16", "bias", "tiny_products", "single_product", "special_inputs", "saturation")
)
def test_sum_of_products(row, exact):
    assert measured.same_halfwords(measured.dot(row, exact), row["expect"])


@pytest.mark.parametrize("row", params("int8"))
def test_int8_sum(row):
    if row["x"]:
        assert measured.same_halfwords(measured.dot_int8(row, exact=False), row["expect"])
        return
    total, peak = (int(v) for v in measured.re.findall(r"=(-?\d+)", row["bias"]))
    assert abs(peak) < LIMIT, "the operands of this row were not published, only its sum and largest partial sum"
    assert measured.same_halfwords(round_half_away(total * measured.number(row["scale"])), row["expect"])


@pytest.mark.parametrize("exact", [True, False], ids=["plain", "fast"])
@pytest.mark.parametrize("row", params("eltwise"))
def test_elementwise(row, exact):
    a, b = measured.halves(row["x"]), measured.halves(row["w"])
    assert measured.same_halfwords(elementwise(row["op"], a, b, exact), row["expect"])


@pytest.mark.parametrize("row", params("special_values", "reduce_sum"))
def test_special_values_and_short_sums(row):
    if row["test"] == "eight_terms":
        # One 257 and seven 256 (docs/reference/numerics.md 7.2): 2049, which rounds away from zero.
        result = measured.UNARY["reduce_sum"](np.array([257] + [256] * 7, np.float16))
        assert float(result[0]) == float(row["expect"])
        return
    x = measured.halves(row["x"])
    if row["w"]:
        result = elementwise(row["op"], x, measured.halves(row["w"]))
    elif row["op"] == "inverse":
        result = measured.reciprocal(x)
    else:
        result = measured.UNARY[row["op"]](x)
    assert measured.same_halfwords(result, row["expect"])


@pytest.mark.parametrize("row", params("activation_error"))
def test_largest_table_error(row):
    low, high = (float(v) for v in row["x"].split(" ")[0].split(".."))
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    x = np.sort(every[np.isfinite(every)])
    x = x[(x >= low) & (x <= high) & (np.abs(x) >= 2.0**-16 if low < 0 else x > 0)]
    largest = measured.errors(row, x).max()
    if (row["op"], row["test"]) in WORST_INPUT:
        assert largest >= float(row["expect"])
        largest = measured.errors(row, np.array([WORST_INPUT[row["op"], row["test"]]], np.float16))[0]
    assert measured.same_print(largest, row["expect"]), largest


@pytest.mark.parametrize("row", params("activation_point"))
def test_table_value(row):
    """The input is printed to 4 digits: one of the fp16 values that print so gives the printed output."""
    shown = float(row["x"])
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    every = every[np.isfinite(every)]
    x = every[np.abs(every.astype(np.float64) - shown) <= 0.0005 * abs(shown)]
    assert any(measured.same_print(float(v), row["expect"]) for v in measured.UNARY[row["test"]](x))


@pytest.mark.parametrize("row", params("crop_route"))
def test_width_slice_route(row):
    """M1 and M2 send a slice with an offset through a factor 16 (docs/reference/numerics.md 7.4); later chips copy."""
    x = np.arange(60001, dtype=np.float64).astype(np.float16)
    sixteen = np.full(1, 16, np.float16)
    route = elementwise("mul", x, sixteen) if row["chip"] == "M1" else x
    largest = x[np.isfinite(route)].max()
    assert largest >= float(row["expect"].split()[-1])
    if row["chip"] == "M1":
        assert largest == float(row["expect"])
