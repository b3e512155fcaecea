"""The real border's marshalling, against a C library in the place of Apple's: what arrives is what the prototype says.

This says that ctypes hands over the arguments as a C compiler expects them; not that a Mac's classes answer.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hexane.errors import UnsupportedError
from hexane.runtime.macos.border import IO_SURFACE, METHODS, OBJC, ErrorSlot
from hexane.runtime.macos.system import MacSystem

COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    if COMPILER is None or sys.platform == "win32":
        pytest.skip("no C compiler")
    made = tmp_path_factory.mktemp("border") / "border.so"
    source = Path(__file__).with_name("border.c")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-w", "-O1", "-o", str(made), str(source)], check=True)
    return str(made)


@pytest.fixture
def side(library: str):
    system = MacSystem({OBJC: library, IO_SURFACE: library})
    spoken = ctypes.CDLL(library)
    spoken.spoken.restype = ctypes.c_char_p
    spoken.silence()
    return system, lambda: spoken.spoken().decode()


def test_methods_get_their_exact_types(side) -> None:
    system, said = side
    slot = ErrorSlot()
    assert system.send(0x10, "compileWithQoS:options:error:", 21, 0x20, slot) is False and slot.value == 0xE0
    assert system.send(0x10, "evaluateWithQoS:options:request:error:", 33, 0, 0x7FFF12345678, ErrorSlot()) is True
    request = next(name for name in METHODS if name.startswith("request"))
    assert system.send(0x10, request, 1, 2, 3, 4, 0, 0, 0x700000000007) == 0x123456789ABC
    assert system.send(0x30, "UTF8String") == b"h13g" and system.send(1, "UTF8String") is None
    assert system.send(0x30, "code") == -3
    assert said() == (
        "compileWithQoS:options:error: 0x10 21 0x20;"
        "evaluateWithQoS:options:request:error: 0x10 33 (nil) 0x7fff12345678 1;"
        f"{request} 0x1 0x2 0x3 0x4 (nil) (nil) 0x700000000007;"
    )


def test_functions_and_symbols(side) -> None:
    system, said = side
    system.open(IO_SURFACE)
    assert system.call("CFDataCreate", 0, b"\x01\x00\xff", 3) == 0xD1
    assert system.call("CFArrayCreate", 0, [5, 0x800000000006], 2, system.address("kCFTypeArrayCallBacks")) == 0xA1
    assert system.call("CFStringCreateWithBytes", 0, b"abc", 3, 0x08000100, False) == 0
    system.call("CFRelease", 0xA1)
    assert system.call("IOSurfaceLock", 9, 1, 0) & 0xFFFFFFFF == 0xE00002CC
    assert system.call("IOSurfaceGetAllocSize", 9) == 0x123456789
    assert system.constant("kIOSurfaceWidth") == 0x7700
    view = system.memory(system.call("IOSurfaceGetBaseAddress", 9), 4096)
    view[5] = 77
    assert system.memory(system.call("IOSurfaceGetBaseAddress", 9), 8)[5] == 77
    assert said() == ("data (nil) 3 01 00 ff;array 2 0x5 0x800000000006 1;string abc 8000100 0;release 0xa1;lock 1;")


def test_classes_and_selectors(side) -> None:
    system, said = side
    assert system.find_class("_ANERequest") == 0xC1 and system.find_class("None") == 0
    assert system.responds(0x40, "UTF8String") and not system.responds(0x40, "code")
    assert said() == "class _ANERequest;class None;responds 0x41 UTF8String;responds 0x41 code;"


def test_there_is_none_elsewhere() -> None:
    if sys.platform != "darwin":
        with pytest.raises(UnsupportedError, match="virtual:macos"):
            MacSystem()
