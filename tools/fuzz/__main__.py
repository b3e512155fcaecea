"""The command line: ``python tools/fuzz networks --kind ops --seed 1 --seconds 60``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from fuzz import faults, gradients, networks, page  # noqa: E402

COMMANDS = {"networks": networks.main, "gradients": gradients.main, "page": page.main, "faults": faults.main}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"usage: python tools/fuzz {{{','.join(COMMANDS)}}} ...")
    sys.exit(COMMANDS[sys.argv[1]](sys.argv[2:]))
