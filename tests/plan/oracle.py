"""Problems to test with, and the optimum of tiny ones by exhaustion: shares no code with the solvers."""

from __future__ import annotations

import heapq
from itertools import count

from hypothesis import strategies as st

from lowtide.plan import Node, Problem, Value


def plain(*rows: tuple[float, int, tuple[int, ...]]) -> Problem:
    """A problem in the published form: (cost, bytes, inputs) for each node."""
    nodes = tuple(Node(cost, ins, (i,)) for i, (cost, _, ins) in enumerate(rows))
    return Problem(nodes, tuple(Value(size) for _, size, _ in rows))


@st.composite
def plain_problems(draw: st.DrawFn, most: int = 7) -> Problem:
    rows = []
    for i in range(draw(st.integers(2, most))):
        ins = draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set()
        rows.append((draw(st.integers(0, 9)), draw(st.integers(1, 9)), tuple(sorted(ins))))
    return plain(*rows)


@st.composite
def any_problems(draw: st.DrawFn, most: int = 14) -> Problem:
    """Everything at once: aliases, buffers handed on, scratch, once-only nodes, residents, kept values, order."""
    values = [Value(draw(st.integers(1, 9)), resident=True) for _ in range(draw(st.integers(0, 2)))]
    nodes: list[Node] = []
    ended: set[int] = set()
    for i in range(draw(st.integers(2, most))):
        readable = [v for v in range(len(values)) if v not in ended]
        ins = tuple(sorted(draw(st.sets(st.sampled_from(readable), max_size=3)))) if readable else ()
        outs = tuple(range(len(values), len(values) + draw(st.integers(0, 2))))
        values += [draw(_values(ins)) for _ in outs]
        once = draw(st.integers(0, 3)) == 0
        ends: tuple[int, ...] = ()
        if once and readable and draw(st.booleans()):
            ends = (draw(st.sampled_from(readable)),)  # an update ends what others read, and need not read it itself
            ended.update(ends)
        after = tuple(draw(st.sets(st.integers(0, i - 1), max_size=1))) if i else ()
        scratch = draw(st.sampled_from((0, 0, 4)))
        nodes.append(Node(draw(st.integers(0, 9)), ins, outs, scratch, not once, after, ends))
    return Problem(tuple(nodes), tuple(values))


@st.composite
def _values(draw: st.DrawFn, ins: tuple[int, ...]) -> Value:
    kind = draw(st.integers(0, 5))
    size, kept = draw(st.sampled_from((1, 4, 4, 7))), draw(st.integers(0, 4)) == 0
    if kind == 0 and ins:
        return Value(size, kept, alias_of=ins[0])
    return Value(size, kept, may_reuse=ins if kind < 3 else ())


def optimum(problem: Problem, budget: int) -> float | None:
    """The least cost within `budget` of a plain problem, or None: Dijkstra over (executed, live)."""
    size = [value.bytes for value in problem.values]
    everything = frozenset(range(len(problem.nodes)))
    start: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    tick, seen = count(), set()
    heap: list[tuple[float, int, tuple[frozenset[int], frozenset[int]]]] = [(0.0, next(tick), start)]
    while heap:
        cost, _, state = heapq.heappop(heap)
        done, live = state
        if done == everything:
            return cost
        if state in seen:
            continue
        seen.add(state)
        for v in live:
            heapq.heappush(heap, (cost, next(tick), (done, live - {v})))
        for n, node in enumerate(problem.nodes):
            if n not in live and live.issuperset(node.inputs) and sum(size[v] for v in live) + size[n] <= budget:
                heapq.heappush(heap, (cost + node.cost, next(tick), (done | {n}, live | {n})))
    return None
