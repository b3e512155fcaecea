"""Random sequences of calls, by hand and by sessions: no crash, no leak, always the emulator's bits.

``HEXANE_SEQUENCES`` sets how many; the slow test runs 10,000.
"""

from __future__ import annotations

import errno
import os
import random
from functools import cache
from typing import Any

import numpy as np
import pytest

import hexane
from hexane.errors import HexaneError
from hexane.program import Program
from hexane.runtime.devices.linux import LinuxEngine
from hexane.runtime.linux import uapi
from hexane.runtime.virtual.core import PATH
from hexane.runtime.virtual.faults import SHORT, TIMEOUT, WEDGE, PlannedFault
from report.networks import small
from runtime.drivers import CHIPS, DRIVERS, ByHand, driver

QUICK = int(os.environ.get("HEXANE_SEQUENCES", "240"))
REQUESTS = tuple(uapi.STRUCTURES)
ODD = (0, 1, 2, 3, 4, 7, 0x40, 0x200, 0x3FFF, 0x4000, 0x4001, 0x40000, 0xFFFF, 0x10000, 1 << 30, (1 << 32) - 1)


def _random_request(rng: random.Random, hand: ByHand) -> None:
    request = rng.choice(REQUESTS)
    if request == uapi.VERSION:
        pointer = rng.choice((0, 8, 1 << 60))
        hand.ask(request, name_len=rng.choice((0, 3, 64)), name=pointer)
        return
    data: Any = uapi.STRUCTURES[request]()
    for name, kind in data._fields_:
        if hasattr(kind, "_length_"):
            for index in rng.sample(range(kind._length_), 2):
                getattr(data, name)[index] = rng.choice((0, 1, 2, 3, 99))
        elif rng.random() < 0.6:
            setattr(data, name, rng.choice((0, 1, 1, 2, 2, *ODD)))
    if request == uapi.PROG_LOAD and rng.random() < 0.7:
        data.sections_ptr = hand.rows(uapi.SectionRecord, {"id": 1, "bo_handle": 1, "size": 16})
        data.section_count, data.generic_count, data.pad = 1, 0, 0
    if request == uapi.EXEC and rng.random() < 0.7:
        data.io_ptr, data.count = hand.rows(uapi.ExecIo, {"bo_handle": rng.choice((1, 2, 9))}), 1
    hand.number(request, data)


def _by_hand(seed: int) -> None:
    """Calls of two or three processes that keep no rule; then they end, one way or another."""
    rng = random.Random(seed)
    flavour = rng.choice(list(DRIVERS))
    device = driver(flavour)
    hands: list[ByHand] = []
    views: list[Any] = []
    for _ in range(rng.randrange(2, 24)):
        deed = rng.random()
        if not hands or deed < 0.1:
            hand = ByHand(device)
            device.files[hand.fd].process = rng.choice((0, 5, 6))
            hands.append(hand)
        elif deed < 0.75:
            _random_request(rng, rng.choice(hands))
        elif deed < 0.9:
            hand = rng.choice(hands)
            offset = rng.choice((0, 1 << 14, 2 << 14, 0x1_0000_4000, 0x1_0000_8000, 0x1_0000_C000))
            try:
                views.append(device.mmap(hand.fd, rng.choice((0, 1, 0x4000, 0x8000)), offset))
            except OSError as error:
                assert error.errno in (errno.EINVAL, errno.EACCES, errno.ENOENT)
        elif views and deed < 0.95:
            device.munmap(views.pop(rng.randrange(len(views))))
        elif len(hands) > 1:
            device.close(hands.pop(rng.randrange(len(hands))).fd)
    for process in (5, 6):
        device.end_process(process)
    for view in views:
        try:
            device.munmap(view)
        except OSError as error:
            assert error.errno == errno.EINVAL
    for hand in hands:
        try:
            device.close(hand.fd)
        except OSError as error:
            assert error.errno == errno.EBADF
    assert not device.files and not device.mappings
    _require_clean(flavour, device)


def _require_clean(flavour: str, device: Any) -> None:
    if device.stopped and flavour in ("omarchy", "intree"):
        return  # the wedged driver keeps what DMA may still read
    assert list(device.alive()) == []
    if flavour != "eiln":
        assert device.left_behind() == []
    if flavour in ("abi2", "intree2"):
        assert device.total == sum(b.size for b in (*device.pool, *device.kept))
    if flavour != "eiln":
        held = {b.iova for b in (*getattr(device, "pool", ()), *getattr(device, "kept", ()))}
        assert {begin for begin, _ in device.space.used} == held


@cache
def _programs() -> dict[str, tuple[Program, list[np.ndarray], list[np.ndarray]]]:
    found = {}
    for chip in set(CHIPS.values()):
        program = hexane.compile(small(), chip=chip)
        inputs = [np.random.default_rng(i).standard_normal((1, 16, 8, 8)).astype(np.float16) for i in range(3)]
        found[chip] = (program, inputs, [program.run({"x": x})["out"] for x in inputs])
    return found


def _by_sessions(seed: int) -> None:
    """Sessions opened, run and closed in any order, now and then with a fault."""
    rng = random.Random(seed)
    flavour = rng.choice(list(DRIVERS))
    program, inputs, wanted = _programs()[CHIPS[flavour]]
    faults = []
    if rng.random() < 0.5:
        what = rng.choice((errno.ENOSPC, errno.EIO, errno.ENODEV, TIMEOUT, WEDGE, SHORT))
        faults = [PlannedFault("*", rng.randrange(1, 60), what)]
    device = driver(flavour, *faults)
    sessions: list[Any] = []
    errors = 0
    for _ in range(rng.randrange(1, 8)):
        deed = rng.random()
        if not sessions or deed < 0.25:
            sessions.append(program.on(LinuxEngine(PATH, device)))
        elif deed < 0.85:
            number = rng.randrange(3)
            try:
                assert np.array_equal(rng.choice(sessions).run({"x": inputs[number]})["out"], wanted[number])
            except HexaneError:
                errors += 1
        else:
            errors += _closed(sessions.pop(rng.randrange(len(sessions))))
    for session in sessions:
        errors += _closed(session)
    assert not errors or device.faults.happened, "no error without a fault"
    assert not device.files
    unmapped = all(fault.what != errno.EIO for fault in device.faults.happened)
    assert not (device.mappings and not device.faults.happened)
    if not device.mappings and (unmapped or flavour != "eiln"):
        _require_clean(flavour, device)


def _closed(session: Any) -> int:
    try:
        session.close()
    except HexaneError:
        return 1
    return 0


def test_random_requests() -> None:
    for seed in range(QUICK):
        _by_hand(seed)


def test_random_sessions() -> None:
    for seed in range(QUICK // 4):
        _by_sessions(seed)


@pytest.mark.slow
def test_ten_thousand_sequences() -> None:
    import gc

    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for seed in range(10_000):
        (_by_sessions if seed % 4 == 0 else _by_hand)(1_000_000 + seed)
    gc.collect()
    after = len(os.listdir("/proc/self/fd")) if before else 0
    assert after <= before + 2
