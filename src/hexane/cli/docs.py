"""The generated part of docs/commands: each command's arguments and options, from the commands themselves.

    python -m hexane.cli.docs docs

Everything outside of the markers is written by hand and stays as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from hexane.cli.main import app

BEGIN, END = "<!-- generated from the command -->", "<!-- end -->"


def commands() -> dict[str, Any]:
    """Every command by name."""
    group = typer.main.get_command(app)
    return dict(sorted(group.commands.items()))  # type: ignore[attr-defined]


def usage(name: str, command: Any) -> str:
    """The block between the markers: what the command does, how it is called, its options."""
    rows = [_row(parameter) for parameter in command.params if parameter.name != "help"]
    arguments = " ".join(_argument(p) for p in command.params if p.param_type_name == "argument")
    help_text = " ".join((command.help or "").split())
    lines = [help_text, "", f"    hexane {name} {arguments} [OPTIONS]".rstrip(), ""]
    lines += ["| argument or option | default | meaning |", "|---|---|---|", *rows]
    return "\n".join(lines)


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        names = [*parameter.opts, *parameter.secondary_opts]
        value = "" if parameter.is_flag else f" {parameter.metavar or '…'}"
        name = ", ".join(f"`{option}{value}`" for option in names)
    default = "" if parameter.default in (None, False, ()) or parameter.required else f"`{parameter.default}`"
    if parameter.param_type_name != "argument" and "Ellipsis" in default:
        default = ""
    text = " ".join((getattr(parameter, "help", "") or "").split())
    if parameter.required:
        text = f"{text} Required.".strip()
    return f"| {name} | {default} | {text.replace('|', '/')} |"


def with_usage(text: str, name: str, command: Any) -> str:
    """A page with its generated block brought up to date; a new page gets one."""
    block = f"{BEGIN}\n{usage(name, command)}\n{END}"
    if BEGIN not in text or END not in text:
        return f"# hexane {name}\n\n{block}\n{text}"
    head, _, rest = text.partition(BEGIN)
    return head + block + rest.partition(END)[2]


def write(folder: Path) -> list[Path]:
    """Bring every page below ``folder/commands`` up to date, and the generated pages of limits and restrictions."""
    from hexane.private_api import private_api_page
    from hexane.report.docs import limits_page
    from hexane.report.errata import errata_page
    from hexane.restrictions.docs import restrictions_page

    pages = []
    (folder / "commands").mkdir(parents=True, exist_ok=True)
    for name, command in commands().items():
        path = folder / "commands" / f"{name}.md"
        path.write_text(with_usage(path.read_text() if path.is_file() else "", name, command))
        pages.append(path)
    tables = {"limits": limits_page, "restrictions": restrictions_page, "private-api": private_api_page,
              "errata": errata_page}  # fmt: skip
    for name, page in tables.items():
        pages.append(folder / f"{name}.md")
        pages[-1].write_text(page())
    return pages


if __name__ == "__main__":
    for page in write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs")):
        print(page)
