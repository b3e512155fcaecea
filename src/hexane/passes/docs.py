"""docs/passes.md from the passes' own docstrings: ``python -m hexane.passes.docs DIRECTORY``."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from hexane.passes.manager import available

HEAD = """# Passes

Written by `python -m hexane.passes.docs docs` from the passes themselves. They run in this order before code is
generated; `hexane compile --dump-passes DIR` writes the network after each of them. Every pass but `half_precision`
keeps the float32 reference of the network, up to the rounding of folded weights and the order of sums.

| pass | what it does and why |
|---|---|
"""


def document() -> str:
    """The page."""
    rows = []
    for name, run in available().items():
        text = " ".join((inspect.getdoc(run) or "").split())
        rows.append(f"| `{name}` | {text.replace('|', chr(92) + '|')} |\n")
    return HEAD + "".join(rows)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    (folder / "passes.md").write_text(document())


if __name__ == "__main__":
    main()
