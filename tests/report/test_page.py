"""The report folder and its page: whole, self-contained, and alive in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import hexane
from hexane.errors import UsageError
from hexane.report.lanes import rows_of
from hexane.report.page import embedded, write_report
from hexane.report.session import run_network
from report.networks import command, mixed, saved, small


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "mixed"
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float16)}
    write_report(run_network(mixed(), inputs, name="mixed.mil", insight=True), folder)
    return folder


def test_the_folder_holds_what_the_page_names(report: Path) -> None:
    data = json.loads((report / "report.json").read_text())
    assert data["schema"] == "hexane-report/1"
    for name in data["files"]:
        assert (report / name).stat().st_size
    assert {"inputs.npz", "outputs.npz", "errors.png"} <= set(data["files"])
    programs = [name for name in data["files"] if name.endswith(".hwx")]
    assert len(programs) == data["run"]["program"]["engine_segments"]
    assert all(hexane.open_image(report / name).tasks for name in programs)
    assert [row["place"] for row in data["placement"]["rows"]] == ["engine", "host", "engine"]


def test_the_page_asks_for_nothing_from_outside(report: Path) -> None:
    page = (report / "index.html").read_text()
    assert not re.search(r"""(src|href)=["'](https?:)?//""", page)
    assert "@import" not in page and "<link" not in page


def test_names_of_a_network_cannot_leave_the_data() -> None:
    assert "</script" not in embedded({"name": "</script><img onerror=x>&"})
    assert json.loads(embedded({"name": "</script>&"})) == {"name": "</script>&"}


def test_lanes_follow_the_data() -> None:
    nodes = rows_of(small())
    assert [node.op for node in nodes] == ["input", "conv", "relu", "sigmoid", "add"]
    assert set(nodes[4].sources) == {3, 0}
    held = nodes[0].lane
    assert all(node.lane != held for node in nodes[1:4])


def test_a_report_replaces_a_report_and_nothing_else(report: Path, tmp_path: Path) -> None:
    inputs = {"x": np.zeros((1, 4, 8, 8), np.float16)}
    done = run_network(mixed(), inputs, name="mixed.mil", insight=True)
    target = tmp_path / "again"
    shutil.copytree(report, target)
    write_report(done, target)
    assert np.all(np.load(target / "inputs.npz")["x"] == 0)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="other things"):
        write_report(done, tmp_path / "mine")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "mine"]


def test_run_writes_outputs_and_report(tmp_path: Path) -> None:
    model = saved(small(), tmp_path)
    found = command("run", model, "--random", 1, "-o", tmp_path / "out.npz", "--report", tmp_path / "r", "--json")
    assert found["schema"] == "hexane-run/1" and found["compared_with"] == "reference"
    assert found["agreement"][0]["cosine"] > 0.999
    assert np.load(tmp_path / "out.npz")["out"].shape == (1, 16, 8, 8)
    assert (tmp_path / "r" / "index.html").is_file()
    again = command("run", model, "--random", 1, "--level", "graph", "-o", tmp_path / "graph.npz", "--json")
    assert again["level"] == "graph"
    assert np.array_equal(np.load(tmp_path / "out.npz")["out"], np.load(tmp_path / "graph.npz")["out"])


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no Chromium with its driver on this machine: the page is not tried in a browser")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
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
