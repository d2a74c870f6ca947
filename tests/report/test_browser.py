"""The page in a real browser: it draws, zooms, sorts and filters, shows hostile names as text, and logs no error.

Skipped where there is no Chromium: install one (Debian: `apt-get install chromium`), or name it in CHROMIUM.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lowtide.report.html import write_html
from lowtide.report.page_prediction import prediction_page
from lowtide.report.page_recording import recording_page
from tests.report.recordings import ENDS, FINDINGS, IMAGE, RECORDINGS, SCRIPT
from tests.report.test_page import PAGES
from tests.report.test_prediction import FORECASTS

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
if CHROMIUM is None:
    pytest.skip("no Chromium on this machine: apt-get install chromium, or set CHROMIUM", allow_module_level=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Opened:
    """A page in the browser, and everything that it said, asked for or tried."""

    def __init__(self, browser: Any, file: Path, width: int = 1280, colours: str = "light") -> None:
        self.troubles: list[str] = []
        self.tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=colours)
        self.tab.on("console", lambda message: self.troubles.append(f"{message.type}: {message.text}"))
        self.tab.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.tab.on("dialog", lambda dialog: (self.troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.tab.on("request", lambda request: request.url == file.as_uri() or self.troubles.append(request.url))
        self.tab.goto(file.as_uri())
        self.tab.wait_for_selector("html[data-ready]")

    def section(self, title: str) -> Any:
        return self.tab.locator("section").filter(has=self.tab.get_by_role("heading", name=title, exact=True))

    def window(self, number: int = 0) -> list[float]:
        """From where to where the chart shows, in percent."""
        zoom = self.tab.evaluate(f"charts[{number}].chart.getOption().dataZoom[0]")
        return [zoom["start"], zoom["end"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pages")
    for name, recording in RECORDINGS.items():
        write_html(recording_page(recording, FINDINGS), made / f"{name}.html")
    for name in ("plan", "plan beside measurement"):
        write_html(PAGES[name], made / f"{name}.html")
    for name, forecast in FORECASTS.items():
        write_html(prediction_page(forecast, ENDS, RECORDINGS["whole"]), made / f"prediction {name}.html")
    return made


@pytest.fixture(scope="module")
def opened(browser: Any, folder: Path) -> Iterator[Opened]:
    page = Opened(browser, folder / "whole.html")
    yield page
    page.tab.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    "name", [*RECORDINGS, "plan", "plan beside measurement", "prediction hostile", "prediction allocates nothing"]
)
def test_every_page_draws_at_any_width_and_says_nothing(browser: Any, folder: Path, name: str, width: int) -> None:
    page = Opened(browser, folder / f"{name}.html", width, "dark" if width == 390 else "light")
    assert page.troubles == []
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= width
    for place in page.tab.locator(".chart").all():
        assert place.locator("svg path").count() > 0
        assert place.locator("svg text").count() > 0
    page.tab.close()


def test_names_from_the_script_are_shown_as_they_are(opened: Opened) -> None:
    shown = opened.tab.locator("main").inner_text()
    for name in (SCRIPT, ENDS, IMAGE):
        assert name in shown
    assert opened.tab.locator("main img, main script").count() == 0
    assert SCRIPT in opened.section("What the peak is made of").locator("svg").inner_html().replace(
        "&lt;", "<"
    ).replace("&gt;", ">")


def test_the_tooltip_shows_names_as_text(opened: Opened) -> None:
    chart = opened.section("What the peak is made of").locator(".chart")
    chart.scroll_into_view_if_needed()
    opened.tab.evaluate(
        "const entry = charts.find((one) => one.place.classList.contains('tall'));"
        "entry.chart.dispatchAction({type: 'showTip', seriesIndex: 0, name: 'Relu'});"
        "entry.chart.dispatchAction({type: 'showTip', seriesIndex: 0, dataIndex: 2});"
    )
    tip = opened.tab.locator(".tip").last
    tip.wait_for()
    assert "MiB" in tip.inner_text()
    assert opened.tab.locator(".tip img, .tip script").count() == 0


def test_the_timeline_zooms_and_comes_back(opened: Opened) -> None:
    place = opened.tab.locator(".chart").first
    place.scroll_into_view_if_needed()
    assert opened.window() == [0, 100]
    box = place.bounding_box()
    assert box is not None
    left, slider = box["x"] + 58, box["y"] + box["height"] - 20
    opened.tab.mouse.move(left, slider)
    opened.tab.mouse.down()
    opened.tab.mouse.move(left + (box["width"] - 76) / 2, slider, steps=8)
    opened.tab.mouse.up()
    start, end = opened.window()
    assert 40 < start < 60
    assert end == 100
    opened.tab.evaluate("charts[0].chart.dispatchAction({type: 'restore'})")
    assert opened.window() == [0, 100]
    assert opened.troubles == []


def test_the_table_sorts_both_ways(opened: Opened) -> None:
    section = opened.section("Every tensor alive at the peak")
    assert section.locator("tbody tr").count() == 6
    head = section.locator("th button", has_text="bytes")
    head.click()
    sizes = section.locator("tbody td:first-child").all_inner_texts()
    assert sizes == ["8.00 MiB", "6.00 MiB", "4.00 MiB", "3.00 MiB", "2.00 MiB", "1.00 MiB"]
    head.click()
    assert section.locator("tbody td:first-child").first.inner_text() == "1.00 MiB"


def test_a_long_table_filters_and_shows_all_on_request(browser: Any, tmp_path: Path) -> None:
    whole = RECORDINGS["whole"]
    (detail,) = whole.details
    many = tuple(detail.allocations[3]._replace(start=1, stop=7) for _ in range(150))
    crowded = replace(detail, allocations=(*detail.allocations, *many))
    write_html(recording_page(replace(whole, details=(crowded,))), tmp_path / "long.html")
    page = Opened(browser, tmp_path / "long.html")
    section = page.section("Every tensor alive at the peak")
    rows = section.locator("tbody tr")
    assert rows.count() == 100
    section.get_by_role("button", name="show all rows").click()
    assert rows.count() == 156
    section.locator("input").fill("momentum variable")
    assert rows.count() == 1
    section.locator("input").fill("no such thing")
    assert rows.count() == 0
    assert section.locator(".count").inner_text().startswith("0 of 156 rows")
    section.locator("input").fill("")
    section.locator("select").select_option("activations")
    assert rows.count() == 152
    assert page.troubles == []
    page.tab.close()


def test_colours_follow_the_readers_choice_and_paper_is_white(browser: Any, folder: Path) -> None:
    page = Opened(browser, folder / "whole.html", colours="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.tab.evaluate(background)
    page.tab.emulate_media(color_scheme="light")
    assert page.tab.evaluate(background) == "rgb(255, 255, 255)" != dark
    page.tab.emulate_media(media="print", color_scheme="dark")
    assert page.tab.evaluate(background) == "rgb(255, 255, 255)"
    assert page.troubles == []
    page.tab.close()
