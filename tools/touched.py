"""Which lines of the package each test runs: a plugin of pytest, for ``tools/mutation.py --map``.

    TOUCHED=/tmp/map PYTHONPATH=tools python -m pytest -n 2 -p touched

Before Python 3.12, which has `sys.monitoring`, every line is traced, which is many times slower.
Every process appends to a file of its own in the folder, for each test that passed one line of JSON: its name, its
processor seconds, the lines by file. Lines that run at import stand with the test that came first, results that are
remembered with the test that computed them; compiled kernels and processes that a test starts show none.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

SOURCE = str(Path(__file__).parents[1] / "src/hexane") + os.sep
FOLDER = Path(os.environ["TOUCHED"])
TOOL = 3
monitoring: Any = vars(sys).get("monitoring")


class Touched:
    """The lines of the test that runs now."""

    def __init__(self) -> None:
        self.lines: dict[str, set[int]] = {}
        self.begun = 0.0
        self.failed = False
        FOLDER.mkdir(parents=True, exist_ok=True)
        if monitoring is None:
            sys.settrace(self.trace)
            threading.settrace(self.trace)
            return
        monitoring.use_tool_id(TOOL, "touched")
        monitoring.register_callback(TOOL, monitoring.events.LINE, self.line)
        monitoring.set_events(TOOL, monitoring.events.LINE)

    def line(self, code: CodeType, number: int) -> Any:
        if code.co_filename.startswith(SOURCE):
            self.lines.setdefault(code.co_filename[len(SOURCE) :], set()).add(number)
        return monitoring and monitoring.DISABLE  # until the next test

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """Of every call, and of the lines of those in the package."""
        if event == "line":
            self.line(frame.f_code, frame.f_lineno)
        return self.trace if frame.f_code.co_filename.startswith(SOURCE) else None

    def pytest_unconfigure(self) -> None:
        sys.settrace(None)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.lines, self.failed, self.begun = {}, False, time.process_time()
        if monitoring is not None:
            monitoring.restart_events()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed |= report.failed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self.failed or not self.lines:  # the process that only hands tests out sees their reports, too
            return
        row = {"test": nodeid, "seconds": round(time.process_time() - self.begun, 3)}
        with open(FOLDER / f"{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(row | {"lines": {name: sorted(lines) for name, lines in self.lines.items()}}) + "\n")


def pytest_configure(config: Any) -> None:
    config.pluginmanager.register(Touched())
