"""Which ops may overlap: a fixed order, loosened wherever its peak leaves room.

An order in which each op waits for the one before it has one peak, and leaves all cores but one idle whenever an op
does not keep all of them busy. Here op n waits for the first `waits[n]` ops of the order only, and for what it reads.
While the first unfinished op is m, only ops n with `waits[n] <= m` can have begun, so however they interleave, no more
can be alive than

    what is alive in the order before m  +  all that ops m to n allocate

even if none of them frees anything. `waits` is the least for which that stays within the peak for every m: a bound
that no interleaving breaks. It counts requested bytes.

The pieces that an allocator cuts depend on the interleaving too, by some percent, and have no such bound. So where the
peak leaves no room for that, only what comes after it is loosened: up to the last op that comes near the peak,
everything is as it was, chunks included; and where the allocator cannot grow, nothing is. And a few interleavings are
played on the allocator's model (`lowtide.simulate.interleave`); those that do not stay below the ceiling are given up,
at last for the fixed order.

Nothing runs beside a loop, but the ops of its trips may overlap by the same bound, which then holds for the fullest
trip; and where there is room for all that the next trip allocates, two trips.

Known to be suboptimal: that what ops in the window free is not counted, even when they must have run. And windows are
narrow all over where a plan is at its budget all over.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence, Set
from itertools import accumulate

from lowtide.ops import ANY_INPUT, UNKNOWN, Act, Rule, is_lowered, rule_at, rule_of
from lowtide.program import Op, Program
from lowtide.simulate.interleave import MOST_OPS, Ceiling, Loose, keeps
from lowtide.simulate.machine import Parts, Watched, run_watched
from lowtide.simulate.timeline import Timeline
from lowtide.simulate.unroll import ops_executed

WIDEST = 400
"""Ops. Wider windows gain no time, and mix what lies further apart."""
GRID = 8
"""Ops. Windows begin at multiples of this where they can: ops that share a beginning share a gate."""
ROOMY = 0.15
"""Of the peak: if the ceiling is so much higher, chunks may be cut any way."""
ALL_OVER = (1.0, 0.9)
AFTER_THE_PEAK = (0.95, 0.85)
"""Of the step's own peak, tried one after another as the room for what overlaps."""
IN_LOOPS = 0.05
"""Of the step's own peak: what the bound may exceed it by inside loops if there is room. The same edges hold the ops of
each trip, so those of the fullest hold them all."""

_ALONE = frozenset(
    {Act.CONTROL_FLOW, Act.LIST_NEW, Act.LIST_ZEROS, Act.LIST_ADD, Act.LIST_SPLIT, Act.LIST_PUT, Act.LIST_POP,
     Act.LIST_GET}
)  # fmt: skip
"""Acts that overlap with nothing: bodies, and lists, whose elements are shared in ways that depend on the order."""

_REFERENCES = frozenset({"VariableV2", "Variable"})
"""Variables of old: changed through any tensor that refers to them, so only the whole order is safe."""


def strict(program: Program, order: Sequence[int]) -> Loose:
    """Each op waits for the one before it; what comes from outside the step waits for nothing."""
    return _gated(program, order, range(len(order)), [()] * len(order))


def loosened(
    program: Program, batch: int, order: Sequence[int], timeline: Timeline, ceiling: Ceiling | None = None
) -> Loose:
    """The order of `timeline` with as much overlap as keeps its requested peak, and its chunks below `ceiling`."""
    if any(op.kind in _REFERENCES for op in program.ops):
        return strict(program, order)
    ceiling = ceiling or Ceiling()
    most = timeline.peak - timeline.resident
    watched = run_watched(program, batch, order)
    live = [*accumulate((watched.trace.bytes[b] * (1 if new else -1) for b, new in watched.trace.log), initial=0)]
    step = _Footprint(program, batch, order, live, [watched.parts], _ALONE)
    variables = _variables_in_turn(program, batch, order)
    loops = _Loops(program, batch, order, live, watched)
    roomy = _is_roomy(timeline, ceiling)
    tries = [(share, 0) for share in ALL_OVER if roomy]
    if not ceiling.walled:
        tries += [(share, step.last_above(int(most * share)) + 1) for share in AFTER_THE_PEAK]
    orders = [_gated(program, order, step.waits(int(most * share), begin), variables) for share, begin in tries]
    orders.append(strict(program, order))
    for bodies in loops.ways(batch, int(most * (1 + IN_LOOPS if roomy else 1))):
        for loose in orders:
            chosen = loose._replace(bodies=bodies)
            if chosen == orders[-1] or keeps(program, batch, order, chosen, timeline, ceiling):
                return chosen
    raise AssertionError("unreachable: the last way is the strict order")


