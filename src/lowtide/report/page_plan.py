"""A Plan as a page: the step before and after, what was done to it, and bytes against time over all budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lowtide.plan import Plan
from lowtide.record import Recording
from lowtide.record.views import device_peak, fullest_detail
from lowtide.report.contents import versions_line
from lowtide.report.page import Bar, Bars, Block, Chart, Column, Curve, Figure, Page, Row, Series, Table
from lowtide.report.page_prediction import timeline_chart
from lowtide.report.page_recording import detail_chart
from lowtide.simulate.levels import levels
from lowtide.units import format_size


def plan_page(plan: Plan, facts: Mapping[str, Any], title: str, recording: Recording | None = None) -> Page:
    """What `lowtide plan --html` writes; `facts` are what `lowtide plan --json` prints."""
    lead = (
        f"{format_size(plan.peak)} instead of {format_size(plan.before.chunk_peak)} at the peak of a step with "
        f"batch {plan.timeline.batch}, with the same results bit for bit, for {plan.slowdown:+.1%} of its time."
    )
    foot = f"lowtide plan · {versions_line(sorted(facts['versions'].items()))}"
    blocks = list(_blocks(plan, facts, recording))
    return Page("Lowtide plan", title, lead, _figures(plan, facts, recording), blocks, foot)


def _figures(plan: Plan, facts: Mapping[str, Any], recording: Recording | None) -> list[Figure]:
    plain = f"{format_size(facts['plain_low_bytes'])} to {format_size(facts['plain_high_bytes'])}"
    smallest = facts["smallest"]
    figures = [
        Figure("planned peak", format_size(plan.peak), f"in a budget of {format_size(plan.budget)}"),
        Figure("plain run", plain, "TensorFlow picks its order as it runs"),
        Figure("time paid", f"{plan.slowdown:+.1%}", f"of a step, within {plan.gap:.1%} of the least possible"),
        Figure("smallest budget found", format_size(smallest["budget_bytes"]), f"set by {smallest['op']}"),
    ]
    peak = device_peak(recording) if recording else None
    if peak is not None:
        figures.insert(2, Figure("measured", format_size(peak.bytes), "the recording's peak, by the allocator's count"))
    return figures


def _blocks(plan: Plan, facts: Mapping[str, Any], recording: Recording | None) -> Iterator[Block]:
    yield _before_and_after(plan)
    yield timeline_chart(plan.timeline, "The planned step", "")
    yield timeline_chart(plan.before, "Without recomputation", "Lowtide's fixed order, nothing computed twice. ")
    yield _moves(facts)
    yield _curve(plan, facts)
    peak = device_peak(recording) if recording else None
    if recording is not None and peak is not None:
        sizes = [
            ("planned", plan.peak), ("fixed order, nothing computed twice", plan.before.chunk_peak),
            ("plain run, at least", facts["plain_low_bytes"]), ("plain run, at most", facts["plain_high_bytes"]),
            ("measured", peak.bytes),
        ]  # fmt: skip
        rows = [Bar(name, [size], "", "gradients" if name == "measured" else "parameters") for name, size in sizes]
        yield Bars("Peaks, predicted and measured", "", ["peak"], rows)
        detail = peak.detail or fullest_detail(recording)
        if detail is not None:
            yield detail_chart(detail, "The measured step")


def _before_and_after(plan: Plan) -> Chart:
    """Both steps on one axis: how far each has got, in percent of its allocations and frees."""
    pairs = [(plan.before, "nothing computed twice", "inputs"), (plan.timeline, "planned", "parameters")]
    at: dict[float, list[float | None]] = {}
    for which, (timeline, _, _) in enumerate(pairs):
        found = levels(timeline, 600)
        for moment, total in zip(found.moments, found.totals, strict=True):
            place = round(100 * max(0, moment) / max(1, timeline.end), 4)
            at.setdefault(place, [None, None])[which] = total
    places = sorted(at)
    series: list[Series] = []
    for which, (_, name, role) in enumerate(pairs):
        series.append(Series(name, [at[place][which] for place in places], role))
    budget = Series("budget", [plan.budget] * len(places), "gradients", dashed=True)
    note = f"Bytes asked for. The budget of {format_size(plan.budget)} is of chunks, which are a little more."
    return Chart("Before and after", note, "percent of the step's allocations and frees", places, [*series, budget])


def _moves(facts: Mapping[str, Any]) -> Table:
    rows: list[Row] = [
        [
            move["name"], move.get("peak_bytes"), move["count"], round(move["seconds"] * 1e3, 1),
            "the same, bit for bit" if move["exact"] else "other numbers",
        ]
        for move in facts["moves"]
    ]  # fmt: skip
    columns = [
        Column("move"), Column("peak after it", "bytes"), Column("ops", "number"), Column("ms paid", "number"),
        Column("results"),
    ]  # fmt: skip
    return Table("What is done", "In this order; each on top of those above it.", columns, rows)


def _curve(plan: Plan, facts: Mapping[str, Any]) -> Curve:
    points = {(point["budget_bytes"], point["slowdown"]) for point in facts["curve"]}
    points.add((plan.peak, plan.slowdown))
    note = "The least time paid that was found for each budget, this plan's included. Left of it nothing was found."
    return Curve("Bytes against time", note, sorted(points), [(plan.budget, f"budget {format_size(plan.budget)}")])
