"""What the kernel checks, in its order and with its error numbers: each provoked on a virtual driver.

The table of checks: docs/reference/devices.md 4 (ABI 1) and 5 (ABI 2).
"""

from __future__ import annotations

import ctypes
import errno

import pytest

from hexane.runtime.linux import uapi
from hexane.runtime.virtual.core import PATH
from hexane.runtime.virtual.faults import WEDGE, PlannedFault
from runtime.drivers import LINKED, ByHand, driver

E = errno
GOOD = dict(tsk_size=0x200, td_count=1, td_size=0x1F8, handles={0: 1}, btsp_handle=2)
"""A SUBMIT that passes every check of every driver of ABI 1, with buffers 1 and 2 of one page."""
HARD = ("omarchy", "intree")


@pytest.fixture(params=LINKED)
def opened(request):
    hand = ByHand(driver(request.param))
    hand.buffer(), hand.buffer()
    hand.flavour = request.param
    return hand


@pytest.mark.parametrize(
    ("change", "first", "hardened"),
    [
        ({"pad": 1}, E.EINVAL, E.EINVAL),
        ({"tsk_size": 0}, E.EINVAL, E.EINVAL),
        ({"td_count": 0}, E.EINVAL, E.EINVAL),
        ({"td_size": 0}, E.EINVAL, E.EINVAL),
        ({"handles": {0: 0}}, E.EINVAL, E.EINVAL),
        ({"handles": {0: 1, 1: 1}}, E.EINVAL, E.EINVAL),
        ({"btsp_handle": 0}, E.EINVAL, E.EINVAL),
        ({"handles": {0: 1, 5: 9}}, E.EINVAL, E.EINVAL),
        ({"handles": {0: 9}}, E.EINVAL, E.EINVAL),
        ({"btsp_handle": 9}, E.EINVAL, E.EINVAL),
        ({"tsk_size": 0x4000}, E.EINVAL, E.EINVAL),
        ({"td_count": 0x10000}, E.ETIMEDOUT, E.EINVAL),
        ({"td_size": 3}, E.ETIMEDOUT, E.EINVAL),
        ({"td_size": 0x1FA}, E.ETIMEDOUT, E.EINVAL),
        ({"td_size": 0x40004}, E.ETIMEDOUT, E.EINVAL),
        ({"td_size": 0x8000, "tsk_size": 0x3FFF}, E.ETIMEDOUT, E.EINVAL),
        ({}, E.ETIMEDOUT, E.ETIMEDOUT),  # every check passed: zeros are no program, and the engine waits for its end
    ],
)  # fmt: skip
def test_submit(opened, change: dict, first: int, hardened: int) -> None:
    found, _ = opened.ask(uapi.SUBMIT, **{**GOOD, **change})
    assert found == (first if opened.flavour == "eiln" else hardened)
    assert opened.device.submissions == (found == E.ETIMEDOUT)


def test_buffers(opened) -> None:
    empty = E.ENOSPC if opened.flavour == "eiln" else E.EINVAL
    assert opened.ask(uapi.BO_INIT, size=0)[0] == empty
    assert opened.ask(uapi.BO_INIT, size=1, pad=1)[0] == E.EINVAL
    assert opened.ask(uapi.BO_INIT, size=0xE000_0000)[0] == E.ENOSPC
    assert opened.ask(uapi.BO_FREE, handle=7)[0] == E.EINVAL
    assert opened.ask(uapi.BO_FREE, handle=1, pad=1)[0] == E.EINVAL
    assert opened.ask(uapi.BO_FREE, handle=1)[0] == 0
    assert opened.ask(uapi.BO_FREE, handle=1)[0] == E.EINVAL
    assert opened.buffer().handle == 1, "the lowest free handle"
    assert opened.buffer(1).handle == 3


def test_the_address_space_is_one_for_all_files(opened) -> None:
    half = opened.buffer(0x7000_0000)
    other = ByHand(opened.device)
    assert other.ask(uapi.BO_INIT, size=0x7000_0000)[0] == E.ENOSPC
    assert opened.ask(uapi.BO_FREE, handle=half.handle)[0] == 0
    assert other.ask(uapi.BO_INIT, size=0x7000_0000)[0] == 0


