"""Pieces to results: in this process, or by Dask on as many processes and machines as there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from hexane.errors import HexaneError
from hexane.studies.pieces.piece import Piece, Result, code_digest, compute
from hexane.studies.pieces.place import Counts, Outcomes, Workers
from hexane.studies.pieces.store import Store


def results(pieces: Iterable[Piece | None], store: Store, where: Workers) -> Outcomes:
    """Every piece with its result, or with the error that it raises, as they get ready.

    ``pieces`` are asked for as there is room for them, so that an iterator may decide by results what comes next; None
    says that the next piece waits for a result.
    Finished pieces go to the store before they are given out; those that are there are not computed. Closing the
    iterator drops what is under way.
    """
    if where.scheduler is None and where.workers <= 1:
        return _here(pieces, store, where.counts)
    from hexane.studies.pieces.cluster import on_cluster

    return on_cluster(pieces, store, where)


@contextmanager
def started(where: Workers) -> Iterator[None]:
    """The processes of this machine start while the caller opens its files; they end with the block."""
    if where.scheduler is not None or where.workers <= 1:
        yield
        return
    from hexane.studies.pieces.cluster import processes_ahead

    with processes_ahead(where):
        yield


def _here(pieces: Iterable[Piece | None], store: Store, counts: Counts) -> Outcomes:
    for piece in pieces:
        if piece is None:
            continue
        try:
            result = store.get(piece.key)
            counts.kept += result is not None
            yield piece, result_here(piece, store, counts) if result is None else result
        except HexaneError as error:
            yield piece, error


def result_here(piece: Piece, store: Store, counts: Counts) -> Result:
    """The result of a piece: the store's, or computed in this process where there is none (any more)."""
    stored_result = store.get(piece.key)
    if stored_result is not None:
        return stored_result
    before = [result_here(need, store, counts) for need in piece.needs]
    value = compute(code_digest(), piece.function, piece.arguments, *piece.shared, *before)
    counts.computed += 1
    store.put(piece.key, value)
    return value
