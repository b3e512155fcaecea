"""StableHLO modules (``.mlir`` text or bytecode, what ``jax.export`` writes): through stablehlo-coreml into MIL.

stablehlo-coreml lowers StableHLO to MIL and follows both; coremltools writes the program down, and hexane's own reader
takes it from there. All in float32: what fp16 does to a network is hexane's to say.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hexane.errors import FormatError, HexaneError, UnsupportedError
from hexane.formats.coreml.reader import load_coreml
from hexane.formats.quiet import first_line, quiet
from hexane.graph.ir import Graph

PACKAGES = "pip install 'hexane[jax]'"
MAX_BYTES = 1 << 31
"""Largest module that is read: its constants are part of its text."""


def load(path: str | Path) -> Graph:
    """A graph from a StableHLO file, text or bytecode.

    Raises FormatError for what is no such module, UnsupportedError for what has no form in MIL.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise FormatError(f"a module of {path.stat().st_size} bytes", where=str(path))
        return from_stablehlo(path.read_bytes(), where=str(path))
    except OSError as error:
        raise FormatError(f"cannot be read ({error.strerror})", where=str(path)) from error


def from_stablehlo(module: bytes | str, where: str = "StableHLO module") -> Graph:
    """A graph of a module's text or bytecode; its public function ``main`` runs."""
    with _packages() as (ct, ir, make_context, stablehlo_coreml):
        with make_context() as context:
            try:
                parsed = ir.Module.parse(module, context=context)
            except Exception as error:  # its binding's own kind, with the place in the text
                raise FormatError(f"is no StableHLO module ({first_line(error)})", where=where) from None
            try:
                program = stablehlo_coreml.convert(parsed, minimum_deployment_target=ct.target.iOS18)
                model = ct.convert(
                    program,
                    source="milinternal",
                    minimum_deployment_target=ct.target.iOS18,
                    compute_precision=ct.precision.FLOAT32,
                    pass_pipeline=stablehlo_coreml.build_pass_pipeline(),
                    skip_model_load=True,
                )
            except Exception as error:  # asserts, ValueErrors, NotImplementedErrors of a converter
                text = first_line(error) or type(error).__name__
                raise UnsupportedError(f"stablehlo-coreml does not lower it ({text})", where=where) from error
        return _read(model, where)


def _read(model: Any, where: str) -> Graph:
    """The program as hexane reads a package; nothing of it stays on disk."""
    with tempfile.TemporaryDirectory(prefix="hexane-stablehlo-") as folder:
        package = Path(folder) / "network.mlpackage"
        try:
            model.save(str(package))
        except Exception as error:
            raise UnsupportedError(
                f"coremltools cannot write the program ({first_line(error)})", where=where
            ) from error
        files = {path.name: path.read_bytes() for path in package.rglob("*.bin")}
        try:
            graph = load_coreml(package, weights=files)
        except FormatError as error:  # such as one value that is returned twice; the package's place helps nobody
            raise UnsupportedError(f"the program that stablehlo-coreml makes: {error.message}", where=where) from error
    graph.metadata["format"] = "stablehlo"
    return graph


@contextmanager
def _packages() -> Iterator[tuple[Any, Any, Any, Any]]:
    """coremltools, MLIR's bindings and stablehlo-coreml, without their talk."""
    try:
        with quiet():
            import coremltools as ct
            import stablehlo_coreml
            from jax._src.interpreters.mlir import make_ir_context
            from jaxlib.mlir import ir
    except ImportError as error:
        raise UnsupportedError(f"StableHLO needs {error.name}, which is not installed", hint=PACKAGES) from error
    loud = logging.getLogger("coremltools")
    level = loud.level
    loud.setLevel(logging.CRITICAL)
    try:
        with quiet():
            yield ct, ir, make_ir_context, stablehlo_coreml
    except HexaneError:
        raise
    finally:
        loud.setLevel(level)