def test_mappings(opened) -> None:
    made = opened.buffer(0x8000)
    device, fd = opened.device, opened.fd
    assert made.offset >= 0x1_0000_0000 and made.offset % uapi.PAGE == 0
    view = device.mmap(fd, 0x4000, made.offset)
    assert len(view) == 0x4000, "a shorter mapping has the beginning"
    device.munmap(view)
    for size, offset, number in (
        (0xC000, made.offset, E.EINVAL),
        (0x4000, made.offset + 0x4000, E.EINVAL),
        (0x4000, made.offset + 1, E.EINVAL),
        (0x4000, 0, E.EINVAL),
        (0, made.offset, E.EINVAL),
    ):
        with pytest.raises(OSError) as caught:
            device.mmap(fd, size, offset)
        assert caught.value.errno == number
    with pytest.raises(OSError) as caught:
        device.mmap(device.open(PATH), 0x4000, made.offset)
    assert caught.value.errno == E.EACCES


def test_a_mapping_outlives_its_handle_with_the_hardened_driver_only(opened) -> None:
    made = opened.buffer()
    view = opened.device.mmap(opened.fd, 0x4000, made.offset)
    view[0] = 7
    assert opened.ask(uapi.BO_FREE, handle=made.handle)[0] == 0
    dangles = any("dangles" in problem for problem in opened.device.problems)
    assert dangles == (opened.flavour == "eiln")
    if not dangles:
        assert view[0] == 7 and len(list(opened.device.alive())) == 3
    opened.device.munmap(view)
    assert len(list(opened.device.alive())) == 2


def test_closing_a_file_frees_its_buffers_or_leaks_them(opened) -> None:
    opened.device.close(opened.fd)
    left = opened.device.left_behind()
    assert (len(left) == 2) == (opened.flavour == "eiln"), left


def test_the_core_s_own_way_to_give_a_handle_back(opened) -> None:
    assert opened.ask(uapi.GEM_CLOSE, handle=1)[0] == 0
    assert opened.ask(uapi.GEM_CLOSE, handle=1)[0] == E.EINVAL
    assert bool(opened.device.leaked) == (opened.flavour == "eiln")


def test_version_in_two_steps(opened) -> None:
    number, asked = opened.ask(uapi.VERSION)
    assert number == 0 and (asked.name_len, asked.desc_len) == (3, 26)
    assert (asked.major, asked.minor, asked.patch) == ((0, 0, 0) if opened.flavour == "eiln" else (1, 0, 0))
    name = (ctypes.c_char * 8)(*b"########")
    _, again = opened.ask(uapi.VERSION, name_len=2, name=ctypes.addressof(name))
    assert bytes(name) == b"an######" and again.name_len == 3
    assert opened.ask(uapi.VERSION, name_len=3, name=8)[0] == E.EFAULT


def test_a_request_is_found_by_its_low_byte_and_copied_back_on_failure(opened) -> None:
    assert opened.number(uapi.PROG_LOAD, uapi.ProgLoad()) == E.EINVAL
    assert opened.number(0xC0206499, uapi.ProgLoad()) == E.EINVAL
    other_size = 0xC0106441  # BO_INIT with 16 bytes: no room for the offset, which is cut off
    data = bytearray(16)
    data[8:16] = (0x4000).to_bytes(8, "little")
    opened.device.ioctl(opened.fd, other_size, data)
    assert int.from_bytes(data[:4], "little") == 3
    with pytest.raises(OSError):
        opened.device.ioctl(77, uapi.VERSION, uapi.Version())


def test_get_caps_is_the_tree_s(opened) -> None:
    number, caps = opened.ask(uapi.GET_CAPS)
    assert number == (0 if opened.flavour == "intree" else E.EINVAL)
    if number == 0:
        assert (caps.size, caps.abi_version, caps.chip_family, caps.exec_io_size) == (32, 1, 13, 0)
        assert opened.ask(uapi.GET_CAPS, flags=1)[0] == opened.ask(uapi.GET_CAPS, pad=1)[0] == E.EINVAL


