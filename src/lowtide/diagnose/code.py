"""What the user's source says: statements, loops, assignments, and the branches that did not run.

A recording keeps the text of the files it points into. Lines in a branch whose condition is known to have been false
are dead: they are never named as a cause.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from lowtide.diagnose.branches import ARGUMENTS
from lowtide.diagnose.script import File, Function
from lowtide.diagnose.syntax import (
    Span,
    constant_keys,
    depth,
    dotted,
    given_to_results,
    head,
    is_among,
    is_counted,
    is_small,
    is_taken_from,
    last_name,
    mentioned,
    other_names,
    reads,
    whole,
    written,
)
from lowtide.program import Source
from lowtide.record import Recording

PUTS = frozenset(
    {"append", "appendleft", "extend", "add", "insert", "update", "setdefault", "put", "put_nowait", "push"}
)
"""Methods that put something into a container."""
PUT_INTO_FIRST = frozenset({"heappush", "heappushpop", "insort", "insort_left", "insort_right", "setattr"})
"""Functions that put something into their first argument."""
CALLED_BY_KERAS = frozenset(
    {"call", "train_step", "test_step", "predict_step", "update_state", "compute_loss", "__getitem__", "__call__"}
)
"""Methods that nobody calls in sight and that run in every step."""


class Code:
    """The files of a recording."""

    def __init__(self, recording: Recording) -> None:
        line = {ARGUMENTS: (recording.run.script, *recording.run.arguments)}
        self._seen = {s.source for s in recording.samples if s.source} | {s.source for s in recording.steps if s.source}
        script = Path(recording.run.script).absolute()
        self._files = {
            name: File(
                name, text, {**recording.switches.get(str(Path(name).absolute()), {}), **line},
                {at.line for at in self._seen if at.file == name} if Path(name).absolute() == script else None,
            )
            for name, text in recording.sources.items()
        }  # fmt: skip

    def file(self, name: str) -> File | None:
        found = self._files.get(name)
        if found is None:
            short = Path(name).name
            found = next((file for key, file in self._files.items() if Path(key).name == short), None)
        return found

    def files(self) -> list[File]:
        return list(self._files.values())

    def ran(self, source: Source | None) -> bool:
        """False for a line that cannot have run."""
        file = self.file(source.file) if source else None
        return file is None or source is None or file.is_live(source.line)

    def was_sampled(self, source: Source) -> bool:
        return source in self._seen

    def text(self, source: Source | None) -> str:
        """The statement at a line, on one line."""
        file = self.file(source.file) if source else None
        if file is None or source is None:
            return ""
        statement = file.statement(source.line)
        span = head(statement) if statement is not None else Span(source.line, source.line)
        return " ".join(line.strip() for line in file.lines[span.first - 1 : span.last]).partition("  #")[0].strip()

    def as_it_ran(self, source: Source) -> str:
        """The statement at a line without what cannot have run."""
        statement = self.statement(source)
        return "" if statement is None else ast.unparse(statement)

    def span(self, source: Source | None) -> tuple[str, Span] | None:
        """The file and lines of the statement at a line."""
        file = self.file(source.file) if source else None
        if source is None:
            return None
        statement = file.statement(source.line) if file else None
        return source.file, head(statement) if statement is not None else Span(source.line, source.line)

    def in_loop(self, source: Source | None) -> bool:
        """Whether the line runs more than once: in a loop, in a function that is called from one, or in a callback."""
        return source is not None and self._runs_often(source, frozenset())

    def _runs_often(self, source: Source, above: frozenset[str]) -> bool:
        file = self.file(source.file)
        if file is None:
            return False
        function = file.enclosing(source.line)
        inside = whole(function) if function is not None else None
        if any(inside is None or loop.lineno in inside for loop in file.loops_around(source.line)):
            return True
        name = function.name if function is not None else ""
        if not name or name in above:
            return False
        if name.startswith("on_") or name in CALLED_BY_KERAS:
            return True
        called = file.class_of(source.line) if name == "__init__" else name
        return any(self._used_often(n, above | {name}) for n in (called, *self._goes_by(file, function)))

    def _goes_by(self, file: File, function: Function | None) -> list[str]:
        """Other names of a function inside a function: what that one decorates, or what its result is assigned to."""
        makers = set()
        while function is not None and (function := file.enclosing(function.lineno)) is not None:
            makers.add(function.name)
        nodes = (node for each in self.files() for node in each.nodes()) if makers else ()
        return [name for node in nodes for name in given_to_results(node, makers)]

    def used_often(self, name: str) -> list[Source]:
        """Live lines that call a function or method again and again: in a loop, or for each part of a comprehension."""
        return self._used_often(name, frozenset())

    def _used_often(self, name: str, above: frozenset[str]) -> list[Source]:
        calls = [(file.name, call) for file in self.files() for call in file.each]
        each = [Source(file, call.lineno) for file, call in calls if last_name(call.func) == name]
        return [*each, *(line for line in self.uses(name) if line not in each and self._runs_often(line, above))]

    def in_function(self, source: Source) -> bool:
        file = self.file(source.file)
        return file is not None and file.enclosing(source.line) is not None

    def uses(self, name: str) -> list[Source]:
        """Live lines that call a function or method by its name."""
        return [
            Source(file.name, node.lineno)
            for file in self.files()
            for node in file.nodes()
            if isinstance(node, ast.Call) and last_name(node.func) == name
        ]

    def uses_by_any_name(self, function: str) -> list[Source]:
        """The same by a name that it was assigned to, too: `act = gelu if BIG else relu`."""
        names = [name for file in self.files() for node in file.nodes() for name in other_names(node, function)]
        return [line for name in dict.fromkeys((function, *names)) for line in self.uses(name)]

    def puts(self) -> list[Source]:
        """Live lines that put something into some container by a method."""
        return [line for line, _ in self.calls(*(f".{name}" for name in PUTS))]

    def puts_into(self, name: str) -> list[Source]:
        """Live lines that put something into the container `name`: an append, an item, `+=`."""
        found = []
        for file in self.files():
            for node in file.nodes():
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PUTS:
                    if last_name(node.func.value) == name:
                        found.append(Source(file.name, node.lineno))
                elif isinstance(node, ast.Call) and last_name(node.func) in PUT_INTO_FIRST:
                    if node.args and last_name(node.args[0]) == name:
                        found.append(Source(file.name, node.lineno))
                elif isinstance(node, ast.Assign | ast.AugAssign):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    for target in targets:
                        item = isinstance(target, ast.Subscript) and last_name(target.value) == name
                        adds = isinstance(node, ast.AugAssign) or reads(node.value, target)
                        if item or (adds and last_name(target) == name):
                            found.append(Source(file.name, node.lineno))
        return found

    def fills(self, name: str, deep: int) -> list[Source]:
        """Live lines that write into items of `name`, at least so deep: `x[i] = ...`, or `x["a"][i] = ...`."""
        return [
            Source(file.name, node.lineno)
            for file in self.files()
            for node in file.nodes()
            if isinstance(node, ast.Assign | ast.AugAssign | ast.Call)
            and any(last_name(to) == name and depth(to) >= deep for to in written(node))
        ]

    def takes_from(self, name: str) -> bool:
        """Whether a live line takes something out of the queue `name`: one that only fills is a list."""
        taken = [call.func for _, call in self.calls(".get", ".get_nowait")]
        return any(isinstance(func, ast.Attribute) and last_name(func.value) == name for func in taken)

    def goes_through(self, name: str) -> bool:
        """Whether a live loop or comprehension goes through what a name holds."""
        nodes = (node for file in self.files() for node in file.nodes())
        over = (node.iter for node in nodes if isinstance(node, ast.For | ast.comprehension))
        return any(name in mentioned(part) for part in over)

    def trims(self, name: str) -> bool:
        """Whether a live line asks how much `name` holds and then takes something out of it."""
        return any(
            isinstance(node, ast.If | ast.While) and is_counted(name, node.test) and is_taken_from(name, node)
            for file in self.files()
            for node in file.nodes()
        )

    def comprehended_at(self, line: Source) -> Source | None:
        """The comprehension that calls, for each of its parts, the function which the line is in."""
        file = self.file(line.file)
        function = file.enclosing(line.line) if file is not None else None
        if file is None or function is None:
            return None
        calling = [call.lineno for call in file.each if last_name(call.func) == function.name]
        return Source(file.name, calling[0]) if len(calling) == 1 else None

    def adds_to_itself(self, *calls: str) -> list[Source]:
        """Live lines that give a name what one of these calls makes of it and more: `x = tf.concat([x, y], 0)`."""
        return [
            Source(file.name, node.lineno)
            for file in self.files()
            for node in file.nodes()
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and last_name(node.value.func) in calls
            and any(isinstance(target, ast.Name) and reads(node.value, target) for target in node.targets)
        ]  # fmt: skip

    def told(self, name: str) -> list[Source]:
        """Live lines in a loop that call a method of `name` for its effect, with more than numbers and texts."""
        found = []
        for file in self.files():
            for node in file.nodes():
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                    line = Source(file.name, node.lineno)
                    called = dotted(node.value.func).split(".")
                    if len(called) > 1 and name in called[:-1] and self.puts_large(line) and self.in_loop(line):
                        found.append(line)
        return found

    def puts_large(self, line: Source) -> bool:
        """Whether the statement at a line puts more than numbers and texts somewhere, by its looks."""
        statement = self.statement(line)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call = statement.value
            values = [*call.args, *(keyword.value for keyword in call.keywords)]
        else:
            value = getattr(statement, "value", None)
            values = [value] if isinstance(value, ast.expr) else []
        return not values or not all(is_small(value) for value in values)

    def keys_at(self, line: Source) -> set[str]:
        """Constant keys in the statement at a line: `grads` of `history["grads"].append(g)`."""
        statement = self.statement(line)
        return constant_keys(statement) if statement is not None else set()

    def mentions(self, line: Source, names: Iterable[str]) -> bool:
        """Whether the statement at a line reads one of the names."""
        statement = self.statement(line)
        read = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)} if statement else set()
        return bool(read & set(names))

    def statement(self, line: Source) -> ast.stmt | None:
        file = self.file(line.file)
        return file.statement(line.line) if file else None

    def keeps(self, name: str) -> list[Source]:
        """Live lines that put the value of `name` somewhere: into a container, an item, an attribute."""
        found = []
        for file in self.files():
            for node in file.nodes():
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PUTS:
                    values: list[ast.expr] = [*node.args, *(keyword.value for keyword in node.keywords)]
                elif isinstance(node, ast.Assign) and any(
                    isinstance(target, ast.Subscript | ast.Attribute) for target in node.targets
                ):
                    values = [node.value]
                else:
                    continue
                if any(is_among(name, value) for value in values):
                    found.append(Source(file.name, node.lineno))
        return found

    def assigned_at(self, source: Source) -> list[str]:
        """Names that the statement at a line binds."""
        file = self.file(source.file)
        statement = file.statement(source.line) if file else None
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]

    def bound_by_with(self, source: Source) -> str:
        """The name after `as` of the `with` statement at a line."""
        file = self.file(source.file)
        statement = file.statement(source.line) if file else None
        items = statement.items if isinstance(statement, ast.With) else []
        return next((item.optional_vars.id for item in items if isinstance(item.optional_vars, ast.Name)), "")

    def cached(self, name: str) -> Source | None:
        """The decorator of the function `name` that makes its results stay: lru_cache and its like."""
        for file in self.files():
            for node in file.nodes():
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    for decorator in node.decorator_list:
                        if "cache" in dotted(decorator) or "memo" in dotted(decorator):
                            return Source(file.name, decorator.lineno)
        return None

    def assigns(self, name: str, file_name: str | None = None) -> list[Source]:
        """Live lines that bind `name`."""
        found = []
        for file in self.files() if file_name is None else filter(None, [self.file(file_name)]):
            for node in file.nodes():
                targets: list[ast.expr] = []
                if isinstance(node, ast.Assign):
                    targets = node.targets
                elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                    targets = [node.target]
                for target in targets:
                    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
                    if any(last_name(part) == name for part in parts):
                        found.append(Source(file.name, target.lineno))
        return found

    def names(self, *words: str) -> list[Source]:
        """Live lines that call something of these names, or pass an argument by one of them."""
        found = []
        for file in self.files():
            for node in file.nodes():
                called = isinstance(node, ast.Call) and last_name(node.func) in words
                if isinstance(node, ast.Call) and (called or any(k.arg in words for k in node.keywords)):
                    found.append(Source(file.name, node.lineno))
        return found

    def calls(self, *endings: str) -> list[tuple[Source, ast.Call]]:
        """Live calls of something whose dotted name ends so."""
        return [
            (Source(file.name, call.lineno), call)
            for file in self.files()
            for call in file.nodes()
            if isinstance(call, ast.Call) and dotted(call.func).endswith(endings)
        ]


@lru_cache(maxsize=8)
def code_of(recording: _Same) -> Code:
    return Code(recording.recording)


class _Same:
    """A recording as a key: by identity, since it is too large to compare."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def __hash__(self) -> int:
        return id(self.recording)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.recording is self.recording


def read_code(recording: Recording) -> Code:
    """The code of a recording, parsed once."""
    return code_of(_Same(recording))
