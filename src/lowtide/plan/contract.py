"""Problem -> Game: which nodes always execute together, and what a group of them looks like from outside.

An alias op has no bytes of its own, so it executes with the op whose storage it shares, together with the cheap
nodes that lie between them (the shape a Reshape is given). Where that would close a cycle or drag in something
that matters, the alias op executes in a place of its own, and follows every repeat of the other (an echo), if all
else it reads is small. Where not, the storage is made once and never again: that storage is not recomputed.

Known to be suboptimal: a group holds all its inputs until its last member is done, so its peak is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lowtide.plan.game import Game
from lowtide.plan.problem import Problem

CLOSURE_LIMIT = 24
SMALL = 16  # times smaller than what it goes with


@dataclass(slots=True)
class _Links:
    """Who makes a value, which storage it is in (-1: resident), and what must come before each node."""

    maker: list[int]
    root: list[int]
    preds: list[list[int]]


def contract(problem: Problem) -> Game:
    """The Game of `problem` with aliases folded in, in the Problem's own order."""
    links = _links(problem)
    group_of, frozen, echoes = _fold_aliases(problem, links)
    while tangled := _tangled(links, group_of):
        _unfold(problem, links, group_of, tangled, frozen, echoes)
    return build(problem, _in_order(links, group_of), frozen, echoes)


def _links(problem: Problem) -> _Links:
    maker = [-1] * len(problem.values)
    for n, node in enumerate(problem.nodes):
        for v in node.outputs:
            maker[v] = n
    root = list(range(len(problem.values)))
    for node in problem.nodes:
        for v in node.outputs:
            source = problem.values[v].alias_of
            root[v] = v if source is None else root[source]
    for v, value in enumerate(problem.values):
        if value.resident and value.alias_of is None:
            root[v] = -1 - v
    root = [-1 if r < 0 else r for r in _resolve(problem, root)]
    preds = [list(node.after) + [maker[v] for v in node.inputs if maker[v] >= 0] for node in problem.nodes]
    readers: dict[int, list[int]] = {}
    for n, node in enumerate(problem.nodes):
        for v in node.inputs:
            readers.setdefault(v, []).append(n)
    for n, node in enumerate(problem.nodes):
        preds[n] += [r for v in node.ends for r in readers.get(v, ()) if r != n]
    return _Links(maker, root, preds)


def _resolve(problem: Problem, root: list[int]) -> list[int]:
    """Aliases of resident values are resident: `root` is read in the order values are made."""
    out = list(root)
    for node in problem.nodes:
        for v in node.outputs:
            source = problem.values[v].alias_of
            if source is not None:
                out[v] = out[source]
    return out


def _fold_aliases(problem: Problem, links: _Links) -> tuple[list[int], set[int], dict[int, list[int]]]:
    """A group for each node (named by one member), the root values that are made only once, the echoes of others."""
    group = list(range(len(problem.nodes)))
    members: dict[int, list[int]] = {}
    frozen: set[int] = set()
    echoes: dict[int, list[int]] = {}
    for n, node in enumerate(problem.nodes):
        for v in node.outputs:
            root = links.root[v]
            if problem.values[v].alias_of is None or root < 0:
                continue
            home = group[links.maker[root]]
            if group[n] == home:
                continue
            closure = _between(problem, links, set(members.get(home, [home])), n)
            if closure is None or any(group[m] != m or m in members for m in closure):
                if _may_echo(problem, links, n, root):
                    echoes.setdefault(root, []).append(n)
                else:
                    frozen.add(root)
                continue
            members.setdefault(home, [home]).extend(closure)
            for m in closure:
                group[m] = home
    return group, frozen, echoes


def _group_edges(links: _Links, group_of: Sequence[int]) -> dict[int, set[int]]:
    """The groups that must come before each group."""
    before: dict[int, set[int]] = {g: set() for g in group_of}
    for n, g in enumerate(group_of):
        before[g].update(group_of[p] for p in links.preds[n] if group_of[p] != g)
    return before


