"""A proven lower bound on cost for graphs of any size: what a budget forces at one moment, as a minimum cut.

Take a node v, and the moment of its first execution in any schedule. All that v depends on has executed before; all
that depends on v executes after. A storage made by the former and read by the latter is held at this moment, or its
maker executes once more, and then that maker's own inputs are held or made once more, and so on. With a price on each
byte held, the cheapest such choice is a minimum cut; the bytes held fit the budget, so the price times what is left
of the budget comes off, and the best price gives the bound (Lagrange). No order is supposed, and no limit on repeats.

The same cut says what to drop at the peak, which is where `evict` may begin.
Known to be loose: one moment only, so what another moment forces as well is not added; nodes that v does not
order are free. It is strong on training steps, where the last forward op orders nearly everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import monotonic

from lowtide.plan.bound import held_bytes, round_up, storages
from lowtide.plan.game import Game
from lowtide.plan.problem import Problem

PARTS = 1 << 40  # costs become whole numbers of about this many parts of the base cost, rounded down
ENDLESS = 4 * PARTS
ROUNDS = 14  # halvings of the interval of prices
MOMENTS = 8  # nodes tried: those at which most bytes are needed


@dataclass(frozen=True, slots=True)
class Facts:
    """What a cut needs to know, by node: a Problem's nodes, or a Game's groups. The last one ends every schedule."""

    cost: Sequence[float]
    again: Sequence[bool]
    reads: Sequence[Sequence[int]]  # storages
    makes: Sequence[Sequence[int]]
    after: Sequence[Sequence[int]]
    need: Sequence[int]  # bytes while it executes, what it reads and makes included
    size: Sequence[int]
    resident: int


@dataclass(frozen=True, slots=True)
class Cut:
    """No schedule within the budget costs less than `bound`; what to drop at the first execution of `at`."""

    bound: float
    at: int = -1
    drop: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Shares:
    """The bound at the first execution of `at` as a sum: what each storage wanted later sends, less `room`."""

    at: int
    after: frozenset[int]  # the nodes that execute after it in every schedule
    price: dict[int, float]
    room: float


def facts_of_game(game: Game) -> Facts:
    need = [
        game.own[g] + sum(game.size[s] for s in ins) - sum(size for size, _ in game.reuse[g])
        for g, ins in enumerate(game.ins)
    ]
    again = [not once for once in game.once]
    return Facts(game.cost, again, game.ins, game.outs, game.after, need, game.size, game.resident)


def facts_of_problem(problem: Problem) -> Facts:
    """Storages are named by the values that made them. Aliases cost nothing to have again: a bound may suppose so."""
    nodes = problem.nodes
    reads = [sorted(storages(problem, node.inputs)) for node in nodes]
    makes = [[v for v in node.outputs if problem.values[v].alias_of is None] for node in nodes]
    makes = [[v for v in made if not problem.values[v].resident] for made in makes]
    maker = {v: n for n, node in enumerate(nodes) for v in node.outputs}
    after = [sorted({*node.after, *(maker[v] for v in node.inputs if v in maker)}) for node in nodes]
    need = [node.scratch + held_bytes(problem, n) for n, node in enumerate(nodes)]
    kept = sorted(storages(problem, [v for v, value in enumerate(problem.values) if value.kept]))
    return Facts(
        cost=[*(node.cost for node in nodes), 0.0],
        again=[*(node.recomputable for node in nodes), False],
        reads=[*reads, kept],
        makes=[*makes, []],
        after=[*after, []],
        need=[*need, 0],
        size=[value.bytes for value in problem.values],
        resident=problem.resident_bytes,
    )


def best_cut(facts: Facts, budget: int, until: float = float("inf")) -> Cut:
    """The best bound over a few moments: those that need most bytes, of what is wanted later and for themselves.

    The clock may end it early; the first moment is always tried.
    """
    base, links = sum(facts.cost), _Links(facts)
    best = Cut(base)
    for v in _fullest(facts, links, budget, MOMENTS):
        extra, drop = _Moment(facts, links, v, budget).solve()
        extra = round_up(extra, facts.cost)
        if base + extra > best.bound:
            best = Cut(base + extra, v, drop)
        if monotonic() > until:
            break
    return best


def shares(facts: Facts, budget: int, moments: int = MOMENTS) -> list[Shares]:
    """The same bounds, each taken apart into what the storages contribute; the largest first."""
    links = _Links(facts)
    found = []
    for v in _fullest(facts, links, budget, 2 * moments):
        moment = _Moment(facts, links, v, budget)
        extra, _ = moment.solve()
        if 0 < extra < float("inf"):
            found.append((extra, moment.shares(v, links.below(v))))
    found.sort(key=lambda pair: -pair[0])
    return [share for _, share in found[:moments]]


def _fullest(facts: Facts, links: _Links, budget: int, most: int) -> list[int]:
    """The nodes at which more than the budget is needed, most first: for what is wanted later and for themselves."""
    need = [wanted + own for wanted, own in zip(links.wanted(), facts.need, strict=True)]
    full = sorted(range(len(facts.cost) - 1), key=lambda n: (-need[n], n))[:most]
    return [n for n in full if need[n] + facts.resident > budget]


class _Links:
    """Who makes and who reads a storage, and which nodes execute before each in every schedule, as bits."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.maker = {s: n for n, made in enumerate(facts.makes) for s in made}
        self.readers: dict[int, list[int]] = {}
        for n, reads in enumerate(facts.reads):
            for s in reads:
                self.readers.setdefault(s, []).append(n)
        self.above = [0] * len(facts.cost)
        for n in range(len(facts.cost) - 1):
            for m in self.needs(n):
                self.above[n] |= self.above[m] | (1 << m)
        self.above[-1] = (1 << (len(facts.cost) - 1)) - 1

    def needs(self, n: int) -> Iterable[int]:
        yield from (self.maker[s] for s in self.facts.reads[n] if s in self.maker)
        yield from self.facts.after[n]

    def below(self, v: int) -> set[int]:
        out = {v, len(self.above) - 1}
        for n in range(v + 1, len(self.above) - 1):
            if any(m in out for m in self.needs(n)):
                out.add(n)
        return out - {v}

    def wanted(self) -> list[int]:
        """For each node, about how many bytes are made before and read after it if nothing is repeated."""
        out, size = [0] * len(self.above), self.facts.size
        below = [0] * len(self.above)
        for n in range(len(self.above) - 1, -1, -1):
            bits = below[n] | (1 << n)
            for m in self.needs(n):
                below[m] |= bits
        worth = sum(size) // (4 * len(size) + 1)  # small ones do not tell moments apart
        for s, maker in self.maker.items():
            after = 0
            for r in self.readers.get(s, ()) if size[s] > worth else ():
                after |= self.above[r]
            for n, bit in enumerate(reversed(f"{below[maker] & after:b}")):
                if bit == "1":
                    out[n] += size[s]
        return out


