"""Write src/hexane/kernels/fitted.json, the tables of all functions in hexane.kernels.functions.RECIPES.

Run `python -m hexane.kernels.docs` afterwards, so that docs/lookup-tables.md tells the new errors.
"""

from __future__ import annotations

import json
from pathlib import Path

from hexane.kernels import functions
from hexane.kernels.fit import fit_table

TARGET = Path(__file__).resolve().parents[1] / "src" / "hexane" / "kernels" / "fitted.json"


def main() -> None:
    rows = {}
    for name, recipe in sorted(functions.RECIPES.items()):
        fit = fit_table(recipe.function, recipe.low, recipe.high)
        words = " ".join(f"{word:04x}" for word in fit.table.halfwords[:43])
        rows[name] = {"max_error": fit.max_error, "worst": fit.worst, "halfwords": words}
        print(f"{name:<14} {fit.max_error:.3e} at {fit.worst:<12g} {fit.table}")
    TARGET.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
