"""A sweep's folder: ``results.parquet``, and a page that sorts, filters and plots it."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hexane.errors import UnsupportedError
from hexane.files import write_whole
from hexane.report.page import render
from hexane.session.check import check
from hexane.studies.compress import compress
from hexane.studies.evaluation.evaluate import OnProgress
from hexane.studies.evaluation.network import NetworkForm
from hexane.studies.pieces import Result, Shared, Store, Workers
from hexane.studies.sweep import Spec, sweep

PIECES, TABLE, PAGE = "pieces", "results.parquet", "index.html"


def checked(network: Shared, form: NetworkForm) -> Result:
    """Number of ops by place (``hexane.check``)."""
    graph = network.opened(pickle.loads)
    weighed = graph if form.weights == "fp16" else compress(graph, form.weights)
    report = check(weighed, form.chip, str(dict(form.options).get("as_", "")))
    totals = report.totals
    macs = totals["macs_on_engine"]
    return {
        "fits": np.asarray(report.fits), "ops": np.asarray(totals["ops"]),
        "engine_ops": np.asarray(totals["engine_ops"]),
        "checked_macs_on_engine": np.asarray(np.nan if macs is None else macs),
    }  # fmt: skip


def run_sweep(
    spec: Spec, folder: Path, where: Workers | None = None, *, on_progress: OnProgress | None = None
) -> list[dict[str, Any]]:
    """Do a sweep, or go on with it, and write its table and page; the rows.

    Finished pieces stay in ``folder/pieces``. Needs pyarrow (extra ``scale``).
    """
    _arrow()
    rows = sweep(spec, Store(folder / PIECES), where, jobs={"check": checked}, on_progress=on_progress)
    write_whole(folder / TABLE, parquet(rows))
    write_whole(folder / PAGE, render("sweep.html", title=spec.path.name, rows=rows, names=_columns(rows)).encode())
    return rows


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise UnsupportedError("the table of a sweep needs pyarrow", hint="pip install 'hexane[scale]'") from None
    return pyarrow


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of all columns, ``error`` last."""
    names = dict.fromkeys(name for row in rows for name in row if name != "error")
    return [*names, "error"]


def parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as a Parquet file; the same bytes for the same rows."""
    pyarrow = _arrow()
    from pyarrow import parquet as writer

    columns = {
        name: [None if isinstance(v := row.get(name), float) and np.isnan(v) else v for row in rows]
        for name in _columns(rows)
    }
    table = pyarrow.table({name: _typed(pyarrow, values) for name, values in columns.items()})
    out = io.BytesIO()
    writer.write_table(table, out)
    return out.getvalue()


def _typed(pyarrow: Any, values: list[Any]) -> Any:
    """A column without values is of text."""
    return pyarrow.array(values, None if any(v is not None for v in values) else pyarrow.string())
