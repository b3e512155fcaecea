"""The golden transcript against what public runners do, step by step (docs/private-api.md, "Order of calls")."""

from __future__ import annotations

import re
from pathlib import Path

from hexane.private_api import selector
from hexane.private_api.calls import STEPS
from hexane.runtime.macos.border import METHODS

LINES = Path(__file__).with_name("transcript.txt").read_text().splitlines()


def at(pattern: str) -> int:
    """The only line that matches."""
    found = [number for number, line in enumerate(LINES) if re.search(pattern, line)]
    assert len(found) == 1, (pattern, found)
    return found[0]


def sends() -> list[str]:
    return [match[1] for line in LINES if (match := re.match(r"\[\w+ ([\w:]+)\]", line))]


def test_the_steps_in_their_order() -> None:
    steps = [
        at("modelWithMILText:weights:optionsPlist:\\]"),  # 1 descriptor, then the model
        at("inMemoryModelWithDescriptor:\\]"),
        at("hexStringIdentifier"),  # 2 names the staging folder
        at("compileWithQoS:options:error:"),  # 3
        at("loadWithQoS:options:error:"),  # 4
        at("requestWithInputs:.*\\]\\("),  # 5
        at("evaluateWithQoS:options:request:error:"),  # 6
        at("unloadWithQoS:error:"),  # 7
    ]
    assert steps == sorted(steps)
    assert [step.name.partition(" ")[0] for step in STEPS] == list("1234567")
    first_wrap, request = LINES.index(next(x for x in LINES if "objectWithIOSurface:](" in x)), steps[5]
    assert steps[4] < first_wrap < request


def test_arguments_are_those_of_the_runners() -> None:
    # text is data and never a string; weights are {path: {offset: 0, data: bytes}}; no options plist
    described = LINES[at("modelWithMILText:weights:optionsPlist:\\]")]
    text, weights = re.search(r"\((\w+), (\w+), nil\)", described).groups()  # type: ignore[union-attr]
    assert any(line.startswith("CFDataCreate") and line.endswith(f"-> {text}") for line in LINES)
    entry = next(line for line in LINES if line.endswith(f"-> {weights}"))
    path, inner = re.search(r"\{(\w+)\}, \{(\w+)\}", entry).groups()  # type: ignore[union-attr]
    assert f"'@model_path/weights/weight.bin', 30, 134217984, NO) -> {path}" in "\n".join(LINES)
    keys = next(line for line in LINES if line.endswith(f"-> {inner}"))
    assert "2, kCFTypeDictionaryKeyCallBacks" in keys
    assert "'offset'" in "\n".join(LINES) and "CFNumberCreate(nil, 4, 0) -> number1" in LINES
    for name in ("compile", "load", "evaluate"):  # QoS 21 and empty options
        line = LINES[at(f"{name}WithQoS:options:")]
        options = re.search(r"\(21, (\w+), ", line)[1]  # type: ignore[index]
        callbacks = "kCFTypeDictionaryKeyCallBacks, kCFTypeDictionaryValueCallBacks"
        assert f"CFDictionaryCreate(nil, {{}}, {{}}, 0, {callbacks}) -> {options}" in LINES
    assert "(21, &error)" in LINES[at("unloadWithQoS:error:")]
    request = LINES[at("requestWithInputs:.*\\]\\(")]
    assert re.search(r"\(array1, array2, array3, array4, nil, nil, number\d+\)", request)


def test_surfaces_are_flat_and_locked_where_the_host_looks() -> None:
    properties = [line for line in LINES if "kIOSurfaceWidth" in line]
    assert len(properties) == 2 and all("kIOSurfacePixelFormat" in line for line in properties)
    evaluated = at("evaluateWithQoS:options:request:error:")
    locks = [number for number, line in enumerate(LINES) if line.startswith("IOSurfaceLock")]
    unlocks = [number for number, line in enumerate(LINES) if line.startswith("IOSurfaceUnlock")]
    assert locks[0] < unlocks[0] < evaluated < locks[1] < unlocks[1]
    views = [number for number, line in enumerate(LINES) if line.startswith("view of")]
    assert all(any(a < view < b for a, b in zip(locks, unlocks)) for view in views)


def test_everything_made_is_released_once_and_methods_stand_in_pools() -> None:
    made = re.findall(r"^(?:CF\w+Create\w*|IOSurfaceCreate)\(.*-> (\w+)$", "\n".join(LINES), re.MULTILINE)
    released = re.findall(r"^CFRelease\((\w+)\)$", "\n".join(LINES), re.MULTILINE)
    assert sorted(made) == sorted(released) and len(set(made)) == len(made)
    kept = re.findall(r"^objc_retain\((\w+)\)", "\n".join(LINES), re.MULTILINE)
    let_go = re.findall(r"^objc_release\((\w+)\)", "\n".join(LINES), re.MULTILINE)
    assert sorted(kept) == sorted(let_go) and {"model1", "descriptor1", "request1"} == set(kept)
    depth = 0
    for line in LINES:
        depth += line.startswith("objc_autoreleasePoolPush") - line.startswith("objc_autoreleasePoolPop")
        assert depth >= bool(re.match(r"\[\w+ ", line)), line
    assert depth == 0


def test_every_selector_stands_in_the_map() -> None:
    of_foundation = {"UTF8String", "domain", "code", "localizedDescription"}
    for name in METHODS:
        if name not in of_foundation:
            assert selector(name).name.lstrip("+") == name
    assert set(sends()) <= set(METHODS)