def _tangled(links: _Links, group_of: Sequence[int]) -> set[int]:
    """Groups that wait for one another in a circle, or stand between such: two can, though each alone is sound."""
    before = _group_edges(links, group_of)
    for _ in range(2):  # what nothing before it holds up, then what nothing after it waits for
        after: dict[int, list[int]] = {g: [] for g in before}
        for g, needed in before.items():
            for p in needed:
                after[p].append(g)
        count = {g: len(needed) for g, needed in before.items()}
        free = [g for g, missing in count.items() if not missing]
        while free:
            for g in after[free.pop()]:
                count[g] -= 1
                if not count[g]:
                    free.append(g)
        left = {g for g, missing in count.items() if missing}
        before = {g: {p for p in left if g in before[p]} for g in left}
    return set(before)


def _unfold(
    problem: Problem, links: _Links, group_of: list[int], groups: set[int], frozen: set[int],
    echoes: dict[int, list[int]],
) -> None:
    """Take these groups apart; the storages that they were made for are then made only once."""
    for n, g in enumerate(group_of):
        if g in groups:
            group_of[n] = n
            for v in problem.nodes[n].outputs:
                if problem.values[v].alias_of is not None and links.root[v] >= 0:
                    frozen.add(links.root[v])
                    echoes.pop(links.root[v], None)


def _may_echo(problem: Problem, links: _Links, n: int, root: int) -> bool:
    """Whether repeating `n` with the maker of `root` asks for nothing but `root` that is not small."""
    node = problem.nodes[n]
    others = sum(problem.values[v].bytes for v in (*node.inputs, *node.outputs) if links.root[v] not in (root, -1))
    return node.recomputable and len(node.outputs) == 1 and others * SMALL <= problem.values[root].bytes


def _between(problem: Problem, links: _Links, home: set[int], n: int) -> list[int] | None:
    """`n` and every node on a path from `home` to it; None if they are many, stateful or large."""
    low, seen, stack = min(home), {n}, [n]
    while stack:
        for m in links.preds[stack.pop()]:
            if m > low and m not in home and m not in seen:
                seen.add(m)
                stack.append(m)
                if len(seen) > CLOSURE_LIMIT:
                    return None
    inside = set(home)
    closure = []
    for m in sorted(seen):
        if any(p in inside for p in links.preds[m]):
            inside.add(m)
            closure.append(m)
    biggest = max(sum(problem.values[v].bytes for v in problem.nodes[h].outputs) for h in home)
    for m in closure:
        node = problem.nodes[m]
        fresh = sum(problem.values[v].bytes for v in node.outputs if problem.values[v].alias_of is None)
        if not node.recomputable or fresh * SMALL > biggest:
            return None
    return closure


def _in_order(links: _Links, group_of: Sequence[int]) -> list[tuple[int, ...]]:
    """The groups, each a tuple of nodes in executable order, themselves in an executable order."""
    members: dict[int, list[int]] = {}
    for n, g in enumerate(group_of):
        members.setdefault(g, []).append(n)
    waiting = _group_edges(links, group_of)
    out: list[tuple[int, ...]] = []
    done: set[int] = set()

    def emit(g: int) -> None:
        stack = [g]
        while stack:
            top = stack[-1]
            todo = [p for p in waiting[top] if p not in done]
            if todo:
                stack.extend(sorted(todo, reverse=True))
                continue
            stack.pop()
            if top not in done:
                done.add(top)
                out.append(tuple(members[top]))

    for n in range(len(group_of)):
        if group_of[n] not in done:
            emit(group_of[n])
    return out


