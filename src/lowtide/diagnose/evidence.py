"""Facts that several rules start from: what size is worth saying, what grew between censuses, which line keeps it.

All pure, all from one Recording.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from lowtide.diagnose.code import Code, read_code
from lowtide.diagnose.origins import logged_as, puts_inside, returned_with
from lowtide.diagnose.syntax import whole
from lowtide.diagnose.trends import FEWEST, begun_at, host_goes_on, rise, slow_samples
from lowtide.program import Source
from lowtide.record import Detail, Held, Recording, Step
from lowtide.record.types import CYCLE, DEFAULT, EACH_IN
from lowtide.record.views import device_peak, host_peak, inside, main_steps, step_count

LEAST = 1 << 20
WORTH = 0.01
"""Below a mebibyte, or this part of the run's peak, nothing is worth a reader's time."""


def peak_bytes(recording: Recording) -> int:
    """The most memory the run had: of the host, or of a device that is not part of it."""
    host, device = host_peak(recording), device_peak(recording)
    return max(host.rss_bytes or 0 if host else 0, device.bytes if device else 0)


def is_worth(recording: Recording, size: float, part: float = WORTH) -> bool:
    return size >= max(LEAST, part * peak_bytes(recording))


def per_step(recording: Recording, size: int) -> int | None:
    """What of a growth falls to one of the run's steps; None where it has no steps that could be compared."""
    steps = step_count(recording)
    return round(size / steps) or None if steps > 1 else None


def are_replaced(recording: Recording, size: int) -> bool:
    """Whether variables that there were, in forms with a third of so many bytes at least, are gone: models are freed,
    and the latest may be the largest."""
    last = {row.example for row in last_census(recording) if row.kind == "variable"}
    return bool({row.example for row in recording.census if row.kind == "variable" and 3 * row.bytes > size} - last)


class Grown(NamedTuple):
    """Things of one kind and form that became more from the first census to the last."""

    row: Held
    """As the last census has them: the holder of the most."""
    objects: int
    """By how many they grew."""
    bytes: int
    before: int
    """How many there were."""
    steps: int
    """How many of the run's own steps lie between."""

    @property
    def per_step(self) -> int:
        return round(self.bytes / self.steps) if self.steps else 0


def grown(recording: Recording) -> list[Grown]:
    """Of what there is more in a later census than in the first, at its most; the most bytes first.

    What a run lets go when it ends was still too much before. With one census only, everything is taken to have grown
    that a loop of the user's can have made: many of one form, in one container.
    """
    times = sorted({row.time for row in recording.census})
    if not times:
        return []
    first = _forms(recording, times[0]) if len(times) > 1 else {}
    most: dict[tuple[str, str], Grown] = {}
    for time in times[1:] or times:
        for form, rows in _forms(recording, time).items():
            if time != times[-1] and not any(row.holder for row in rows):
                continue  # in the middle of a step much is alive that nobody keeps
            found = _grown(recording, rows, first.get(form, []))
            if found is not None and (form not in most or found.bytes >= most[form].bytes):
                most[form] = found
    return sorted([*most.values(), *_swollen(recording, times)], key=lambda g: -g.bytes)


def _swollen(recording: Recording, times: list[float]) -> list[Grown]:
    """Single things that one name holds and that are larger in each census: `all = tf.concat([all, new], 0)`."""
    sizes: dict[tuple[str, str], list[Held]] = {}
    for row in recording.census:
        if row.holder and row.objects == 1 and row.kind in ("tensor", "array"):
            sizes.setdefault((row.kind, row.holder), []).append(row)
    found = []
    for rows in sizes.values():
        ordered = sorted(rows, key=lambda row: row.time)
        enough = len(ordered) >= FEWEST // 2 or (len(ordered) == 2 and _adds_to_itself(recording, ordered[-1]))
        if enough and all(a.bytes < b.bytes for a, b in pairwise(ordered)):
            first, last = ordered[0], ordered[-1]
            between = [s.repeats for n, s in main_steps(recording) if (first.step or 0) < n <= (last.step or 0)]
            found.append(Grown(last, max(3, sum(between)), last.bytes - first.bytes, 1, sum(between)))
    return found


