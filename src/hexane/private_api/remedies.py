"""Remedies for errors of the private runtime: domain, code and status turned into a sentence."""

from __future__ import annotations

import re

from hexane.private_api.calls import COMPILER
from hexane.private_api.faults import (
    BAD_WIDTH,
    LOAD_FAILURE,
    NO_MAPPING,
    NO_RESOURCES,
    SURFACE,
    TOO_LARGE,
    RuntimeFault,
)

_STATUS = re.compile(r"(?:status\s*=\s*|failure \()(0x[0-9a-fA-F]+)", re.IGNORECASE)

STATUSES: dict[int, tuple[str, str]] = {
    SURFACE: ("S1", "a surface is smaller than its tensor, or surfaces of one side differ in size; after a program "
              "with tile every evaluation of the process ends so (O7): start a new one"),
    BAD_WIDTH: ("S4", "an innermost extent below 32: pad the last axis"),
    0x16: ("S3", "surfaces: allocate at least 49,152 bytes for each"),
    NO_RESOURCES: ("R6", "another process holds the engine's programs: wait a second and try again"),
    LOAD_FAILURE: ("R3", "too many programs are loaded (126 to 238 by machine): unload some"),
    TOO_LARGE: ("S11", "the program is too large: split it"),
    NO_MAPPING: ("", "pre-mapped surfaces need a model that was loaded from disk"),
    15: ("", "chaining works for nobody: run the programs one after the other"),
}  # fmt: skip
"""Status (or code) -> the restriction that it speaks of, and the remedy (docs/restrictions.md)."""

IORETURNS: dict[int, str] = {
    0xE00002C1: "not privileged: the direct route needs an entitlement (`hexane doctor`)",
    0xE00002C2: "a size or pointer of the request is wrong for this system",
    0xE00002C7: "unsupported: a stub, or the entitlement is missing (`hexane doctor`)",
    0xE00002E2: "not permitted: macOS runs programs of its own compiler only",
    0xE00002F0: "not found: also what opening answers without the entitlement (`hexane doctor`)",
    0xE00002BE: "no resources: unload programs, or wait",
    0xE00002D0: "the engine is not ready: try again",
    0xE00002EB: "aborted by the firmware: the program takes too long, or the engine was reset",
    0xE0000404: "the firmware did not answer in time",
}
"""IOReturn -> what it means here (docs/private-api.md, "IOKit selectors")."""


def fault_of(domain: str, code: int, words: str) -> RuntimeFault:
    """An NSError of the runtime as an error with a remedy."""
    match = _STATUS.search(words)
    status = int(match[1], 16) if match else None
    rule, remedy = _remedy(domain, code, status, words)
    description = words or "no words"
    return RuntimeFault(description, domain=domain, code=code, status=status, rule=rule, hint=remedy)


def _remedy(domain: str, code: int, status: int | None, words: str) -> tuple[str, str]:
    if code & 0xFFFFFFFF in IORETURNS:
        return "", IORETURNS[code & 0xFFFFFFFF]
    if status is not None and status in STATUSES:
        return STATUSES[status]
    if domain == COMPILER:
        if "InvalidMILProgram" in words:
            return "", "a line or an op that the compiler does not take: `hexane check FILE.mil --chip CHIP` names them"
        if "CompilationFailure" in words:
            return "", (
                'the compiler found no code for it: compile with dialect="apple", whose segments keep to the extents '
                "that Apple's compiler takes; `hexane check FILE.mil` names what it refuses; or split the program (S11)"
            )
        return "R1", "without details: after about 119 compilations in one process (start a new one), or a type error"
    if code in STATUSES:
        return STATUSES[code]
    return "", "`hexane api errors` lists what is known"
