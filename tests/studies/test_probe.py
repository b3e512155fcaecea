"""Answers of emulators on which a hypothesis is swapped: reading them says which."""

from __future__ import annotations

import base64
import errno
import json
import zlib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hexane.arithmetic.hypotheses import ALL, assume
from hexane.cli.main import app
from hexane.codegen.recipes.registry import all_recipes
from hexane.codegen.select import load_recipes
from hexane.errors import FormatError, UsageError
from hexane.program.run import Device
from hexane.runtime.linux.border import DeviceError
from hexane.runtime.machine import Machine
from hexane.runtime.own_chip import chip_of
from hexane.studies.probe.answers import Answers, ProbeAnswer, load
from hexane.studies.probe.ask import NOT_OURS, ask
from hexane.studies.probe.examples import EXAMPLES
from hexane.studies.probe.questions import RECIPE, RULES, choices, not_asked, questions
from hexane.studies.probe.read import HOLDS, NONE_FITS, NOT_ANSWERED, OPEN, REFUTED, predicted, read
from report.networks import command

SWAPS = [(name, choice) for name in ALL for choice in choices(name)[1:]]
ON_M2 = ("integer-scale", "scaled-bias")


def asked_with(name: str) -> list[str]:
    """The questions of a hypothesis and of those that share a question with it."""
    near = {other for rule in RULES if name in rule.asks for other in rule.asks}
    return [rule.name for rule in RULES if near & set(rule.asks) and rule.rule is None]


@pytest.mark.parametrize(("name", "choice"), SWAPS)
def test_a_swapped_hypothesis_is_told_by_the_answers(name: str, choice: str) -> None:
    chip = "M2" if name in ON_M2 else "M5" if name.startswith("winograd") else "M1"
    with assume(name, choice):
        answers = ask("emulator", chip, only=asked_with(name))
    if (name, choice) == ("planar-scale", "after-operation"):  # the emulator refuses the one task that tells it apart
        rule = next(rule for rule in RULES if rule.rule is not None)
        given = predicted(rule, chip, {name: choice})
        answers = replace(answers, answers=(*answers.answers, ProbeAnswer(rule.name, rule.digest(), given)))
    verdicts = {verdict.hypothesis: verdict for verdict in read(answers).verdicts}
    assert (verdicts[name].word, verdicts[name].standing) == (REFUTED, (choice,))
    wrong = [v.hypothesis for v in verdicts.values() if v.hypothesis != name and v.word in (REFUTED, NONE_FITS)]
    assert wrong == []


