"""A long game as a short one: small storages out of sight, chains as one group.

Most ops of a TensorFlow step make a few bytes: shapes, scalars, statistics. Dropping those saves nothing, so the
search need not see them. A storage is small if all the small ones together are a few thousandths of the peak; they
count as held all the time. A group that only touches small storages rides along with the next one that does not: it
executes with that one's first execution and never again. Neighbours in the order become one group where nothing is
lost by having them always together: a storage whose only reader follows at once, the updates of one variable.

Groups are stretches of one executable order, so they cannot depend on each other in a circle.
Known to be suboptimal: members of a group keep their places next to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lowtide.plan.game import Game, Reuse

SMALL_SHARE = 0.002  # of the peak: all small storages together
CHEAP = 4.0  # times cheaper than its reader: recomputed with it


@dataclass(slots=True)
class _Stretch:
    """Fine groups next to each other: `all` in order, `core` without those that ride along; and what the core needs."""

    all: list[int]
    core: list[int] = field(default_factory=list)
    ins: dict[int, None] = field(default_factory=dict)
    peak: int = 0
    reuse: tuple[Reuse, ...] = ()

    @property
    def need(self) -> int:
        return self.peak - sum(size for size, _ in self.reuse)


def coarsen(game: Game, order: Sequence[int], peak: int) -> Game:
    """A Game whose groups are stretches of `order`, an order of the groups of `game` with this peak."""
    small = _small(game, int(SMALL_SHARE * peak))
    return _Build(game, _stretches(game, order, small), small).coarse


def _small(game: Game, total: int) -> set[int]:
    """The smallest storages, `total` bytes of them."""
    out, left = set(), total
    for s in sorted(range(len(game.size)), key=lambda s: (game.size[s], s)):
        left -= game.size[s]
        if left < 0:
            break
        out.add(s)
    return out


def _stretches(game: Game, order: Sequence[int], small: set[int]) -> list[_Stretch]:
    out: list[_Stretch] = []
    waiting: list[int] = []
    for g in order:
        if not game.scratch[g] and small.issuperset(game.ins[g]) and small.issuperset(game.outs[g]):
            waiting.append(g)
            continue
        alone = _measured(game, [g], small)
        both = _measured(game, [*out[-1].core, g], small) if out and _belong(game, out[-1].core[-1], g, small) else None
        if both is not None and both.need <= max(out[-1].need, alone.need):
            both.all = [*out[-1].all, *waiting, g]
            out[-1] = both
        else:
            alone.all = [*waiting, g]
            out.append(alone)
        waiting = []
    if waiting:
        out.append(_Stretch(waiting))
    return out


def _belong(game: Game, before: int, g: int, small: set[int]) -> bool:
    """Whether `g` may as well always execute right after `before`."""
    outs, left = ([s for s in game.outs[x] if s not in small] for x in (before, g))
    if game.once[before] and not game.once[g] and left:
        return False
    if not outs:
        ins, more = ({s for s in game.ins[x] if s not in small} for x in (before, g))
        return not left and (ins <= more or more <= ins)
    if any(set(game.readers[s]) != {g} for s in outs):
        return False
    made, makes = (sum(game.size[s] for s in x) for x in (outs, left))
    return game.once[g] or made >= makes or game.cost[before] * CHEAP <= game.cost[g]


def _measured(game: Game, core: list[int], small: set[int]) -> _Stretch:
    """What a stretch needs: its peak with all inputs held to its end, and the input that saves most if it dies here."""
    made = {s for g in core for s in game.outs[g]}
    ins = dict.fromkeys(s for g in core for s in game.ins[g] if s not in small and s not in made)
    if len(core) == 1:
        (g,) = core
        return _Stretch(core, core, ins, sum(game.size[s] for s in ins) + game.own[g], game.reuse[g])
    inside = set(core)
    leaves = {s for s in made - small if not inside.issuperset(game.readers[s])}
    last = {s: g for g in core for s in (*game.outs[g], *game.ins[g])}

    def peak(dying: set[int]) -> int:
        live, highest = sum(game.size[s] for s in ins), 0
        for g in core:
            ends = {s for s in (*game.ins[g], *game.outs[g]) if last[s] == g}
            ends = {s for s in ends if s in dying or (s in made and s not in leaves)} - small
            outs = sum(game.size[s] for s in game.outs[g] if s not in small)
            highest = max(highest, live + outs + game.scratch[g] - _handed(game, g, ends))
            live += outs - sum(game.size[s] for s in ends)
        return highest

    whole = peak(set())
    saved, best = max(((whole - peak({s}), s) for s in ins), default=(0, -1))
    return _Stretch(core, core, ins, whole, ((saved, (best,)),) if saved > 0 else ())


def _handed(game: Game, g: int, ends: set[int]) -> int:
    """Bytes of buffers that `g` takes over from inputs that end in it."""
    saved, taken = 0, set()
    for size, candidates in game.reuse[g]:
        heir = next((s for s in candidates if s in ends and s not in taken), None)
        if heir is not None:
            taken.add(heir)
            saved += size
    return saved


class _Build:
    """The side tables of the coarse game."""

    def __init__(self, game: Game, stretches: list[_Stretch], small: set[int]) -> None:
        self.game, self.stretches = game, stretches
        self.home = {g: i for i, stretch in enumerate(stretches) for g in stretch.all}
        self.home[game.end] = len(stretches)
        self.coarse = Game(members=[], resident=game.resident + sum(game.size[s] for s in small))
        self.coarse.fixed = game.fixed + sum(game.cost[g] for x in stretches for g in set(x.all) - set(x.core))
        self.ids: dict[int, int] = {}
        for s, maker in enumerate(game.maker):
            if s not in small and any(self.home[r] != self.home[maker] for r in game.readers[s]):
                self.ids[s] = len(self.ids)
                self.coarse.size.append(game.size[s])
                self.coarse.maker.append(self.home[maker])
        for stretch in stretches:
            self._group(stretch)
        end = [s for s in game.ins[game.end] if s in self.ids]
        self._group(_Stretch([game.end], [game.end], dict.fromkeys(end), sum(game.size[s] for s in end)))
        self._order()
        self._readers()

    def _group(self, stretch: _Stretch) -> None:
        game, coarse = self.game, self.coarse
        outs = [s for g in stretch.all for s in game.outs[g] if s in self.ids]
        held = sum(game.size[s] for s in (*stretch.ins, *outs))
        coarse.members.append(tuple(n for g in stretch.all for n in game.members[g]))
        coarse.again.append(tuple(n for g in stretch.core for n in game.again[g]))
        coarse.cost.append(sum(game.cost[g] for g in stretch.core))
        coarse.ins.append(tuple(self.ids[s] for s in stretch.ins))
        coarse.outs.append(tuple(self.ids[s] for s in outs))
        coarse.once.append(not stretch.core or any(game.once[g] or self._is_closed_inside(g) for g in stretch.core))
        coarse.scratch.append(max(0, stretch.peak - held))
        coarse.own.append(sum(game.size[s] for s in outs) + coarse.scratch[-1])
        coarse.reuse.append(tuple((n, tuple(self.ids[s] for s in c if s in self.ids)) for n, c in stretch.reuse))

    def _is_closed_inside(self, g: int) -> bool:
        """Whether one that rides along ends what `g` reads: it does so the first time, and `g` cannot come again."""
        return any(self.home[w] == self.home[g] for w in self.game.closers[g])

    def _order(self) -> None:
        """Who waits for whom besides reading: small storages and riders order first executions only."""
        game, home = self.game, self.home
        after: list[set[int]] = [set() for _ in self.coarse.members]
        closers: list[set[int]] = [set() for _ in self.coarse.members]
        core = {g for stretch in self.stretches for g in stretch.core}
        for g in range(game.end):
            i = home[g]
            after[i].update(home[m] for m in game.after[g])
            after[i].update(home[game.maker[s]] for s in game.ins[g] if s not in self.ids)
            for w in game.closers[g]:
                if g in core:
                    closers[i].add(home[w])
                else:
                    after[home[w]].add(i)
        self.coarse.after = [tuple(sorted(a - {i})) for i, a in enumerate(after)]
        self.coarse.closers = [tuple(sorted(c - {i})) for i, c in enumerate(closers)]
        self.coarse.before = _reversed(self.coarse.after)
        self.coarse.closes = _reversed(self.coarse.closers)

    def _readers(self) -> None:
        readers: list[list[int]] = [[] for _ in self.coarse.size]
        for i, ins in enumerate(self.coarse.ins):
            for s in ins:
                readers[s].append(i)
        self.coarse.readers = [tuple(r) for r in readers]


def _reversed(links: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    out: list[list[int]] = [[] for _ in links]
    for g, others in enumerate(links):
        for other in others:
            out[other].append(g)
    return [tuple(x) for x in out]
