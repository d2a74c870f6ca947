"""`make bench-run`: what watching costs. The same script plain, under `lowtide run`, and under memray, taking turns.

    python -m benchmarks.run [--only keras ...] [--ways ...] [--blocks N] [--waves N]

All ways of running a script are alive at once and take turns, a block of steps each, one at a time: whatever else the
machine does meets all of them alike. The order of turns is drawn anew in every round: who goes after whom matters.
Processes that do the same differ in time by several percent, each keeping to its own, so each way has several, in waves
of a few that are alive together: as many waves as it takes until the bound is `CLEAR` standard errors away from what
was found, and at most `--waves`. A process's time is the median of its rounds, of each the median step over that of the
plain processes of the same round; a way's `time` is the mean of its processes over that of the plain ones, and `error`
the standard error of it, from how much the processes of a wave differ. `in all` is the ratio of the sums of all steps,
which has in it what happens now and then only. What does not count: the first rounds, the first steps of a block, in
which a process that slept warms up, and steps recorded in full. RAM is the highest RSS, the median of the processes.

The plain script runs both as it is and on the allocator that `lowtide run` puts it on: time is compared with the one as
it is, RAM with the other, since how much an allocator keeps is not what watching costs (the table has both). Writes
benchmarks/results/run.json, and exits with 3 when a bound is broken: 5 % of step time, 50 MB of RAM. 45 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lowtide.record import load_recording

HERE = Path(__file__).parent
SCRIPT = HERE / "run_child.py"
RESULTS = HERE / "results" / "run.json"
KINDS = {
    "keras": "Keras fit, a small CNN",
    "small": "Keras fit, two Dense layers",
    "large": "Keras fit, ResNet50 on 64x64",
    "function": "tf.function loop, the CNN",
    "eager": "eager loop, the CNN",
}
TIME_WITHIN, RAM_WITHIN = 0.05, 50_000_000
SKIP = 3
"""Rounds at the beginning that do not count: tracing, warm-up and most of the detailed steps."""
WAKING = 0.3
"""Of a block's steps: the first, that do not count either."""
SECONDS = 300
"""For a process to start, to run a block, or to end."""
LOWTIDE = [sys.executable, "-m", "lowtide.cli.main", "run"]
MEMRAY = [sys.executable, "-m", "memray", "run", "--quiet", "--force"]
WAYS = ("plain", "lowtide", "plain on bfc", "lowtide tracemalloc", "lowtide memray", "memray", "memray native")
BASES = ("plain", "plain on bfc")
FEW = ("plain", "lowtide", "plain on bfc")
"""In every wave; the others in the first only."""
PROCESSES = {"plain": 3, "lowtide": 3}
"""In a wave; of the other ways there is one."""
FEWEST_WAVES = 2
"""Before the error is believed."""
CLEAR = 2.0
"""Standard errors between what was found and the bound that make it clear on which side it is."""
TRACED = frozenset({"keras"})
"""Scripts that are run in every way, those that trace the host's memory too, which take minutes; the others in few."""
BOUND = "lowtide"
"""The way that has to keep the bounds: the others trace the host's memory too, which nobody gets for 5 %."""


def command(way: str, folder: Path) -> list[str]:
    trace, record = str(folder / "trace.bin"), str(folder / "run.db")
    return {
        "plain": [sys.executable],
        "plain on bfc": [sys.executable],
        "lowtide": [*LOWTIDE, "--out", record],
        "lowtide tracemalloc": [*LOWTIDE, "--out", record, "--host", "tracemalloc"],
        "lowtide memray": [*LOWTIDE, "--out", record, "--host", "memray"],
        "memray": [*MEMRAY, "-o", trace],
        "memray native": [*MEMRAY, "--native", "-o", trace],
    }[way]


@dataclass
class Block:
    times: list[tuple[float, float]]
    cpu: float


