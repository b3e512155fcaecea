"""The ``hexane`` command line: one file per command in this folder, gathered, run, and what goes wrong said."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import shlex
import sys
import warnings
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import typer

import hexane
from hexane.errors import HexaneError

NEW_OBJECTS = 20_000
"""Of a command's process before it looks for cycles among them: what it loads lasts as long as it does."""


def _version(value: bool) -> None:
    if value:
        typer.echo(f"hexane {hexane.__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """An open toolchain for the Apple Neural Engine."""


def application(command: str | None = None) -> typer.Typer:
    """The command line, of all commands; with the name of a command's file, of that one alone, which is sooner done.

    Every module beside this one that has a function ``command`` is one, by the name of its file.
    """
    app = typer.Typer(
        name="hexane",
        help="An open toolchain for the Apple Neural Engine.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_root)
    names = sorted(module.name for module in iter_modules(import_module("hexane.cli").__path__))
    for name in [command] if command in names else names:
        function = None if name == "main" else getattr(import_module(f"hexane.cli.{name}"), "command", None)
        if function is not None:
            app.command(name)(function)
    return app if app.registered_commands else application()


_WrongLine: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What typer raises of a wrong command line; the class is click's own or a copy of it."""


def run_line() -> None:
    """Run the command line and end the process; an interrupt is left to the caller.

    With ``--json``, an error is an object on standard output too, under ``error``.
    """
    _open_ends()
    # The reference multiplies small matrices, for which threads of the matrix library wait longer than they work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    warnings.formatwarning = lambda message, *_, **__: f"hexane: warning: {message}\n"
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)  # nor are there cycles to look for at its end
    try:
        status = application(*sys.argv[1:2])(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(status if isinstance(status, int) else 0)
    except HexaneError as error:
        print(f"hexane: {error}", file=sys.stderr)
        again = getattr(error, "options", ())
        if again:  # the whole command with what is known filled in
            print(f"    hexane {shlex.join(sys.argv[1:])} {' '.join(again)}", file=sys.stderr)
        _say_as_json(getattr(error, "code", "error"), error.message, error.where, error.hint)
        sys.exit(2)
    except _WrongLine as error:  # the command line itself is wrong
        error.show()
        _say_as_json("usage", error.format_message())
        sys.exit(error.exit_code)
    except BrokenPipeError:  # who reads has seen enough
        _let_go_of_output()
        sys.exit(0)
    except OSError as error:  # of standard output: every file that a command names is a HexaneError's business
        _let_go_of_output()
        print(f"hexane: cannot write the output ({error.strerror or error})", file=sys.stderr)
        sys.exit(2)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer ends so when it meets the closed pipe first
            _let_go_of_output()
            sys.exit(0)
        if end.code == 130:  # and so, without a word, after an interrupt
            raise KeyboardInterrupt from None
        raise


def _open_ends() -> None:
    """Give a closed standard output or error a place, and write what its encoding lacks as escapes."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _say_as_json(code: str, message: str, where: str | None = None, hint: str | None = None) -> None:
    """An error for the program that reads standard output, when it asked for JSON."""
    if "--json" not in sys.argv[1:]:
        return
    import json

    try:
        print(json.dumps({"error": {"code": str(code), "message": message, "where": where, "hint": hint}}, indent=2))
        sys.stdout.flush()
    except OSError:
        _let_go_of_output()


def _let_go_of_output() -> None:
    """Nothing is to be flushed into a closed pipe or a full disk when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.close(nothing)
