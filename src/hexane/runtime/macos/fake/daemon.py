"""The daemon of the fake: compiles what is staged, keeps it under its identifier on disk, loads it, runs it.

A program is what hexane's own compiler makes of the text for the chip, on the emulator; where a generation is not
emulated task by task, its arithmetic. So the fake says what the protocol does, never what Apple's compiler does.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hexane import chips
from hexane.errors import HexaneError
from hexane.formats.mil import parse_mil
from hexane.formats.mil.names import decode, encode
from hexane.formats.netplist.writer import OUTPUT
from hexane.graph.types import TensorType
from hexane.private_api.calls import BYTES_LOADED
from hexane.private_api.faults import SURFACE, compile_fault, inference_fault, load_fault
from hexane.restrictions import check_mil
from hexane.restrictions.reports import Severity
from hexane.restrictions.shapes import UNIFORM, binding_order
from hexane.runtime.executable import Executable, executable
from hexane.runtime.macos.binding import nbytes
from hexane.runtime.macos.fake.settings import Settings
from hexane.runtime.macos.staging import PREFIX, TEXT, staging_root


@dataclass(eq=False)
class Slot:
    """A program on the engine: its executable, its ports in the order of its symbols, its size."""

    made: Executable
    inputs: dict[str, TensorType]
    outputs: dict[str, TensorType]
    size: int
    spoils: bool


@dataclass(eq=False)
class Daemon:
    """State that outlives a model: the cache, the loaded programs, and whether evaluations are spoiled (O7)."""

    settings: Settings
    loaded: list[Slot] = field(default_factory=list)
    compiles: int = 0
    evaluations: int = 0
    spoiled: bool = False
    _made: dict[str, Executable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chip = chips.get(self.settings.chip)
        self.cache = Path(self.settings.folder or tempfile.mkdtemp(prefix="hexane-aned-"))
        if not self.settings.folder:
            weakref.finalize(self, shutil.rmtree, self.cache, ignore_errors=True)

    @property
    def staging(self) -> Path:
        """Folder in which staged programs are looked for."""
        return Path(self.settings.staging) if self.settings.staging else staging_root()

    def exists(self, identifier: str) -> bool:
        """True where the cache has a program."""
        return identifier in self._made or (self.settings.shares_cache and (self.cache / identifier / TEXT).is_file())

    def compile(self, identifier: str) -> None:
        """Compile what is staged under the identifier; a program of the cache costs nothing."""
        if self.exists(identifier):
            return
        if self.compiles >= self.settings.most_compiles:
            raise compile_fault("", "R1")
        self.compiles += 1
        staged = self.staging / identifier
        if not (staged / TEXT).is_file():
            raise compile_fault("InvalidMILProgram: no model.mil in the staging folder")
        files = {path.relative_to(staged).as_posix(): path for path in staged.rglob("*") if path.is_file()}
        self._refuse(*_read(staged))
        self._made[identifier] = self._executable(staged)
        folder = self.cache / identifier
        shutil.rmtree(folder, ignore_errors=True)
        for name, path in files.items():  # a snapshot: files that change later change nothing (W8)
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)
        for name in ("net.plist", "data"):
            (staged / name).write_bytes(b"")

    def _refuse(self, text: str, weights: Mapping[str, bytes]) -> None:
        for finding in check_mil(text, weights, self.chip, surfaces=UNIFORM):
            if finding.severity is Severity.REJECTED and finding.rule not in self.settings.lenient:
                detail = "InvalidMILProgram" if finding.rule[0] in "TOWL" else "CompilationFailure"
                raise compile_fault(f"{detail} ({finding.rule}: {finding.message})", finding.rule)

    def _executable(self, folder: Path) -> Executable:
        text, weights = _read(folder)
        try:
            return executable(parse_mil(text, weights), self.chip, self.settings.level)
        except HexaneError as error:
            raise compile_fault(f"CompilationFailure ({error.message.splitlines()[0]})") from None

    def load(self, identifier: str) -> Slot:
        """A program of the cache on the engine."""
        if len(self.loaded) >= self.settings.most_loaded:
            raise load_fault()
        if not self.exists(identifier):
            raise load_fault(0x50001, "")
        if identifier not in self._made:
            self._made[identifier] = self._executable(self.cache / identifier)
        program = self._made[identifier]
        folder = self.cache / identifier
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        if size + sum(slot.size for slot in self.loaded) > BYTES_LOADED:
            raise load_fault(rule="R4")
        program.load()
        graph = program.graph.main
        inputs = {encode(v.name): v.type for v in graph.inputs if isinstance(v.type, TensorType)}
        outputs = {encode(v.name): v.type for v in graph.outputs if isinstance(v.type, TensorType)}
        slot = Slot(
            program,
            {name: inputs[name] for name in binding_order(list(inputs))},
            {name: outputs[name] for name in binding_order(list(outputs), results=True)},
            size,
            any(op.type == "tile" for op in graph.walk()) and self._tile_spoils(folder),
        )
        self.loaded.append(slot)
        return slot

    def _tile_spoils(self, folder: Path) -> bool:
        text, weights = _read(folder)
        findings = check_mil(text, weights, self.chip, surfaces=UNIFORM)
        return any(f.rule == "O7" and f.severity is Severity.FAILS for f in findings)

    def unload(self, slot: Slot) -> None:
        """Free its place."""
        self.loaded.remove(slot)
        if all(other.made is not slot.made for other in self.loaded):
            slot.made.close()

    def evaluate(self, slot: Slot, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        """Run with memories in the order of the symbols (S2, S7): packed data from byte 0 (S8).

        RuntimeFault 0x1d for another number of surfaces, for one smaller than its tensor, for sides of several sizes
        (S1, S6), and for every evaluation of a process that ran tile where that spoils it (O7).
        """
        if self.spoiled:
            raise inference_fault(SURFACE, "O7")
        for memories, ports in ((inputs, slot.inputs), (outputs, slot.outputs)):
            if len(memories) != len(ports):
                raise inference_fault(SURFACE, "S7")
            if len({memory.size for memory in memories}) > 1:
                raise inference_fault(SURFACE, "S1" if ports is slot.outputs else "S6")
            if any(memory.size < nbytes(type_) for memory, type_ in zip(memories, ports.values())):
                raise inference_fault(SURFACE, "S7")
        arrays = {
            decode(symbol): memory[: nbytes(type_)].view(type_.carrier).reshape(type_.shape)
            for (symbol, type_), memory in zip(slot.inputs.items(), inputs)
        }
        results = slot.made.run(arrays)
        for (symbol, type_), memory in zip(slot.outputs.items(), outputs):
            raw = (
                np.ascontiguousarray(results[decode(symbol)])
                .astype(type_.carrier, copy=False)
                .view(np.uint8)
                .reshape(-1)
            )
            memory[: raw.size] = raw
        self.evaluations += 1
        self.spoiled = slot.spoils

    def symbols(self, slot: Slot) -> tuple[list[str], list[str]]:
        """Contents of a loaded program's ``modelAttributes``."""
        return list(slot.inputs), [name + OUTPUT for name in slot.outputs]

    def close(self) -> None:
        """Take every program off."""
        for slot in list(self.loaded):
            self.unload(slot)


def _read(folder: Path) -> tuple[str, dict[str, bytes]]:
    text = (folder / TEXT).read_bytes().decode("utf-8", "replace")
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in (TEXT, "net.plist", "data")]
    return text, {f"{PREFIX}{path.relative_to(folder).as_posix()}": path.read_bytes() for path in files}
