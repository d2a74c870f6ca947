"""Each rule finds its example and leaves the fixed twin alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lowtide.diagnose import ADVICE, PROBLEM, RULES, diagnose, finding_json
from lowtide.diagnose.evidence import peak_bytes
from lowtide.record import Outcome, Recording
from tests.diagnose.examples import EXAMPLES, FILE, LOOP, MIB, at, census, held, recording

KEYS = (
    "id", "severity", "title", "bytes", "bytes_per_step", "file", "line", "code", "holder", "fix", "saving_bytes",
)  # fmt: skip


def test_every_rule_has_an_example_and_a_twin() -> None:
    assert [rule.id for rule in RULES] == list(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_rule_finds_its_example_first_and_names_the_line(name: str) -> None:
    example = EXAMPLES[name]
    found = diagnose(example.bad)
    first = found[1] if name == "fragmentation" else found[0]  # the death itself comes first
    assert first.id == name
    assert (first.source.line if first.source else None) == example.line
    assert first.bytes > 0 and first.fix
    assert first.saving_bytes is None or 0 < first.saving_bytes <= first.bytes or name == "out-of-memory"


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_fixed_twin_has_no_problem(name: str) -> None:
    good = EXAMPLES[name].good
    found = diagnose(good)
    assert not [f for f in found if f.id == name]
    assert not [f for f in found if f.severity == PROBLEM and f.bytes > 0.05 * peak_bytes(good)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_findings_are_json_with_exactly_the_promised_keys(name: str) -> None:
    for finding in diagnose(EXAMPLES[name].bad):
        written = json.loads(json.dumps(finding_json(finding)))
        assert tuple(written) == KEYS
        assert written["severity"] in (PROBLEM, ADVICE)
        assert isinstance(written["bytes"], int)


def test_a_statement_is_shown_without_what_follows_the_line() -> None:
    assert diagnose(EXAMPLES["tensors-kept"].bad)[0].code == "kept.append(y)"


def test_the_holder_ends_in_a_name_the_user_knows() -> None:
    assert diagnose(EXAMPLES["tensors-kept"].bad)[0].holder.startswith("kept (list of 20")


def test_problems_come_before_advice_and_more_bytes_before_fewer() -> None:
    rows = census(held("tensor", "kept (list of 20, global of train.py)", 20, 100, 3))
    both = replace(EXAMPLES["malloc-retention"].bad, census=rows, steps=EXAMPLES["tensors-kept"].bad.steps)
    found = diagnose(both)
    assert [f.severity for f in found] == sorted((f.severity for f in found), reverse=True)
    sizes = [f.bytes for f in found if f.severity == PROBLEM]
    assert sizes == sorted(sizes, reverse=True)


def test_a_line_in_a_branch_that_did_not_run_is_not_blamed() -> None:
    code = (
        "KEEP = True\nkept = []\nfor step in range(20):\n    y = f(x)\n    if KEEP:\n        kept.append(y)\n"
        "    else:\n        kept.append(float(y))\n"
    )
    rows = census(held("tensor", "kept (list of 20, global of train.py)", 20, 100, 4))
    run = recording(code, device=5, host=5, census=rows)
    ran = replace(run, switches={"/home/me/train.py": {"KEEP": True}})
    other = replace(run, switches={"/home/me/train.py": {"KEEP": False}})
    assert diagnose(ran)[0].source == at(6)
    assert diagnose(other)[0].source == at(8)


def test_an_arm_of_an_expression_that_was_not_taken_is_not_read() -> None:
    code = "BAD = True\nx = images / 255.0 if BAD else images.astype('float32')\nmodel.fit(x)\n"
    run = EXAMPLES["float64-data"].bad
    given = tuple(row._replace(source=at(3)) for row in run.data)
    ran = replace(run, sources={FILE: code}, data=given, switches={FILE: {"BAD": True}})
    assert diagnose(ran)[0].source == at(2)


def test_a_cache_that_fills_once_is_no_leak() -> None:
    run = recording(LOOP, census=census(held("tensor", "cache (dict of 20, global of train.py)", 20, 100, 3)))
    filled = [min(i, 8) * 12 * MIB for i in range(len(run.steps))]
    steps = tuple(
        step._replace(device_bytes=50 * MIB + more, rss_bytes=800 * MIB + more)
        for step, more in zip(run.steps, filled, strict=True)
    )
    assert diagnose(replace(run, steps=steps)) == []


def test_growth_that_nothing_explains_is_put_down_to_the_only_line_that_keeps_anything() -> None:
    run = recording(LOOP, host=6)
    elsewhere = tuple(sample._replace(source=at(3)) for sample in run.samples)
    assert diagnose(replace(run, samples=elsewhere))[0].source == at(4)


def test_several_forms_kept_by_one_line_are_one_finding() -> None:
    holder = "kept (list of 20, global of train.py)"
    two = (held("tensor", holder, 20, 60, 3), held("tensor", holder, 20, 40, 3)._replace(example="int64 (9,)"))
    found = diagnose(recording(LOOP, device=5, host=5, census=census(*two)))
    assert len(found) == 1
    assert found[0].bytes == round(0.9 * 100 * MIB)


def test_a_recording_with_nothing_in_it_has_no_findings() -> None:
    whole = EXAMPLES["tensors-kept"].bad
    assert diagnose(Recording(whole.run, Outcome("unknown", 0.0))) == []


def test_the_documentation_lists_every_rule_and_no_other() -> None:
    from lowtide.diagnose.pages import contents

    page = Path(__file__).parents[2] / "docs" / "findings" / "README.md"
    assert contents() in page.read_text()
