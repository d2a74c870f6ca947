"""`make bench-run`: what watching costs. The same scripts plain, under `lowtide run`, and under memray, by turns.

    python -m benchmarks.run [--only keras ...] [--rounds N]

Step time is the lower quartile over steps that are neither among the first nor recorded in full, and of all rounds the
best, as in `timeit`: whatever else the machine does only ever adds to it. `cpu` is processor time against the plain
script on the same allocator, which a busy machine changes less. RAM is the median of the highest RSS. The plain script
is run both as it is and on the allocator that `lowtide run` uses: time is compared with the one as it is, RAM with the
other, since which allocator keeps how much is not what watching costs (the table has both). Writes
benchmarks/results/run.json, and exits with 3 when a bound is broken: 5 % of step time, 50 MB of RAM.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lowtide.record import load_recording
from lowtide.record.views import main_steps

HERE = Path(__file__).parent
SCRIPT = HERE / "run_child.py"
RESULTS = HERE / "results" / "run.json"
KINDS = ("keras", "function", "eager")
TIME_WITHIN, RAM_WITHIN = 0.05, 50_000_000
SKIP = 10
"""Steps at the beginning that do not count."""
LOWTIDE = [sys.executable, "-m", "lowtide.cli.main", "run"]
MEMRAY = [sys.executable, "-m", "memray", "run", "--quiet", "--force"]
WAYS = ("plain", "plain on bfc", "lowtide", "lowtide tracemalloc", "lowtide memray", "memray", "memray native")
BOUND = "lowtide"
"""The way that has to keep the bounds: the others trace the host's memory too, which nobody gets for 5 %."""


def command(way: str, folder: Path) -> list[str]:
    trace = str(folder / "trace.bin")
    return {
        "plain": [sys.executable],
        "plain on bfc": [sys.executable],
        "lowtide": [*LOWTIDE, "--out", str(folder / "run.db")],
        "lowtide tracemalloc": [*LOWTIDE, "--out", str(folder / "run.db"), "--host", "tracemalloc"],
        "lowtide memray": [*LOWTIDE, "--out", str(folder / "run.db"), "--host", "memray"],
        "memray": [*MEMRAY, "-o", trace],
        "memray native": [*MEMRAY, "--native", "-o", trace],
    }[way]


def measure(kind: str, way: str) -> dict[str, float]:
    """Step seconds and highest RSS of one run."""
    with tempfile.TemporaryDirectory(prefix="lowtide-bench-") as name:
        folder = Path(name)
        settings = {k: v for k, v in os.environ.items() if not k.startswith(("TF_CPU", "MALLOC"))}
        settings["TF_CPP_MIN_LOG_LEVEL"] = "3"
        if way == "plain on bfc":
            settings["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
        out = folder / "times.json"
        run = [*command(way, folder), str(SCRIPT), kind, str(out)]
        done = subprocess.run(run, env=settings, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{way} {kind} failed:\n{done.stderr[-2000:]}")
        answer = json.loads(out.read_text())
        in_full = _in_full(folder / "run.db") if way.startswith("lowtide") else set()
    found = {"rss": answer["rss_bytes"], "in_full": len(in_full)}
    for name, key in (("step", "seconds"), ("cpu", "cpu")):
        counted = [s for number, s in enumerate(answer[key]) if number >= SKIP and number not in in_full]
        found[name] = statistics.quantiles(counted, n=4)[0]
    return found


def _in_full(file: Path) -> set[int]:
    """Steps recorded in full, and those after them: a census, or the parsing of a window, may fall there."""
    steps = [step for _, step in main_steps(load_recording(file))]
    found = [number for number, step in enumerate(steps) if step.detailed]
    return {*found, *(number + 1 for number in found)}


def row(way: str, runs: list[dict[str, float]], plain: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    step, rss = min(run["step"] for run in runs), statistics.median(run["rss"] for run in runs)
    usual = min(run["step"] for run in plain["plain"])
    bases = {name: statistics.median(run["rss"] for run in plain[name]) for name in ("plain", "plain on bfc")}
    return {
        "way": way,
        "step_seconds": step,
        "step_spread": [min(run["step"] for run in runs), max(run["step"] for run in runs)],
        "time_overhead": step / usual - 1,
        "cpu_overhead": min(run["cpu"] for run in runs) / min(run["cpu"] for run in plain["plain on bfc"]) - 1,
        "rss_bytes": rss,
        "over_plain_bytes": rss - bases["plain"],
        "over_plain_on_bfc_bytes": rss - bases["plain on bfc"],
        "steps_in_full": runs[0]["in_full"],
    }


def show(kind: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{kind}: what watching costs", title_justify="left")
    for name in ("", "step", "time", "cpu", "RSS", "over plain", "over plain on bfc"):
        table.add_column(name, justify="left" if not name else "right")
    for one in rows:
        table.add_row(
            one["way"], f"{one['step_seconds'] * 1e3:.2f} ms",
            *(f"{one[key]:+.1%}" for key in ("time_overhead", "cpu_overhead")),
            *(f"{one[key] / 1e6:+.0f} MB" for key in ("rss_bytes", "over_plain_bytes", "over_plain_on_bfc_bytes")),
        )  # fmt: skip
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="the two plain ones always run")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ways = [way for way in WAYS if way in options.ways or way.startswith("plain")]
    console = Console()
    results: dict[str, Any] = {"machine": f"{os.cpu_count()} cores, {platform.platform()}", "kinds": {}}
    broken = []
    for kind in options.only:
        runs: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for _ in range(options.rounds):
            for way in ways:
                runs[way].append(measure(kind, way))
        rows = [row(way, runs[way], runs) for way in ways]
        results["kinds"][kind] = rows
        console.print(show(kind, rows))
        broken += [f"{kind}: {text}" for one in rows if one["way"] == BOUND for text in over(one)]
    if tuple(options.only) == KINDS and tuple(ways) == WAYS:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    for text in broken:
        console.print(f"bound broken: {text}")
    return 3 if broken else 0


def over(one: dict[str, Any]) -> list[str]:
    found = []
    if one["time_overhead"] > TIME_WITHIN:
        found.append(f"{one['time_overhead']:.1%} of step time, at most {TIME_WITHIN:.0%}")
    if one["over_plain_on_bfc_bytes"] > RAM_WITHIN:
        found.append(f"{one['over_plain_on_bfc_bytes'] / 1e6:.0f} MB of RAM, at most {RAM_WITHIN / 1e6:.0f}")
    return found


if __name__ == "__main__":
    sys.exit(main())
