"""From a thing that is alive to the name that keeps it so. Imports no TensorFlow.

References are followed backwards, all chains one level at a time. A chain ends at a name in the user's code: a global
of one of the user's modules, or a local of a running function. A library's own global is taken when there is nothing
better. What nothing that Python can see refers to has no chain: C++ holds it.
"""

from __future__ import annotations

import ast
import gc
import sys
import types
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from lowtide.program import Source
from lowtide.tf.places import is_users_file

DEPTH = 10
WIDTH = 64
"""Levels of references, and things in a level, at most: Python compares every reference there is with each of these."""
_PUTS = frozenset({"append", "appendleft", "extend", "add", "insert", "update", "setdefault", "put", "__setitem__"})


class Chain(NamedTuple):
    """`text` such as "metric.seen (list of 96, global of train.py)"; `line` is where the code puts things there."""

    text: str
    line: Source | None


class _Root(NamedTuple):
    """A name where a chain may end; lower `rank` is better."""

    rank: int
    scope: str
    names: dict[int, str]
    file: str


class Chains:
    """`found[i]` is the chain of `starts[i]`, things that belong together."""

    def __init__(self, starts: Sequence[Sequence[Any]], ignore: Sequence[Any]) -> None:
        self._ignored = {id(thing) for thing in ignore} | {id(starts), *(id(start) for start in starts)}
        self._roots = _roots()
        self._holders: dict[int, list[Any]] = {}
        self._ours: set[int] = set()
        ends = self._search(starts)
        self.found = [self._chain(start, ends) for start in starts]
        self._holders.clear()

    def _search(self, starts: Sequence[Sequence[Any]]) -> dict[int, tuple[_Root, str, int]]:
        """The things that a root names, with the root; `_holders` has the way there."""
        level: list[Any] = [thing for start in starts for thing in start]
        known = {id(thing) for thing in level}
        ends: dict[int, tuple[_Root, str, int]] = {}
        for depth in range(DEPTH):
            self._end_at_roots(level, depth, ends)
            waiting = [thing for thing in level if id(thing) not in ends or ends[id(thing)][0].rank > 1]
            level = self._holders_of(waiting[:WIDTH], known)
        return ends

    def _end_at_roots(self, level: list[Any], depth: int, ends: dict[int, tuple[_Root, str, int]]) -> None:
        for root in self._roots:
            for thing in level:
                name = root.names.get(id(thing))
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

    def _chain(self, start: Sequence[Any], ends: dict[int, tuple[_Root, str, int]]) -> Chain:
        """The way to a root that holds half of them at least: the best rank, then the most held, then the shortest."""
        ways = [path for thing in start for path in self._paths(thing, ends)]
        if not ways:
            return Chain("", None)
        held = Counter(id(path[-1]) for path in ways)

        def worth(path: list[Any]) -> tuple[bool, int, int, int]:
            many = held[id(path[-1])]
            return 2 * many < len(start), ends[id(path[-1])][0].rank, -many, len(path)

        best = min(ways, key=worth)
        root, name, _ = ends[id(best[-1])]
        return _described(root, name, best)

    def _paths(self, thing: Any, ends: dict[int, tuple[_Root, str, int]]) -> list[list[Any]]:
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


def _interest(holder: Any) -> int:
    """Containers and the user's own objects first: they are what leaks."""
    if isinstance(holder, list | dict | set | tuple):
        return 0
    return 1 if is_users_file(getattr(sys.modules.get(type(holder).__module__), "__file__", None) or "<>") else 2


def _roots() -> list[_Root]:
    roots = []
    for frame in sys._current_frames().values():
        at: Any = frame
        while at is not None:
            code = at.f_code
            if is_users_file(code.co_filename) and code.co_name != "<module>":
                names = {id(value): name for name, value in at.f_locals.items()}
                roots.append(_Root(0, f"local of {code.co_name}", names, code.co_filename))
            at = at.f_back
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        names = {id(value): key for key, value in list(vars(module).items()) if not key.startswith("__")}
        users = bool(file) and is_users_file(str(Path(file).absolute())) and not name.startswith("lowtide")
        if users:
            roots.append(_Root(0, f"global of {Path(file).name}", names, str(Path(file).absolute())))
        elif not name.startswith("lowtide"):
            roots.append(_Root(2, f"in {name}", names, ""))
    return roots


def _described(root: _Root, name: str, path: list[Any]) -> Chain:
    """From the name down to what holds the thing: "metric.seen (list of 96, global of train.py)"."""
    text, last = name, name
    for holder, held in zip(reversed(path[1:]), reversed(path[:-1]), strict=True):
        step = _step(holder, held)
        if step:
            text += step
            last = step.strip(".[]'\"") or last
    direct = path[1] if len(path) > 1 else path[0]
    kind = f"{type(direct).__name__} of {len(direct)}, " if isinstance(direct, list | dict | set | tuple) else ""
    attribute = last if last.isidentifier() else name
    return Chain(f"{text} ({kind}{root.scope})", _put_at(root.file, attribute) or _put_at(root.file, name))


def _step(holder: Any, held: Any) -> str:
    """How `held` is reached from `holder`."""
    if isinstance(holder, dict):
        for key, value in holder.items():
            if value is held:
                return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{str(key)[:30]!r}]"
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


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _put_at(file: str, name: str) -> Source | None:
    """The last line of a file that puts something into `name`: an append, an item, an assignment."""
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
                else:
                    _note(grows if isinstance(node, ast.AugAssign) else plain, target, file, node.lineno)
    return {**plain, **grows}


def _note(into: dict[str, Source], target: ast.expr, file: str, line: int) -> None:
    if isinstance(target, ast.Name):
        into[target.id] = Source(file, line)
    elif isinstance(target, ast.Attribute):
        into[target.attr] = Source(file, line)
