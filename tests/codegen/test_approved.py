"""Programs, predicted times and results of small networks are those of the record (see ``approval``)."""

from __future__ import annotations

import pytest

from codegen.approval import CHIPS, NO_PROGRAMS, RENEW, differences
from codegen.small_networks import GROUPS

EVERY = pytest.mark.parametrize(
    ("group", "chip"), [(group, chip) for group in GROUPS for chip in (*CHIPS, NO_PROGRAMS)]
)


@EVERY
def test_the_drawn_programs_are_those_of_the_record(group: str, chip: str) -> None:
    unlike = list(differences(chip, group, whole=False))
    assert not unlike, "\n".join((f"{len(unlike)} differ on {chip}; {RENEW}", *unlike))


@pytest.mark.slow
@EVERY
def test_all_programs_are_those_of_the_record(group: str, chip: str) -> None:
    unlike = list(differences(chip, group, whole=True))
    assert not unlike, "\n".join((f"{len(unlike)} differ on {chip}; {RENEW}", *unlike))
