"""Kind of Mac that the fake is, and what goes wrong on it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hexane.private_api.calls import COMPILES_PER_PROCESS, PROGRAMS_LOADED

LENIENT = ("W7",)
"""Refusals of the compiler that the fake does not repeat. W7 (several blobs in one file, on M1) is one report of one
project; with it and W5 (at most 16 files) no network of more than 16 constants could run there."""


@dataclass(frozen=True)
class Settings:
    """A Mac of a chip.

    Parameters
    ----------
    folder : the daemon's cache on disk, which several processes may share; empty: one of its own, gone at the end.
    staging : where programs are staged; empty: this user's temporary folder.
    level : "auto", "engine" or "graph": what the daemon's programs run on (``hexane.runtime.executable``).
    tells_symbols : whether a loaded model has ``modelAttributes``.
    shares_cache : whether the daemon finds what another process compiled (False: as one A18 Pro was seen to do).
    fails_at, fails_times : the calls with these numbers (from 0 on) fail, in the way of their kind.
    dies_at : the process ends at its first call of this selector or function.
    """

    chip: str = "M1"
    folder: str = ""
    staging: str = ""
    level: str = "auto"
    tells_symbols: bool = True
    shares_cache: bool = True
    lenient: tuple[str, ...] = LENIENT
    most_compiles: int = COMPILES_PER_PROCESS
    most_loaded: int = PROGRAMS_LOADED
    fails_at: int = -1
    fails_times: int = 1
    dies_at: str = field(default="")
