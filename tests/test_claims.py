"""The numbers that README and docs state come out again (`tools/claims.py`)."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from hexane.cli import verify
from hexane.cli.main import app
from hexane.errors import UsageError
from tool import tool_named


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return tool_named("claims")


def test_every_claim_is_stated(tool: ModuleType) -> None:
    assert not [claim.name for claim in tool.claims() if not claim.stated()]
    lines = [claim for claim in tool.claims() if claim.page == "docs/networks.md"]
    assert lines and {len(claim.stated()) for claim in lines} == {1}  # a line is compared as a whole


def test_verdicts_of_networks_agree_but_for_the_last_bits_of_float32(tool: ModuleType) -> None:
    def line(error: str = "0.71 %", decisions: str = "0 of 1", most: str = "`rsqrt` (conv) 0.63 %") -> tuple[str]:
        return (f"| net | close | y | {error} | 0.29 % | {decisions} | {most}, `gelu` (conv) 0.60 % |",)

    assert tool.verdicts_agree(line(), line("0.77 %", most="`gelu` (conv) 0.61 %"))
    assert tool.verdicts_agree(line(decisions=""), line(decisions=""))
    assert not tool.verdicts_agree(line(), line("0.79 %"))
    assert not tool.verdicts_agree(line(), line(decisions="1 of 1"))
    assert not tool.verdicts_agree(line(), line(most="`rsqrt` (conv) 8.63 %"))
    assert not tool.verdicts_agree(line(), (line()[0].replace("close", "same"),))


def test_what_is_quick_to_recompute_is_equal(tool: ModuleType) -> None:
    quick = [claim for claim in tool.claims() if not claim.slow]
    assert {claim.name: claim.found() for claim in quick} == {claim.name: claim.stated() for claim in quick}


def test_a_changed_number_is_seen(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = next(claim for claim in tool.claims() if claim.name.startswith("timing: fitted"))
    wanted = claim.stated()
    page = tmp_path / claim.page
    page.parent.mkdir(parents=True)
    page.write_text((tool.ROOT / claim.page).read_text().replace(f"| fitted | {wanted[0]} |", "| fitted | 1 |"))
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    assert claim.stated() == ("1", *wanted[1:])


def test_an_installed_package_says_that_it_needs_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "__file__", str(tmp_path / "site-packages" / "hexane" / "cli" / "verify.py"))
    with pytest.raises(UsageError, match="checkout"):
        CliRunner().invoke(app, ["verify", "--claims"], catch_exceptions=False, standalone_mode=False)


def test_without_a_network_and_without_claims() -> None:
    with pytest.raises(UsageError, match="no network"):
        CliRunner().invoke(app, ["verify"], catch_exceptions=False, standalone_mode=False)