class _Moment:
    """The cut at the first execution of `v`. Arcs are built once; only the price of a byte changes."""

    def __init__(self, facts: Facts, links: _Links, v: int, budget: int) -> None:
        from ortools.graph.python import max_flow

        self.facts = facts
        self.room = budget - facts.resident - facts.need[v]
        self.unit = PARTS / (sum(facts.cost) or 1.0)
        self.flow = max_flow.SimpleMaxFlow()
        self.held: list[tuple[int, int]] = []  # arcs that stand for holding a storage
        self.wanted: list[tuple[int, int]] = []  # arcs that stand for a read after v
        self.best_price = 0.0
        self._build(links, v)

    def _build(self, links: _Links, v: int) -> None:
        """0 is the source ("executes after v"), 1 the sink; then the nodes before v, then storages."""
        facts, flow = self.facts, self.flow
        before = [n for n in range(len(facts.cost) - 1) if links.above[v] >> n & 1]
        place, after, at_v = {n: 2 + i for i, n in enumerate(before)}, links.below(v), set(facts.reads[v])
        for n in before:
            price = facts.cost[n] * self.unit if facts.again[n] else ENDLESS
            flow.add_arc_with_capacity(place[n], 1, int(min(price, ENDLESS)))
            for s in facts.makes[n]:
                if s in at_v:
                    continue
                storage = 2 + len(before) + s
                for r in links.readers.get(s, ()):
                    if r in place:
                        flow.add_arc_with_capacity(place[r], storage, ENDLESS)
                    elif r in after:
                        self.wanted.append((flow.add_arc_with_capacity(0, storage, ENDLESS), s))
                self.held.append((flow.add_arc_with_capacity(storage, place[n], 0), s))

    def solve(self) -> tuple[float, tuple[int, ...]]:
        """The bound, by halving the interval of prices, and what the cheapest choice that fits drops."""
        if self.room < 0:
            return float("inf"), ()
        low, high = 0.0, sum(self.facts.cost) / (1 + self.room // 64)
        best = 0.0
        drop: tuple[int, ...] = ()
        for _ in range(ROUNDS):
            price = (low + high) / 2
            value, held, gone = self._at(price)
            if value > best:
                best, self.best_price = value, price
            if held > self.room:
                low = price
            else:
                high, drop = price, gone
        return best, drop

    def shares(self, v: int, after: set[int]) -> Shares:
        """The flow at the best price, storage by storage."""
        self._at(self.best_price)
        price: dict[int, float] = {}
        for arc, s in self.wanted:
            price[s] = price.get(s, 0.0) + self.flow.flow(arc) / self.unit
        return Shares(v, frozenset(after), price, self.best_price * self.room)

    def _at(self, price: float) -> tuple[float, int, tuple[int, ...]]:
        """The bound at one price of a byte, the bytes that its cheapest choice holds, and what it drops."""
        flow, sizes = self.flow, self.facts.size
        for arc, s in self.held:
            flow.set_arc_capacity(arc, int(min(price * sizes[s] * self.unit, ENDLESS)))
        flow.solve(0, 1)
        after = set(flow.get_source_side_min_cut())
        wanted = [(arc, s) for arc, s in self.held if flow.tail(arc) in after]
        gone = tuple(s for arc, s in wanted if flow.head(arc) in after)
        held = sum(sizes[s] for _, s in wanted) - sum(sizes[s] for s in gone)
        return flow.optimal_flow() / self.unit - price * self.room, held, gone
