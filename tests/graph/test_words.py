"""Texts that ops take: each op declares its legal words, and says them where it is given another."""

from __future__ import annotations

import numpy as np
import pytest

from hexane.errors import GraphError, HexaneError
from hexane.graph import GraphBuilder
from hexane.graph.builder import wrap_operands
from hexane.graph.constants import constant_from
from hexane.graph.parts import Value
from hexane.graph.registry import DOMAINS, all_specs, result_types
from hexane.graph.types import ANY, ListType, StateType, TensorType

FREE = {("einsum", "equation"), ("onnx.Foreign", "kind"), ("onnx.Foreign", "model"), ("onnx.Foreign", "types")}
FREE |= {("onnx.BitCast", "source"), ("hexane.host", "reason")}
"""Texts that are no choice between words; those named dtype are element types, which have one check for all."""
PLAIN = {"int": 1, "uint": 1, "float": 1.0, "bool": True, "number": 1.0, "str": "forward"}
WORDS = [(spec, name) for spec in all_specs() for name in spec.words]


def test_every_text_names_its_words():
    for spec in all_specs():
        for param in spec.params:
            if param.kind == "str" and "dtype" not in param.name and (spec.name, param.name) not in FREE:
                assert spec.words.get(param.name), f"{spec.name} takes any text as {param.name}"


def _constant(data, dtype=None, *, name=""):
    constant = constant_from(data, dtype)
    return Value(name, constant.type, constant=constant)


@pytest.mark.parametrize(("spec", "name"), WORDS, ids=[f"{spec.name}-{spec.since}-{name}" for spec, name in WORDS])
def test_another_word_is_answered_with_the_legal_ones(spec, name):
    operands: dict[str, object] = {}
    for param in spec.params:
        type_ = TensorType(min(spec.domains.get(param.group) or DOMAINS.get(param.group, ANY)), (1, 1, 1, 1))
        if param.is_tensor or param.kind in ("any", "state", "list"):
            kind = {"state": StateType, "list": ListType}.get(param.kind, lambda one: one)
            operands[param.name] = Value("v", kind(type_))
        elif param.required:
            operands[param.name] = spec.words.get(param.name, [PLAIN.get(param.kind, [1])])[0]
    with pytest.raises(GraphError, match=f"{name} of {spec.name} is 'nonsense'") as caught:
        result_types(spec, wrap_operands(spec, operands | {name: "nonsense"}, _constant))
    assert all(word in caught.value.hint for word in spec.words[name])


def test_element_types_are_words_too():
    for kind, operands in (
        ("cast", {"x": np.float32([1]), "dtype": "nonsense"}),
        ("onnx.Window", {"size": np.int32(4), "kind": "hann", "output_dtype": "nonsense", "output_shape": [4]}),
        ("onnx.BitCast", {"x": np.float32([1]), "source": "fp32", "dtype": "nonsense"}),
    ):
        with pytest.raises(HexaneError, match="nonsense"):
            GraphBuilder().op(kind, **operands)
