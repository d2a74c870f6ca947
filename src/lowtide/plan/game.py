"""A Problem made ready for search: storages in place of values, side tables in place of objects.

`Game` is what the search plays: its nodes ("groups") are one or more nodes of the Problem that always execute
together, its storages are the buffers that outlive a group. `lowtide.plan.contract` makes the groups,
and `lowtide.plan.coarsen` larger ones of them.
The last group is an artificial one that reads everything kept: it costs nothing and ends every schedule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lowtide.plan.problem import Problem, Schedule

GroupId = int
StorageId = int
Reuse = tuple[int, tuple[StorageId, ...]]


@dataclass(slots=True)
class Game:
    """Side tables by group (`cost` ... `closes`) and by storage (`size` ... `readers`)."""

    members: list[tuple[int, ...]]
    again: list[tuple[int, ...]] = field(default_factory=list)  # the members that a repeat executes
    cost: list[float] = field(default_factory=list)
    scratch: list[int] = field(default_factory=list)
    ins: list[tuple[StorageId, ...]] = field(default_factory=list)
    outs: list[tuple[StorageId, ...]] = field(default_factory=list)
    once: list[bool] = field(default_factory=list)
    after: list[tuple[GroupId, ...]] = field(default_factory=list)  # first execution follows theirs
    before: list[tuple[GroupId, ...]] = field(default_factory=list)  # the reverse of `after`
    closers: list[tuple[GroupId, ...]] = field(default_factory=list)  # every execution precedes theirs
    closes: list[tuple[GroupId, ...]] = field(default_factory=list)  # the reverse of `closers`
    reuse: list[tuple[Reuse, ...]] = field(default_factory=list)  # bytes saved if one of these dies here
    own: list[int] = field(default_factory=list)  # bytes of outs + scratch
    size: list[int] = field(default_factory=list)
    maker: list[GroupId] = field(default_factory=list)
    readers: list[tuple[GroupId, ...]] = field(default_factory=list)
    resident: int = 0
    fixed: float = 0.0  # what every row costs besides the costs of its groups
    exact: bool = False  # each group is one node, and nothing is forbidden that the Problem allows

    @property
    def end(self) -> GroupId:
        return len(self.members) - 1

    def expand(self, order: Iterable[GroupId]) -> Schedule:
        """The schedule of the Problem's nodes that an order of groups stands for.

        A repeat executes of `again` what has executed before.
        """
        seen: set[int] = set()
        done: set[GroupId] = set()
        out: list[int] = []
        for group in order:
            out += [n for n in self.again[group] if n in seen] if group in done else self.members[group]
            seen.update(self.members[group])
            done.add(group)
        return tuple(out)


def prune(problem: Problem, schedule: Schedule) -> Schedule:
    """`schedule` without the repeats that nobody reads: one pass backwards."""
    first: dict[int, int] = {}
    for position, n in enumerate(schedule):
        first.setdefault(n, position)
    wanted: set[int] = {v for v, value in enumerate(problem.values) if value.kept}
    out: list[int] = []
    for position in range(len(schedule) - 1, -1, -1):
        n = schedule[position]
        node = problem.nodes[n]
        if first[n] != position and wanted.isdisjoint(node.outputs):
            continue
        wanted.difference_update(node.outputs)
        wanted.update(node.inputs)
        out.append(n)
    return tuple(reversed(out))
