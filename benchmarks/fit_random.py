"""Random models times random budgets: the same bits, and never more bytes than the budget.

`python -m benchmarks.fit_random FIRST_SEED MODELS BUDGETS` prints one JSON object as its last line. The models are
small, and each is captured once for all its budgets, so a case takes a second or two.
"""

from __future__ import annotations

import json
import sys
from random import Random
from typing import Any

import keras
import tensorflow as tf

from benchmarks.proof import Subject
from benchmarks.random_models import random_workload
from lowtide.errors import Infeasible
from lowtide.plan.aside import make_plan_aside
from lowtide.simulate import simulate, tidy_order
from lowtide.tf.fit import settled
from lowtide.tf.trace import batch_of, capture_model, flat_tensors

SECONDS = 0.8
JUST_ABOVE = 1.03
"""Of the smallest budget that a refusal names: there has to be a plan."""


def cases_of(seed: int, budgets: int) -> list[dict[str, Any]]:
    """A model at random budgets between what is resident and what it needs without a plan."""
    random = Random(seed)
    workload = random_workload(seed)
    batch = batch_of(workload.data) or 1
    step = settled(capture_model(workload.model, workload.data), flat_tensors(workload.data), batch)
    subject = Subject(step, workload.data)
    cases = []
    for _ in range(budgets):
        program = subject.from_start()
        before = simulate(program, batch, tidy_order(program, batch))
        share = random.uniform(0.2, 1.0)
        budget = int(before.chunk_resident + share * (before.chunk_peak - before.chunk_resident))
        row: dict[str, Any] = {"seed": seed, "share": share, "ops": len(program.ops), "refused": False}
        try:
            plan = make_plan_aside(program, budget, batch, SECONDS)
        except Infeasible as refusal:
            row["refused"] = True
            try:
                plan = make_plan_aside(program, int(refusal.smallest_bytes * JUST_ABOVE), batch, 6 * SECONDS)
            except Infeasible:
                cases.append({**row, "broken": ["refused at the smallest it named"]})
                continue
        proof = subject.prove(plan)
        small = [word for word in proof["broken"] if "within" in word]  # a few KiB are percents of models so small
        cases.append({**row, **proof, "broken": [word for word in proof["broken"] if word not in small]})
    return cases


def main(first: int, models: int, budgets: int) -> None:
    tf.config.experimental.enable_op_determinism()
    cases = []
    for seed in range(first, first + models):
        cases.extend(cases_of(seed, budgets))
        keras.backend.clear_session()
    print(json.dumps({"cases": cases}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
