"""Restrictions that no text shows: how a program is handed over, what a process may hold, how surfaces are filled.

``hexane.mil.Model`` keeps them. With ``quirks=True`` it does what the real runtime does; without, it raises with the
words below, or makes them impossible.
"""

from __future__ import annotations

from typing import Any

from hexane.restrictions.reports import PublishedReport, fails, refused, runs, slow, wrong
from hexane.restrictions.rule import Rule, add


def _rule(id: str, name: str, says: str, remedy: str, *reports: PublishedReport, **background: Any) -> None:
    add(Rule(id, says, remedy, reports, name=name, module=__name__, **background))


_rule(
    "T1",
    "program as string",
    "the program is handed over as a string object: the process crashes",
    "hand over the UTF-8 bytes (NSData)",
    refused("Orion", "M4 Max", 15, note="crash"),
    orion=9,
)
_rule(
    "W1",
    "weight dictionary nil",
    "the weight dictionary is nil: the process crashes where the program has weights",
    "hand over an empty dictionary",
    refused("Orion", "M4 Max", 15, note="crash"),
    runs("maderix", "M4", 15, note="programs without weights"),
    orion=11,
    contested=True,
)
_rule(
    "W8",
    "weights after compile",
    "weights that change after compilation have no effect: the old ones go on",
    "compile again, or read the weights at run time (docs/weights-renewed.md)",
    wrong("maderix", "M4, M5", None, note="weights are a snapshot of compile time"),
    wrong("dev-erik", "M4 Max", 15),
    wrong("libane", "M3", 26),
    runs("Orion", "M4 Max", 15, note="trains by reloading changed files"),
    orion=7,
    contested=True,
)
_rule(
    "W9",
    "cache shared by text",
    "a program of the same text and the same dictionary is taken from the cache, whatever the files hold",
    "put a digest of the weights into the dictionary, or a unique tag into buildInfo",
    wrong("anedvd", "A18 Pro", 27),
    wrong("q38", "M5 Max", 26, note="many probes, one program"),
)
_rule(
    "W10",
    "weights buffer",
    "the weightsBuffer of a request is ignored",
    "do not use it",
    wrong("dev-erik", "M4 Max", 15),
    wrong("DS4", "M5", 26),
)
_rule(
    "S8",
    "strided surface",
    "data written with row strides are read packed: the numbers are those of other elements",
    "pack: element k at byte k times its size",
    wrong("Orion", "M4 Max", 15),
    orion=20,
)
_rule(
    "R1",
    "compile budget",
    "about 119 compilations in one process, then every further one fails without a message",
    "count compilations, and start the process again at 100 (CompileBudget)",
    refused("maderix", "M4", 15, note="about 119; the wrapper leaks"),
    refused("Orion", "M4 Max", 15),
    runs("field guide", "M3 Max", 26, note="229 tiny programs"),
    orion=5,
)
_rule(
    "R2",
    "restart by exec",
    "the way out of the compile budget is to exec the process again, which costs every compilation again",
    "save the state, exec, resume: CompileBudget(on_exhausted='reexec')",
    slow("Orion", "M4 Max", 15, note="50 ms and the compilations again"),
    slow("maderix", "M4", 15, note="7.6 to 9.6 s a restart"),
    orion=15,
)
_rule(
    "R3",
    "loaded programs",
    "too many programs are loaded at once: Program load failure (0x50004)",
    "unload, or put many functions into one program",
    fails("mlxfast", "M4 Max", 26, note="126"),
    fails("q38", "M5 Max", 26, note="127"),
    fails("DS4", "M5", 26, note="237"),
    fails("iphone", "A17 Pro", 26, note="238"),
)
_rule(
    "R4",
    "loaded bytes",
    "loaded programs hold more than about 3.5 GB",
    "unload, or set kANEFKeepModelMemoryWiredKey to 0",
    fails("field guide", "M3 Max", 26, note="about 3.5 GB"),
    fails("q38", "M5 Max", 26, note="wired memory about 5 times the weights"),
)
_rule(
    "R6",
    "no engine resources",
    "another process holds the engine's pool: status 0x5, no ANE resources",
    "wait and try again",
    fails("anedvd", "A18 Pro", 27),
)
_rule(
    "R7",
    "failed compilation",
    "after a failed compilation the compiler service needs time",
    "wait 15 s after a failed compilation",
    slow("ANEForge", "M5"),
)
_rule(
    "R8",
    "many evaluations",
    "after 100,000 evaluations the throughput falls",
    "start the process again",
    slow("rustane", "M3 Ultra", 26),
)
