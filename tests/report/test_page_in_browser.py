"""The pages of a report and of a sweep, alive in a real browser."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from hexane.graph import GraphBuilder
from hexane.report.sweep import PAGE, run_sweep
from hexane.studies.sweep.spec import spec_of

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
if CHROMIUM is None or DRIVER is None:
    pytest.skip("no Chromium with its driver on this machine: the page is not tried", allow_module_level=True)


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield opened
    opened.quit()


def _open(browser, page: Path, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())


def _click(browser, selector: str) -> None:
    browser.execute_script("arguments[0].click()", browser.find_element("css selector", selector))


def test_the_page_in_a_browser(browser, report: Path) -> None:
    _open(browser, report / "index.html", 1440)
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    rows = browser.find_elements("css selector", "#table tbody tr")
    assert len(rows) == 3
    box = browser.find_element("id", "filter")
    box.send_keys("cumsum")
    assert len(browser.find_elements("css selector", "#table tbody tr")) == 1
    box.clear()
    box.send_keys(" ")
    _click(browser, "#table th")
    names = [cell.text for cell in browser.find_elements("css selector", "#table tbody td:first-child")]
    assert names == sorted(names)
    _click(browser, ".flow li[data-name='c']")
    assert "triangular" in browser.find_element("id", "detail").text
    assert "launches" in browser.find_element("id", "estimate").text
    _click(browser, "[data-kind=tasks]")
    assert "PE" in browser.find_element("id", "table").text or "NE" in browser.find_element("id", "table").text
    assert browser.find_elements("css selector", "#errors rect") and browser.find_elements(
        "css selector", "#memory rect"
    )


def test_the_page_on_a_phone(browser, report: Path) -> None:
    _open(browser, report / "index.html", 390)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    for selector in ("main", "#flow li", "#detail h3", "#table tbody tr", "#errors svg", "#memory svg"):
        assert browser.find_element("css selector", selector).is_displayed(), selector


def test_the_page_in_print(browser, report: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        _open(browser, report / "index.html", 760)
        shown = {
            s: browser.find_element("css selector", s).is_displayed() for s in ("h1", "#table", "#errors", "#flow")
        }
        assert shown == {"h1": True, "#table": True, "#errors": True, "#flow": False}
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_the_page_of_a_sweep(browser, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    b = GraphBuilder()
    weight = np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float16)
    b.output(b.conv(x=b.input("x", (1, 64, 16, 16), "fp16"), weight=weight), name="y")
    b.graph.save(tmp_path / "net.mil")
    asked = {"models": ["net.mil"], "chips": ["M1", "M4"], "weights": ["fp16", "palette4"], "jobs": ["estimate"]}
    rows = run_sweep(spec_of(asked, tmp_path / "sweep.toml"), tmp_path / "out")
    _open(browser, tmp_path / "out" / PAGE, 1440)
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]

    def column(name: str) -> list[str]:
        head = [cell.text for cell in browser.find_elements("css selector", "#table th")]
        place = 1 + head.index(name)
        return [c.text for c in browser.find_elements("css selector", f"#table tbody td:nth-child({place})")]

    assert len(column("chip")) == 4 and len(browser.find_elements("css selector", "#plot circle[r='5']")) == 4
    head = next(c for c in browser.find_elements("css selector", "#table th") if c.text == "latency_us")
    browser.execute_script("arguments[0].click()", head)
    chips = [row["chip"] for row in sorted(rows, key=lambda row: row["latency_us"])]
    assert column("chip") == chips
    browser.find_element("id", "filter").send_keys("chip=M4 weights=fp16")
    assert (column("chip"), column("weights")) == (["M4"], ["fp16"])
    assert len(browser.find_elements("css selector", "#heat tbody td")) == 1
