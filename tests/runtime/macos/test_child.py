"""Compiling in another process: its budget, its death, and what it leaves behind."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.errors import UsageError
from hexane.private_api.faults import RuntimeFault
from hexane.runtime.macos.border import BorderError
from hexane.runtime.macos.compiler import CompilerProcess, compiler_for
from hexane.runtime.macos.fake.border import FakeMac
from hexane.runtime.macos.sides import open_side
from runtime.macos.programs import difference, difference_text, mac, run, staged, values


def test_another_process_compiles_and_this_one_loads(tmp_path: Path) -> None:
    side = mac(tmp_path)
    sources = [difference("a", name) for name in ("b", "c", "d")]
    with CompilerProcess(side, limit=2) as compiler:
        for source in sources:
            given = values(source)
            wanted = run(mac(tmp_path), source, tmp_path, given)["y"]
            assert np.array_equal(run(side, source, tmp_path, given, compiler=compiler)["y"], wanted)
        assert compiler.started == 2  # the third program is over the budget of the first child
        broken = type(sources[0])(sources[0].text.replace(b"sub(", b"gather("), {}, sources[0].inputs, {})
        with pytest.raises(RuntimeFault, match="InvalidMILProgram"):
            run(side, broken, tmp_path, given, compiler=compiler)
    assert side.daemon.compiles == 0 and side.left() == [] and staged(tmp_path) == []


def test_a_child_whose_result_is_not_found_is_made_up_for(tmp_path: Path) -> None:
    side, source = mac(tmp_path, shares_cache=False), difference()
    with CompilerProcess(side) as compiler:
        assert run(side, source, tmp_path, values(source), compiler=compiler)["y"].shape == (1, 64, 1, 64)
    assert side.daemon.compiles == 1 and side.left() == []


def test_a_child_that_dies_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    source = difference()
    parent = mac(tmp_path)
    for dies_at in ("compileWithQoS:options:error:", "hexStringIdentifier"):
        child = mac(tmp_path, dies_at=dies_at)
        with CompilerProcess(child) as compiler:
            with pytest.raises(BorderError, match="ended with status 9"):
                run(parent, source, tmp_path, values(source), compiler=compiler)
            assert compiler._child is None
        assert parent.left() == [] and staged(tmp_path) == []


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import sys; print('terminating due to an exception', file=sys.stderr); sys.exit(134)", "status 134: termin"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal 9"),
        ("import time; time.sleep(60)", "said nothing for 0.3 s"),
        ("input(); print('hello')", "answered 'hello"),
        ("input(); print('[1]')", "answered"),
        ('input(); print(\'{"identifier": "other"}\')', "another identifier"),
    ],
)
def test_a_child_that_misbehaves(tmp_path: Path, program: str, words: str) -> None:
    with CompilerProcess(FakeMac(), timeout_s=0.3 if "sleep" in program else 60) as compiler:
        compiler.command = [sys.executable, "-c", program]
        with pytest.raises(Exception, match=words):
            compiler.compile(tmp_path / "ABC", {}, 21)
    compiler.command = ["/no/such/program"]
    with pytest.raises(BorderError, match="no process"):
        compiler.compile(tmp_path, {}, 21)


def test_models_of_one_side_share_a_child() -> None:
    side, options = FakeMac(), hexane.mil.Options(in_child=True)
    given = {name: np.ones((1, 64, 1, 64), np.float16) for name in "ab"}
    for first, second in (("a", "b"), ("b", "a")):
        with hexane.mil.Model(difference_text(first, second), chip="M1", device=side, options=options) as model:
            assert not model.evaluate(given)["y"].any()
    assert compiler_for(side).started == 1 and side.daemon.compiles == 0 and side.left() == []
    compiler_for(side).close()


def test_sides() -> None:
    assert isinstance(open_side(FakeMac().again()), FakeMac)
    for words in ([], ["fake"], ["mac", "1"]):
        with pytest.raises(UsageError):
            open_side(words)