def build(
    problem: Problem, groups: Sequence[tuple[int, ...]], frozen: Iterable[int], echoes: dict[int, list[int]]
) -> Game:
    """The side tables of a Game whose groups are `groups`."""
    links = _links(problem)
    game = Game(members=[*groups, ()], again=[*groups, ()], resident=problem.resident_bytes)
    group_of = {n: g for g, ms in enumerate(groups) for n in ms}
    for root, nodes in echoes.items():
        game.again[group_of[links.maker[root]]] += tuple(nodes)
        for n in nodes:  # what an echo reads besides is held for it: few bytes, counted always
            game.resident += sum(problem.values[v].bytes for v in problem.nodes[n].inputs if links.root[v] != root)
    readers: dict[int, set[int]] = {}
    for n, node in enumerate(problem.nodes):
        for v in node.inputs:
            readers.setdefault(v, set()).add(group_of[n])
    kept = {v for v, value in enumerate(problem.values) if value.kept}
    storage = _storages(problem, links, groups, group_of, readers, kept, game)
    frozen_groups = {group_of[links.maker[r]] for r in frozen}
    for g, ms in enumerate(groups):
        _describe(problem, game, links, storage, g, ms, group_of)
        game.once.append(g in frozen_groups or any(not problem.nodes[n].recomputable for n in ms))
    for g, ms in enumerate(groups):  # the cost of a group is that of a repeat
        more = sum(problem.nodes[n].cost for n in game.again[g][len(ms) :])
        game.cost[g] += more
        game.fixed -= more
    game.exact = not frozen_groups and not echoes and all(len(ms) == 1 for ms in groups)
    _end(game, [s for v in sorted(kept) for s in storage.get(v, ())])
    _close(problem, game, group_of, readers)
    _readers(game)
    return game


def _storages(
    problem: Problem,
    links: _Links,
    groups: Sequence[tuple[int, ...]],
    group_of: dict[int, int],
    readers: dict[int, set[int]],
    kept: set[int],
    game: Game,
) -> dict[int, tuple[int, ...]]:
    """Storage ids to read for each value that leaves its group: its buffer, and a token if it is an alias."""
    leaves: set[int] = set()
    tokens: set[int] = set()
    for v in range(len(problem.values)):
        maker, root = links.maker[v], links.root[v]
        if maker < 0 or not (v in kept or readers.get(v, set()) - {group_of[maker]}):
            continue
        if root >= 0:
            leaves.add(root)
        if root < 0 or group_of[links.maker[root]] != group_of[maker]:
            tokens.add(v)
    ids: dict[int, int] = {}
    token_ids: dict[int, int] = {}
    for g, ms in enumerate(groups):
        outs: list[int] = []
        for n in ms:
            for v in problem.nodes[n].outputs:
                if v in leaves and links.root[v] == v:
                    ids[v] = _storage(game, outs, g, problem.values[v].bytes)
                if v in tokens:
                    token_ids[v] = _storage(game, outs, g, 0)
        game.outs.append(tuple(outs))
    out: dict[int, tuple[int, ...]] = {}
    for v in range(len(problem.values)):
        found = [ids[links.root[v]]] if links.root[v] in ids else []
        out[v] = (*found, token_ids[v]) if v in token_ids else tuple(found)
    return out


def _storage(game: Game, outs: list[int], group: int, size: int) -> int:
    outs.append(len(game.size))
    game.size.append(size)
    game.maker.append(group)
    return outs[-1]


def _describe(
    problem: Problem,
    game: Game,
    links: _Links,
    storage: dict[int, tuple[int, ...]],
    g: int,
    ms: tuple[int, ...],
    group_of: dict[int, int],
) -> None:
    nodes = [problem.nodes[n] for n in ms]
    mine = set(game.outs[g])
    game.cost.append(sum(node.cost for node in nodes))
    game.ins.append(tuple(dict.fromkeys(s for node in nodes for v in node.inputs for s in storage[v] if s not in mine)))
    after = {group_of[m] for node in nodes for m in node.after} - {g}
    game.after.append(tuple(sorted(after)))
    scratch, reuse = _inside(problem, links, storage, game, ms)
    game.scratch.append(scratch)
    game.reuse.append(reuse)
    game.own.append(sum(game.size[s] for s in game.outs[g]) + scratch)


