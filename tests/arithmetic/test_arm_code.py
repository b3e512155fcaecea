"""The vector code for Arm, as text: LLVM compiles it for a 64-bit Arm processor, and it is what NEON has."""

from __future__ import annotations

import re

import pytest

from hexane.arithmetic.fast.targets import FUNCTIONS, SHAPES, build_module

llvm = pytest.importorskip("llvmlite.binding")


@pytest.fixture(scope="module")
def assembly() -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu="apple-m1", opt=3)
    module = llvm.parse_assembly(str(build_module(SHAPES["neon"])))
    module.triple = "aarch64-unknown-linux-gnu"
    module.verify()
    return machine.emit_assembly(module)


def test_every_kernel_is_there(assembly: str) -> None:
    for name in FUNCTIONS:
        assert re.search(rf"^{name}:", assembly, re.M), name


def test_it_is_vector_code(assembly: str) -> None:
    """Products of whole vectors, halves widened by the processor, no calls for any of it."""
    for instruction in (r"fmul\s+v\d+\.4s", r"fcvtl2?\s+v\d+\.4s"):
        assert re.search(instruction, assembly), instruction
    called = set(re.findall(r"\bbl\s+(\w+)", assembly))
    assert not {name for name in called if re.search("__(extend|trunc)[hs]f", name)}
