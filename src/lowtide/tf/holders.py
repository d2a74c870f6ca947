"""From a thing that is alive to the name that keeps it so. Imports no TensorFlow.

First forward from the user's names (`lowtide.tf.reach`). What they do not reach is followed backwards, all chains one
level at a time, to a library's own global. What nothing that Python can see refers to has no chain: C++ holds it.
"""

from __future__ import annotations

import ast
import gc
import logging
import re
import sys
import types
from collections import Counter, deque
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from lowtide.program import Source
from lowtide.record.types import BOUNDED, CYCLE, DEFAULT, EACH_IN
from lowtide.tf.places import is_users_file
from lowtide.tf.reach import Reach, Root, is_users_class, library_roots, parts_of

DEPTH = 6
WIDTH = 32
"""Levels of references, and things in a level, at most: Python compares every reference there is with each of these."""
CYCLE_LENGTH, CYCLE_WIDTH = 5, 200
"""References that a cycle has, and things in a level, at most."""
SOME = 40
"""Things of a group that are asked for their holder: most of a leak have the same."""
_PUTS = frozenset({"append", "appendleft", "extend", "add", "insert", "update", "setdefault", "put", "__setitem__"})
_ITEM = re.compile(r"\[.*?\]")
_LAST = re.compile(r"\.?\w+")


class Chain(NamedTuple):
    """`text` such as "metric.seen (list of 96, global of train.py)"; `line` is where the code puts things there."""

    text: str
    line: Source | None


class Chains:
    """`found[i]` is the chain of `starts[i]`, things that belong together.

    `deep[i]` says whether it is worth a search backwards, which costs a pass over all objects for each level.
    """

    def __init__(
        self, reach: Reach, starts: Sequence[Sequence[Any]], ignore: Sequence[Any], deep: Sequence[bool]
    ) -> None:
        self._ignored = {id(thing) for thing in ignore} | {id(starts), *(id(start) for start in starts)}
        self._ignored |= {id(reach), id(reach.__dict__), id(reach.roots), id(reach.steps), id(reach.arrays)}
        self._holders: dict[int, list[Any]] = {}
        self._ours: set[int] = set()
        self._names: list[tuple[Root, dict[int, str]]] = []
        self.found = [_forward(reach, start) for start in starts]
        left = [start for start, chain, dig in zip(starts, self.found, deep, strict=True) if dig and not chain.text]
        if left:
            few = [_representatives(start) for start in left]
            self._ignored |= {id(left), id(few), *(id(start) for start in few)}
            all_roots = [*reach.roots, *library_roots()]
            self._ignored |= {id(root.names) for root in all_roots} | {id(step) for step in reach.steps.values()}
            self._names = [(root, {id(value): name for name, value in root.names.items()}) for root in all_roots]
            ends = self._search(few)
            chains = {id(start): self._chain(some, ends) for start, some in zip(left, few, strict=True)}
            self.found = [chains.get(id(start), chain) for start, chain in zip(starts, self.found, strict=True)]
        self._holders.clear()

    def _search(self, starts: Sequence[Sequence[Any]]) -> dict[int, tuple[Root, str, int]]:
        """The things that a root names, with the root; `_holders` has the way there."""
        level: list[Any] = [thing for start in starts for thing in start]
        known = {id(thing) for thing in level}
        ends: dict[int, tuple[Root, str, int]] = {}
        for depth in range(DEPTH):
            self._end_at_roots(level, depth, ends)
            waiting = [thing for thing in level if id(thing) not in ends or ends[id(thing)][0].rank > 1]
            level = self._holders_of(waiting[:WIDTH], known)
        return ends

    def _end_at_roots(self, level: list[Any], depth: int, ends: dict[int, tuple[Root, str, int]]) -> None:
        for root, names in self._names:
            for thing in level:
                name = names.get(id(thing))
                if name is not None and (id(thing) not in ends or ends[id(thing)][0].rank > root.rank):
                    ends[id(thing)] = (root, name, depth)

    def _holders_of(self, things: list[Any], known: set[int]) -> list[Any]:
        targets = {id(thing) for thing in things}
        found = []
        for holder in gc.get_referrers(*things) if things else []:
            if id(holder) in known or id(holder) in self._ignored or self._is_ours(holder):
                continue
            held = [id(part) for part in gc.get_referents(holder) if id(part) in targets]
            if held:
                known.add(id(holder))
                for part in held:
                    mine = self._holders.setdefault(part, [])
                    self._ours.add(id(mine))
                    mine.append(holder)
                found.append(holder)
        return sorted(found, key=_interest)

    def _is_ours(self, holder: Any) -> bool:
        """Frames are looked at by name; lists of this search hold everything."""
        return isinstance(holder, types.FrameType) or holder is self._holders or id(holder) in self._ours

    def _chain(self, start: Sequence[Any], ends: dict[int, tuple[Root, str, int]]) -> Chain:
        """The way to a root that holds half of them at least: the best rank, then the most held, then the shortest."""
        ways = [path for thing in start for path in self._paths(thing, ends)]
        if not ways:
            return next((chain for thing in start if (chain := self._cycle(thing)).text), Chain("", None))
        held = Counter(id(path[-1]) for path in ways)

        def worth(path: list[Any]) -> tuple[bool, int, int, int]:
            many = held[id(path[-1])]
            return 2 * many < len(start), ends[id(path[-1])][0].rank, -many, len(path)

        best = min(ways, key=worth)
        if worth(best)[0]:
            return Chain("", None)  # the latest has a name, the others are held elsewhere
        root, name, _ = ends[id(best[-1])]
        return _described(root, name, best)

    def _cycle(self, thing: Any) -> Chain:
        """A thing that no name leads to, in an object of the user's that leads to itself: garbage not yet collected."""
        waiting, seen = deque([[thing]]), {id(thing)}
        while waiting:
            path = waiting.popleft()
            if is_users_class(type(path[-1])) and _leads_to_itself(path[-1]):
                return Chain(f"{_words(_NOWHERE, type(path[-1]).__name__, path)} ({CYCLE})", None)
            for holder in self._holders.get(id(path[-1]), ()):
                if id(holder) not in seen:
                    seen.add(id(holder))
                    waiting.append([*path, holder])
        return Chain("", None)

    def _paths(self, thing: Any, ends: dict[int, tuple[Root, str, int]]) -> list[list[Any]]:
        """One shortest way from a thing to each named thing above it."""
        found: list[list[Any]] = []
        seen = {id(thing)}
        level = [[thing]]
        while level and len(found) < 50:
            following = []
            for path in level:
                if id(path[-1]) in ends:
                    found.append(path)
                for holder in self._holders.get(id(path[-1]), ()):
                    if id(holder) not in seen:
                        seen.add(id(holder))
                        following.append([*path, holder])
            level = following
        return found


