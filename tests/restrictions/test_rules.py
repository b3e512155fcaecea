"""Rules one by one: verdicts by the closest reports, weight records, odd input, documentation, the command."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from tests.restrictions.programs import CONV, X, blob, call, const, conv, program, tensor, unary
from typer.testing import CliRunner

import hexane
from blobs import blob_bytes
from hexane.cli.main import app
from hexane.errors import HexaneError, UsageError
from hexane.restrictions import RULES
from hexane.restrictions.docs import restrictions_page
from hexane.restrictions.reports import System, chips_of, refused, releases_of, runs, wrong

ROOT = Path(__file__).resolve().parents[2]
WEIGHT = np.linspace(-1, 1, 64 * 64).astype(np.float16).reshape(64, 64, 1, 1)
GOOD = program(CONV + blob((64, 64, 1, 1), "w") + conv("w"), f"{X} x", "y")
PATH = "@model_path/weights/w.bin"


def square(type_: str) -> str:
    """A program that squares its input."""
    return program(call(type_, "y", "mul", "x = x, y = x"), f"{type_} x", "y")


def rules(text: str, **asked: object) -> dict[str, str]:
    """Rule -> severity."""
    return {f.rule: str(f.severity) for f in hexane.check_mil(text, **asked)}  # type: ignore[arg-type]


def test_a_plain_program_breaks_nothing() -> None:
    assert rules(GOOD, weights={PATH: blob_bytes([(WEIGHT, "fp16")])}) == {}


@pytest.mark.parametrize("view, more", [("reshape", "shape = s"), ("flatten2d", "axis = a")])
def test_a_lone_matmul_behind_any_reshape(view: str, more: str) -> None:
    """O13 speaks of reshapes, however the program spells them."""
    square_type = tensor(1, 64, 64)
    body = (
        const("bool", "f", "false")
        + const("tensor<int32, [2]>", "s", "[1, 4096]")
        + const("int32", "a", "1")
        + call(square_type, "p", "matmul", "transpose_x = f, transpose_y = f, x = x, y = x")
        + call(tensor(1, 4096), "y", view, f"{more}, x = p")
    )
    assert "O13" in rules(program(body, f"{square_type} x", "y"))


def test_the_closest_reports_decide() -> None:
    reports = (refused("a", "M4 Max", 15), runs("b", "M5", 26), wrong("c", "M1", 26))
    verdict = lambda chip, os: str(System(chips_of(chip)[0], releases_of(os)).verdict(reports))  # noqa: E731
    assert verdict("M4 Max", "macOS 15") == "rejected"
    assert verdict("A17 Pro", "iOS 18") == "rejected"  # the same generation, the same release by another name
    assert verdict("M4 Max", "macOS 26") == "disputed"  # nobody speaks of it
    assert verdict("M5", None) == "disputed"
    assert verdict("M1 Pro", None) == "silently wrong"


def test_systems_and_chips_in_words() -> None:
    assert releases_of("macOS 15 or later") == (15, 999)
    assert releases_of("26.3.1") == (26, 26)
    assert releases_of("macOS 15.7.4 (fails) / 26.x (runs)") == (15, 26)
    assert releases_of("") == releases_of(None) == releases_of("macOS")
    assert [c.name for c in chips_of("M3 Pro, M3 Ultra (fails) / M4") if c] == ["M3 Pro", "M3 Ultra", "M4"]
    with pytest.raises(UsageError, match="unknown chip"):
        chips_of("M40")


@pytest.mark.parametrize("asked", [{"interface": "coreml"}, {"surfaces": "big"}, {"chip": "M99"}])
def test_a_wrong_question_is_told_so(asked: dict) -> None:
    with pytest.raises(UsageError):
        hexane.check_mil(GOOD, **asked)


EMPTY = "program(1.3) { func main<ios18>() { } -> (); }"


@pytest.mark.parametrize(
    "text", ["", "program(1.3)", "{}", EMPTY, GOOD[:-40], GOOD.replace("weight = w", "weight = v"), "\x00\xff" * 40]
)
def test_damaged_text_gives_one_finding_with_a_place(text: str) -> None:
    found = hexane.check_mil(text)
    assert found
    assert all(f.line >= 1 and f.column >= 1 for f in found)
    if "main" not in text:
        assert [f.rule for f in found] == ["T0"]


def test_a_text_that_is_no_text() -> None:
    with pytest.raises(HexaneError, match="string"):
        hexane.check_mil(17)  # type: ignore[arg-type]
    assert rules(GOOD.encode()) == rules(GOOD)


class TestWeights:
    """Rules on records, by the bytes of the file."""

    def check(self, data: bytes, **asked: object) -> dict[str, str]:
        return rules(GOOD, weights={PATH: data}, **asked)

    def test_a_record_that_is_not_there(self) -> None:
        data = bytearray(blob_bytes([(WEIGHT, "fp16")]))
        data[64] = 0
        assert self.check(bytes(data), chip="M5 Max")["W2"] == "rejected"
        assert self.check(bytes(data), chip="M4 Max", os="15")["W2"] == "silently wrong"

    def test_a_size_that_is_wrong(self) -> None:
        data = bytearray(blob_bytes([(WEIGHT, "fp16")]))
        struct.pack_into("<Q", data, 64 + 8, 64)
        assert self.check(bytes(data), chip="M3 Pro", os="15.7.4")["W4"] == "rejected"
        assert self.check(bytes(data), chip="M4", os="26")["W4"] == "disputed"

    def test_a_payload_position_that_is_shared(self) -> None:
        two = program(CONV + blob((64, 64, 1, 1), "w") + blob((64, 64, 1, 1), "v", offset=64 + 64 + 8192)
                      + conv("w", result="c") + conv("v", x="c"), f"{X} x", "y")  # fmt: skip
        data = bytearray(blob_bytes([(WEIGHT, "fp16"), (WEIGHT, "fp16")]))
        assert "W3" not in rules(two, weights={PATH: bytes(data)})
        struct.pack_into("<Q", data, 64 + 64 + 8192 + 16, 128)
        assert rules(two, weights={PATH: bytes(data)})["W3"] == "silently wrong"

    def test_a_file_that_was_not_handed_over(self) -> None:
        assert rules(GOOD, weights={})["W14"] == "rejected"
        assert "W14" not in rules(GOOD)

    def test_the_private_dictionary(self) -> None:
        data = blob_bytes([(WEIGHT, "fp16")])
        assert rules(GOOD, weights={PATH: {"offset": 0, "data": data}}) == {}

    def test_seventeen_files(self) -> None:
        def many(count: int) -> str:
            body = CONV + "".join(blob((64, 64, 1, 1), f"w{i}", f"w{i}.bin") for i in range(count))
            names = ["x", *(f"c{i}" for i in range(count))]
            return program(
                body + "".join(conv(f"w{i}", result=f"c{i}", x=names[i]) for i in range(count)), f"{X} x", names[-1]
            )

        assert "W5" not in rules(many(16))
        assert rules(many(17))["W5"] == "rejected"
        scalar = many(16).replace(
            "    } ->", const("fp16", "two", "0x1p+1") + call(X, "d", "mul", "x = c15, y = two") + "    } ->"
        )
        assert rules(scalar.replace("-> (c15)", "-> (d)"), chip="M4 Max")["W6"] == "rejected"


@pytest.mark.parametrize(
    ("text", "rule", "chip", "severity"),
    [
        (GOOD.replace(GOOD.split("\n")[1] + "\n", ""), "T2", "M3 Max", "rejected"),
        (GOOD, "T3", "M1", "disputed"),
        (unary("rsqrt"), "T10", "M4", "rejected"),
        (unary("rsqrt"), "O5", "M5", "disputed"),
        (unary("log"), "T10", "M4", "rejected"),
        (unary("identity"), "O8", "M4", "disputed"),
        (unary("softplus"), "O15", "M5 Max", "silently wrong"),
        (unary("tile", ", reps = r", const("tensor<int32, [4]>", "r", "[1, 1, 1, 1]")), "O7", "M3 Max", "fails"),
        (unary("tile", ", reps = r", const("tensor<int32, [4]>", "r", "[1, 1, 1, 1]")), "O7", "M4", "disputed"),
        (unary("mul", ", y = c", const("fp16", "c", "1e6")), "N20", "M4", "silently wrong"),
        (unary("mul", ", y = c", const("fp16", "c", "0x1p+15")), "S15", "M4", "silently wrong"),
        (square(tensor(1, 8, 1, 131)), "S5", "M5 Max", "fails"),
        (square(tensor(1, 8, 1, 20000)), "S9", "M3 Ultra", "rejected"),
        (square(tensor(1, 8, 1, 20000)), "S9", "M4", "disputed"),
        (square(tensor(1, 8, 1, 64, dtype="fp32")), "T13", "M4", "rejected"),
        (GOOD + "\n", "P3", "M4", None),
    ],
)  # fmt: skip
def test_rules_on_small_programs(text: str, rule: str, chip: str, severity: str | None) -> None:
    assert rules(text, chip=chip).get(rule) == severity


def test_a_cast_on_early_chips() -> None:
    text = program(const("string", "h", '"fp16"') + call(X, "y", "cast", "dtype = h, x = x"),
                   f"{tensor(1, 64, 1, 512, dtype='fp32')} x", "y")  # fmt: skip
    assert rules(text, chip="M2")["T4"] == "rejected"
    assert "T4" not in rules(text, chip="M3")
    whole = text.replace("tensor<fp32, [1, 64, 1, 512]> x", "tensor<bool, [1, 64, 1, 512]> x")
    assert rules(whole, chip="M1")["T4"] == "disputed"
    assert rules(text.replace("tensor<fp32", "tensor<uint8"), chip="M3 Max", os="15")["O12"] == "rejected"


def test_core_ml_takes_what_the_raw_route_refuses() -> None:
    plain = unary("gelu", ", mode = m", const("string", "m", '"EXACT"')).replace("buildInfo", "info")
    assert {"O2", "T2"} <= set(rules(plain))
    assert not {"O2", "T2"} & set(rules(plain, interface="mle5"))


def test_constexpr_spellings() -> None:
    data = const("tensor<int8, [64, 64, 1, 1]>", "q", 'BLOBFILE(path = string("@model_path/w"), offset = uint64(64))')
    given = data + const("int8", "z", "0") + const("fp16", "s", "0x1p-3") + const("int32", "ax", "0")
    arguments = "axis = ax, quantized_data = q, scale = s, zero_point = z"
    wrong_form = given + call(tensor(64, 64, 1, 1), "w", "constexpr_affine_dequantize", arguments)
    assert rules(program(CONV + wrong_form + conv("w"), f"{X} x", "y"))["T11"] == "rejected"


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "restrictions.md").read_text() == restrictions_page(), "run `make docs`"
    assert all(f"### {rule.id}:" in restrictions_page() for rule in RULES.values() if not rule.op_test)


def test_every_rule_is_whole() -> None:
    for rule in RULES.values():
        assert rule.says
        assert rule.remedy
        assert rule.reports or rule.source, rule.id
        assert rule.effects or rule.source, rule.id
        for report in rule.reports:
            for name in report.chips:
                hexane.chips.get(name)


class TestCommand:
    """``hexane check PROGRAM.mil``."""

    def run(self, tmp_path: Path, text: str, *more: str) -> tuple[int, str]:
        (tmp_path / "p.mil").write_text(text)
        result = CliRunner().invoke(app, ["check", str(tmp_path / "p.mil"), *more])
        return result.exit_code, result.output

    def test_a_caret_and_the_status(self, tmp_path: Path) -> None:
        status, out = self.run(tmp_path, unary("rsqrt"), "--chip", "M4")
        assert status == 1
        assert "p.mil:5:" in out
        assert "^" in out
        assert "T10" in out

    def test_json(self, tmp_path: Path) -> None:
        status, out = self.run(tmp_path, unary("rsqrt"), "--chip", "M4", "--json")
        data = json.loads(out)
        assert status == 1
        assert {"T10", "O5"} <= {f["rule"] for f in data["findings"]}
        assert data["reports"][0]["chip"] == "M4"

    def test_text_that_is_damaged(self, tmp_path: Path) -> None:
        status, out = self.run(tmp_path, GOOD[:200], "--json")
        assert status == 1
        assert json.loads(out)["findings"][0]["rule"] == "T0"

    def test_nothing_broken(self, tmp_path: Path) -> None:
        status, out = self.run(tmp_path, unary("relu").replace("relu", "exp"), "--chip", "M4")
        assert (status, "none broken" in out) == (0, True)

    def test_fix_writes_another_file(self, tmp_path: Path) -> None:
        status, out = self.run(tmp_path, unary("rsqrt"), "--chip", "M4 Max", "--fix")
        assert status == 0
        assert "+        " in out
        assert (tmp_path / "p.mil").read_text() == unary("rsqrt")
        assert rules((tmp_path / "p.fixed.mil").read_text(), chip="M4 Max") == {}
        assert self.run(tmp_path, GOOD, "--fix", "-o", str(tmp_path / "p.mil"))[0] != 0
