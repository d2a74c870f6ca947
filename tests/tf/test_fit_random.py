"""Random functional models times random budgets: the same bits, and never more bytes than the budget.

`make bench-fit` does hundreds of these.
"""

from __future__ import annotations

import pytest

from tests.tf.children import run_script

pytestmark = pytest.mark.tensorflow

MODELS, BUDGETS = 4, 3


def test_random_models_keep_their_bits_and_their_budgets() -> None:
    cases = run_script(f"from benchmarks.fit_random import main\nmain(1000, {MODELS}, {BUDGETS})\n")["cases"]
    assert len(cases) == MODELS * BUDGETS
    assert [case for case in cases if case["broken"]] == []
    assert sum(case.get("recomputed", 0) > 0 for case in cases) > len(cases) // 4, "some plans have to do something"