def test_the_emulator_itself_holds_everything(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    asked = command("probe", "--device", "emulator", "-o", str(file), "--json")
    failed = [row["question"] for row in asked["answers"] if row["error"]]
    assert failed == ["scale-and-bias"]  # no program was seen to do it
    found = command("probe", "--read", str(file), "--json")
    words = {row["name"]: row["verdict"] for row in found["hypotheses"]}
    assert {name for name, word in words.items() if word == NOT_ANSWERED} == set(not_asked("M1")) & set(ALL)
    assert {name for name, word in words.items() if word == OPEN} == {"planar-scale", *ON_M2}
    assert all(row["as_predicted"] for row in found["questions"] if not row["why"]) and found["good"]
    shown = command("probe", "--read", str(file))
    assert "holds" in shown and "Recipes that rest on inference" in shown


def test_every_recipe_has_an_example_and_every_hypothesis_a_question_or_a_reason() -> None:
    load_recipes()
    without = {f"recipe-{recipe.name}" for recipe in all_recipes()} - {f"recipe-{name}" for name in EXAMPLES}
    assert without <= set(not_asked()) and len(EXAMPLES) > 40
    assert {name for rule in RULES for name in rule.asks} == set(ALL)
    assert not set(not_asked("M5")) & set(ALL)
    assert not [name for name in not_asked("M4") if name.startswith("recipe-")], "studies/probe/examples.py lacks it"
    assert set(not_asked("M1")) & set(ALL) == {name for name in ALL if name.startswith("winograd")}
    assert len({q.name for q in questions("M2")}) == len(questions("M2"))
    assert any(q.kind == RECIPE for q in questions("M1"))


def test_a_mac_is_asked_with_networks() -> None:
    names = ["post-scale", "sum-of-rows", "byte-store"]
    answers = ask("virtual:macos", "M1", only=names)
    by_name = {answer.question: answer for answer in answers.answers}
    assert by_name["byte-store"].error == NOT_OURS and not by_name["post-scale"].error
    report = read(answers)
    words = {verdict.hypothesis: verdict.word for verdict in report.verdicts}
    assert words["post-scale"] == words["reduction-sum"] == HOLDS and "No engine" in report.note
    assert "Apple's compiler" in replace(report, answers=replace(answers, device="macos")).note
    later = read(ask("virtual:macos", "M4", only=["sum-of-rows"]))
    assert {v.hypothesis: v.word for v in later.verdicts}["reduction-sum"] == HOLDS


def test_bits_that_nothing_predicts() -> None:
    answers = ask("emulator", "M1", only=["post-scale"])
    (answer,) = answers.answers
    other = {"out": answer.outputs["out"] + np.float16(1)}
    report = read(replace(answers, answers=(replace(answer, outputs=other),)))
    verdict = next(v for v in report.verdicts if v.hypothesis == "post-scale")
    assert verdict.word == NONE_FITS and "of 4096 values" in verdict.reason and not report.good
    renamed = read(replace(answers, answers=(replace(answer, outputs={"z": other["out"]}),)))
    assert not renamed.good
    stale = read(replace(answers, answers=(replace(answer, digest="0"),)))
    assert any("another version" in r.why for r in stale.readings)


def test_an_engine_that_hangs_is_not_asked_again() -> None:
    class Hangs(Device):
        name = "linux"

        def load(self, segment):
            raise DeviceError("did not finish", errno=errno.ETIMEDOUT)

    answers = ask(Hangs(), "M1", only=["post-scale", "acc-bias"])
    assert [answer.error for answer in answers.answers] == ["did not finish", "not asked: did not finish"]


def test_what_apples_compiler_has_no_op_for_is_not_asked(tmp_path: Path) -> None:
    """The status says that all was answered that can be; the name of the rest and the reason are printed."""
    file = tmp_path / "a.json"
    asks = [part for name in ("recipe-sliding_windows", "post-scale", "byte-store") for part in ("--only", name)]
    result = CliRunner().invoke(app, ["probe", "--device", "virtual:macos", "--chip", "M1", *asks, "-o", str(file)])
    assert result.exit_code == 0, result.output
    errors = {answer.question: answer.error for answer in load(file).answers}
    assert errors["recipe-sliding_windows"] == "not asked: Apple's compiler has no sliding_windows for M1"
    assert (errors["post-scale"], errors["byte-store"]) == ("", NOT_OURS)
    assert "recipe-sliding_windows" in result.output and "1 of 3 questions answered" in result.output


@pytest.mark.parametrize("words", ["InvalidMILProgram (an op that the compiler has)", "the daemon is gone"])
def test_other_refusals_are_no_answers(words: str) -> None:
    class Refuses(Device):
        name, networks = "macos", True

        def load(self, segment):
            raise DeviceError(words)

    names = ["post-scale", *(["recipe-sliding_windows"] if "daemon" in words else [])]
    assert [answer.error for answer in ask(Refuses(), "M1", only=names).answers] == [words] * len(names)


def test_files_that_are_none(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    good = Answers("emulator", "M1", "0", "Linux", (ProbeAnswer("q", "d", {"out": np.ones((2, 3), np.float16)}),))
    good.save(file)
    assert np.array_equal(load(file).answers[0].outputs["out"], np.ones((2, 3), np.float16))
    data = json.loads(file.read_text())
    out = data["answers"][0]["outputs"]["out"]
    for key, value in (("shape", [2, 4]), ("shape", [1 << 40]), ("shape", [-1, -6]), ("dtype", "object"),
                       ("data", "!"), ("data", "AAAA")):  # fmt: skip
        damaged = json.loads(json.dumps(data))
        damaged["answers"][0]["outputs"]["out"] = {**out, key: value}
        file.write_text(json.dumps(damaged))
        with pytest.raises(FormatError, match="damaged"):
            load(file)
    for count, limit in ((1 << 22, nullcontext()), ((1 << 22) + 1, pytest.raises(FormatError, match="damaged"))):
        zeros = base64.b64encode(zlib.compress(bytes(count))).decode()
        data["answers"][0]["outputs"]["out"] = {"dtype": "uint8", "shape": [count], "data": zeros}
        file.write_text(json.dumps(data))
        with limit:
            assert load(file).answers[0].outputs["out"].shape == (count,)
    for text in ("", "[1]", "{}", '{"schema": "hexane-probe/1"}', "[" * 100000):
        file.write_text(text)
        with pytest.raises(FormatError):
            load(file)
    with pytest.raises(FormatError, match="cannot be read"):
        load(tmp_path / "none.json")


def test_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no question"):
        ask("emulator", "M1", only=["nothing"])
    assert "post-scale" in command("probe", "--list")
    assert chip_of("virtual:abi2") == "M2 Max" and chip_of("virtual:macos") == "M1"
    for words in (("probe",), ("probe", "--device", "emulator"), ("probe", "--list", "--read", "x")):
        with pytest.raises(UsageError):
            command(*words)

    class Mac(Machine):
        def run(self, *command: str) -> str | None:
            return "Apple M3 Max" if "machdep.cpu.brand_string" in command else None

    assert chip_of("macos", Mac(tmp_path, "Darwin", "arm64")) == "M3 Max"
    with pytest.raises(UsageError, match="which chip"):
        chip_of("linux", Machine(tmp_path, "Linux", "aarch64"))


@pytest.mark.parametrize("chip", ["M5", "A19"])
def test_winograds_form_is_asked_of_chips_that_have_it(chip: str) -> None:
    names = ["winograd-sums", "winograd-large-inputs", "winograd-of-groups"]
    answers = ask("emulator", chip, only=names)
    assert not any(answer.error for answer in answers.answers)
    words = {verdict.hypothesis: verdict.word for verdict in read(answers).verdicts}
    assert all(words[name] == HOLDS for name in ("winograd-bias", "winograd-transform-overflow", "winograd-groups"))
    with pytest.raises(UsageError, match="no question 'winograd"):
        ask("emulator", "M1", only=names)
    large = next(rule for rule in RULES if rule.name == "winograd-large-inputs")
    given, (out,) = large.inputs()["x"].astype(float), (a.outputs["out"] for a in answers.answers[1:2])
    assert np.abs(given[..., 2:] - given[..., :-2]).max() > 65504 and np.isfinite(out).mean() > 0.5


def test_what_is_asked_of_pairs_is_apples_form() -> None:
    """The default dialect compares by differences of the planar engine, which no 8-bit kernel multiplies."""
    for name in ("int8-kernel", "byte-store"):
        question = next(rule for rule in RULES if rule.name == name)
        (segment,) = question.program("M1").segments
        assert any(plan.ne.pairs or plan.unicast == 2 for plan in segment.plans)