_NOWHERE = Root(3, "", {}, "")


def _leads_to_itself(thing: Any) -> bool:
    """Whether a few references, none through a class or a module, come back to it."""
    level, seen = [thing], {id(thing)}
    for _ in range(CYCLE_LENGTH):
        following = []
        for part in (part for one in level for part in parts_of(one)):
            if part is thing:
                return True
            if id(part) not in seen and not isinstance(part, type | types.ModuleType):
                seen.add(id(part))
                following.append(part)
        level = following[:CYCLE_WIDTH]
    return False


def _interest(holder: Any) -> int:
    """Containers and the user's own objects first: they are what leaks."""
    if isinstance(holder, list | dict | set | tuple):
        return 0
    return 1 if is_users_file(getattr(sys.modules.get(type(holder).__module__), "__file__", None) or "<>") else 2


def _representatives(things: Sequence[Any]) -> list[Any]:
    """Several: a leak's holder holds them all, while the latest has a local or a loop's variable besides."""
    if len(things) <= 3:
        return list(things[:2])
    return [things[0], things[len(things) // 3], things[2 * len(things) // 3]]


def _forward(reach: Reach, things: Sequence[Any]) -> Chain:
    """The chain that most of the things have in common."""
    ways: dict[str, list[list[Any]]] = {}
    asked = things[:: max(1, len(things) // SOME)]
    for thing in asked:
        path = reach.path(thing)
        if path:
            first = reach.steps[id(path[-1])]
            ways.setdefault(_ITEM.sub("", _words(*_begun(first.root, first.name, path))), []).append(path)
    if 2 * sum(map(len, ways.values())) < len(asked) or not ways:
        return Chain("", None)  # the user's names hold few of them, if any
    path = max(ways.values(), key=len)[0]
    first = reach.steps[id(path[-1])]
    return _described(*_begun(first.root, first.name, path))


def _begun(root: Root, name: str, path: list[Any]) -> tuple[Root, str, list[Any]]:
    """A library's local says nothing: such a chain begins at the user's own object, by its class."""
    if root.rank == 0:
        return root, name, path
    for at in range(len(path) - 1, -1, -1):
        if is_users_class(type(path[at])):
            module = sys.modules.get(type(path[at]).__module__)
            file = str(Path(getattr(module, "__file__", None) or "").absolute())
            return root._replace(scope=f"object {root.scope}", file=file), type(path[at]).__name__, path[: at + 1]
    return root, name, path


def _words(root: Root, name: str, path: list[Any]) -> str:
    """From the name down to what holds the thing: "metric.seen"."""
    text = name
    upper: Any = None
    for holder, held in zip(reversed(path[1:]), reversed(path[:-1]), strict=True):
        own = isinstance(upper, type) or getattr(upper, "__dict__", None) is holder
        text += _step(holder, held, own)
        upper = holder
    return text


def _described(root: Root, name: str, path: list[Any]) -> Chain:
    """The words with what kind of container it is, and where: "metric.seen (list of 96, global of train.py)"."""
    text = _words(root, name, path)
    above = [*path[2:], None][: len(path) - 1]
    containers = [
        held for held, upper in zip(path[1:], above, strict=True)
        if isinstance(held, list | dict | set | tuple | deque)
        and not isinstance(upper, type) and getattr(upper, "__dict__", None) is not held
    ]  # fmt: skip
    largest: Any = max(containers, key=len, default=())
    kind = f"{type(largest).__name__} of {len(largest)}, " if largest else ""
    if isinstance(largest, deque) and largest.maxlen is not None:
        kind += f"{BOUNDED} {largest.maxlen}, "
    if default := next(filter(None, map(_default, path[1:], path)), None):
        argument, function = default
        line = Source(function.__code__.co_filename, function.__code__.co_firstlineno)
        return Chain(f"{argument} ({kind}{DEFAULT} {function.__name__})", line)
    if largest and (part := _part_with_a_line(path, largest)):
        return Chain(f"{text} ({kind}{EACH_IN} {part[0]}, {root.scope})", part[1])
    last = _LAST.findall(_ITEM.sub("", text))[-1]
    lines = (_put_at(root.file, way) for way in (last, last.lstrip("."), name))
    return Chain(f"{text} ({kind}{root.scope})", next(filter(None, lines), None))


def _step(holder: Any, held: Any, attributes: bool) -> str:
    """How `held` is reached from `holder`; `attributes`: a dictionary that is an object's own."""
    if isinstance(holder, dict):
        for key, value in holder.items():
            if value is held:
                return f".{key}" if attributes else f"[{str(key)[:30]!r}]"
        return ""
    if isinstance(holder, types.CellType):
        return ""
    if isinstance(holder, types.FunctionType):
        for variable, cell in zip(holder.__code__.co_freevars, holder.__closure__ or (), strict=False):
            if cell is held or _contents(cell) is held:
                return f" closure {variable}"
        return ""
    if isinstance(holder, list | tuple | set | frozenset):
        return ""
    for key, value in list(getattr(holder, "__dict__", {}).items()):
        if value is held:
            return f".{key}"
    return ""


def _default(function: Any, defaults: Any) -> tuple[str, types.FunctionType] | None:
    """The argument and its function, where these are a function's defaults: made once, shared by all calls."""
    if not isinstance(function, types.FunctionType) or not isinstance(defaults, tuple):
        return None
    if defaults is not function.__defaults__:
        return None
    names = function.__code__.co_varnames[: function.__code__.co_argcount][-len(defaults) :]
    containers = [n for n, value in zip(names, defaults, strict=True) if isinstance(value, list | dict | set | deque)]
    return (containers[0], function) if containers else None


def _part_with_a_line(path: Sequence[Any], container: Any) -> tuple[str, Source] | None:
    """What is in the container on the way to the thing, if it says where it was made: a function, a log's record."""
    below = path[: next(at for at, holder in enumerate(path) if holder is container)]
    for holder in reversed(below):
        if isinstance(holder, types.FunctionType):
            word, line = "a function", Source(holder.__code__.co_filename, holder.__code__.co_firstlineno)
        elif isinstance(holder, logging.LogRecord):
            word, line = "a log record", Source(holder.pathname, holder.lineno)
        else:
            continue
        return (word, line) if is_users_file(line.file) else None
    return None


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _put_at(file: str, name: str) -> Source | None:
    """The last line of a file that puts something into `name`, or `.name`: an append, an item, an assignment."""
    return _puts(file).get(name) if file else None


@lru_cache(maxsize=32)
def _puts(file: str) -> dict[str, Source]:
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError, ValueError):
        return {}
    plain: dict[str, Source] = {}
    grows: dict[str, Source] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PUTS:
            _note(grows, node.func.value, file, node.lineno)
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Subscript):
                    _note(grows, target.value, file, node.lineno)
                elif not _is_none(node.value):
                    _note(grows if isinstance(node, ast.AugAssign) else plain, target, file, node.lineno)
    return {**plain, **grows}


def _note(into: dict[str, Source], target: ast.expr, file: str, line: int) -> None:
    if isinstance(target, ast.Name):
        into[target.id] = Source(file, line)
    elif isinstance(target, ast.Attribute):
        into[f".{target.attr}"] = Source(file, line)
    elif isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            _note(into, part, file, line)


def _is_none(value: ast.expr | None) -> bool:
    """Whether an assignment lets go of what was there."""
    return value is None or (isinstance(value, ast.Constant) and value.value is None)
