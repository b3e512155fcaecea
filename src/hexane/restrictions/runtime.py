"""Restrictions that no text shows: how a program is handed over, what a process may hold, how surfaces are filled.

``hexane.mil.Model`` keeps them. With ``quirks=True`` it does what the real runtime does; without, it raises with the
words below, or makes them impossible.
"""

from __future__ import annotations

from hexane.restrictions.reports import fails, refused, runs, slow, wrong
from hexane.restrictions.rule import runtime_rule


@runtime_rule("T1", "hand over the UTF-8 bytes (NSData)", refused("Orion", "M4 Max", 15, note="crash"), orion=9)
def program_as_string() -> None:
    """the program is handed over as a string object: the process crashes"""


@runtime_rule(
    "W1",
    "hand over an empty dictionary",
    refused("Orion", "M4 Max", 15, note="crash"),
    runs("maderix", "M4", 15, note="programs without weights"),
    orion=11,
    contested=True,
)
def weight_dictionary_nil() -> None:
    """the weight dictionary is nil: the process crashes where the program has weights"""


@runtime_rule(
    "W8",
    "compile again, or read the weights at run time (docs/weights-renewed.md)",
    wrong("maderix", "M4, M5", None, note="weights are a snapshot of compile time"),
    wrong("dev-erik", "M4 Max", 15),
    wrong("libane", "M3", 26),
    runs("Orion", "M4 Max", 15, note="trains by reloading changed files"),
    orion=7,
    contested=True,
)
def weights_after_compile() -> None:
    """weights that change after compilation have no effect: the old ones go on"""


@runtime_rule(
    "W9",
    "put a digest of the weights into the dictionary, or a unique tag into buildInfo",
    wrong("anedvd", "A18 Pro", 27),
    wrong("q38", "M5 Max", 26, note="many probes, one program"),
)
def cache_shared_by_text() -> None:
    """a program of the same text and the same dictionary is taken from the cache, whatever the files hold"""


@runtime_rule(
    "W10",
    "do not use it",
    wrong("dev-erik", "M4 Max", 15),
    wrong("DS4", "M5", 26),
)
def weights_buffer() -> None:
    """the weightsBuffer of a request is ignored"""


@runtime_rule("S8", "pack: element k at byte k times its size", wrong("Orion", "M4 Max", 15), orion=20)
def strided_surface() -> None:
    """data written with row strides are read packed: the numbers are those of other elements"""


@runtime_rule(
    "R1",
    "count compilations, and start the process again at 100 (CompileBudget)",
    refused("maderix", "M4", 15, note="about 119; the wrapper leaks"),
    refused("Orion", "M4 Max", 15),
    runs("field guide", "M3 Max", 26, note="229 tiny programs"),
    orion=5,
)
def compile_budget() -> None:
    """about 119 compilations in one process, then every further one fails without a message"""


@runtime_rule(
    "R2",
    "save the state, exec, resume: CompileBudget(on_exhausted='reexec')",
    slow("Orion", "M4 Max", 15, note="50 ms and the compilations again"),
    slow("maderix", "M4", 15, note="7.6 to 9.6 s a restart"),
    orion=15,
)
def restart_by_exec() -> None:
    """the way out of the compile budget is to exec the process again, which costs every compilation again"""


@runtime_rule(
    "R3",
    "unload, or put many functions into one program",
    fails("mlxfast", "M4 Max", 26, note="126"),
    fails("q38", "M5 Max", 26, note="127"),
    fails("DS4", "M5", 26, note="237"),
    fails("iphone", "A17 Pro", 26, note="238"),
)
def loaded_programs() -> None:
    """too many programs are loaded at once: Program load failure (0x50004)"""


@runtime_rule(
    "R4",
    "unload, or set kANEFKeepModelMemoryWiredKey to 0",
    fails("field guide", "M3 Max", 26, note="about 3.5 GB"),
    fails("q38", "M5 Max", 26, note="wired memory about 5 times the weights"),
)
def loaded_bytes() -> None:
    """loaded programs hold more than about 3.5 GB"""


@runtime_rule("R6", "wait and try again", fails("anedvd", "A18 Pro", 27))
def no_engine_resources() -> None:
    """another process holds the engine's pool: status 0x5, no ANE resources"""


@runtime_rule("R7", "wait 15 s after a failed compilation", slow("ANEForge", "M5"))
def failed_compilation() -> None:
    """after a failed compilation the compiler service needs time"""


@runtime_rule("R8", "start the process again", slow("rustane", "M3 Ultra", 26))
def many_evaluations() -> None:
    """after 100,000 evaluations the throughput falls"""
