"""`--fail-on`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowtide.diagnose import diagnose, parse_limits
from lowtide.errors import BadUse
from tests.diagnose.examples import EXAMPLES


def broken(rules: str, example: str, good: bool = False) -> list[str]:
    run = EXAMPLES[example].good if good else EXAMPLES[example].bad
    return parse_limits(rules).broken(run, diagnose(run))


def test_a_family_fails_on_its_problems_only() -> None:
    assert broken("leak", "tensors-kept")
    assert broken("leak,retrace", "retrace-by-value")
    assert not broken("retrace", "tensors-kept")
    assert not broken("leak", "tensors-kept", good=True)


def test_any_retracing_is_retracing() -> None:
    run = EXAMPLES["retrace-by-value"].bad
    advice = [replace(finding, severity="advice") for finding in diagnose(run)]
    assert parse_limits("retrace").broken(run, advice)
    assert not parse_limits("leak,problem").broken(run, advice)


def test_advice_fails_only_when_named() -> None:
    assert not broken("step,problem", "activations-rule")
    assert broken("activations-rule", "activations-rule")


def test_sizes_are_compared_with_what_was_measured() -> None:
    assert broken("peak>900MiB", "tensors-kept") == ["peak was 1000 MiB (RSS of the process), the limit is 900.0 MiB"]
    assert not broken("peak>2GiB", "tensors-kept")
    assert broken("device > 1MiB, host>10GiB", "tensors-kept")


def test_a_broken_peak_names_what_was_larger() -> None:
    run = EXAMPLES["tensors-kept"].bad
    device = replace(run, samples=(), splits=())
    (said,) = parse_limits("peak>1MiB").broken(device, [])
    assert "(in use on the device)" in said
    assert not parse_limits("host>1MiB").broken(device, [])


@pytest.mark.parametrize("text", ["", "leek", "peak", "peak>", "peak>much", "leak,,retrace", "peak<2GiB"])
def test_what_is_no_rule_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadUse) as caught:
        parse_limits(text)
    assert "\n" not in str(caught.value)
