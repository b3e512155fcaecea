"""A fake of the private classes of macOS: MIL text, surfaces, the order of calls; behind them hexane's own compiler and
the emulator, so that the bits are the emulator's. What Apple's compiler makes of a text it cannot say.
"""

from __future__ import annotations

from hexane.program import Program
from hexane.runtime.devices.macos import MacEngine
from hexane.runtime.macos.fake.border import FakeMac
from hexane.runtime.macos.fake.settings import Settings


class VirtualMac(MacEngine):
    """A Mac of the chip that the program is for."""

    def __init__(self) -> None:
        super().__init__(FakeMac(), title="virtual:macos")

    def adapted(self, program: Program) -> Program:
        """The program itself, on a fake of its chip."""
        self.border = FakeMac(Settings(chip=program.chip))
        return super().adapted(program)
