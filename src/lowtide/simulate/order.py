"""Execution orders of a Program.

`tidy_order` is the one Lowtide runs unless a plan says otherwise: the traced order, except that what frees memory goes
first. It is a list schedule with one look ahead, linear in the number of edges; a planner can do better.
"""

from __future__ import annotations

import heapq

from lowtide.ops import UNKNOWN, Act, rule_at, rule_of
from lowtide.program import Program

SMALL = 1024
"""Bytes. An op that allocates no more than this runs as soon as it can: it costs nothing and may free much."""

_HOLDS_NOTHING = frozenset({Act.READ, Act.SOURCE})


def tidy_order(program: Program, batch: int) -> list[int]:
    """Indices of the ops in an order that keeps the peak low.

    Of the ops that are ready, the first to run is one that allocates next to nothing, or frees as much as it
    allocates, or finishes an update that has begun; failing that, the first in the Program.
    """
    return _Scheduler(program, batch).order()


class _Scheduler:
    def __init__(self, program: Program, batch: int) -> None:
        self._program = program
        self._size = [value.bytes(batch) for value in program.values]
        self._storage = list(range(len(program.values)))
        self._allocates = [0] * len(program.ops)
        self._readers: list[list[int]] = [[] for _ in program.values]
        for index, op in enumerate(program.ops):
            self._place(index, batch)
            for value in op.inputs:
                self._readers[self._storage[value]].append(index)
        self._left = [len(readers) for readers in self._readers]
        for value in program.outputs:
            self._left[self._storage[value]] += 1  # the caller reads it last
        self._first: list[int] = []
        self._later: list[int] = []
        self._watch_variables()

    def _watch_variables(self) -> None:
        """An update while a read of the variable is alive copies the variable: it waits for the read's last reader."""
        self._variable_of: dict[int, int] = {}  # what a read left -> handle
        self._reads: dict[int, list[tuple[int, int]]] = {}  # handle -> (read, what it left)
        self._updates: dict[int, list[int]] = {}  # handle -> ops that change the variable
        for index, op in enumerate(self._program.ops):
            rule = rule_of(op.kind)
            if rule is not None and rule.act is Act.READ:
                self._variable_of[op.outputs[0]] = op.inputs[0]
                self._reads.setdefault(op.inputs[0], []).append((index, op.outputs[0]))
            elif rule is not None and rule.act is Act.UPDATE:
                for value in op.inputs:
                    if self._program.values[value].dtype == "resource":
                        self._updates.setdefault(value, []).append(index)

    def _would_copy(self, index: int) -> bool:
        """Whether the op changes a variable while what was read from it is still needed."""
        op = self._program.ops[index]
        mine = [self._storage[value] for value in op.inputs]
        return any(
            self._done[read] and self._left[left] > mine.count(left)
            for value in op.inputs
            if index in self._updates.get(value, ())
            for read, left in self._reads.get(value, ())
        )

    def _place(self, index: int, batch: int) -> None:
        """Where the op's outputs live: views share, reads and arguments never free anything."""
        op = self._program.ops[index]
        rule = rule_at(op, self._program.values, batch) or UNKNOWN
        for value in op.outputs:
            if rule.act is Act.VIEW:
                self._storage[value] = self._storage[op.inputs[rule.inputs[0]]]
            elif rule.act in _HOLDS_NOTHING:
                self._size[value] = 0
            else:
                self._allocates[index] += self._size[value]

    def order(self) -> list[int]:
        ops = self._program.ops
        maker = {value: index for index, op in enumerate(ops) for value in op.outputs}
        waiting = [0] * len(ops)
        followers: list[list[int]] = [[] for _ in ops]
        for index, op in enumerate(ops):
            for before in {*(maker[v] for v in op.inputs if v in maker), *op.after}:
                followers[before].append(index)
                waiting[index] += 1
        self._ready = [not count for count in waiting]
        self._done = [False] * len(ops)
        for index, ready in enumerate(self._ready):
            if ready:
                self._push(index)
        result = []
        while self._first or self._later:
            index = heapq.heappop(self._first or self._later)
            if self._done[index]:
                continue
            self._done[index] = True
            result.append(index)
            self._consume(index)
            for follower in followers[index]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    self._ready[follower] = True
                    self._push(follower)
        return result

    def _push(self, index: int) -> None:
        heapq.heappush(self._first if self._goes_first(index) else self._later, index)

    def _goes_first(self, index: int) -> bool:
        if self._would_copy(index):
            return False
        if self._allocates[index] <= SMALL or self._goes_on_with_an_update(index):
            return True
        return self._allocates[index] <= self._frees(index)

    def _goes_on_with_an_update(self, index: int) -> bool:
        """Whether it is a part of an update for which something has been computed: weight decay needs no gradient, and
        would make a copy of each weight before the first of them is used."""
        op = self._program.ops[index]
        return op.phase == "update" and any(self._size[self._storage[value]] > SMALL for value in op.inputs)

    def _frees(self, index: int) -> int:
        """Bytes whose last reader this op is."""
        freed, mine = 0, [self._storage[value] for value in self._program.ops[index].inputs]
        for storage in set(mine):
            if self._left[storage] == mine.count(storage):
                freed += self._size[storage]
        return freed

    def _consume(self, index: int) -> None:
        for value in self._program.ops[index].inputs:
            storage = self._storage[value]
            self._left[storage] -= 1
            if not self._left[storage] and storage in self._variable_of:
                for update in self._updates.get(self._variable_of[storage], ()):
                    if self._ready[update] and not self._done[update] and self._goes_first(update):
                        heapq.heappush(self._first, update)
            if self._left[storage] == 1 and self._size[storage] > SMALL:
                for reader in self._readers[storage]:
                    if self._ready[reader] and not self._done[reader] and self._goes_first(reader):
                        heapq.heappush(self._first, reader)
