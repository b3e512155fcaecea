"""The process that compiles: a request per line on standard input, an answer per line on standard output.

python -m hexane.runtime.macos.child system
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from hexane.errors import HexaneError
from hexane.private_api.faults import RuntimeFault
from hexane.runtime.macos import staging
from hexane.runtime.macos.border import SystemBorder
from hexane.runtime.macos.foundation import Objects
from hexane.runtime.macos.model import ModelSource, compile_here, described, prepared
from hexane.runtime.macos.sides import open_side


def compiled(border: SystemBorder, classes: dict[str, int], request: dict[str, Any]) -> dict[str, Any]:
    """Steps 1 and 3 with the files that the other process staged; its answer."""
    folder = Path(request["folder"])
    try:
        text = (folder / staging.TEXT).read_bytes()
        weights = {path: (folder / staging.inside(path)).read_bytes() for path in request["weights"]}
        with Objects(border) as objects:
            model, identifier = described(border, classes, objects, ModelSource(text, weights, {}, {}))
            if identifier == folder.name:
                compile_here(border, model, request["qos"])
        return {"identifier": identifier}
    except RuntimeFault as fault:
        return {"fault": {"domain": fault.domain, "code": fault.code, "words": fault.words}}
    except HexaneError as error:
        return {"error": error.message, "hint": error.hint}
    except OSError as error:
        return {"error": f"the staged program cannot be read ({error.strerror or error})"}


def main(words: list[str]) -> None:
    """Answer until standard input ends."""
    border = open_side(words)
    classes = None
    for line in sys.stdin:
        try:
            classes = classes or prepared(border)
            answer = compiled(border, classes, json.loads(line))
        except HexaneError as error:
            answer = {"error": error.message, "hint": error.hint}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
