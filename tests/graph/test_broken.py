"""Graphs that were read with a remark on an op: they can be looked at, and nothing is computed of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.errors import HexaneError
from hexane.report.job import run

TEXT = """program(1.3)
{{
    func main<ios18>(tensor<fp16, [1, 4, 8, 8]> x) {{
        tensor<fp16, [2, 4, 1, 1]> w = const()[name = string("w"), val = tensor<fp16, [2, 4, 1, 1]>({kernel})];
        tensor<int32, [2]> ones = const()[name = string("ones"), val = tensor<int32, [2]>([1, 1])];
        tensor<int32, [4]> none = const()[name = string("none"), val = tensor<int32, [4]>([0, 0, 0, 0])];
        int32 g = const()[name = string("g"), val = int32({groups})];
        string p = const()[name = string("p"), val = string("{pad_type}")];
        tensor<fp16, [1, 2, 8, 8]> y = conv({x} = x, {weight} = w, strides = ones, dilations = ones, pad = none, pad_type = p, groups = g)[name = string("y")];
    }} -> (y);
}}
"""  # noqa: E501
RIGHT = {"x": "x", "weight": "weight", "groups": 1, "pad_type": "valid"}
WRONG = {
    "0 groups": {"groups": 0}, "-1 groups": {"groups": -1}, "no parameter 'weights'": {"weight": "weights"},
    "no parameter 'xx'|lacks x": {"x": "xx"}, "pad": {"pad_type": "valid_"},
}  # fmt: skip


def saved(folder: Path, **changes: object) -> Path:
    kernel = repr(np.ones((2, 4, 1, 1)).tolist())
    (folder / "m.mil").write_text(TEXT.format(**{**RIGHT, **changes}, kernel=kernel))
    return folder / "m.mil"


def test_the_text_is_right_without_the_change(tmp_path: Path) -> None:
    assert [s.kind for s in hexane.compile(saved(tmp_path)).segments] == ["engine"]


@pytest.mark.parametrize("chip", ["M1", "M4", "M6"])
@pytest.mark.parametrize("word", WRONG)
def test_every_way_says_the_op_and_what_is_wrong(word: str, chip: str, tmp_path: Path) -> None:
    graph = hexane.load(saved(tmp_path, **WRONG[word]))
    assert graph.problems
    for work in (
        lambda: hexane.compile(graph, chip="M4" if chip == "M6" else chip),
        lambda: hexane.check(graph, chip),
        lambda: hexane.estimate(graph, chip),
        lambda: run(graph, chip=chip, level="graph"),
    ):
        with pytest.raises(HexaneError, match=word) as caught:
            work()
        assert "conv 'y'" in str(caught.value)
