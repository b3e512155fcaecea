"""What a library's absence says, at every way in."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from hexane.errors import UnsupportedError


@pytest.mark.parametrize(
    "module", ["hexane.torch", "hexane.integrations.torch.executorch", "hexane.integrations.torch"]
)
def test_without_torch(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("hexane.torch", "hexane.integrations.torch"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UnsupportedError, match="needs torch, which is not installed"):
        import_module(module)
