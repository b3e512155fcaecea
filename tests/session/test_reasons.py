"""Refusals carry a code, and advice is chosen by it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import hexane
from hexane.codegen import compile
from hexane.errors import Reason, UnsupportedError
from hexane.graph import GraphBuilder
from hexane.restrictions.advice import answer_to, instead_of


def _network(build) -> hexane.graph.Graph:
    b = GraphBuilder()
    b.output(build(b), name="out")
    return b.graph


def _weights(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float16)


CASES = {
    Reason.ELEMENT_TYPE: lambda b: b.add(x=b.input("x", (1, 4, 8, 8), "int32"), y=np.int32(1)),
    Reason.RANK: lambda b: b.transpose(x=b.input("x", (2, 3, 2, 3, 2, 3), "fp16"), perm=[5, 4, 3, 2, 1, 0]),
    Reason.COMPUTED: lambda b: b.conv(
        x=b.input("x", (1, 4, 8, 8), "fp16"), weight=b.input("w", (4, 4, 3, 3), "fp16"), pad_type="same"
    ),
    Reason.MEMORY: lambda b: b.layer_norm(x=b.input("x", (1, 1024, 64, 64), "fp16"), axes=[1, 2, 3]),
    Reason.BATCH: lambda b: b.reduce_sum(x=b.input("x", (4, 8, 8, 8), "fp16"), axes=[0], keep_dims=True),
    Reason.OPERATION: lambda b: b.cumsum(x=b.input("x", (1, 4, 8, 8), "fp16"), axis=1),
}


@pytest.mark.parametrize("code", CASES)
def test_a_refused_op_has_the_code_of_its_reason(code, tmp_path) -> None:
    graph = _network(CASES[code])
    program = compile(graph)
    codes = {c for segment in program.segments for c in segment.codes.values()}
    assert codes == {code}
    (row,) = [row for row in hexane.check(graph).rows if row.place == "host"]
    assert row.advice
    with pytest.raises(UnsupportedError) as caught:
        compile(graph, strict=True)
    assert caught.value.code == code and pickle.loads(pickle.dumps(caught.value)).code == code
    program.save(tmp_path / "net.hexane")
    again = hexane.load_program(tmp_path / "net.hexane")
    assert [s.codes for s in again.segments] == [s.codes for s in program.segments]


def test_strict_names_the_op_of_the_host_before_what_is_inferred() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 3, 64, 64), "fp16")
    first = b.conv(x=x, weight=np.ones((32, 3, 7, 7), np.float16), strides=[2, 2], pad_type="same", name="first")
    with pytest.raises(UnsupportedError) as caught:
        b.output(first)
        compile(b.graph, strict=True)
    assert caught.value.code == Reason.EVIDENCE and "first" in str(caught.value)
    b.output(b.cumsum(x=first, axis=1, name="sums"))
    with pytest.raises(UnsupportedError, match="cumsum"):
        compile(b.graph, strict=True)


def test_advice_for_every_code() -> None:
    for code in Reason:
        assert answer_to(code, "conv")
    assert answer_to(Reason.OPERATION, "lstm") == answer_to("", "lstm") == instead_of("lstm") == instead_of("onnx.LSTM")


def test_words_of_a_message_choose_nothing() -> None:
    error = UnsupportedError("a broadcast kernel 9 wide of rank 7 does not fit the buffer", code=Reason.STRIDE)
    assert "stride" in answer_to(error.code, "conv")


def test_ops_joined_to_an_op_on_the_host_get_its_advice() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 4, 8, 8), "fp16")
    y = b.cumsum(x=x, axis=1)
    b.output(b.add(x=b.mul(x=y, y=np.float16(2)), y=np.float16(1)), name="out")
    rows = {row.op: row for row in hexane.check(b.graph).rows}
    assert rows["cumsum"].advice == instead_of("cumsum")
    assert rows["mul"].place == "engine" or rows["mul"].advice == rows["cumsum"].advice
