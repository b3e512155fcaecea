"""The vector code for processors that this one may not be, as text: LLVM compiles it, and it is what they have."""

from __future__ import annotations

import re

import pytest

from hexane.arithmetic.fast.targets import FUNCTIONS, SHAPES, build_module

llvm = pytest.importorskip("llvmlite.binding")

PROCESSORS = {
    "neon": ("aarch64-unknown-linux-gnu", "apple-m1", (r"fmul\s+v\d+\.4s", r"fcvtl2?\s+v\d+\.4s")),
    "avx512": ("x86_64-unknown-linux-gnu", "skylake-avx512", (r"vmulps\s.*%zmm", r"vcvtph2ps\s.*%zmm")),
}


@pytest.fixture(scope="module", params=PROCESSORS)
def code(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Name of the vector code, and its assembly."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple, cpu, _ = PROCESSORS[request.param]
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=3)
    module = llvm.parse_assembly(str(build_module(SHAPES[request.param])))
    module.triple = triple
    module.verify()
    return request.param, machine.emit_assembly(module)


def test_every_kernel_is_there(code: tuple[str, str]) -> None:
    for name in FUNCTIONS:
        assert re.search(rf"^{name}:", code[1], re.M), name


def test_it_is_vector_code(code: tuple[str, str]) -> None:
    """Products of whole vectors, halves widened by the processor, no calls for any of it."""
    name, assembly = code
    for instruction in PROCESSORS[name][2]:
        assert re.search(instruction, assembly), instruction
    called = set(re.findall(r"\b(?:bl|callq?)\s+(\w+)", assembly))
    assert not {name for name in called if re.search("__(extend|trunc)[hs]f", name)}
