"""Replay a schedule the dumb way: what the allocator would do, one execution at a time, with reference counts.

Shares nothing with the solvers but the types of `problem`. Two passes: one backwards wires every read to the
execution it reads and counts the readers; one forwards allocates and frees. Linear in the reads.
"""

from __future__ import annotations

from collections import Counter

from lowtide.errors import LowtideError
from lowtide.plan.problem import Checked, Problem, Schedule


class BrokenSchedule(LowtideError):
    """A schedule breaks a rule of the game. The message names the rule, the node and the position."""


def check(problem: Problem, schedule: Schedule, budget: int | None = None) -> Checked:
    """Peak and cost of `schedule`, or `BrokenSchedule`. With a budget, a peak above it is broken too."""
    _check_order(problem, schedule)
    refs = _Replay(problem, schedule)
    peak, at = 0, 0
    for position, node in enumerate(schedule):
        during = refs.execute(position, node)
        if during > peak:
            peak, at = during, position
    cost = sum(problem.nodes[node].cost for node in schedule)
    if budget is not None and peak > budget:
        raise BrokenSchedule(f"{problem.label(schedule[at])} at position {at}: {peak} bytes live, budget {budget}")
    return Checked(peak, cost, at)


def _check_order(problem: Problem, schedule: Schedule) -> None:
    """Every rule that is not about bytes."""
    producer = {v: n for n, node in enumerate(problem.nodes) for v in node.outputs}
    done: set[int] = set()
    ended: dict[int, int] = {}
    for position, n in enumerate(schedule):
        if not 0 <= n < len(problem.nodes):
            raise BrokenSchedule(f"position {position}: no node {n}; there are {len(problem.nodes)}")
        node, where = problem.nodes[n], f"{problem.label(n)} at position {position}"
        if n in done and not node.recomputable:
            raise BrokenSchedule(f"{where}: executes again and is not recomputable")
        for v in node.inputs:
            if v not in producer and not problem.values[v].resident:
                raise BrokenSchedule(f"{where}: reads value {v}, which nothing makes and is not resident")
            if v in producer and producer[v] not in done:
                raise BrokenSchedule(f"{where}: reads value {v} before {problem.label(producer[v])} made it")
            if v in ended:
                raise BrokenSchedule(f"{where}: reads value {v} after {problem.label(ended[v])} ended it")
        if n not in done:
            for m in node.after:
                if m not in done:
                    raise BrokenSchedule(f"{where}: executes before {problem.label(m)}, which it must follow")
        ended.update((v, n) for v in node.ends)
        done.add(n)
    for n in range(len(problem.nodes)):
        if n not in done:
            raise BrokenSchedule(f"{problem.label(n)}: never executed")


class _Replay:
    """The live storages. An instance of a value is (value, position of the execution that made it)."""

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self.problem = problem
        self.reads: list[list[tuple[int, int]]] = []
        self.readers: Counter[tuple[int, int]] = Counter()
        self._wire(schedule)
        self.storage: dict[tuple[int, int], int] = {}
        self.users: list[int] = []
        self.size: list[int] = []
        self.live = problem.resident_bytes

    def _wire(self, schedule: Schedule) -> None:
        latest: dict[int, int] = {}
        for position, n in enumerate(schedule):
            node = self.problem.nodes[n]
            reads = [(v, latest[v]) for v in dict.fromkeys(node.inputs) if v in latest]
            self.reads.append(reads)
            self.readers.update(reads)
            latest.update((v, position) for v in node.outputs)
        self.readers.update((v, at) for v, at in latest.items() if self.problem.values[v].kept)

    def execute(self, position: int, n: int) -> int:
        """Bytes live while `schedule[position]`, node `n`, executes; afterwards what is not needed is free."""
        node = self.problem.nodes[n]
        mine = [(v, position) for v in node.outputs]
        reads = dict(self.reads[position])
        sources = [self.problem.values[v].alias_of for v in node.outputs]
        aliased = [(v, reads[v]) for v in sources if v is not None and v in reads]
        given = {self.storage[r] for r in aliased if r in self.storage}  # shared on, so not to be overwritten
        for instance in mine:
            self._allocate(instance, reads, given)
        during = self.live + node.scratch
        for instance in self.reads[position]:
            self.readers[instance] -= 1
            if self.readers[instance] == 0:
                self._drop(instance)
        for instance in mine:
            if self.readers[instance] == 0:
                self._drop(instance)
        return during

    def _allocate(self, instance: tuple[int, int], reads: dict[int, int], given: set[int]) -> None:
        value = self.problem.values[instance[0]]
        if value.resident:
            return
        if value.alias_of is not None:
            source = (value.alias_of, reads.get(value.alias_of, -1))
            if source in self.storage:  # else an alias of a resident value: no bytes of its own
                self.storage[instance] = self.storage[source]
                self.users[self.storage[source]] += 1
            return
        storage = self._reusable(value.bytes, value.may_reuse, reads, given)
        if storage is None:
            storage = len(self.size)
            self.size.append(value.bytes)
            self.users.append(0)
            self.live += value.bytes
        else:
            given.add(storage)
        self.storage[instance] = storage
        self.users[storage] += 1

    def _reusable(self, size: int, candidates: tuple[int, ...], reads: dict[int, int], given: set[int]) -> int | None:
        """A storage whose every live instance is read here for the last time."""
        for v in candidates:
            instance = (v, reads.get(v, -1))
            storage = self.storage.get(instance)
            if storage is None or storage in given or self.size[storage] != size:
                continue
            last = sum(self.storage.get(r) == storage and self.readers[r] == 1 for r in reads.items())
            if last == self.users[storage]:
                return storage
        return None

    def _drop(self, instance: tuple[int, int]) -> None:
        storage = self.storage.pop(instance, None)
        if storage is None:
            return
        self.users[storage] -= 1
        if self.users[storage] == 0:
            self.live -= self.size[storage]
