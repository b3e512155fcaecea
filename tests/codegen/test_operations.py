"""What a task asks of the tasks before it adds up: a further wait takes none away."""

from __future__ import annotations

import pytest

from hexane.codegen.operations import After, Reads, ResultType, SourceType, Writes

EACH = list(After.__members__.values())


@pytest.mark.parametrize("before", EACH)
@pytest.mark.parametrize("more", EACH)
def test_waits_add_up(before: After, more: After) -> None:
    for kind in SourceType:
        assert Reads(kind, before).waiting(more) == Reads(kind, before | more)
    for result in ResultType:
        for automatic in (False, True):
            assert Writes(result, automatic, before).waiting(more) == Writes(result, automatic, before | more)


def test_the_first_is_left_as_it_is() -> None:
    reads, writes = Reads(after=After.NE_RESULT), Writes(after=After.PE_RESULT)
    assert reads.waiting(After.PE_SOURCE) is not reads and writes.waiting(After.NE_SOURCE) is not writes
    assert (reads.after, writes.after) == (After.NE_RESULT, After.PE_RESULT)
