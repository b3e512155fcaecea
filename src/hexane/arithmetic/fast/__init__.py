"""Fast kernels that give the bits of the plain statements: Numba, vector code, all cores (spec/numerics §11)."""

from __future__ import annotations

from pathlib import Path


def _drop_stale_code(folder: Path) -> None:
    """Remove compiled code that is older than any source file here.

    Numba keeps compiled functions on disk and looks at the file of each alone; but they also hold what they call and
    numbers from their neighbours.
    """
    try:
        newest = max(source.stat().st_mtime for source in folder.glob("*.py"))
        for index in folder.glob("__pycache__/*.nbi"):
            if index.stat().st_mtime < newest:
                index.unlink(missing_ok=True)
    except OSError:  # a folder that nobody may write to holds nothing stale either
        return


_drop_stale_code(Path(__file__).parent)
