"""How often `lowtide run` names the line and the cause: `python -m benchmarks.diagnose [--recordings DIR] [NAME ...]`.

Every case is a script with a `bad` and a `good` variant, after a public issue. Those of the project are in tests/cases;
others may lie in ../shared/cases. Each variant is run once through the command, as a user would; with `--recordings`
those are kept in DIR as NAME.VARIANT.db, and one that is there is judged again instead of run. The mark `# CULPRIT` and
the table of causes are read here and nowhere else.

recall: bad variants whose first finding names the marked statement and the right cause. precision: of the problems
above 5 % of the peak, first findings of bad variants and all findings of good ones, those that are right.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.diagnose_causes import CAUSES
from lowtide.units import format_size

ROOT = Path(__file__).parents[1]
FOLDERS = {"shared": ROOT.parent / "shared" / "cases", "own": ROOT / "tests" / "cases"}
RESULTS = Path(__file__).parent / "results" / "diagnose.json"
MARK = "# CULPRIT"
NOTABLE = 0.05
SECONDS = 900


def cases(names: list[str]) -> list[tuple[str, Path]]:
    """(whose, script) of every case, or of those whose names contain one of `names`."""
    found = [(whose, file) for whose, folder in FOLDERS.items() for file in sorted(folder.glob("*.py"))]
    return [(whose, file) for whose, file in found if not names or any(name in file.stem for name in names)]


def run_variant(script: Path, variant: str, folder: Path) -> dict[str, Any]:
    """What `lowtide run --json` says of it, or `lowtide report --json` of the recording that is there."""
    file = folder / f"{script.stem}.{variant}.db"
    again = ["report", "--json", str(file)]
    first = ["run", "--json", "--out", str(file), str(script), variant]
    command = [sys.executable, "-m", "lowtide.cli.main", *(again if file.exists() else first)]
    began = monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    seconds = monotonic() - began
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        words = done.stderr.strip().splitlines()
        return {"error": words[-1][:200] if words else f"exit code {done.returncode}", "seconds": seconds}
    peak = max(found["host_peak_bytes"] or 0, found["device_peak_bytes"] or 0)
    findings = [{**f, "file": Path(f["file"]).name if f["file"] else None} for f in found["findings"]]  # of any machine
    return {"seconds": seconds, "peak_bytes": peak, "findings": findings, "reused": command[3] == "report"}


def culprit_lines(script: Path) -> set[int]:
    """Lines of the statements that are marked; of a compound one, its head."""
    text = script.read_text()
    marked = {number for number, line in enumerate(text.splitlines(), 1) if MARK in line}
    lines = set(marked)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            decorators = [d.lineno for d in getattr(node, "decorator_list", ())]
            first = min([node.lineno, *decorators])
            last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
            span = set(range(first, max(first, last) + 1))
            if span & marked and len(span) <= 8:
                lines |= span
    return lines


def judged(whose: str, script: Path, folder: Path) -> dict[str, Any]:
    """One case, both variants, and the verdicts."""
    bad, good = run_variant(script, "bad", folder), run_variant(script, "good", folder)
    first: Any = next(iter(bad.get("findings", [])), None)
    named = bool(first) and first["line"] in culprit_lines(script) and first["file"] == script.name
    causes = CAUSES.get(script.stem, ())
    false = [f for f in good.get("findings", []) if is_notable(f, good["peak_bytes"])]
    return {
        "case": script.stem,
        "whose": whose,
        "line_named": named,
        "cause_named": bool(first) and (not causes or first["id"] in causes),
        "first": first,
        "bad_peak_bytes": bad.get("peak_bytes"),
        "good_peak_bytes": good.get("peak_bytes"),
        "false_problems": false,
        "seconds": bad["seconds"] + good["seconds"],
        "reused_recordings": bool(bad.get("reused")) + bool(good.get("reused")),
        "error": bad.get("error") or good.get("error"),
    }


def is_notable(finding: dict[str, Any], peak: int) -> bool:
    return bool(finding["severity"] == "problem" and finding["bytes"] > NOTABLE * peak)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    right = [row for row in rows if row["line_named"] and row["cause_named"]]
    wrong = [row for row in rows if row["first"] and row not in right and row["first"]["severity"] == "problem"]
    false = sum(len(row["false_problems"]) for row in rows)
    return {
        "cases": len(rows),
        "line_named": sum(row["line_named"] for row in rows),
        "line_and_cause_named": len(right),
        "good_without_problem": sum(not row["false_problems"] and not row["error"] for row in rows),
        "reused_recordings": sum(row["reused_recordings"] for row in rows),
        "failed_to_run": sum(bool(row["error"]) for row in rows),
        "recall": len(right) / max(1, len(rows)),
        "precision": len(right) / max(1, len(right) + len(wrong) + false),
    }


def table(rows: list[dict[str, Any]]) -> Table:
    shown = Table(title="Diagnosis", title_justify="left", box=None, padding=(0, 1))
    for name in ("case", "", "line", "first finding", "bytes", "good variant"):
        shown.add_column(name, justify="right" if name == "bytes" else "left")
    for row in rows:
        first = row["first"] or {"id": "none", "bytes": 0, "line": None}
        verdict = "right" if row["line_named"] and row["cause_named"] else "wrong"
        wrong = ", ".join(f["id"] for f in row["false_problems"]) or "clean"
        shown.add_row(
            row["case"], verdict, str(first["line"] or ""), first["id"], format_size(first["bytes"]),
            row["error"] or wrong,
        )
    return shown


def progress(chosen: list[tuple[str, Path]], folder: Path, console: Console) -> Iterator[dict[str, Any]]:
    with Progress(console=console) as bar:
        task = bar.add_task("cases", total=len(chosen))
        for whose, script in chosen:
            bar.update(task, description=script.stem)
            yield judged(whose, script, folder)
            bar.advance(task)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.diagnose")
    parser.add_argument("--recordings", type=Path, metavar="DIR", help="keep recordings here, and judge those that are")
    parser.add_argument("names", nargs="*", help="parts of names of cases; all when none is given")
    options = parser.parse_args()
    console = Console(stderr=True)
    if options.recordings is not None:
        options.recordings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lowtide-bench-") as folder:
        rows = list(progress(cases(options.names), options.recordings or Path(folder), console))
    groups = {"all": rows, **{whose: [row for row in rows if row["whose"] == whose] for whose in FOLDERS}}
    totals = {name: summary(group) for name, group in groups.items() if group}
    console.print(table(rows))
    for name, total in totals.items():
        named = f"{total['line_and_cause_named']} of {total['cases']} named, recall {total['recall']:.0%}"
        clean = f"precision {total['precision']:.0%}, good variants clean {total['good_without_problem']}"
        console.print(f"{name}: {named}, {clean}")
    if not options.names:
        versions = {name: version(name) for name in ("tensorflow-cpu", "keras")}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({"versions": versions, "summary": totals, "rows": rows}, indent=1) + "\n")
    return 0 if all(total["recall"] == 1 == total["precision"] for total in totals.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
