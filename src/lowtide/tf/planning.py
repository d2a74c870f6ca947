"""What `fit` does at the training steps of a script: plans each when it comes, says so, and lets the script go on."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from lowtide.errors import BadUse, Infeasible
from lowtide.program import Program
from lowtide.tf.child import IN_A_SESSION, LARGER
from lowtide.units import format_size


class Planning:
    """What to do at the first training step of a script that is to fit: plan it, say so, and let it go on."""

    def __init__(self, folder: Path, budget: int, seconds: float, lines: Mapping[str, Any]) -> None:
        self._folder, self._budget, self._seconds, self._lines = folder, budget, seconds, lines
        self.planned = self.refused = False
        self.interrupted = False  # while a step was captured or planned
        self._steps: list[Any] = []

    def when_refused(self) -> str:
        """Where the script was when memory was refused to it, and what to do."""
        if any(step.under_way for step in self._steps):
            return "in its planned step, which was to fit: please report that, and go on with a larger budget"
        return f"{'beside its planned' if self.planned else 'before its first training'} step; {LARGER}"

    def model(self, model: Any, data: Any) -> Any:
        from lowtide.tf.fit import planned_model
        from lowtide.tf.trace import Seen, batch_of

        with self._planning_a_step():
            return self._kept(planned_model(model, data, self._make, batch_of(data) or 1, Seen(self._lines)))

    def function(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        from lowtide.tf.fit import planned_function
        from lowtide.tf.trace import Seen

        with self._planning_a_step():
            return self._kept(planned_function(function, arguments, options, self._make, Seen(self._lines)))

    @contextlib.contextmanager
    def _planning_a_step(self) -> Iterator[None]:
        """A refusal says so when it is not of the first step that the script trains."""
        later = self.planned
        try:
            with self._noting_interrupts():
                yield
        except Infeasible as error:
            if not later:
                raise
            what = "training went well, and then another step came: of a model that was compiled again, say"
            raise Infeasible(f"{what}; {error}", error.smallest_bytes) from None

    @contextlib.contextmanager
    def _noting_interrupts(self) -> Iterator[None]:
        """What is interrupted inside is work of ours, of which the script has nothing to tell."""
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True
            raise

    def _kept(self, step: Any) -> Any:
        self._steps.append(step)
        return step

    def session(self, session: Any, fetches: Any, feeds: Mapping[Any, Any]) -> NoReturn:
        raise BadUse(IN_A_SESSION)

    def _make(self, program: Program, batch: int, more_ahead: int, like: Any) -> Any:
        from lowtide.plan import plan_facts
        from lowtide.plan.aside import make_plan_aside
        from lowtide.simulate.plain import plain_range

        what = f"{len(program.ops):,} ops at batch {batch} for {format_size(self._budget)}"
        why = unless = ""
        if like is not None:
            why = "again, since the data or what lies beside the step has changed: "
            unless = " unless an earlier plan will do"
        print(f"lowtide: planning {why}{what}, about {self._seconds:.0f} s{unless} ...", file=sys.stderr, flush=True)
        with self._noting_interrupts():
            plan = make_plan_aside(program, self._budget, batch, self._seconds, more_ahead, like)
        if not self.planned:
            self.planned = True
            facts = plan_facts(plan, plain_range(program, batch))
            (self._folder / "plan.json.partial").write_text(json.dumps(facts))
            (self._folder / "plan.json.partial").rename(self._folder / "plan.json")
            while not (self._folder / "go").exists():  # the command shows the plan before training starts
                time.sleep(0.01)
        return plan
