"""Archive about a run of a device that went wrong, for an issue somewhere else (``hexane verify --report``)."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import HexaneError
from hexane.files import write_whole
from hexane.formats.strict_json import strict_json
from hexane.runtime.doctor import diagnose

if TYPE_CHECKING:
    from hexane.program import Program
    from hexane.studies.verify import Verification

WHEN = (1980, 1, 1, 0, 0, 0)
"""The time of every member: two equal runs give the same bytes, as far as the machine does."""
README = """What `hexane verify --report` saw.

program.hexane  the compiled program, weights included: leave the archive with yourself if they are nobody's business
inputs.npz      what went in
device.npz      what the device gave (missing where it gave nothing: see verify.json)
emulator.npz    what hexane's emulator gives for the same bytes
verify.json     every check, or the error that ended the run (hexane schema check verify.json)
doctor.json     the machine: system, engine, driver, libraries

Send it with an issue. Again: hexane run program.hexane --input NAME=FILE.npy, NAME.npy from inputs.npz.
"""


def write_report(
    path: Path,
    program: Program,
    inputs: Mapping[str, np.ndarray],
    result: Verification | HexaneError,
    notes: Sequence[str] = (),
    origin: Mapping[str, Any] | None = None,
) -> None:
    """Write the archive: program, inputs, both outputs, every check (or the device's error), driver and machine.

    ``notes`` say how the inputs came about, ``origin`` what made the answers. Where the device raised, there is no
    ``device.npz`` and ``verify.json`` holds the error. HexaneError where the file cannot be written.
    """
    answer: dict[str, Any]
    device: Mapping[str, np.ndarray] = {}
    if not isinstance(result, HexaneError):
        answer, device, emulated = result.as_dict(), result.outputs, result.emulated
    else:
        where = {"where": result.where, "hint": result.hint}
        answer = {"error": {"code": getattr(result, "code", "error"), "message": result.message, **where}}
        emulated = program.run(inputs)
    with tempfile.TemporaryDirectory() as folder:
        program.save(Path(folder) / "program.hexane")
        compiled = (Path(folder) / "program.hexane").read_bytes()
    members = {
        "README.txt": README.encode(),
        "program.hexane": compiled,
        "inputs.npz": _arrays(inputs),
        **({"device.npz": _arrays(device)} if device else {}),
        "emulator.npz": _arrays(emulated),
        "verify.json": _answer({**answer, "notes": list(notes)}, origin),
        "doctor.json": _answer(diagnose().as_dict(), origin),
    }
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, WHEN), data, zipfile.ZIP_DEFLATED)
    write_whole(path, whole.getvalue())


def _answer(answer: Mapping[str, Any], origin: Mapping[str, Any] | None) -> bytes:
    return strict_json({**answer, **({"origin": origin} if origin else {})}, indent=2).encode()


def _arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    whole = io.BytesIO()
    by_name: dict[str, Any] = {name.replace("/", "_"): array for name, array in arrays.items()}
    np.savez(whole, **by_name)
    return whole.getvalue()
