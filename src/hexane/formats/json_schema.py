"""JSON Schema, as far as the schemas of hexane's own answers use it.

``type``, ``enum``, ``const``, ``properties``, ``required``, ``additionalProperties``, ``items`` and ``anyOf``, with the
meaning that JSON Schema (draft 2020-12) gives them. A word that is none of these, nor a remark, is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hexane.errors import FormatError

REMARKS = frozenset(("$schema", "$id", "title", "description"))
CHECKED = frozenset(("type", "enum", "const", "properties", "required", "additionalProperties", "items", "anyOf"))
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "integer": (int,), "number": (int, float),
}  # fmt: skip


def problems(value: Any, schema: Any, where: str = "$") -> Iterator[str]:
    """Every place at which a value is not what its schema says, as text; FormatError for a schema of other words."""
    if isinstance(schema, bool):
        if not schema:
            yield f"{where}: is not expected"
        return
    strange = schema.keys() - REMARKS - CHECKED
    if strange:
        raise FormatError(f"the schema has {sorted(strange)[0]!r}", where=where, hint="a part of JSON Schema alone")
    if "anyOf" in schema and not any(next(problems(value, one, where), None) is None for one in schema["anyOf"]):
        yield f"{where}: is none of the {len(schema['anyOf'])} forms that it may have"
    if "const" in schema and value != schema["const"]:
        yield f"{where}: is {value!r}, not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: is {value!r}, none of {', '.join(map(repr, schema['enum']))}"
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_is(value, name) for name in types):
        yield f"{where}: is {_name(value)}, not {' or '.join(types)}"
    elif isinstance(value, dict):
        yield from _object(value, schema, where)
    elif isinstance(value, list) and "items" in schema:
        for place, item in enumerate(value):
            yield from problems(item, schema["items"], f"{where}[{place}]")


def _object(value: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where}: {name!r} is missing"
    members, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, item in value.items():
        yield from problems(item, members.get(name, rest), f"{where}.{name}")


def _is(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _name(value: Any) -> str:
    return next(name for name in _TYPES if _is(value, name))