class Runner:
    """One way of running the script: a process that waits until it is told to go on."""

    def __init__(self, kind: str, way: str, folder: Path) -> None:
        self.way, self._kind, self._record = way, kind, folder / "run.db"
        self.blocks: list[Block] = []
        self.rss = 0
        self.in_full: list[tuple[float, float]] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(folder / "turns"))
        self._server.listen(1)
        self._server.settimeout(SECONDS)
        settings = {k: v for k, v in os.environ.items() if not k.startswith(("TF_CPU", "TF_BFC", "MALLOC"))}
        settings["TF_CPP_MIN_LOG_LEVEL"] = "3"
        if way == "plain on bfc":
            settings["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
        run = [*command(way, folder), str(SCRIPT), kind, str(folder / "turns")]
        self._said = (folder / "said").open("w+")
        self._process = subprocess.Popen(
            run, env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._said
        )
        self._stream: TextIO | None = None

    def ready(self) -> None:
        try:
            connection, _ = self._server.accept()
        except TimeoutError:
            raise self._failed() from None
        connection.settimeout(SECONDS)
        self._stream = connection.makefile("rw")

    def block(self) -> None:
        answer = self._ask("go")
        self.blocks.append(Block([(a, b) for a, b in answer["times"]], answer["cpu"]))

    def finish(self) -> None:
        self.rss = self._ask("end")["rss_bytes"]
        self._process.terminate()
        self._process.wait(SECONDS)
        if self.way.startswith("lowtide"):
            recording = load_recording(self._record)
            began = recording.run.began
            self.in_full = [(began + d.start, began + d.stop) for d in recording.details]

    def close(self) -> None:
        self._server.close()
        self._said.close()
        self._process.kill()
        self._process.wait()

    def _ask(self, what: str) -> dict[str, Any]:
        assert self._stream is not None
        self._stream.write(what + "\n")
        self._stream.flush()
        line = self._stream.readline()
        if not line:
            raise self._failed()
        return dict(json.loads(line))

    def _failed(self) -> SystemExit:
        self._said.seek(0)
        return SystemExit(f"{self._kind}, {self.way}: no answer:\n{self._said.read()[-2000:]}")

    def steps_of(self, number: int) -> list[float]:
        """Seconds of a block's steps, without the first and those that a detailed step touches."""
        times = self.blocks[number].times
        return [b - a for a, b in times[int(len(times) * WAKING) :] if not self._touched(a, b)]

    def _touched(self, start: float, stop: float) -> bool:
        return any(start <= end and stop >= begin for begin, end in self.in_full)


class Way:
    """All processes that run the script in one way, by the wave they were alive in."""

    def __init__(self, waves: Iterable[list[Runner]]) -> None:
        self.waves = [wave for wave in waves if wave]

    @property
    def runners(self) -> list[Runner]:
        return [*chain(*self.waves)]

    def rounds(self) -> list[list[list[list[float]]]]:
        """By wave, by round that counts, by process: seconds of its steps."""
        return [[[r.steps_of(n) for r in wave] for n in range(SKIP, len(wave[0].blocks))] for wave in self.waves]

    def steps(self) -> list[float]:
        return [*chain(*chain(*chain(*self.rounds())))]

    def levels(self, base: Way) -> list[list[float]]:
        """By wave and process: how long its steps take, by those of `base` in the same rounds."""
        return [_levels(*both) for both in zip(self.rounds(), base.rounds(), strict=True)]

    def cpu(self) -> list[float]:
        """By round: what a block takes of the processors."""
        blocks = chain(*(zip(*(r.blocks[SKIP:] for r in wave), strict=True) for wave in self.waves))
        return [statistics.median(block.cpu for block in one) for one in blocks]

    @property
    def rss(self) -> int:
        return int(statistics.median(runner.rss for runner in self.runners))


def _levels(rounds: list[list[list[float]]], base: list[list[list[float]]]) -> list[float]:
    scales = [statistics.fmean(map(statistics.median, filter(None, one))) for one in base]
    ratios = (
        [statistics.median(steps) / scale for steps, scale in zip(process, scales, strict=True) if steps]
        for process in zip(*rounds, strict=True)
    )
    return [statistics.median(of_process) for of_process in ratios]


def measure(kind: str, ways: list[str], rounds: int, most_waves: int, progress: Progress) -> list[dict[str, Any]]:
    """A row a way, of as many waves as make clear on which side of its bound the time is."""
    waves: list[list[Runner]] = []
    rows: list[dict[str, Any]] = []
    while len(waves) < most_waves and not (len(waves) >= FEWEST_WAVES and is_clear(rows)):
        of_wave = ways if not waves else [way for way in ways if way in FEW]
        waves.append(take_turns(f"{kind}, wave {len(waves) + 1}", kind, of_wave, rounds, progress))
        found = {way: Way([r for r in wave if r.way == way] for wave in waves) for way in ways}
        rows = [row(way, found[way], found["plain"], found["plain on bfc"]) for way in ways]
    return rows


def is_clear(rows: list[dict[str, Any]]) -> bool:
    """Whether what watching costs is surely on one side of its bound; where nobody watches there is nothing to find."""
    bound = [one for one in rows if one["way"] == BOUND]
    return all(abs(TIME_WITHIN - one["time_overhead"]) >= CLEAR * one["time_error"] for one in bound)


def take_turns(title: str, kind: str, ways: list[str], rounds: int, progress: Progress) -> list[Runner]:
    """Processes of every way, whose blocks are taken by turns."""
    random = Random(title)
    every = [way for way in ways for _ in range(PROCESSES.get(way, 1))]
    task = progress.add_task(f"{title}: starting {len(every)} processes", total=rounds * len(every))
    with contextlib.ExitStack() as stack:
        runners: list[Runner] = []
        for way in every:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lowtide-bench-")))
            runners.append(runner := Runner(kind, way, folder))
            stack.callback(runner.close)
        for runner in runners:
            runner.ready()
        for runner in chain(*(random.sample(runners, len(runners)) for _ in range(rounds))):
            progress.update(task, description=f"{title}: {runner.way}")
            runner.block()
            progress.advance(task)
        for runner in runners:
            progress.update(task, description=f"{title}: {runner.way} ends")
            runner.finish()
    progress.remove_task(task)
    return runners


def error_of(levels: list[list[float]]) -> float:
    """The standard error of their mean, by how much those of one wave differ; where each was alone it is not known."""
    free = sum(len(wave) - 1 for wave in levels)
    if not free:
        return math.nan
    spread = sum((level - statistics.fmean(wave)) ** 2 for wave in levels for level in wave) / free
    return math.sqrt(spread / sum(map(len, levels)))


def row(name: str, way: Way, plain: Way, on_bfc: Way) -> dict[str, Any]:
    plain, on_bfc = (Way(base.waves[: len(way.waves)]) for base in (plain, on_bfc))
    levels, plain_levels = way.levels(plain), plain.levels(plain)
    error = math.hypot(error_of(levels), error_of(plain_levels)) if name != "plain" else 0.0
    cpu = zip(way.cpu(), on_bfc.cpu(), strict=True)
    return {
        "way": name,
        "processes": len(way.runners),
        "waves": len(way.waves),
        "step_seconds": statistics.median(way.steps()),
        "time_overhead": statistics.fmean(chain(*levels)) / statistics.fmean(chain(*plain_levels)) - 1,
        "time_error": None if math.isnan(error) else error,
        "levels": levels,
        "time_overhead_in_all": statistics.fmean(way.steps()) / statistics.fmean(plain.steps()) - 1,
        "cpu_overhead": statistics.median(a / b for a, b in cpu) - 1,
        "rss_bytes": way.rss,
        "over_plain_bytes": way.rss - plain.rss,
        "over_plain_on_bfc_bytes": way.rss - on_bfc.rss,
        "rounds": len(way.rounds()[0]),
        "detailed_steps": max(len(runner.in_full) for runner in way.runners),
    }


def show(kind: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{KINDS[kind]}: what watching costs", title_justify="left")
    for name in ("", "step", "time", "error", "in all", "cpu", "RAM", "on bfc"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for one in rows:
        error = one["time_error"]
        table.add_row(
            one["way"], f"{one['step_seconds'] * 1e3:.2f} ms", f"{one['time_overhead']:+.1%}",
            f"{error:.1%}" if error else "", *(f"{one[key]:+.1%}" for key in ("time_overhead_in_all", "cpu_overhead")),
            *(f"{one[key] / 1e6:+.0f} MB" for key in ("over_plain_bytes", "over_plain_on_bfc_bytes")),
        )  # fmt: skip
    return table


def over(one: dict[str, Any]) -> list[str]:
    """The bounds that a row breaks, in words."""
    found = []
    if one["time_overhead"] > TIME_WITHIN:
        found.append(f"{one['time_overhead']:.1%} of step time, at most {TIME_WITHIN:.0%}")
    if one["over_plain_on_bfc_bytes"] > RAM_WITHIN:
        found.append(f"{one['over_plain_on_bfc_bytes'] / 1e6:.0f} MB of RAM, at most {RAM_WITHIN / 1e6:.0f}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="the two plain ones always run")
    parser.add_argument("--blocks", type=int, default=5, help="rounds of turns that count, in a wave")
    parser.add_argument("--waves", type=int, default=10, help="of new processes, at most, while it is not clear")
    options = parser.parse_args()
    console = Console(width=96)
    kinds: dict[str, list[dict[str, Any]]] = {}
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        for kind in options.only:
            ways = [way for way in (WAYS if kind in TRACED else FEW) if way in options.ways or way in BASES]
            kinds[kind] = measure(kind, ways, SKIP + options.blocks, options.waves, progress)
            progress.console.print(show(kind, kinds[kind]))
    missed = missed_in(kinds)
    if tuple(options.ways) == WAYS:
        write(kinds)
    for text in missed:
        console.print(f"not reached: {text}")
    for text in too_near(kinds):
        console.print(f"too near its bound to tell: {text}")
    if not missed:
        console.print(f"reached: {TIME_WITHIN:.0%} of step time and {RAM_WITHIN / 1e6:.0f} MB of RAM at most")
    return 3 if missed else 0


def missed_in(kinds: dict[str, list[dict[str, Any]]]) -> list[str]:
    bound = ((kind, one) for kind, rows in kinds.items() for one in rows if one["way"] == BOUND)
    return [f"{KINDS[kind]}: {text}" for kind, one in bound for text in over(one)]


def too_near(kinds: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Scripts of which all waves did not make clear on which side of its bound the time is."""
    return [KINDS[kind] for kind, rows in kinds.items() if not is_clear(rows)]


def write(found: dict[str, list[dict[str, Any]]]) -> None:
    """Put these scripts' results beside those that are there."""
    before = json.loads(RESULTS.read_text())["kinds"] if RESULTS.exists() else {}
    kinds = {kind: (before | found)[kind] for kind in KINDS if kind in before | found}
    document = {
        "machine": f"{os.cpu_count()} cores, {platform.platform()}",
        "versions": {name: version(name) for name in ("tensorflow-cpu", "keras", "memray") if _has(name)},
        "not_reached": missed_in(kinds),
        "too_near_to_tell": too_near(kinds),
        "kinds": kinds,
    }
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")


def _has(name: str) -> bool:
    with contextlib.suppress(ModuleNotFoundError):
        return bool(version(name))
    return False


if __name__ == "__main__":
    sys.exit(main())
