"""Pages as data and as files: numbers are the artifacts' own, names are data, and nothing is loaded from anywhere."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from lowtide.errors import BadUse
from lowtide.plan import make_plan, plan_curve, plan_facts
from lowtide.record import Recording
from lowtide.record.views import by_category, device_peak
from lowtide.report.html import html_page, safe_json, write_html
from lowtide.report.page import Bars, Chart, Curve, Facts, Findings, Page, Table, Tree, page_data
from lowtide.report.page_plan import plan_page
from lowtide.report.page_prediction import prediction_page
from lowtide.report.page_recording import recording_page
from lowtide.simulate import simulate
from lowtide.simulate.plain import plain_range
from tests.plan.test_plan import step_of_layers
from tests.report.recordings import ENDS, FINDINGS, HOSTILE, IMAGE, MIB, RECORDINGS, SCRIPT, a_recording
from tests.report.test_prediction import FORECASTS


def a_plan_page(recording: Recording | None = None) -> Page:
    program = step_of_layers(8)
    plain = plain_range(program, program.batch)
    plan = make_plan(program, int(0.75 * simulate(program).chunk_peak), seconds=1)
    facts = {**plan_facts(plan, plain), **plan_curve(program, 1.0), "versions": {"tensorflow": "2.21.0"}}
    return plan_page(plan, facts, SCRIPT, recording)


PAGES = {
    "plan": a_plan_page(),
    "plan beside measurement": a_plan_page(a_recording()),
    **{f"recording: {name}": recording_page(recording, FINDINGS) for name, recording in RECORDINGS.items()},
    **{f"prediction: {name}": prediction_page(forecast, name) for name, forecast in FORECASTS.items()},
    "prediction beside measurement": prediction_page(FORECASTS["hostile"], SCRIPT, a_recording()),
    "prediction beside nothing": prediction_page(FORECASTS["trained"], "x", RECORDINGS["without tensorflow"]),
}


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> Page:
    return PAGES[request.param]


class Document(HTMLParser):
    """The tags of a file, and what stands between script tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script":
            self.scripts[-1] += data


def blocks(page: Page, kind: type) -> list[Any]:
    return [block for block in page.blocks if isinstance(block, kind)]


def test_a_file_holds_three_scripts_whatever_the_names_say(page: Page) -> None:
    document = Document(html_page(page))
    assert [tag for tag, _ in document.tags].count("script") == 3
    assert "img" not in [tag for tag, _ in document.tags]
    assert json.loads(document.scripts[0]) == json.loads(json.dumps(page_data(page)))


def test_a_file_loads_nothing_and_lets_nothing_else_run(page: Page) -> None:
    document = Document(html_page(page))
    attributes = {name for _, found in document.tags for name in found}
    assert not attributes & {"src", "href", "srcset", "onload", "onerror"}
    (policy,) = (str(found["content"]) for tag, found in document.tags if "http-equiv" in found)
    assert "default-src 'none'" in policy
    assert policy.count("'sha256-") == 2
    assert "script-src 'unsafe" not in policy


def test_data_ends_no_script_element_and_comes_back_as_it_was() -> None:
    text = safe_json({"names": HOSTILE})
    assert not set("<>&\u2028\u2029\x00\x1b") & set(text)
    assert json.loads(text) == {"names": list(HOSTILE)}


def test_the_stacked_series_sum_to_the_peak_that_the_allocator_told() -> None:
    recording = RECORDINGS["whole"]
    (detail,) = recording.details
    chart = next(block for block in recording_page(recording).blocks if isinstance(block, Chart) and block.stacked)
    totals = [sum(series.values[i] or 0 for series in chart.series) for i in range(len(chart.x))]
    assert max(totals) == detail.peak_bytes
    assert chart.marks[0].at == chart.x[totals.index(max(totals))]


@pytest.mark.parametrize("name", ["trained", "hostile", "one batch only", "allocates nothing"])
def test_the_predicted_boxes_sum_to_the_peak(name: str) -> None:
    forecast = FORECASTS[name]
    (tree,) = blocks(prediction_page(forecast, name), Tree)
    assert sum(leaf.size for group in tree.groups for leaf in group.leaves) == forecast.peak


def test_the_measured_boxes_rows_and_bars_sum_to_the_peak() -> None:
    page = recording_page(RECORDINGS["whole"])
    peak = device_peak(RECORDINGS["whole"])
    assert peak is not None and peak.detail is not None
    (tree,), (bars,) = blocks(page, Tree), blocks(page, Bars)
    table = next(block for block in blocks(page, Table) if block.pick == 1)
    assert sum(leaf.size for group in tree.groups for leaf in group.leaves) == peak.bytes
    assert sum(row[0] for row in table.rows) == peak.bytes
    assert {row.name: row.sizes[0] for row in bars.rows}.items() <= by_category(peak.detail).items()
    assert sum(row.sizes[0] for row in bars.rows) == peak.bytes


