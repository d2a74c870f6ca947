"""`make bench-fit`: models trained within a budget, on an allocator that has no more, and compared to the bit.

    python -m benchmarks.fit [--parts models random order times] [--only NAME ...] [--cases N] [--seconds S]

For each model and budget (shares of what plain TensorFlow needs, and the smallest for which there is a plan):

- weights, slots, statistics, seeds and metrics after some steps are bitwise those of the captured step without a plan;
- a child whose allocator has the budget and no more trains to the end, where plain TensorFlow at that limit dies;
- the measured peak is within the budget, and within 2 % of the predicted one.

Then random models at random budgets, with the same oracles: `benchmarks.fit_random`. Then the time that a fixed order
alone costs each model, and the time paid at a half and a third of a step's bytes (`benchmarks.fit_times`): these two
parts need a quiet machine. Prints tables as it goes. Each part is written to benchmarks/results/fit.json when it is
done, beside those that are there, and can be done anew by itself.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.children import Server, run_child
from benchmarks.fit_times import TIMED, show_times, timed, times_missed

RESULTS = Path(__file__).parent / "results" / "fit.json"
SHARES = (0.9, 0.75, 0.6, 0.5)
CASES, CASES_IN_A_CHILD, BUDGETS_EACH, CHILDREN_AT_ONCE = 210, 21, 3, 2
DYING_AT_ONCE = 2  # TensorFlow waits ten seconds before it gives up
PREDICTED_WITHIN, ORDER_WITHIN = 0.02, 0.03
TRIES_FOR_SMALLEST = 3
MIB = 1 << 20
WIDTH = 80
COLUMNS = {
    "model": 14, "MiB": 5, "of plain": 8, "peak": 6, "predicted": 9, "again": 5, "time": 6, "plain": 5, "planned": 14,
}  # fmt: skip

MODELS: tuple[tuple[str, int, str], ...] = (
    ("cnn", 64, "BatchNorm, Dropout; Adam"),
    ("separable", 16, "depthwise; RMSprop"),
    ("normalizations", 16, "group, layer norm; AdamW"),
    ("conv3d", 8, "3-D convolutions"),
    ("unet", 8, "skips, BatchNorm"),
    ("vae", 32, "sampling, add_loss"),
    ("gan", 32, "own train_step, two optimizers"),
    ("siamese", 16, "shared weights; Nadam"),
    ("multi-input", 16, "dictionaries, sample weights, GRU"),
    ("custom-keras", 64, "custom loop, global-norm clipping"),
    ("lstm", 64, "loops; RMSprop, clipnorm"),
    ("gpt", 16, "attention, Dropout; AdamW, global clipnorm"),
    ("gpt-float16", 4, "mixed precision, loss scaling"),
    ("cnn-bfloat16", 16, "mixed precision"),
    ("vit", 32, "attention; Lion"),
    ("resnet50", 8, "10,000 ops; Adam"),
)
PARTS = ("models", "random", "order", "times")


def prove(name: str, batch: int, seconds: float) -> dict[str, Any]:
    """Everything about one model: the reference, then at each budget a child with a plan and one without."""
    with ExitStack() as stack:
        server = partial(Server, "benchmarks.fit_child", name, str(batch))
        own, *others = (stack.enter_context(server()) for _ in range(1 + DYING_AT_ONCE))
        reference = own.ask(do="reference", seconds=seconds)
        if "plain_bytes" not in reference:
            return {"name": name, "batch": batch, "error": reference.get("error") or reference.get("died"), "rows": []}
        needs = reference["plain_bytes"]
        pool = stack.enter_context(ThreadPoolExecutor(DYING_AT_ONCE))
        free = SimpleQueue[Server]()
        for other in others:
            free.put(other)

        def plain(mib: int) -> dict[str, Any]:
            server = free.get()
            answer = server.ask(do="plain", mib=mib, seconds=seconds)
            free.put(server)
            return answer

        def both(budgets: Sequence[int]) -> list[dict[str, Any]]:
            dying = [pool.submit(plain, mib) for mib in budgets]
            planned = [own.ask(do="planned", mib=mib, seconds=seconds) for mib in budgets]
            pairs = zip(budgets, planned, dying, strict=True)
            return [row_of(mib, needs, reference, found, died.result()) for mib, found, died in pairs]

        rows = both([mib_of(share * needs) for share in SHARES])
        rows = [{"share": share, **row} for share, row in zip(SHARES, rows, strict=True)]
        rows.append(at_smallest(reference, rows, lambda mib: both([mib])[0]))
    for row in rows:
        if "infeasible" in row and row["mib"] > rows[-1]["mib"] and not rows[-1]["broken"]:
            row["broken"] = ["refused above the smallest"]
    wanted = ("ops", "versions", "unknown", "resident_bytes", "plain_bytes", "smallest_bytes")
    return {"name": name, "batch": batch, **{key: reference.get(key) for key in wanted}, "rows": rows}


def at_smallest(
    reference: dict[str, Any], rows: Sequence[dict[str, Any]], pair: Callable[[int], dict[str, Any]]
) -> dict[str, Any]:
    """The smallest budget that a refusal named. What is said for one allocator can be a little off for another: asked
    again, as long as that is below what has been trained in already."""
    named = [row["smallest_bytes"] for row in (*rows, reference) if row.get("smallest_bytes")]
    trained = min((row for row in rows if "infeasible" not in row), key=lambda row: int(row["mib"]), default=None)
    mib = mib_of(min(named, default=reference["plain_bytes"]))
    row = trained
    for _ in range(TRIES_FOR_SMALLEST):
        if trained is not None and mib >= trained["mib"]:
            row = trained
            break
        row = pair(mib)
        if "infeasible" not in row:
            break
        mib = max(mib + 1, mib_of(row["smallest_bytes"]))
    assert row is not None
    return {**row, "share": None}


def mib_of(size: float) -> int:
    """TensorFlow's limit is in whole MiB."""
    return -(-int(size) // MIB)


def row_of(
    mib: int, needs: int, reference: dict[str, Any], planned: dict[str, Any], plain: dict[str, Any]
) -> dict[str, Any]:
    row: dict[str, Any] = {"mib": mib, "of_plain": mib * MIB / needs, "plain_died": plain.get("died")}
    if "infeasible" in planned:
        return {**row, "infeasible": planned["infeasible"], "smallest_bytes": planned["smallest_bytes"], "broken": []}
    if "predicted_bytes" not in planned:
        return {**row, "broken": [f"did not train: {planned.get('died') or planned.get('error')}"]}
    error = planned["predicted_bytes"] / planned["measured_bytes"] - 1
    checks = (
        ("another graph was captured", planned["graph"] == reference["graph"]),
        ("variables differ", planned["state"] == reference["state"]),
        ("outputs differ", planned["outputs"] == reference["outputs"]),
        ("over budget", planned["measured_bytes"] <= mib * MIB),
        ("prediction", abs(error) <= PREDICTED_WITHIN),
    )
    kept = ("predicted_bytes", "measured_bytes", "predicted_slowdown", "gap", "recomputed")
    facts = {**{key: planned[key] for key in kept}, "error": error}
    return {**row, **facts, "broken": [name for name, good in checks if not good]}


def random_cases(first: int, count: int) -> list[dict[str, Any]]:
    """Some cases of random models, in a process of its own, so that what models leave behind is left there."""
    models = -(-count // BUDGETS_EACH)
    answer = run_child("benchmarks.fit_random", str(first), str(models), str(BUDGETS_EACH), seconds=1800)
    failed = [{"seed": first, "broken": [answer.get("error", "no answer")]}]
    cases: list[dict[str, Any]] = answer.get("cases", failed)
    return cases


def show(models: Sequence[dict[str, Any]], console: Console) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0))
    for name, width in COLUMNS.items():
        left = name in ("model", "plain", "planned")
        table.add_column(name, justify="left" if left else "right", width=width, overflow="fold")
    for model in models:
        for number, row in enumerate(model["rows"]):
            name = model["name"] if number == 0 else ""
            bad = "[red]" + ", ".join(row["broken"]) + "[/]" if row["broken"] else "[green]same[/]"
            died = "dies" if row["plain_died"] else "lives"
            budget = (name, str(row["mib"]), f"{row['of_plain']:.0%}")
            if "error" not in row:
                refused = "infeasible" in row and not row["broken"]
                said = f"[dim]least {row['smallest_bytes'] / MIB:.1f}[/]" if refused else bad
                table.add_row(*budget, "", "", "", "", died, said)
                continue
            table.add_row(
                *budget,
                f"{row['measured_bytes'] / MIB:.1f}",
                f"{row['error']:+.2%}",
                str(row["recomputed"]),
                f"{row['predicted_slowdown']:+.1%}",
                died,
                bad,
            )
        if "error" in model:
            table.add_row(model["name"], "", "", "", "", "", "", "", f"[red]{str(model['error'])[:24]}[/]")
    console.print(table)


