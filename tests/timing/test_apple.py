"""Apple's own estimates are read, and reproduced from the network, apart from measured time."""

from __future__ import annotations

import json

import pytest

import hexane
from codegen.programs import graph_of
from facts import fact_files
from hexane.errors import UsageError
from hexane.timing.apple import LABEL, apple_estimate


def _programs():
    picked = fact_files("apple/h13/conv_probe_k*.json")[:12] + fact_files("apple/h13/matmul_*.json")[:6]
    return [pytest.param(path, id=path.stem) for path in picked]


@pytest.mark.parametrize("path", _programs())
def test_the_duration_word_follows_from_the_network(path):
    program = json.loads(path.read_text())
    graph = graph_of(program)
    written = [int(task["words"][1], 16) & 0xFFFF for task in program["tasks"]]
    assert list(apple_estimate(graph).task_us) == written


def test_it_is_labelled_and_apart(facts):
    result = apple_estimate(hexane.open_image(facts / "hwx" / "relu_w77.hwx"))
    assert "not a measurement" in result.label == LABEL
    assert result.total_us == 0  # the early compiler writes no estimates


def test_nothing_else_has_tasks():
    with pytest.raises(UsageError, match="no tasks"):
        apple_estimate(object())