def test_a_recording_shows_host_and_device_on_one_axis_with_its_steps() -> None:
    whole = next(block for block in recording_page(RECORDINGS["whole"]).blocks if isinstance(block, Chart))
    assert {"device, in use", "device, reserved", "host RSS"} <= {series.name for series in whole.series}
    assert len([mark for mark in whole.marks if mark.faint]) == 12
    assert len([mark for mark in whole.marks if mark.until is not None]) == 1


def test_a_line_is_shown_with_its_code() -> None:
    page = recording_page(RECORDINGS["whole"])
    lines = next(block for block in blocks(page, Table) if block.title.startswith("Lines"))
    assert ["train.py:2", f"model = build()  # {ENDS}"] in [list(row[2:]) for row in lines.rows]


def test_findings_come_first_with_what_they_cost_and_who_holds_them() -> None:
    first = recording_page(RECORDINGS["whole"], FINDINGS).blocks[0]
    assert isinstance(first, Findings)
    problem, advice = first.items
    assert problem.where == "train.py:4  kept.append(y)"
    assert problem.why == f"6.00 MiB, 1.00 MiB a step, 6.00 MiB would be saved, held by list {IMAGE}"
    assert (advice.level, advice.where, advice.why) == ("advice", "", "3.00 MiB would be saved")


def test_a_script_without_tensorflow_still_has_a_page() -> None:
    page = PAGES["recording: without tensorflow"]
    assert next(figure.label for figure in page.figures) == "host peak"
    assert blocks(page, Chart) and not blocks(page, Tree)


def test_a_run_that_was_killed_says_so() -> None:
    page = PAGES["recording: killed"]
    assert "SIGKILL" in page.lead and "out of memory" in page.lead


def test_prediction_stands_beside_measurement() -> None:
    page = PAGES["prediction beside measurement"]
    facts, bars = blocks(page, Facts)[0], blocks(page, Bars)[0]
    assert facts.rows[0] == ("measured", "24.00 MiB, the highest of the run")
    assert bars.names == ["predicted", "measured"]
    measured = {row.name: row.sizes[1] for row in bars.rows}
    assert measured["optimizer state"] == 8 * MIB
    assert sum(measured.values()) == a_recording().details[0].peak_bytes


def test_a_plan_shows_before_and_after_under_its_budget() -> None:
    page = PAGES["plan"]
    both = blocks(page, Chart)[0]
    before, planned, budget = both.series
    highest = max(value for value in planned.values if value is not None)
    assert highest <= budget.values[0] < max(value for value in before.values if value is not None)
    (curve,) = blocks(page, Curve)
    assert list(curve.points) == sorted(curve.points)
    assert any(size <= budget.values[0] for size, _ in curve.points)
    assert not blocks(page, Bars)
    (peaks,) = blocks(PAGES["plan beside measurement"], Bars)
    assert peaks.rows[-1].sizes == [a_recording().details[0].peak_bytes]


def test_tables_are_as_wide_as_their_heads(page: Page) -> None:
    for table in blocks(page, Table):
        assert {len(row) for row in table.rows} <= {len(table.columns)}
    for chart in blocks(page, Chart):
        assert {len(series.values) for series in chart.series} <= {len(chart.x)}
        assert len(chart.said) in (0, len(chart.x))
        assert list(chart.x) == sorted(chart.x)


def test_a_place_that_cannot_be_written_gets_one_line(page: Page, tmp_path: Path) -> None:
    with pytest.raises(BadUse, match="cannot be written") as error:
        write_html(page, tmp_path / "nowhere" / "page.html")
    assert "\n" not in str(error.value)


def test_the_charting_library_is_the_release_that_the_docs_name() -> None:
    """docs/dependencies.md has version and checksum; the licences lie beside it."""
    folder = files("lowtide.report") / "assets"
    said = (Path(__file__).parents[2] / "docs" / "dependencies.md").read_text()
    assert hashlib.sha256((folder / "echarts.min.js").read_bytes()).hexdigest() in said
    assert "Licensed to the Apache Software Foundation" in (folder / "echarts.min.js").read_text()[:2000]
    for name in ("echarts.LICENSE", "echarts.NOTICE", "zrender.LICENSE", "d3.LICENSE"):
        assert (folder / name).read_text()


def test_the_pages_code_never_writes_html() -> None:
    """Whatever reaches the screen goes through text nodes."""
    folder = files("lowtide.report") / "assets"
    for name in ("text.js", "charts.js", "tables.js", "page.js"):
        code = (folder / name).read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", code)


def test_steps_on_the_page_are_numbered_as_they_are_counted() -> None:
    recording = a_recording()
    steps = tuple(step if step.detailed else step._replace(repeats=1000) for step in recording.steps)
    page = recording_page(replace(recording, steps=steps))
    assert "in step 1,001;" in page.lead
    (run,) = (block for block in page.blocks if isinstance(block, Chart) and block.title == "The whole run")
    assert [mark.text for mark in run.marks if mark.faint][:3] == ["1", "1,001", "1,002"]