def show_missed(models: Sequence[dict[str, Any]], console: Console) -> None:
    for model in models:
        for row in model["rows"]:
            for word in row["broken"]:
                console.print(f"[red]{model['name']} at {row['mib']} MiB: {word}[/]", highlight=False)


def order_reached(row: dict[str, Any]) -> bool:
    return "order_time" in row and row["order_time"] - 1 <= ORDER_WITHIN


def order_line(row: dict[str, Any]) -> str:
    if "order_time" not in row:
        return f"{row['name']}, order alone: {row.get('error') or row.get('died')}"
    said = "" if order_reached(row) else f", target {ORDER_WITHIN:+.0%}"
    return f"{row['name']}, order alone: {row['order_time'] - 1:+.1%} time{said}"


def summary(models: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rows = [row for model in models for row in model["rows"]]
    trained = [row for row in rows if "error" in row]
    died = [row for row in trained if row["plain_died"]]
    return {
        "models": len(models),
        "failed_to_run": sum("error" in model for model in models),
        "budgets": len(rows),
        "trained": len(trained),
        "same_bits": sum(not {"variables differ", "outputs differ"} & set(row["broken"]) for row in trained),
        "within_budget": sum("over budget" not in row["broken"] for row in trained),
        "predicted_within_two_percent": sum("prediction" not in row["broken"] for row in trained),
        "worst_prediction_error": max((row["error"] for row in trained), key=abs, default=None),
        "plain_died": len(died),
        "infeasible": sum("infeasible" in row for row in rows),
        "refused_above_smallest": sum("refused above the smallest" in row["broken"] for row in rows),
        "did_not_train": sum(any("did not train" in word for word in row["broken"]) for row in rows),
        "smallest_of_plain": statistics.median([m["rows"][-1]["of_plain"] for m in models if m["rows"]] or [1.0]),
    }


class Suite:
    """The parts of the benchmark, one line of progress for all of them."""

    def __init__(self, only: Sequence[str] | None, cases: int, seconds: float, progress: Progress) -> None:
        self._only, self._cases, self._seconds, self._progress = only, cases, seconds, progress

    def models(self) -> list[dict[str, Any]]:
        found = []
        for name, batch in self._each([(name, batch) for name, batch, _ in MODELS], "{} at batch {}"):
            found.append(prove(name, batch, self._seconds))
            show(found[-1:], self._progress.console)
            write("models", found[-1:])
        return found

    def random(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        starts = range(0, self._cases, CASES_IN_A_CHILD)
        task = self._progress.add_task("random models", total=len(starts))
        with ThreadPoolExecutor(CHILDREN_AT_ONCE) as pool:
            for some in pool.map(lambda start: random_cases(start, min(CASES_IN_A_CHILD, self._cases - start)), starts):
                found += some
                self._progress.advance(task)
        write("random", found)
        return found

    def order(self) -> list[dict[str, Any]]:
        found = []
        for name, batch in self._each([(name, batch) for name, batch, _ in MODELS], "order alone, {} at batch {}"):
            with Server("benchmarks.fit_child", name, str(batch)) as server:
                found.append({"name": name, "batch": batch, **server.ask(do="order", seconds=self._seconds)})
            self._progress.console.print(order_line(found[-1]), highlight=False)
            write("order", found[-1:])
        return found

    def times(self) -> list[dict[str, Any]]:
        found = []
        for name, batch in self._each(TIMED, "times of {} at batch {}"):
            found.append(timed(name, batch))
            show_times(found[-1:], self._progress.console)
            write("times", found[-1:])
        return found

    def _each(self, entries: Sequence[tuple[str, int]], words: str) -> Iterator[tuple[str, int]]:
        wanted = [entry for entry in entries if self._only is None or entry[0] in self._only]
        task = self._progress.add_task("", total=len(wanted))
        for entry in wanted:
            self._progress.update(task, description=words.format(*entry))
            yield entry
            self._progress.advance(task)


def missed(document: dict[str, Any], console: Console) -> bool:
    """Say what does not hold; whether anything does not."""
    show_missed(document.get("models", ()), console)
    broken = [case for case in document.get("random", ()) if case["broken"]]
    late = [order_line(row) for row in document.get("order", ()) if not order_reached(row)]
    late += times_missed(document.get("times", ()))
    for case in broken:
        console.print(f"[red]random model {case['seed']}: {', '.join(case['broken'])}[/]", highlight=False)
    for text in late:
        console.print(f"[yellow]{text}[/]", highlight=False)
    models = document.get("models", ())
    return bool(broken or late or any("error" in m or any(row["broken"] for row in m["rows"]) for m in models))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.fit", description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="of the benchmark (default: all)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these models only; the others' results stay")
    parser.add_argument("--cases", type=int, default=CASES, metavar="N", help=f"of random models (default {CASES})")
    parser.add_argument("--seconds", type=float, default=4.0, help="for planning each budget (default 4)")
    options = parser.parse_args(arguments)
    console = Console(width=WIDTH)
    document: dict[str, Any] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        suite = Suite(options.only, options.cases, options.seconds, progress)
        for part in options.parts:
            document[part] = getattr(suite, part)()
    broken = missed(document, console)
    if "models" in document:
        console.print(summary(document["models"]))
    return 3 if broken else 0


def write(part: str, found: list[dict[str, Any]]) -> None:
    """Put results beside those that are there, in place of what is there of the same model."""
    document = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if part != "random":
        rows = {row["name"]: row for row in (*document.get(part, ()), *found)}
        entries = TIMED if part == "times" else MODELS
        found = [rows[entry[0]] for entry in entries if entry[0] in rows]
    if part == "models":
        versions: dict[str, str] = next((model["versions"] for model in found if "versions" in model), {})
        document |= {"versions": {"python": platform.python_version(), **versions}, "summary": summary(found)}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({**document, part: found}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
