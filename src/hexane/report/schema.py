"""The schemas of hexane's JSON answers: one file of JSON Schema for each, in ``schemas`` beside this file.

A part with ``"$ref": "hexane-run/1"`` is that schema but for what the part says itself; what is given stands alone.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from hexane.errors import FormatError, UsageError
from hexane.formats.json_schema import problems

FOLDER = files("hexane.report") / "schemas"


@cache
def names() -> tuple[str, ...]:
    """Every schema, as answers name it: "hexane-checks/1"."""
    return tuple(sorted(_name_of(entry.name) for entry in FOLDER.iterdir() if entry.name.endswith(".json")))


def _name_of(file: str) -> str:
    head, _, version = file.removesuffix(".json").rpartition("-")
    return f"{head}/{version}"


def schema(name: str) -> dict[str, Any]:
    """A schema by its name, or by the command that gives such an answer; UsageError for an unknown one."""
    there = names()
    spellings = (name, f"hexane-{name}/1", f"hexane-{name}s/1")
    full = next((one for one in spellings if one in there), None)
    if full is None:
        raise UsageError(f"there is no schema {name!r}", hint=f"there are {', '.join(there)}")
    text = (FOLDER / f"{full.replace('/', '-')}.json").read_text("utf-8")
    data: dict[str, Any] = json.loads(text, object_hook=_composed)
    return data


def _composed(part: dict[str, Any]) -> dict[str, Any]:
    """A part of a schema; where it names the schema of other answers, that one with the part's own words on top."""
    return part if "$ref" not in part else schema(part.pop("$ref")) | part


def check_answer(answer: Any, name: str = "") -> list[str]:
    """Places of an answer that its schema does not allow; the answer names its schema unless ``name`` does.

    FormatError for an answer that names none.
    """
    says = answer.get("schema") if isinstance(answer, dict) else None
    if not name and isinstance(answer, dict) and "error" in answer and says is None:
        name = "hexane-error/1"
    if not name and not isinstance(says, str):
        raise FormatError("the answer does not name its schema", hint=f"say which, --name: {', '.join(names())}")
    return list(problems(answer, schema(name or str(says))))
