"""One field through many values: what the emulator says of each, and when a device is not asked again."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import hexane
from facts import fact_folder
from hexane.cli.main import app
from hexane.emulator.files import drawn_inputs
from hexane.errors import HexaneError, UsageError
from hexane.program.run import Device
from hexane.report.schema import check_answer
from hexane.runtime.devices import device_named
from hexane.studies.probe.sweep import sweep_field, values_of

RELU = fact_folder() / "hwx" / "relu_w77.hwx"
MODE = "task[0].NE.MACCfg.NonlinearMode"


class Engine(Device):
    """The emulator behind another name, which fails at one call, or gives other bits from one call on."""

    name = "engine"

    def __init__(self, fails_at: int = -1, wrong_from: int = 1 << 30, number: int = errno.ETIMEDOUT) -> None:
        self.inner, self.calls = device_named("emulator"), 0
        self.fails_at, self.wrong_from, self.number = fails_at, wrong_from, number

    def load(self, segment: Any) -> Any:
        loaded, outer = self.inner.load(segment), self

        class Loaded:
            def run(self, values: Any) -> dict[str, np.ndarray]:
                outer.calls += 1
                if outer.calls == outer.fails_at:
                    error = HexaneError("the engine did not finish")
                    error.errno = outer.number  # type: ignore[attr-defined]
                    raise error
                outputs = loaded.run(values)
                return {n: a + np.float16(1) if outer.calls >= outer.wrong_from else a for n, a in outputs.items()}

            def close(self) -> None:
                loaded.close()

        return Loaded()


def states(device: Any, values: str = "all") -> tuple[list[str], str]:
    image = hexane.open_image(RELU)
    result = sweep_field(image, MODE, values_of(image, MODE, values), drawn_inputs(image, 1), device)
    return [row.state for row in result.rows], result.stopped


def test_numbers_are_those_of_numpy() -> None:
    image = hexane.open_image(RELU)
    x = drawn_inputs(image, 1)
    result = sweep_field(image, "0.NE.MACCfg.NonlinearMode", [0, 1, 2], x)
    none, relu, table = result.rows
    negative = next(iter(x.values())) < 0
    assert (none.state, none.differ, none.of) == ("other", int(negative.sum()), negative.size)
    assert none.largest == float(-next(iter(x.values())).min())
    assert (relu.state, relu.name) == ("same", "relu") and table.state == "refused" and "kernel DMA" in table.why


def test_a_device_is_asked_only_what_the_emulator_takes() -> None:
    engine = Engine()
    assert states(engine) == (["other", "same", "refused"], "")
    assert engine.calls == 1 + 2 * 2  # as it was, and after each value that was sent


def test_stops() -> None:
    after_timeout, why = states(Engine(fails_at=2))
    assert after_timeout == ["failed", "not asked", "not asked"] and "did not finish" in why
    after_other_bits, why = states(Engine(wrong_from=3))
    assert after_other_bits == ["other", "not asked", "not asked"] and "77 of 77" in why
    assert states(Engine(fails_at=2, number=errno.EINVAL))[0] == ["failed", "same", "refused"]
    with pytest.raises(HexaneError, match="differ from the emulator"):
        states(Engine(wrong_from=1))


def test_values() -> None:
    image = hexane.open_image(RELU)
    assert values_of(image, MODE, "table,0..1,0x1") == [2, 0, 1]
    assert values_of(image, MODE, "relu,none") == [1, 0]  # a name whose number is 0
    for wrong in ("sine", "4", "2..1", "", "0..0xffffffffffff"):
        with pytest.raises(UsageError, match="none = 0, relu = 1, table = 2"):
            values_of(image, MODE, wrong)
    with pytest.raises(UsageError):
        values_of(image, "task[9].NE.MACCfg.NonlinearMode", "1")
    with pytest.raises(UsageError):
        values_of(image, "task[0].NE.Nothing", "1")


def test_the_command(tmp_path: Path) -> None:
    line = ["probe", str(RELU), "--sweep", MODE, "--device", "virtual:eiln", "--json"]
    result = CliRunner().invoke(app, line)
    answer = json.loads(result.stdout)
    assert result.exit_code == 0 and check_answer(answer) == []
    assert [row["state"] for row in answer["rows"]] == ["other", "same", "refused"]
    assert CliRunner().invoke(app, ["probe", str(RELU)]).exit_code != 0