def _adds_to_itself(recording: Recording, row: Held) -> bool:
    """Whether a loop makes the thing from itself and more."""
    code = read_code(recording)
    return any(code.in_loop(line) for name in names_in(row.holder)[:1] for line in code.puts_into(name))


def alive_pipelines(recording: Recording) -> set[int]:
    """Iterators of tf.data that were alive at the last look at them."""
    last = max((stage.time for stage in recording.stages), default=0.0)
    return {stage.pipeline for stage in recording.stages if stage.time > last - ONE_LOOK}


def _grown(recording: Recording, rows: list[Held], old: list[Held]) -> Grown | None:
    before, objects = sum(r.objects for r in old), sum(r.objects for r in rows)
    size = sum(r.bytes for r in rows) - sum(r.bytes for r in old)
    if objects <= before:
        return None
    row = max(rows, key=lambda r: (r.bytes, r.objects, bool(r.holder)))
    row = row._replace(bytes=sum(r.bytes for r in rows), viewed_bytes=sum(r.viewed_bytes for r in rows))
    begun = next((r.step for r in old if r.step is not None), -1)
    ended = row.step if row.step is not None else len(recording.steps)
    between = [step.repeats for number, step in main_steps(recording) if begun < number <= ended]
    return Grown(row, objects - before, size, before, sum(between))


def _forms(recording: Recording, time: float) -> dict[tuple[str, str], list[Held]]:
    forms: dict[tuple[str, str], list[Held]] = {}
    for row in recording.census:
        if row.time == time:
            forms.setdefault((row.kind, row.example), []).append(row)
    return forms


ONE_LOOK = 0.3
"""Seconds that one look at all stages takes at most."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_LOGGED = re.compile(r"history\['(\w+)'\]")
"""What Keras's History keeps of each epoch, by its key in the logs."""
_SIZE = re.compile(r" \((?!global|local)\w+ of ([\d,]+)")
"""Of "seen (list of 96, ...)", not of "(global of 2_train.py)"."""


def names_in(holder: str) -> list[str]:
    """The names of a chain, what holds the thing first: "metric.seen (list of 96, ...)" gives seen, metric."""
    text = holder.partition(" (")[0]
    return list(dict.fromkeys(reversed(_NAME.findall(text.replace(" closure ", ".")))))


def container_size(holder: str) -> int | None:
    """How many things the container has that a chain ends in; None where it ends in none."""
    found = _SIZE.search(holder)
    return int(found[1].replace(",", "")) if found else None


def is_users(holder: str) -> bool:
    """Whether a chain begins at a name of the user's: not in a module of a library."""
    scope = holder.rpartition(" (")[2].rpartition(", ")[2]
    return bool(holder) and not scope.startswith("in ")


def line_that_keeps(recording: Recording, row: Held) -> Source | None:
    """The user's line that put things where they are held; failing that, the line that made them."""
    code = read_code(recording)
    if row.held_at and (DEFAULT in row.holder or EACH_IN in row.holder):
        return row.held_at
    if CYCLE in row.holder:
        if off := code.calls("gc.disable"):
            return off[0][0]
        line = likeliest(code, code.used_often(names_in(row.holder)[-1]))
        return line or _made_often(recording, row.made)
    if is_users(row.holder):
        for name in _outermost_that_grows(row):
            line = _put_of(code, code.puts_into(name) or puts_inside(code, name), row) or code.cached(name)
            if line is not None:
                keys = [key for key in names_in(row.holder) if key != name]
                return next((made for key in keys if (made := returned_with(code, line, key))), line)
        if logged := _LOGGED.search(row.holder):
            return logged_as(code, logged[1]) or row.held_at
        if any(name.startswith("_") for name in names_in(row.holder)) and code.in_loop(row.made):
            return row.made  # nobody put it there: a library keeps what is made of its things
    if row.held_at and code.ran(row.held_at) and row.holder and row.kind not in ("tensor", "array"):
        return row.held_at
    told = _told(code, row) if is_users(row.holder) and not code.in_loop(row.held_at) else None
    by_name = told or _kept_by_name(recording, row) or (row.held_at if code.ran(row.held_at) else _bound(code, row))
    return by_name or _made_often(recording, row.made) or only_put(recording)