def _inside(
    problem: Problem, links: _Links, storage: dict[int, tuple[int, ...]], game: Game, ms: tuple[int, ...]
) -> tuple[int, tuple[tuple[int, tuple[int, ...]], ...]]:
    """Bytes a group needs beyond its inputs and outputs, and what it saves when inputs die in it."""
    outs = {links.root[v] for n in ms for v in problem.nodes[n].outputs if storage[v]}
    last: dict[int, int] = {}
    for i, n in enumerate(ms):
        for v in (*problem.nodes[n].inputs, *problem.nodes[n].outputs):
            last[links.root[v]] = i
    live, peak, reuse = 0, 0, []
    for i, n in enumerate(ms):
        node = problem.nodes[n]
        taken = {links.root[v] for v in node.outputs if problem.values[v].alias_of is not None}
        inner = {links.root[v] for v in node.inputs} & {r for r in last if r >= 0 and links.maker[r] in ms}
        for v in node.outputs:
            value = problem.values[v]
            if value.alias_of is not None or links.root[v] < 0:
                continue
            heirs = [links.root[c] for c in value.may_reuse if _fits(problem, links, c, value.bytes)]
            heirs = [r for r in heirs if r not in taken]
            dying = [r for r in heirs if r in inner and r not in outs and last[r] == i and r not in taken]
            if dying:
                taken.add(dying[0])
            else:
                live += value.bytes
            if len(ms) == 1 or (v in outs and i == 0):
                entry = tuple(s for c in value.may_reuse if links.root[c] in heirs for s in storage[c][:1])
                if entry and value.bytes and all(last[r] == i for r in heirs):
                    reuse.append((value.bytes, entry))
        peak = max(peak, live + node.scratch)
        live -= sum(
            problem.values[r].bytes
            for r in inner | {links.root[v] for v in node.outputs}
            if r >= 0 and r not in outs and last[r] == i and r not in taken
        )
    total = sum(problem.values[r].bytes for r in outs if r >= 0 and links.maker[r] in ms)
    return max(0, peak - total), tuple(reuse)


def _fits(problem: Problem, links: _Links, candidate: int, size: int) -> bool:
    root = links.root[candidate]
    return root >= 0 and problem.values[root].bytes == size


def _end(game: Game, kept: list[int]) -> None:
    game.cost.append(0)
    game.scratch.append(0)
    game.ins.append(tuple(dict.fromkeys(kept)))
    game.outs.append(())
    game.once.append(True)
    game.after.append(())
    game.reuse.append(())
    game.own.append(0)


def _close(problem: Problem, game: Game, group_of: dict[int, int], readers: dict[int, set[int]]) -> None:
    """An echo reads with every repeat of its group what it reads itself."""
    closers: list[set[int]] = [set() for _ in game.members]
    closes: list[set[int]] = [set() for _ in game.members]
    for g, again in enumerate(game.again):
        for n in again:
            for v in problem.nodes[n].inputs:
                readers[v].add(g)
    for n, node in enumerate(problem.nodes):
        for v in node.ends:
            for reader in readers.get(v, set()) - {group_of[n]}:
                closers[reader].add(group_of[n])
                closes[group_of[n]].add(reader)
    game.closers = [tuple(sorted(c)) for c in closers]
    game.closes = [tuple(sorted(c)) for c in closes]
    before: list[list[int]] = [[] for _ in game.members]
    for g, earlier in enumerate(game.after):
        for other in earlier:
            before[other].append(g)
    game.before = [tuple(b) for b in before]


def _readers(game: Game) -> None:
    readers: list[list[int]] = [[] for _ in game.size]
    for g, ins in enumerate(game.ins):
        for s in ins:
            readers[s].append(g)
    game.readers = [tuple(r) for r in readers]