@pytest.mark.parametrize("flavour", LINKED)
def test_after_a_timeout(flavour: str) -> None:
    device = driver(flavour)
    hand = ByHand(device)
    hand.buffer(), hand.buffer()
    assert hand.ask(uapi.SUBMIT, **GOOD)[0] == E.ETIMEDOUT
    if flavour == "eiln":  # knows no wedge: waits again, frees as before
        assert hand.ask(uapi.SUBMIT, **GOOD)[0] == E.ETIMEDOUT
        assert hand.ask(uapi.BO_FREE, handle=1)[0] == 0
        assert device.attribute(PATH, "wedged") is None
        return
    assert hand.ask(uapi.SUBMIT, **GOOD)[0] == E.ECANCELED
    assert hand.ask(uapi.SUBMIT, **{**GOOD, "td_size": 0})[0] == E.EINVAL, "arguments come before the wedge"
    assert hand.ask(uapi.SUBMIT, **{**GOOD, "btsp_handle": 9})[0] == E.ECANCELED, "handles behind it"
    assert hand.ask(uapi.BO_INIT, size=1)[0] == E.ENODEV
    assert hand.ask(uapi.BO_FREE, handle=1)[0] == E.ENODEV
    assert device.attribute(PATH, "wedged") == "1"
    device.close(hand.fd)
    assert len(device.left_behind()) == 2, "behind a wedge nothing is given to anybody else"


def test_an_engine_that_recovers_takes_the_next_program() -> None:
    from hexane.runtime.virtual.linked import HardenedDriver

    hand = ByHand(HardenedDriver(recovers=True))
    hand.buffer(), hand.buffer()
    assert hand.ask(uapi.SUBMIT, **GOOD)[0] == E.ETIMEDOUT
    assert hand.device.attribute(PATH, "wedged") == "0"
    assert hand.ask(uapi.BO_FREE, handle=1)[0] == 0


# ---- ABI 2 ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["abi2", "intree2"])
def second(request):
    hand = ByHand(driver(request.param))
    hand.flavour = request.param
    return hand


def test_buffers_of_abi_2(second) -> None:
    assert second.ask(uapi.BO_INIT, size=0)[0] == E.EINVAL
    assert second.ask(uapi.BO_INIT, size=1, pad=1)[0] == E.EINVAL
    assert second.ask(uapi.BO_INIT, size=(1 << 30) + 1)[0] == E.EINVAL
    made, again = second.buffer(), ByHand(second.device).buffer()
    assert (made.handle, again.handle) == (1, 2), "one counter for all files"
    assert made.offset == made.handle << 14
    assert second.ask(uapi.BO_FREE, handle=again.handle)[0] == E.ENOENT, "another file's"
    assert second.ask(uapi.BO_FREE, handle=1, pad=1)[0] == E.EINVAL
    assert second.ask(uapi.BO_FREE, handle=1)[0] == 0
    for size, offset, number in ((0x4000, 1 << 14, E.ENOENT), (0x4000, 0, E.EINVAL), (0x4000, 2 << 14, E.ENOENT)):
        with pytest.raises(OSError) as caught:
            second.device.mmap(second.fd, size, offset)
        assert caught.value.errno == number
    made = second.buffer()
    with pytest.raises(OSError) as caught:
        second.device.mmap(second.fd, 0x8000, made.offset)
    assert caught.value.errno == E.ENOENT
    assert second.ask(uapi.SUBMIT, **GOOD)[0] == E.ENOTTY


def test_the_cap_of_all_buffers(second, monkeypatch) -> None:
    monkeypatch.setattr(uapi, "MOST_BUFFER_BYTES_2", 0xC000)
    made = [second.buffer() for _ in range(3)]
    assert second.ask(uapi.BO_INIT, size=1)[0] == E.ENOSPC
    assert second.ask(uapi.BO_FREE, handle=made[0].handle)[0] == 0
    assert second.ask(uapi.BO_INIT, size=1)[0] == 0


@pytest.mark.parametrize(
    ("load", "sections", "binds", "number"),
    [
        ({"section_count": 0}, None, None, E.EINVAL),
        ({"section_count": 10}, None, None, E.EINVAL),
        ({"generic_count": 65}, None, None, E.EINVAL),
        ({"pad": 1}, None, None, E.EINVAL),
        ({"sections_ptr": 16}, None, None, E.EFAULT),
        ({"generic_ptr": 16, "generic_count": 1}, None, None, E.EFAULT),
        ({}, [{"id": 0}], None, E.EINVAL),
        ({}, [{"id": 10}], None, E.EINVAL),
        ({"section_count": 2}, [{"id": 1}, {"id": 1}], None, E.EINVAL),
        ({}, [{"bo_handle": 9}], None, E.EINVAL),
        ({}, [{"size": 0x4001}], None, E.EINVAL),
        ({}, [{"size": 16, "offset": 0x3FF8}], None, E.EINVAL),
        ({}, [{"size": 16, "offset": (1 << 64) - 8}], None, E.EINVAL),
        ({"generic_count": 1}, None, [{"pad": 1}], E.EINVAL),
        ({}, None, None, E.EPROTO),  # every check of the driver passed: the firmware wants six sections
    ],
)  # fmt: skip
def test_load(second, load: dict, sections, binds, number: int) -> None:
    handle = second.buffer().handle
    rows = [{"id": 1, "bo_handle": handle, "size": 16, **row} for row in sections or [{}]]
    fields = dict(
        sections_ptr=second.rows(uapi.SectionRecord, *rows),
        generic_ptr=second.rows(uapi.GenericBind, *(binds or [])),
        section_count=1,
    )
    assert second.ask(uapi.PROG_LOAD, **{**fields, **load})[0] == number


