"""Differences between the compilers in the containers that they write (docs/reference/engine-h13.md 2).

``zin4`` is compiler v4.2.1, of which whole files are known byte for byte [APPLE]. ``default`` follows macOS 26 (v9) as
far as it is known; what is not known there, and ``zin5`` and ``zin7`` as a whole, is [INFERRED].
"""

from __future__ import annotations

from dataclasses import dataclass

from hexane.errors import UsageError
from hexane.image.container import Container
from hexane.image.parts import Segment, StreamThread, SurfaceName32, SurfaceName64, TensorThread

TYPE_STABS = (
    "void:t1=1",
    "int8:t2=r2;0;127",
    "uint8:t3=r1;0;255",
    "int16:t4=r1;-32768;32767",
    "float16:t5=r1;2;0",
    "float:t6=r1;4;0",
    "raw10:t7=r1;-512;511",
    "lut:t8=",
    "uint4:t9=r1;0;15",
    "uint6:t10=r1;0;63",
    "uint1:t11=r1;0,1",
    "uint2:t12=r1;0;3",
    "packed10:t13",
    "y10:t14",
    "uint16:t15",
    "e4m3:t16=r1;1;0",
    "int32:t17",
    "uint32:t18",
    "int64:t19",
    "uint64:t20",
    "raw12:t21",
    "y12:t22",
    "int4:t23=r1;-8;7",
)
"""Type stabs in order; each compiler writes the first few (docs/reference/engine-h13.md 2.9)."""


@dataclass(frozen=True)
class Dialect:
    """Container of one compiler.

    name : by which callers ask for it.
    wide_names : surface names in load command 0x40 (64-bit address) instead of 6.
    surfaces_first : surfaces stand before the text, in memory and in the file, in the order of their names.
    channels_by_address : surfaces take channels in address order; else outputs first, then inputs.
    tensor_payload_words : payload of a tensor thread, which sets where its strings stand.
    tagged_thread : the program thread has tag records.
    type_count : how many of `TYPE_STABS`.
    input_description : the description of inputs' symbols.
    exact_output_size : a tensor thread states an output up to its last element, not up to the last plane's end.
    suffixed_second_name : a tensor thread's second name carries ``@output`` as well.
    thread_marks : the two unexplained words at 0x850 and 0x858 of the program thread, for one task and for several.
    """

    name: str
    wide_names: bool
    surfaces_first: bool
    channels_by_address: bool
    tensor_payload_words: int
    tagged_thread: bool
    type_count: int
    input_description: int
    exact_output_size: bool
    suffixed_second_name: bool
    thread_marks: tuple[tuple[int, int], tuple[int, int]]

    @property
    def strings_at(self) -> int:
        """Start of the strings of a tensor thread."""
        return 0x10 + 4 * self.tensor_payload_words


_EARLY_MARKS = ((0x11, 3), (7, 4))

DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect("zin4", False, False, False, 0x1E, False, 10, 2, True, True, _EARLY_MARKS),
        Dialect("zin5", False, False, False, 0x34A, False, 15, 2, True, False, _EARLY_MARKS),
        Dialect("zin7", True, False, True, 0x34A, True, 15, 2, False, False, ((0x11, 4), (7, 4))),
        Dialect("default", True, True, True, 0x34A, True, 23, 0, False, False, ((0x17, 4), (0x17, 4))),
    )
}

CONTAINER_OF = {"default": "default", "apple": "default", "zin4": "zin4"}
"""Dialect of a compilation (``hexane.compile``) -> whose container its programs have."""


def dialect_named(name: str) -> Dialect:
    """The dialect of that name; `UsageError` lists the others."""
    try:
        return DIALECTS[name]
    except KeyError:
        raise UsageError(f"no dialect is called {name!r}", hint=f"one of {', '.join(DIALECTS)}") from None


def dialect_of(container: Container) -> Dialect:
    """The dialect that a file's shape points to; the nearest one where it is none of them."""
    tensors = container.all_of(TensorThread)
    short = any(tensor.payload_words == DIALECTS["zin4"].tensor_payload_words for tensor in tensors)
    if container.all_of(SurfaceName32):
        return DIALECTS["zin4" if short or not tensors else "zin5"]
    names = [part.name for part in container.all_of(Segment)]
    late_text = "__TEXT" in names and "__FVMLIB" in names[: names.index("__TEXT")]
    if not late_text and container.all_of(SurfaceName64) and not container.all_of(StreamThread):
        return DIALECTS["zin7"]
    return DIALECTS["default"]