def _is_roomy(timeline: Timeline, ceiling: Ceiling) -> bool:
    if ceiling.limit is None:
        return False
    return timeline.chunk_peak * (1 + ROOMY) <= ceiling.limit - ceiling.ahead


class _Footprint:
    """What each op of an order finds alive, and what it may allocate when others run beside it: the most of any trip.

    `live`: bytes alive at each moment of the step; `trips`: the moments of each op, each time that it ran.
    """

    def __init__(
        self,
        program: Program,
        batch: int,
        order: Sequence[int],
        live: Sequence[int],
        trips: Sequence[Parts],
        alone: Set[Act],
    ) -> None:
        rules = [rule_at(op, program.values, batch) or UNKNOWN for op in program.ops]
        reuse = _CertainReuse(program, batch, rules)
        self._alone = [rules[index].act in alone for index in order]
        self._before = [max(live[parts[index][0]] for parts in trips) for index in order]
        self._allocated = [
            max(reuse.bytes_without(index), *(_allocated(live, *parts[index]) for parts in trips)) for index in order
        ]

    def last_above(self, room: int) -> int:
        """The last op of the order that needs more than `room`; -1 if none does."""
        needed = (live + more for live, more in zip(self._before, self._allocated, strict=True))
        return max((n for n, bytes_ in enumerate(needed) if bytes_ > room), default=-1)

    def most_of_two_trips(self) -> int:
        """The bound for all ops of this trip and the next at once."""
        total = list(accumulate(self._allocated, initial=0))
        this = (live + total[-1] - done for live, done in zip(self._before, total[:-1], strict=True))
        return max(this, default=0) + total[-1]

    def waits(self, room: int, begin: int = 0) -> list[int]:
        """For each op the least number of ops that must be done before it, so that the bound stays within `room`.

        The first `begin` ops wait for all before them.
        """
        count = len(self._before)
        total = list(accumulate(self._allocated, initial=0))
        last_bad = [-1] * (count + 1)  # of the ops m whose bound first breaks at n, the last
        for m, live in enumerate(self._before):
            broken_at = max(m + 1, bisect_right(total, room - live + total[m]) - 1)
            last_bad[min(broken_at, count)] = m
        waits: list[int] = []
        least = bad = 0
        for n in range(count):
            bad = max(bad, last_bad[n] + 1)
            earliest = max(bad, least, n - WIDEST)
            waits.append(n if self._alone[n] or n <= begin else min(n, -(-earliest // GRID) * GRID))
            least = n + 1 if self._alone[n] else waits[-1]
        return waits


def _allocated(live: Sequence[int], start: int, end: int) -> int:
    return sum(max(0, live[moment + 1] - live[moment]) for moment in range(start, end))


class _Loops:
    """The loops of a step, beside which nothing else runs, and which are loosened all or none.

    What holds for the ops of a step holds for those of a trip, if each trip begins when the one before is done; and for
    those of two trips if there is room for all that the second may allocate. A list that an op cannot take over since
    another still reads it is copied, but not its elements, and what is taken out of it counts as new to whoever would
    write over it (`_CertainReuse`).
    """

    def __init__(
        self, program: Program, batch: int, order: Sequence[int], live: Sequence[int], watched: Watched
    ) -> None:
        self._runs: dict[int, list[int]] = {}  # where in the order each body is run
        for n, index in enumerate(order):
            if program.ops[index].trips is not None:
                self._runs.setdefault(program.ops[index].bodies[1], []).append(n)
        self._bodies = {number: program.functions[number] for number in self._runs}
        loops = [program.ops[order[n]] for runs in self._runs.values() for n in runs]
        self._are_simple = (
            all(map(is_lowered, loops))
            and not any(op.bodies for body in self._bodies.values() for op in body.ops)
            and self._bodies.keys() <= watched.trips.keys()
            and ops_executed(program, batch) <= MOST_OPS
        )
        if self._are_simple:
            self._footprints = {
                number: _Footprint(body, batch, range(len(body.ops)), live, watched.trips[number], set())
                for number, body in self._bodies.items()
            }

    def ways(self, batch: int, room: int) -> Iterator[dict[int, Loose]]:
        """What to try as `Loose.bodies`, the fastest first, at last nothing."""
        if self._are_simple and self._runs:
            one = {number: self._loosened(number, batch, room) for number in self._runs}
            two = {number: body._replace(at_once=self._at_once(number, room)) for number, body in one.items()}
            for bodies in (two, one) if two != one else (one,):
                yield {n: bodies[number] for number, runs in self._runs.items() for n in runs}
        yield {}

    def _loosened(self, number: int, batch: int, room: int) -> Loose:
        body, listed = self._bodies[number], range(len(self._bodies[number].ops))
        return _gated(body, listed, self._footprints[number].waits(room), _variables_in_turn(body, batch, listed))

    def _at_once(self, number: int, room: int) -> int:
        enough = self._footprints[number].most_of_two_trips() <= room
        return 2 if enough and _is_done_in_any_order(self._bodies[number]) else 1


def _is_done_in_any_order(body: Program) -> bool:
    """Whether it does not matter which of two trips does a thing first: neither changes anything or draws numbers."""
    rules = [rule_of(op.kind) for op in body.ops if op.kind != "NoOp"]
    return all(rule is not None and (rule.recomputable or rule.act in _ORDERED_BY_WHAT_THEY_READ) for rule in rules)


_ORDERED_BY_WHAT_THEY_READ = frozenset({*_ALONE, Act.READ, Act.SOURCE}) - {Act.CONTROL_FLOW}


class _CertainReuse:
    """Which ops take over an input's buffer in every interleaving: those that nobody else ever reads it beside."""

    def __init__(self, program: Program, batch: int, rules: Sequence[Rule]) -> None:
        self._program, self._batch, self._rules = program, batch, rules
        self._maker = {value: index for index, op in enumerate(program.ops) for value in op.outputs}
        self._readers = [0] * len(program.values)
        for op in program.ops:
            for value in op.inputs:
                self._readers[value] += 1
        for value in program.outputs:
            self._readers[value] += 1

    def bytes_without(self, index: int) -> int:
        """Bytes of the outputs of an op that may reuse a buffer, less what it certainly does reuse."""
        op, rule, values, batch = self._program.ops[index], self._rules[index], self._program.values, self._batch
        if rule.act is not Act.REUSE:
            return 0
        target = values[op.outputs[rule.output]]
        candidates = op.inputs if rule.inputs == ANY_INPUT else [op.inputs[i] for i in rule.inputs]
        certain = any(
            values[c].dtype == target.dtype
            and values[c].elements(batch) == target.elements(batch)
            and self._read_here_only(c)
            for c in candidates
        )
        return sum(values[v].bytes(batch) for v in op.outputs) - (target.bytes(batch) if certain else 0)

    def _read_here_only(self, value: int) -> bool:
        """One reader, and if it is a view, what it views has one reader too."""
        while self._readers[value] == 1 and value in self._maker:
            maker = self._maker[value]
            rule = self._rules[maker]
            if rule.act is not Act.VIEW:
                return rule.act in (Act.FRESH, Act.COMPILED, Act.REUSE)
            value = self._program.ops[maker].inputs[rule.inputs[0]]
        return False


def _variables_in_turn(program: Program, batch: int, order: Sequence[int]) -> list[tuple[int, ...]]:
    """For each position, the earlier ones that it must not overtake since they use the same variable.

    A change waits for whatever still looks at the variable, views included: otherwise TensorFlow copies it.
    """
    rules = [rule_at(op, program.values, batch) or UNKNOWN for op in program.ops]
    position = {index: n for n, index in enumerate(order)}
    readers: list[list[int]] = [[] for _ in program.values]
    for index, op in enumerate(program.ops):
        for value in op.inputs:
            readers[value].append(index)
    changed: dict[int, int] = {}
    looking: dict[int, set[int]] = {}
    result: list[tuple[int, ...]] = []
    for n, index in enumerate(order):
        op, earlier = program.ops[index], set[int]()
        for handle in (v for v in op.inputs if program.values[v].dtype == "resource"):
            earlier.update((changed[handle],) if handle in changed else ())
            if rules[index].act is Act.READ:
                looking.setdefault(handle, set()).update((n, *_lookers(program, rules, readers, position, index)))
            else:
                earlier.update(other for other in looking.pop(handle, ()) if other < n)
                changed[handle] = n
        result.append(tuple(sorted(earlier)))
    return result


def _lookers(
    program: Program, rules: Sequence[Rule], readers: Sequence[Sequence[int]], position: dict[int, int], read: int
) -> set[int]:
    """Positions of all that sees the buffer of a variable's read."""
    found, todo = set[int](), list(program.ops[read].outputs)
    while todo:
        for reader in readers[todo.pop()]:
            found.add(position[reader])
            if rules[reader].act in (Act.VIEW, Act.VIEW_EACH):
                todo.extend(program.ops[reader].outputs)
    return found


def _gated(
    program: Program, order: Sequence[int], waits: Sequence[int], besides: Sequence[tuple[int, ...]]
) -> Loose:
    """Op n waits for the first `waits[n]` ops, and for `besides[n]`: with as few edges as say that.

    A gate stands for a beginning of the order. It waits for the gate before it, and for those ops since then that
    nothing else before the gate waits for. One that would wait for a single op is that op.
    """
    position = {index: n for n, index in enumerate(order)}
    maker = {value: n for n, index in enumerate(order) for value in program.ops[index].outputs}
    outside = [_is_outside(program.ops[index]) for index in order]
    waited_for = [False] * len(order)  # by an op or a gate before the next gate
    gates: list[tuple[int, ...]] = []
    after: list[tuple[int, ...]] = []
    gate: tuple[int, ...] = ()  # what stands for the beginning up to `begun`
    begun = marked = 0
    reads: list[set[int]] = []
    for n, index in enumerate(order):
        op = program.ops[index]
        reads.append({maker[v] for v in op.inputs if v in maker} | {position[before] for before in op.after})
        if outside[n]:
            after.append(())
            continue
        if waits[n] > begun:
            for later in range(marked, waits[n]):
                for earlier in (*reads[later], *(a for a in after[later] if a >= 0)):
                    waited_for[earlier] = True
            marked = waits[n]
            loose_ends = [m for m in range(begun, waits[n]) if not outside[m] and not waited_for[m]]
            covered = len(loose_ends) == 1 and after[loose_ends[0]][:1] == gate
            wanted = (*loose_ends, *(() if covered else gate))
            begun = waits[n]
            if len(wanted) > 1:
                gates.append(wanted)
                gate = (~(len(gates) - 1),)
            else:
                gate = wanted or gate
        after.append((*gate, *(m for m in besides[n] if m >= begun and m not in reads[n] and m not in gate)))
    return Loose(tuple(after), tuple(gates))


def _is_outside(op: Op) -> bool:
    rule = rule_of(op.kind)
    return rule is not None and rule.act is Act.SOURCE
