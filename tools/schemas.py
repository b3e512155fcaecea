"""Drafts of the schemas in ``src/hexane/report/schemas`` from answers: to be read before they are committed.

    python tools/schemas.py [FOLDER]     call every command of tests/report/answers.py, or read the answers in a folder

A draft says what all answers of a kind have in common: names that all have are required, objects whose keys are names
of values (they differ, or are no words) have members of one form. New members are allowed.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SCHEMAS = ROOT / "src" / "hexane" / "report" / "schemas"
WORD = re.compile(r"[a-z][a-z0-9_]*")
BY_NAME = frozenset(
    "inputs outputs seconds evidence host_types ranges registers fields reasons done recipes engines counts parts_us "
    "rounding events totals_by kinds macs_by_kind before shapes formats by_verdict".split()
)
"""Members whose keys are names of values, ops, types or stages, whatever they look like in small networks."""
MEASURED = frozenset(
    "relative largest mean cosine fp16_storage limit found old new made dropped headroom_bits negligible".split()
)
"""Members that are numbers, text where they are infinite, or null where they are not known."""
ORIGIN = {
    "type": "object", "required": ["hexane", "sources", "call"],
    "properties": {
        "hexane": {"type": "string"}, "sources": {"type": "string"}, "file": {"type": "string"},
        "call": {"type": "array", "items": {"type": "string"}}, "sha256": {"type": ["string", "null"]},
    },
}  # fmt: skip


MAY_BE_NULL = frozenset("program macs_on_engine coreml_plan_missing other autoscale hypotheses verdict".split())
"""Members that are null where there is no such thing, though no small network shows it."""
EXTENTS = {"type": "array", "items": {"type": ["integer", "string", "null"]}}


def draft(values: Sequence[Any], key: str = "") -> dict[str, Any] | bool:
    """The schema of all these values."""
    if key == "origin":
        return ORIGIN
    if key in MEASURED:
        return {"type": ["number", "string", "null"]}
    if key == "shape" and all(isinstance(value, list) for value in values):
        return EXTENTS
    types = sorted({_type(value) for value in values})
    if "integer" in types and "number" in types:
        types.remove("integer")
    if not types or types == ["null"]:
        return True
    if key in MAY_BE_NULL and "null" not in types:
        types = sorted({*types, "null"})
    result: dict[str, Any] = {"type": types if len(types) > 1 else types[0]}
    objects = [value for value in values if isinstance(value, dict)]
    items = [item for value in values if isinstance(value, list) for item in value]
    if items:
        result["items"] = draft(items)
    if objects:
        result |= _members(objects, key)
    return result


def _members(objects: Sequence[dict[str, Any]], key: str) -> dict[str, Any]:
    names = dict.fromkeys(name for one in objects for name in one)
    if key in BY_NAME or not all(WORD.fullmatch(name) for name in names):
        members = [item for one in objects for item in one.values()]
        return {"additionalProperties": draft(members) if members else True}
    required = [name for name in names if all(name in one for one in objects)]
    members = {name: draft([one[name] for one in objects if name in one], name) for name in names}
    return {"properties": members, "required": required}


def _type(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def with_references(schema: Any, committed: Any) -> Any:
    """The draft with the parts that the committed schema gives by ``$ref`` as they stand there."""
    if not isinstance(schema, dict) or not isinstance(committed, dict):
        return schema
    if "$ref" in committed:
        return committed
    return {name: with_references(part, committed.get(name)) for name, part in schema.items()}


def main(folder: Path | None) -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from report.answers import CALLS, answer, prepare

    if folder is None:
        place = Path(tempfile.mkdtemp())
        prepare(place)
    for name, lines in {**CALLS, "sweep": []}.items():
        if folder is None:
            answers = [answer(line, place) for line in lines]
        else:
            answers = [json.loads(path.read_text()) for path in sorted(folder.glob(f"{name}.[0-9]*.json"))]
        if not answers:
            continue
        schema = draft(answers)
        assert isinstance(schema, dict)
        full = f"hexane-{name}/1"
        if schema["type"] == "object":
            schema["properties"]["schema"] = {"const": full}
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": full}
        path = SCHEMAS / f"hexane-{name}-1.json"
        committed = json.loads(path.read_text()) if path.exists() else None
        path.write_text(json.dumps(with_references(head | schema, committed), indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
