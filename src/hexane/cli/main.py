"""The ``hexane`` command: one file per command in this folder, gathered here."""

from __future__ import annotations

import shlex
import sys
from importlib import import_module
from pkgutil import iter_modules

import typer

import hexane
from hexane.errors import HexaneError

app = typer.Typer(
    name="hexane",
    help="An open toolchain for the Apple Neural Engine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"hexane {hexane.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """An open toolchain for the Apple Neural Engine."""


def _gather() -> None:
    """Let every module beside this one that has a ``register(app)`` add its command."""
    package = import_module("hexane.cli")
    for module in sorted(iter_modules(package.__path__), key=lambda m: m.name):
        if module.name == "main":
            continue
        register = getattr(import_module(f"hexane.cli.{module.name}"), "register", None)
        if register is not None:
            register(app)


_gather()


def main() -> None:
    """Run the command line; 0 is success, 1 a command's own 'no', 2 an error, 130 an interrupt."""
    try:
        app()
    except HexaneError as error:
        print(f"hexane: {error}", file=sys.stderr)
        again = getattr(error, "options", ())
        if again:  # the whole command with what is known filled in
            print(f"    hexane {shlex.join(sys.argv[1:])} {' '.join(again)}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:  # of standard output: every file that a command names is a HexaneError's business
        print(f"hexane: cannot write the output ({error.strerror or error})", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("hexane: interrupted", file=sys.stderr)
        sys.exit(130)
    except SystemExit as end:
        if end.code == 130:  # typer ends so, without a word, when it meets the interrupt first
            print("hexane: interrupted", file=sys.stderr)
        raise


if __name__ == "__main__":
    main()
