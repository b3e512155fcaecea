"""Pieces of work that are done once: by content, in this process or on a Dask cluster."""

from hexane.studies.pieces.piece import Piece, Result, Shared, code_digest, digest
from hexane.studies.pieces.place import Counts, Workers
from hexane.studies.pieces.run import result_here, results, started
from hexane.studies.pieces.store import Store

__all__ = ["Counts", "Piece", "Result", "Shared", "Store", "Workers", "code_digest", "digest", "result_here", "results",
           "started"]  # fmt: skip
