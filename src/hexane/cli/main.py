"""The ``hexane`` command's entry, which an interrupt ends quietly from its first import on."""

from __future__ import annotations

import atexit
import os
import sys

from hexane.later import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, NoReturn


def main() -> None:
    """Run the command line; 0 is success, 1 a command's own 'no', 2 an error, 130 an interrupt."""
    try:
        from hexane.cli.line import run_line

        run_line()
    except KeyboardInterrupt:
        _leave_interrupted()


def _leave_interrupted() -> NoReturn:
    """End with 130, always.

    An interpreter that meets an interrupt inside compiled code remembers it, and kills itself by the signal when it
    ends, whatever the program says meanwhile. So exit functions are called here, and nothing else is left to it.
    """
    try:
        print("hexane: interrupted", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
    atexit._run_exitfuncs()
    os._exit(130)


def __getattr__(name: str) -> Any:
    """``app``, the command line of all commands, made when it is first asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hexane.cli.line import application

    value = globals()[name] = application()
    return value


if __name__ == "__main__":
    main()