@pytest.mark.parametrize(
    ("fields", "row", "number"),
    [
        ({"count": 0}, {}, E.EINVAL),
        ({"count": 65}, {}, E.EINVAL),
        ({"priority": 1}, {}, E.EINVAL),
        ({"priority": 8}, {}, E.EINVAL),
        ({"pad": 1}, {}, E.EINVAL),
        ({"io_ptr": 16}, {}, E.EFAULT),
        ({}, {"flags": 1}, E.EINVAL),
        ({}, {"reserved": 1}, E.EINVAL),
        ({}, {"bo_handle": 9}, E.EINVAL),
        ({}, {"size": 0x4001}, E.EINVAL),
        ({}, {}, E.EPROTO),  # the firmware has no such program
    ],
)  # fmt: skip
def test_exec(second, fields: dict, row: dict, number: int) -> None:
    handle = second.buffer().handle
    pointer = second.rows(uapi.ExecIo, {"buffer_id": 4, "bo_handle": handle, "size": 16, **row})
    asked = dict(prog_id=1, proc_id=1, priority=2, count=1, io_ptr=pointer)
    assert second.ask(uapi.EXEC, **{**asked, **fields})[0] == number


def test_processes_and_look_up(second) -> None:
    assert second.ask(uapi.PROC_CREATE, prog_id=5)[0] == E.ENOENT
    text = (ctypes.c_char * 32)()
    there = second.ask(uapi.PROG_LOOKUP, digest_ptr=ctypes.addressof(text), digest_len=32)
    assert there[0] == (0 if second.flavour == "abi2" else E.EINVAL)
    if second.flavour == "abi2":
        assert there[1].found_out == 0
        assert second.ask(uapi.PROG_LOOKUP, digest_ptr=ctypes.addressof(text), digest_len=31)[0] == E.EINVAL
        assert second.ask(uapi.PROG_LOOKUP, digest_ptr=8, digest_len=32)[0] == E.EFAULT
    caps = second.ask(uapi.GET_CAPS)
    assert caps[0] == (0 if second.flavour == "intree2" else E.EINVAL)
    if caps[0] == 0:
        found = caps[1]
        assert (found.abi_version, found.chip_family) == (2, 14)
        assert (found.section_size, found.bind_size, found.exec_io_size) == (24, 24, 32)


@pytest.mark.parametrize("flavour", ["abi2", "intree2"])
def test_after_a_call_that_did_not_finish_everything_times_out(flavour: str) -> None:
    hand = ByHand(driver(flavour, PlannedFault("PROC_CREATE", 1, WEDGE)))
    handle = hand.buffer().handle
    assert hand.ask(uapi.PROC_CREATE, prog_id=1)[0] == E.ETIMEDOUT
    assert hand.ask(uapi.PROC_CREATE, prog_id=1)[0] == E.ETIMEDOUT
    rows = hand.rows(uapi.SectionRecord, {"id": 1, "bo_handle": handle})
    assert hand.ask(uapi.PROG_LOAD, sections_ptr=rows, section_count=1)[0] == E.ETIMEDOUT
    pointer = hand.rows(uapi.ExecIo, {"bo_handle": handle})
    assert hand.ask(uapi.EXEC, priority=2, count=1, io_ptr=pointer)[0] == E.ETIMEDOUT
    assert hand.ask(uapi.EXEC, priority=9, count=1, io_ptr=pointer)[0] == E.EINVAL, "arguments come first"
    assert hand.ask(uapi.BO_FREE, handle=handle)[0] == 0, "buffers are still given back"


def test_another_path_is_no_device(opened) -> None:
    with pytest.raises(OSError) as caught:
        opened.device.open("/dev/accel/accel1")
    assert caught.value.errno == E.ENOENT