def _outermost_that_grows(row: Held) -> list[str]:
    """The names of the chain, the holder first; last where it is one of several: then what holds those is growing."""
    names, size = names_in(row.holder), container_size(row.holder)
    one_of_several = size is not None and 2 * size <= row.objects
    return [*names[1:], names[0]] if names and one_of_several else names


def _bound(code: Code, row: Held) -> Source | None:
    """The line that made the holder itself, where no line puts things into it: `train, rest = tee(batches)`."""
    names = names_in(row.holder) if is_users(row.holder) else []
    return next((line for name in names if (line := likeliest(code, code.assigns(name))) is not None), None)


def _told(code: Code, row: Held) -> Source | None:
    """The line of a loop that hands them to their holder by a method of the holder's own: `log.debug("%s", y)`."""
    names = reversed(names_in(row.holder))
    return next((line for name in names if (line := likeliest(code, code.told(name))) is not None), None)


def _made_often(recording: Recording, made: Source | None) -> Source | None:
    """The line that made them; where that runs once (a layer's definition), the one that called it again and again."""
    code = read_code(recording)
    if made is None or code.in_loop(made):
        return made
    calls = Counter(step.source for _, step in main_steps(recording) if code.in_loop(step.source))
    return calls.most_common(1)[0][0] if calls else made


def _put_of(code: Code, lines: Iterable[Source], row: Held) -> Source | None:
    """Of lines that put things where these are held: by the key in the chain, and by what the line puts there."""
    keys = set(names_in(row.holder))
    made = code.assigned_at(row.made) if row.made else []

    def worth(line: Source) -> tuple[bool, bool, bool, bool, bool, int]:
        return (
            bool(code.keys_at(line) & keys), code.puts_large(line), code.in_loop(line),
            code.mentions(line, made) or line == row.made, code.was_sampled(line), line.line,
        )  # fmt: skip

    return max(lines, key=worth, default=None)


def only_put(recording: Recording) -> Source | None:
    """The one line of a loop that puts anything anywhere; None where there are several."""
    code = read_code(recording)
    found = {line for line in code.puts() if code.in_loop(line)}
    large = {line for line in found if code.puts_large(line)}
    return large.pop() if len(large) == 1 else found.pop() if len(found) == 1 else None


def _kept_by_name(recording: Recording, row: Held) -> Source | None:
    """No chain shows: where the code puts what the line that made it is assigned to."""
    code = read_code(recording)
    returned = [d for d in recording.data if d.what == "returned by predict"]
    answers = [d.source for d in returned if f"{d.dtype} {d.shape}" == row.example]
    for origin in filter(None, (row.made, *answers)):
        for name in code.assigned_at(origin):
            line = likeliest(code, code.keeps(name))
            if line is not None:
                return line
    return None


def last_census(recording: Recording) -> list[Held]:
    """What was held when it was last counted."""
    last = max((row.time for row in recording.census), default=0.0)
    return [row for row in recording.census if row.time == last]


def is_ensemble(code: Code, holder: str, kept_at: Source | None) -> bool:
    """Whether things were put together once, and the script goes through all of them: they are wanted."""
    return not code.in_loop(kept_at) and any(code.goes_through(name) for name in names_in(holder)[-1:])


def likeliest(code: Code, lines: Iterable[Source]) -> Source | None:
    """Of lines that may have done it: one that was seen running, one in a loop, the last."""
    found = list(lines)
    ranked = sorted(found, key=lambda line: (code.in_loop(line), code.was_sampled(line), line.line))
    return ranked[-1] if ranked else None


