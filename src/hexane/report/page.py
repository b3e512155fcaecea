"""The report: a folder with one self-contained page, the data behind it, plots, tensors and engine programs."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexane.errors import UnsupportedError
from hexane.files import write_arrays
from hexane.formats.strict_json import by_rows, strict_json
from hexane.report.data import report_data
from hexane.report.folders import whole_folder

if TYPE_CHECKING:
    from hexane.session.network_run import NetworkRun


@dataclass(frozen=True)
class Picture:
    """A result to look at: PNG bytes with a title and a sentence below it."""

    name: str
    title: str
    caption: str
    png: bytes


def write_report(
    session: NetworkRun, folder: Path, *, title: str | None = None, pictures: Sequence[Picture] = ()
) -> dict[str, Any]:
    """Write the report of a session and return its data.

    The folder holds ``index.html``, ``report.json``, ``inputs.npz``, ``outputs.npz``, ``segmentN.hwx`` per engine
    segment and PNG plots. It appears whole or not at all. Needs jinja2 (extra ``report``): UnsupportedError without.
    """
    data = report_data(session, title=title)
    with whole_folder(folder) as new_folder:
        write_arrays(new_folder / "inputs.npz", session.inputs)
        write_arrays(new_folder / "outputs.npz", session.outputs)
        if session.program is not None:
            for number, segment in enumerate(session.program.segments):
                if segment.image is not None:
                    (new_folder / f"segment{number}.hwx").write_bytes(segment.image.to_bytes())
        for picture in pictures:
            (new_folder / f"{picture.name}.png").write_bytes(picture.png)
        _plots(session, data, new_folder)
        data["results"] = [{"file": f"{p.name}.png", "title": p.title, "caption": p.caption} for p in pictures]
        data["files"] = sorted({"index.html", "report.json", *(path.name for path in new_folder.iterdir())})
        text = by_rows(data)
        (new_folder / "report.json").write_text(text)
        result_rows = [{**row, "source": _data_uri(p.png)} for row, p in zip(data["results"], pictures)]
        page = render("page.html", data=data, json=in_script(text), pictures=result_rows)
        (new_folder / "index.html").write_text(page)
    return data


def _plots(session: NetworkRun, data: Mapping[str, Any], folder: Path) -> None:
    try:
        from hexane.report.plots import save_errors, save_memory
        from hexane.report.roofline import save_roofline

        save_errors(data, folder / "errors.png")
        save_memory(data, folder / "memory.png")
        if session.estimate is not None:
            save_roofline(session.graph, session.chip, folder, session.estimate)
    except UnsupportedError:
        pass  # matplotlib is an extra; the page draws its own plots


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def render(template: str, **values: Any) -> str:
    """One of the templates beside this module as a page of its own: styles, script and data inside."""
    try:
        from jinja2 import DictLoader, Environment, StrictUndefined
    except ImportError:
        raise UnsupportedError("reports need jinja2", hint="pip install 'hexane[report]'") from None
    home = files("hexane.report").joinpath("templates")
    parts = {entry.name: entry.read_text() for entry in home.iterdir() if entry.name.endswith((".html", ".css", ".js"))}
    environment = Environment(
        loader=DictLoader(parts),
        autoescape=lambda name: bool(name and name.endswith(".html")),
        undefined=StrictUndefined,
    )
    environment.filters["embedded"] = embedded
    environment.filters["share"] = lambda v: f"{v:.1%}"
    environment.filters["short"] = short
    environment.filters["brief"] = brief
    environment.filters["briefly"] = briefly
    return environment.get_template(template).render(**values)


def embedded(value: Any) -> Any:
    """JSON that may stand inside a script element, whatever names a network has."""
    return in_script(strict_json(value, separators=(",", ":")))


def in_script(json: str) -> Any:
    """JSON with the characters escaped that end a script element."""
    from markupsafe import Markup

    return Markup(json.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def short(value: Any) -> str:
    """A number in a few digits."""
    if value is None:
        return "–"
    if isinstance(value, str) or value != value or value in (float("inf"), float("-inf")):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0:
        return "0"
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e5 else f"{value:.1e}"


def brief(name: str) -> str:
    """The end of a name that some exporter made long: the last of several joined ones, its last two parts."""
    last = name.rpartition(";")[2]
    return "…/" + "/".join(last.split("/")[-2:]) if len(last) > 34 and "/" in last else last


def briefly(text: str) -> str:
    """A sentence with its long quoted names shortened."""
    return re.sub(r"'([^']{35,})'", lambda match: f"'{brief(match.group(1))}'", text)
