"""Hostile streams and texts end in a HexaneError with the byte offset, or in tasks that encode to the same bytes."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexane.errors import FormatError, HexaneError, SyntaxProblem
from hexane.isa import GENERATIONS, Task, decode_stream, encode_stream, link
from hexane.isa.assembly import assemble, disassemble
from isa.strategies import generations, programs


def survives(data: bytes, generation: str) -> bool:
    """Decode; what decodes must encode to itself. Returns whether it decoded."""
    try:
        tasks = decode_stream(data, generation)
    except FormatError as error:
        assert error.offset is not None and 0 <= error.offset <= len(data)
        return False
    for task in tasks:
        assert task.fields()
    assert encode_stream(tasks, generation) == data or not tasks
    return True


def damage(random_: random.Random, data: bytes) -> bytes:
    """One to three of: cut off, flip bits, overwrite a word, move a piece, repeat a piece."""
    result = bytearray(data)
    for _ in range(random_.randint(1, 3)):
        at = random_.randrange(len(result) or 1)
        match random_.randrange(6):
            case 0:
                del result[at:]
            case 1 if result:
                result[at] ^= 1 << random_.randrange(8)
            case 2 if len(result) >= 4:
                word = random_.choice([0, 1, 0x100, 0x200, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, random_.getrandbits(32)])
                struct.pack_into("<I", result, at // 4 * 4 % (len(result) // 4 * 4), word)
            case 3:
                stop = random_.randrange(at, len(result) + 1)
                piece = result[at:stop]
                del result[at:stop]
                where = random_.randrange(len(result) + 1)
                result[where:where] = piece
            case 4:
                result += result[at : at + 0x400]
            case 5:
                result += bytes(random_.choice([4, 16, 0x100, 0x4000]))
    return bytes(result)


@settings(deadline=None, max_examples=100)
@given(st.data(), generations, st.randoms(use_true_random=False))
def test_damaged_streams(data, generation, random_):
    stream = encode_stream(link(data.draw(programs(generation))), generation)
    survives(damage(random_, stream), generation)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=400), generations)
def test_arbitrary_bytes(data, generation):
    survives(data, generation)


@settings(deadline=None, max_examples=50)
@given(st.data(), generations, st.randoms(use_true_random=False))
def test_damaged_texts(data, generation, random_):
    text = disassemble(link(data.draw(programs(generation))), comments=False)
    damaged = damage(random_, text.encode()).decode("utf-8", "replace")
    try:
        assembly = assemble(damaged)
    except SyntaxProblem as error:
        assert error.line >= 1 and error.column >= 1
        return
    try:
        encode_stream(assembly.tasks, assembly.generation)
    except HexaneError:
        return


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=80))
def test_arbitrary_lines(line):
    try:
        assemble(f".generation h14\ntask t\n{line}")
    except SyntaxProblem as error:
        assert error.line >= 1


def h13_words(tasks: int = 1, step: int = 0x100) -> list[int]:
    words = [0] * (tasks * step // 4)
    for i in range(tasks):
        words[i * step // 4 + 1] = 9 << 16
        words[i * step // 4 + 7] = (i + 1) * step if i + 1 < tasks else 0
    words[1 + (tasks - 1) * step // 4] = 0
    return words


def h13_bytes(words: list[int]) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


@pytest.mark.parametrize(
    ("change", "message", "offset"),
    [
        ({7: 0x100, 0x47: 0x100}, "a loop", 0x11C),
        ({7: 0x100, 0x47: 0x200, 0x87: 0x100}, "a loop", 0x21C),
        ({7: 0xFFFFFF00}, "leaves the stream", 0x1C),
        ({7: 0x102}, "no multiple of 4", 0x1C),
        ({1: 0x1FF << 16, 7: 0x200}, "the stream ends after", 0x200),
        ({1: 3 << 16}, "its header has 10", 0x100),
        ({1: 10 << 16}, "where 0 words are left", 0x128),
        ({0x40 + 6: 1 << 24}, "header does not fit", 0x100),
        ({10: 0xFFFFFFFC}, "a record of 64 values where 53 words are left", 0x28),
        ({10: 0x4003, 11: 1}, "no multiple of 4", 0x28),
        ({0x40 + 30: 5}, "outside every task", 0x178),
        ({7: 0x20, 1: 9 << 16}, "its header has 10", 0),
        ({0x81: 9 << 16, 0x87: 0x10}, "overlaps", 0x10),
    ],
)
def test_what_is_wrong_is_named_with_its_offset(change, message, offset):
    words = h13_words(3)
    for at, word in change.items():
        words[at] = word
    with pytest.raises(FormatError, match=message) as caught:
        decode_stream(h13_bytes(words), "h13")
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    ("words", "message", "offset"),
    [
        ([0, 0, 0], "no room for its frame", 0),
        ([2, 0, 0, 0], "frame in front", 0),
        ([0, 0, 0, 0, 7 << 16, 0, 0, 0, 0, 0, 0, 0], "its header has 8", 0x10),
        ([0, 0, 0, 0, 0x7FF << 16, 0, 0, 0], "the stream ends after 4", 0x10),
        ([0, 0, 0, 0, 3, 0, 0, 0], "a task of 0 words", 0x10),
        ([0, 0, 0, 0, 9 << 16, *[0] * 7, 0x540], "where 0 words are left", 0x30),
        ([0, 0, 0, 0, 9 << 16, *[0] * 7, 0x60000000], "unknown bit 30", 0x30),
        ([0, 0, 0, 0, 9 << 16, *[0] * 7, 0x10000000], "unknown bits among 30:21", 0x30),
        ([0, 0, 0, 0, 8 << 16, *[0] * 6, 3], "header does not fit", 0x10),
        ([0, 0, 0, 0, 10 << 16, *[0] * 7, 0, 0, 5], "not 0 between two tasks", 0x38),
    ],
)
def test_what_is_wrong_in_a_packed_stream(words, message, offset):
    with pytest.raises(FormatError, match=message) as caught:
        decode_stream(h13_bytes(words), "h14")
    assert caught.value.offset == offset


def test_bytes_inside_a_word():
    data = h13_bytes(h13_words())
    assert encode_stream(decode_stream(data + b"\0\0", "h13"), "h13") == data + b"\0\0"
    with pytest.raises(FormatError, match="inside a word"):
        decode_stream(data + b"\0\1", "h13")


@pytest.mark.parametrize("generation", GENERATIONS)
def test_large_nonsense_is_quick_and_small(generation):
    """4 MiB of zeros, of ones and of noise: about a second and little memory at the worst."""
    noise = random.Random(7).randbytes(1 << 22)
    tracemalloc.start()
    start = time.perf_counter()
    for data in (bytes(1 << 22), b"\xff" * (1 << 22), noise):
        survives(data, generation)
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()
    assert time.perf_counter() - start < 20


@pytest.mark.slow
@pytest.mark.parametrize("generation", GENERATIONS)
def test_long_fuzz(generation):
    random_ = random.Random(generation)
    table = Task(generation).table
    survived = 0
    for _ in range(4000):
        tasks = []
        for _ in range(random_.randint(1, 4)):
            task = Task(generation)
            for key in random_.sample(sorted(table.rank), random_.randint(0, 12)):
                task.set(table.register(key)[0], random_.getrandbits(32))
            tasks.append(task)
        survived += survives(damage(random_, encode_stream(link(tasks), generation)), generation)
    assert survived, "no damaged stream was still a stream: the damage is too coarse to test anything"