def step_of(recording: Recording, detail: Detail) -> Step | None:
    """The step that was recorded in detail."""
    return recording.steps[detail.step] if detail.step < len(recording.steps) else None


def called_in_loop(recording: Recording, made: Source | None) -> Source | None:
    """Where a loop makes it: the line itself, or the call in a loop of the function that the line is in."""
    code = read_code(recording)
    file = code.file(made.file) if made else None
    function = file.enclosing(made.line) if file and made else None
    if made is None or file is None or function is None:
        return made
    if any(function.lineno <= loop.lineno <= made.line for loop in file.loops_around(made.line)):
        return made
    uses = code.uses(function.name)
    inner = code.used_often(function.name) or [line for line in uses if code.in_function(line)]
    return likeliest(code, inner) or made  # what a function runs may run often, what the script itself runs only once


def rss_at(recording: Recording, time: float) -> int | None:
    """RSS at the last sample not after `time`."""
    known = [s for s in recording.samples if s.rss_bytes is not None and s.time <= time]
    return max(known, key=lambda s: s.time).rss_bytes if known else None


def filled(recording: Recording) -> int:
    """Arrays that were there at their full size, and whose pages became resident as a loop wrote into their items.

    It ends when they are full. Loops that were over before the first step have no part in what grew since.
    """
    arrays: dict[tuple[str, str], list[Held]] = {}
    for row in recording.census:
        if row.kind == "array" and is_users(row.holder):
            form = row.example if container_size(row.holder) is not None else ""
            arrays.setdefault((row.holder, form), []).append(row)
    return sum(max(row.bytes for row in rows) for rows in arrays.values() if _is_filled(recording, rows))


def _is_filled(recording: Recording, rows: list[Held]) -> bool:
    holder, inner = rows[0].holder, container_size(rows[0].holder) is not None
    once_each = len({row.time for row in rows}) == len(rows) and len({(row.objects, row.bytes) for row in rows}) == 1
    if not once_each or (inner and len(rows) < 2):
        return False
    code = read_code(recording)
    names = names_in(holder) if inner else names_in(holder)[:1]
    return any(_ran_with_steps(recording, line) for name in names for line in code.fills(name, 2 if inner else 1))


def _ran_with_steps(recording: Recording, line: Source) -> bool:
    """Whether the loop that runs a line, or one that calls its function, was seen running after the first step."""
    begun = begun_at(recording)
    seen = {s.source for s in inside(recording) if s.time >= begun}
    seen |= {s.source for s in recording.steps if s.start >= begun}
    at = called_in_loop(recording, line)
    file = read_code(recording).file(at.file) if at else None
    loops = [whole(loop) for loop in file.loops_around(at.line)] if file and at else []
    return any(s and at and s.file == at.file and s.line in loop for s in seen for loop in loops)


def arrays_explain(recording: Recording) -> int:
    """What of the process's growth is NumPy arrays: ever more of them, or some that fill."""
    return sum(g.bytes for g in grown(recording) if g.row.kind == "array") + filled(recording)


FEW_STEPS = 0.1
"""With too few steps to see a trend, only a rise of this part of the peak counts."""


def unexplained(recording: Recording, few_steps: float = FEW_STEPS) -> int:
    """Growth of the process that still goes on and that tensors, arrays and graphs do not account for.

    Where there are few steps to see a trend in, only a rise of `few_steps` of the peak counts.
    """
    known = sum(g.bytes for g in grown(recording) if g.row.holder and is_users(g.row.holder))
    if len(main_steps(recording)) >= FEWEST:
        return rise(recording, "rss_bytes") - known - filled(recording) if host_goes_on(recording) else 0
    begun = [s for s in slow_samples(recording) if s.eager_tensors is not None]
    if len(begun) < 2:
        return 0
    heap = (begun[-1].heap_bytes or 0) - (begun[0].heap_bytes or 0)
    tensors = (begun[-1].reserved_bytes or 0) - (begun[0].reserved_bytes or 0)
    found = heap - max(0, tensors) - known
    return found if is_worth(recording, found, few_steps) else 0
