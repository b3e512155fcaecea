"""What all tests share: the folder of measured and decoded facts, and a temporary folder that goes when they end."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from facts import fact_folder
from hexane.arithmetic import tier

KEPT = pytest.StashKey[str]()

# A machine that is busy elsewhere fails no test.
settings.register_profile("any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def facts() -> Path:
    """The folder that ``tests/data`` unpacks to."""
    return fact_folder()


@pytest.fixture(scope="session", autouse=True)
def kernels() -> None:
    """Tests of the fast kernels meet the fast kernels, whatever is compiled on this machine."""
    tier.compile_now()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """One temporary folder for all processes of a run: libraries and children that are killed leave files in it."""
    if hasattr(config, "workerinput"):
        return
    config.stash[KEPT] = folder = tempfile.mkdtemp(prefix="hx-")  # short: names of sockets are
    os.environ["TMPDIR"] = os.environ["TMP"] = os.environ["TEMP"] = tempfile.tempdir = folder


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """The folder goes, but for what a failed test left to look at."""
    folder = session.config.stash.get(KEPT, None)
    if folder is None:
        return
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"\nwhat the tests left: {folder}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """A worker of pytest-xdist ends without its exit functions, where coremltools and others remove their files."""
    if hasattr(config, "workerinput"):
        atexit._run_exitfuncs()
