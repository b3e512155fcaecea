"""The tasks of a program as a graph for Graphviz: the nodes, edges and facts of the program itself."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hexane
from hexane.graph import GraphBuilder
from hexane.report.dot import graph_of_tasks


def network():
    b = GraphBuilder()
    x = b.input('x "1"', (1, 16, 32, 64), "fp16")
    weight = np.ones((32, 16, 3, 3), np.float16)
    conv = b.relu(x=b.conv(x=x, weight=weight, pad_type="same"))
    order = b.cast(x=b.cumsum(x=b.cast(x=conv, dtype="fp32"), axis=1), dtype="fp16")
    b.output(b.softmax(x=order, axis=1), name="y")
    return b.graph


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_every_task_is_a_node_and_edges_end_at_nodes(chip):
    program = hexane.compile(network(), chip)
    text = graph_of_tasks(program)
    string = r'"((?:[^"\\]|\\.)*)"'
    nodes = re.findall(rf"^ *{string} \[", text, re.M)
    edges = re.findall(rf"^ *{string} -> {string}", text, re.M)
    assert len(nodes) == len(set(nodes)) == sum(len(s.plans) or 1 for s in program.segments) + 2
    assert {end for edge in edges for end in edge} <= set(nodes) and r"in x \"1\"" in nodes
    into = {last for _, last in edges}
    assert into >= set(nodes) - {r"in x \"1\""}  # nothing stands alone
    plans = [plan for segment in program.segments for plan in segment.plans]
    assert text.count("weights: ") == sum(plan.kernel is not None for plan in plans)
    total = sum(plan.kernel.bytes_read for plan in plans if plan.kernel is not None)
    assert sum(int(n, 16) for n in re.findall(r"weights[^:]*: (0x[0-9a-f]+) bytes", text)) == total
    assert [int(n) for n in re.findall(r"tiles? of (\d+) rows", text)] == [plan.tile for plan in plans]


def test_weights_of_more_than_four_cores_are_shown_by_the_first_four():
    text = graph_of_tasks(hexane.compile(network(), "M4"))
    parts, cores = re.search(r"weights: 0x[0-9a-f]+ bytes at (.*?), \.\.\. of (\d+) cores", text).groups()
    assert int(cores) == 16 and re.fullmatch(r"(0x[0-9a-f]+\+0x[0-9a-f]+(, )?){4}", parts)


@pytest.mark.parametrize("kernel", [(1, 1), (1, 2), (2, 1), (3, 5)])
def test_windows_of_more_than_one_element_are_shown(kernel):
    b = GraphBuilder()
    weight = np.ones((16, 16, *kernel), np.float16)
    b.output(b.conv(x=b.input("x", (1, 16, 8, 8), "fp16"), weight=weight, pad_type="valid"))
    shown = re.findall(r"window (\d+)x(\d+)", graph_of_tasks(hexane.compile(b.graph)))
    assert [tuple(map(int, pair)) for pair in shown] == [kernel] * (kernel != (1, 1))
