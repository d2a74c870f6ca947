"""One file of the user's source: its statements, functions and loops, and which of its lines cannot have run."""

from __future__ import annotations

import ast
from collections.abc import Collection

from lowtide.diagnose.branches import dead_lines, settled, unused_lines, value_of, without_dead_arms
from lowtide.diagnose.syntax import body, calls_in, comprehended, head, whole

Function = ast.FunctionDef | ast.AsyncFunctionDef


class File:
    """One file of the user's, parsed, and walked once: a script may have thousands of lines."""

    def __init__(self, name: str, text: str, switches: dict[str, object], seen: Collection[int] | None = None) -> None:
        """`seen`: of the script itself, lines that are known to have run; of a module that others import, None."""
        self.name, self.lines = name, text.splitlines()
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            tree = ast.Module([], [])
        self._known = known = settled(tree, switches)
        self._dead = set(dead_lines(tree, known))
        self.all_nodes = list(ast.walk(without_dead_arms(tree, known)))
        if seen is not None:
            self._dead.update(unused_lines(tree, self._dead, seen))
        self._live = [node for node in self.all_nodes if self.is_live(getattr(node, "lineno", 0))]
        self._statements = [(head(node), node) for node in self.all_nodes if isinstance(node, ast.stmt)]
        self._functions = [(body(node), node) for node in self.all_nodes if isinstance(node, Function)]
        self._loops = [(body(node), node) for node in self.all_nodes if isinstance(node, ast.For | ast.While)]
        self._enclosing: dict[int, Function | None] = {}
        parts = [part for node in self._live for part in comprehended(node)]
        self.each = [call for part in parts for call in calls_in(part) if self.is_live(call.lineno)]
        """Calls that a comprehension makes for each of its parts."""

    def number(self, node: ast.expr) -> int:
        """The whole number that an expression is, itself or as a global that never changes; 0 where not known."""
        value = value_of(node, self._known)
        return value if isinstance(value, int) else 0

    def is_live(self, line: int) -> bool:
        return line not in self._dead

    def nodes(self) -> list[ast.AST]:
        """All nodes but those on dead lines."""
        return self._live

    def statement(self, line: int) -> ast.stmt | None:
        """The innermost statement that has the line, without the body of a compound one."""
        best: ast.stmt | None = None
        first = 0
        for span, node in self._statements:
            if line in span and (best is None or span.first >= first):
                best, first = node, span.first
        return best

    def loops_around(self, line: int) -> list[ast.For | ast.While]:
        """Loops that run the line, outermost first; those of a function that is called in one are its own."""
        return [loop for span, loop in self._loops if line in span]

    def function_at(self, line: int) -> Function | ast.Lambda | None:
        """The innermost function whose text has the line."""
        found = (n for n in self.all_nodes if isinstance(n, Function | ast.Lambda) and line in whole(n))
        return next(iter([*found][-1:]), None)

    def function_named(self, name: str) -> Function | None:
        """The one function or method of this name."""
        found = [function for _, function in self._functions if function.name == name]
        return found[0] if len(found) == 1 else None

    def class_of(self, line: int) -> str:
        """The name of the innermost class whose text has the line."""
        found = [node for _, node in self._statements if isinstance(node, ast.ClassDef) and line in whole(node)]
        return found[-1].name if found else ""

    def enclosing(self, line: int) -> Function | None:
        """The innermost function with a name in whose body the line is."""
        if line not in self._enclosing:
            around = [function for span, function in self._functions if line in span]
            self._enclosing[line] = around[-1] if around else None
        return self._enclosing[line]
