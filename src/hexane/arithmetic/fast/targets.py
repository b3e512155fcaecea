"""Choice of the vector code for this processor: once at run time, forced by HEXANE_SIMD for tests and comparisons."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock

import numpy as np

from hexane.arithmetic.fast.compiled import Entries
from hexane.arithmetic.fast.vector_code import FUNCTIONS, build_module
from hexane.arithmetic.fast.vector_parts import VectorShape
from hexane.errors import UsageError
from hexane.rounding import align

SHAPES = {
    "avx512": VectorShape(lanes=16, rows=12, vectors=2, masked=True, converts=True),
    "avx2": VectorShape(lanes=8, rows=6, vectors=2, converts=True, cuts=True),
    "neon": VectorShape(lanes=4, rows=6, vectors=4, converts=True),
    "generic": VectorShape(lanes=4, rows=4, vectors=2),
}
"""Register tiles: accumulators, operands and broadcasts just fill the 32 (AVX2: 16) registers."""

OTHER_TILES: dict[str, tuple[tuple[int, int], ...]] = {
    "avx512": ((8, 3), (14, 2), (24, 1)),
    "avx2": ((4, 3),),
    "neon": ((8, 3),),
    "generic": (),
}
"""Rows and vectors of further tiles that are as fast, for results that the usual one does not fit."""

LEAST_GAIN = 0.95
"""Of the products that a tile computes, over those of the usual one: below, another one pays."""

_lock = Lock()


@dataclass(frozen=True)
class VectorKernels:
    """Compiled vector code: its register tile and the functions' addresses in the order of `FUNCTIONS`."""

    name: str
    shape: VectorShape
    addresses: np.ndarray
    engine: object


@lru_cache(maxsize=1)
def best() -> str:
    """Looked up once: the widest vector code that this processor runs, or the one named in HEXANE_SIMD."""
    forced = os.environ.get("HEXANE_SIMD", "").lower()
    if forced:
        if forced not in SHAPES:
            raise UsageError(f"HEXANE_SIMD={forced!r} is not known", hint=f"use {', '.join(SHAPES)}")
        if forced in _NEEDED and not _has(forced):
            raise UsageError(f"this processor cannot run HEXANE_SIMD={forced}", hint=f"it runs {_widest()}")
        return forced
    return _widest()


_NEEDED = {"avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl"), "avx2": ("avx2", "fma", "f16c")}


@lru_cache(maxsize=8)
def _has(name: str) -> bool:
    """True where this processor has what a vector code is written for; every 64-bit Arm has NEON, listed or not."""
    if name == "neon":
        return platform.machine().lower() in ("arm64", "aarch64")
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return all(features.get(f) for f in _NEEDED.get(name, ()))


@lru_cache(maxsize=1)
def _widest() -> str:
    return next(name for name in SHAPES if _has(name))


def _processor(name: str) -> tuple[str, str]:
    import llvmlite.binding as llvm

    if name == "avx2":
        return "haswell", ""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@lru_cache(maxsize=32)  # two threads may ask at once
def kernels_of_shape(name: str, shape: VectorShape) -> VectorKernels:
    """The kernels of one instruction set for a register tile; compiled in about 0.3 s, then remembered on disk."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = _processor(name)
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=3, jit=True)
    entries, key = Entries(build_module), (shape, machine.triple, cpu, features)
    code = entries.load(key)
    if code is None:
        code = machine.emit_object(llvm.parse_assembly(str(build_module(shape))))
        with suppress(OSError):  # no room, or no right to write
            entries.save(key, code)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    addresses = np.array([engine.get_function_address(f) for f in FUNCTIONS], np.int64)
    return VectorKernels(name, shape, addresses, engine)


def fitting(use: VectorKernels, outputs: int, extent: int) -> VectorKernels:
    """The kernels of the same instruction set with the tile that computes least beyond outputs by extent."""
    if use.shape != SHAPES[use.name]:
        return use

    def work(shape: VectorShape) -> int:
        return align(outputs, shape.rows) * align(extent, shape.columns)

    shapes = [replace(use.shape, rows=rows, vectors=vectors) for rows, vectors in OTHER_TILES[use.name]]
    least = min([use.shape, *shapes], key=work)
    return kernels_of_shape(use.name, least) if work(least) < LEAST_GAIN * work(use.shape) else use


def kernels(name: str | None = None) -> VectorKernels:
    """The kernels of one instruction set, by default the best one; compiled on first use, in about 0.1 s."""
    name = name or best()
    if name not in _ready:
        with _lock:
            _ready[name] = kernels_of_shape(name, SHAPES[name])
    return _ready[name]


_ready: dict[str, VectorKernels] = {}
