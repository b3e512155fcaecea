"""What an absent attribute means in ONNX: the defaults of the translators are those of the schemas."""

from __future__ import annotations

import ast
from collections import defaultdict
from math import isclose
from pathlib import Path

import pytest

from hexane.formats.onnx import ops

onnx = pytest.importorskip("onnx")

FILES = sorted(Path(ops.__file__).parent.glob("*.py"))


def declared(domain):
    """By op and attribute the defaults of every version of an op, as the domain's own schemas give them."""
    defaults = defaultdict(set)
    if domain == "onnx":
        for schema in onnx.defs.get_all_schemas_with_history():
            for name, attribute in schema.attributes.items():
                defaults[schema.name, name].add(attribute.default_value.SerializeToString())
    else:
        state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
        for schema in state.get_all_operator_schema():
            for name, attribute in schema.attributes.items():
                defaults[schema.name, name].add(bytes(attribute._default_value))
    values = defaultdict(list)
    for key, coded in defaults.items():
        for code in coded:
            proto = onnx.AttributeProto.FromString(code)
            if proto.type:
                value = onnx.helper.get_attribute_value(proto)
                values[key].append(value.decode() if isinstance(value, bytes) else value)
    return values


def written(files):
    """Each default in the sources that is a number or a word: its place, the ops (none in a helper), name, value."""
    for path in files:
        for function in ast.parse(path.read_text("utf-8")).body:
            if not isinstance(function, ast.FunctionDef):
                continue
            calls = [item for item in function.decorator_list if isinstance(item, ast.Call)]
            names = [word.value for call in calls for word in call.args if isinstance(word, ast.Constant)]
            for call in ast.walk(function):
                match call:
                    case ast.Call(func=ast.Attribute(attr="attr"), args=[ast.Constant(name), ast.Constant(value)]):
                        yield f"{path.name}:{call.lineno}", names, name, value
                    case ast.Call(
                        func=ast.Attribute(attr="attr"), args=[ast.Constant(name), ast.UnaryOp(operand=ast.Constant())]
                    ):
                        yield f"{path.name}:{call.lineno}", names, name, ast.literal_eval(call.args[1])


def same(one, other):
    if isinstance(one, float) or isinstance(other, float):
        return isinstance(other, (int, float)) and isclose(one, other, rel_tol=1e-4)
    return one == other


@pytest.mark.parametrize("domain", ["onnx", "microsoft"])
def test_defaults_are_those_of_the_schemas(domain):
    values = declared(domain)
    files = [path for path in FILES if ("microsoft" in path.name) == (domain == "microsoft")]
    wrong, count = [], 0
    for place, names, name, value in written(files):
        ops = names or sorted({op for op, attribute in values if attribute == name and value != ""})
        known = [default for op in ops for default in values.get((op, name), ())]
        count += bool(known)
        if known and not any(same(value, default) for default in known):
            wrong.append(f"{place}: {name} is {value!r}, of {', '.join(ops[:4])} it is {known}")
    assert not wrong, "\n".join(wrong)
    assert count > (60 if domain == "onnx" else 10)
