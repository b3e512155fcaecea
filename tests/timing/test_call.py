"""What a call adds to a task: sleeping waits, host copies, padded rows, typical and best calls."""

from __future__ import annotations

import numpy as np
import pytest

from hexane import chips
from hexane.chips.measured import values
from hexane.cost.work import Work
from hexane.graph import GraphBuilder
from hexane.timing.call import call_us, copies_us, sleep_us
from hexane.timing.from_graph import work_of

M4 = chips.get("M4")


def _copied(shape: tuple[int, ...]) -> Work:
    b = GraphBuilder()
    b.output(b.relu(x=b.input("x", shape, "fp16")))
    return work_of(b.graph)


def test_a_long_wait_wakes_up_more_slowly():
    c = values("M4")
    short, long = c["sleep_from_us"] * 0.9, c["sleep_to_us"] * 1.1
    assert sleep_us(short, c) == 0
    assert sleep_us(long, c) == sleep_us(100 * long, c) == c["sleep_us"]
    assert 0 < sleep_us((c["sleep_from_us"] + c["sleep_to_us"]) / 2, c) < c["sleep_us"]


def test_a_typical_call_takes_longer_than_the_best():
    c, work = values("M4"), Work(())
    best, typical = (call_us(10.0, work, M4, c, name, 1) for name in ("copies", "copies_typical"))
    assert typical - best == pytest.approx(c["typical_us"])


@pytest.mark.parametrize(("width", "padded"), [(32, False), (30, True), (64, False), (254, True)])
def test_rows_that_do_not_fill_64_bytes_are_padded(width, padded):
    work = _copied((1, 8, 16, width))
    assert (work.host_in_padded, work.host_out_padded) == ((256.0 * width,) * 2 if padded else (0.0, 0.0))
    c = values("M4")
    plain = (work.host_in_bytes / c["host_in_gbs"] + work.host_out_bytes / c["host_out_gbs"]) / c["host_factor"] / 1e3
    assert copies_us(work, c) == pytest.approx(plain * (c["padded_copy"] if padded else 1))


def test_one_row_has_nothing_to_pad():
    assert _copied((1, 1000)).host_in_padded == 0


def test_a_state_is_not_copied():
    b = GraphBuilder(opset="ios18")
    x, kept = b.input("x", (1, 64), "fp16"), b.state("kept", (1, 64))
    b.output(b.add(x=x, y=b.op("read_state", input=kept)))
    work = work_of(b.graph)
    assert work.host_in_bytes == 128
    assert work.layers[0].in_bytes == 256


def test_one_factor_for_the_floors_of_a_machine():
    c = dict(values("M4"))
    slow = {**c, "call_factor": 2 * c["call_factor"]}
    for interface, floor in (("evaluate", "floor_evaluate_us"), ("copies", "floor_copies_us")):
        more = call_us(10.0, Work(()), M4, slow, interface, 1) - call_us(10.0, Work(()), M4, c, interface, 1)
        assert more == pytest.approx(c["call_factor"] * c[floor])


def test_two_engines_complete_by_a_path_of_their_own():
    """Completion on M6 lengthens up to tasks of 500 us (measured by stages); on M4, with one engine, it does not."""
    c, work = values("M6"), Work(())

    def growth(chip):
        short, long = (call_us(us, work, chips.get(chip), c, "coreml", 1) - us for us in (250.0, 600.0))
        return long - short

    assert growth("M6") > 100
    assert growth("M4") == pytest.approx(0)


def test_planar_work_goes_with_the_clock():
    from hexane.cost.model import time_work

    work, c = _copied((1, 64, 128, 128)), {**values("M1"), "activations_gbs": 1e6}
    slow, fast = (time_work(work, chips.get(name), c)[0].cost.compute_us for name in ("M1", "M4"))
    assert slow / fast == pytest.approx(chips.get("M4").clock_mhz / chips.get("M1").clock_mhz)
    assert np.isfinite(slow)
