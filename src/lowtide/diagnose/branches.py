"""Which branches of the user's code cannot have run, by its command line and the plain values that its globals ended up
with."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from lowtide.diagnose.syntax import dotted, whole

UNKNOWN = object()
ARGUMENTS = "sys.argv"
"""The command line, among the switches."""


def settled(tree: ast.Module, switches: dict[str, object]) -> dict[str, object]:
    """Switches without those that change while the program runs: bound in a loop or a function, or twice."""
    times: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            times[node.id] = times.get(node.id, 0) + 1
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.While):
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    times[part.id] = 2
    known = {name: value for name, value in switches.items() if times.get(name.partition(".")[0], 0) == 1}
    return known | {name: value for name, value in switches.items() if name == ARGUMENTS}


def dead_lines(tree: ast.AST, switches: dict[str, object]) -> Iterator[int]:
    """Lines of branches that cannot have run, and what follows a branch that surely ran and left."""
    for node in ast.walk(tree):
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list):
                yield from _dead_in(block, switches)


def _dead_in(block: list[ast.stmt], switches: dict[str, object]) -> Iterator[int]:
    left = False
    for statement in block:
        if left:
            yield from range(whole(statement).first, whole(statement).last + 1)
        elif isinstance(statement, ast.If) and (value := value_of(statement.test, switches)) is not UNKNOWN:
            ran, dead = (statement.body, statement.orelse) if value else (statement.orelse, statement.body)
            for other in dead:
                yield from range(whole(other).first, whole(other).last + 1)
            left = bool(ran) and isinstance(ran[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def unused_lines(tree: ast.Module, dead: Collection[int], seen: Collection[int]) -> set[int]:
    """Lines of functions and classes of a script that nothing names which runs: the arm with their call was not taken.

    What has a decorator may be called by whom that tells, and what was seen running runs.
    """
    unused: dict[ast.stmt, range] = {
        node: range(whole(node).first, whole(node).last + 1) for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.decorator_list
    }  # fmt: skip
    named = {node: _named_in(node, dead) for node in tree.body}
    before = -1
    while before != len(unused):
        before = len(unused)
        wanted = {name for node, names in named.items() if node not in unused for name in names}
        called = [node for node in unused if getattr(node, "name", "") in wanted]
        run = [node for node, lines in unused.items() if any(line in lines for line in seen)]
        for node in {*called, *run}:
            del unused[node]
    return {line for lines in unused.values() for line in lines}


def _named_in(statement: ast.stmt, dead: Collection[int]) -> set[str]:
    """Names, attributes and words in what may run of a statement."""
    live = [node for node in ast.walk(statement) if getattr(node, "lineno", 0) not in dead]
    names = {node.id for node in live if isinstance(node, ast.Name)}
    names |= {node.attr for node in live if isinstance(node, ast.Attribute)}
    return names | {node.value for node in live if isinstance(node, ast.Constant) and isinstance(node.value, str)}


class _Arms(ast.NodeTransformer):
    """Puts the arm that was taken in place of `a if condition else b`."""

    def __init__(self, switches: dict[str, object]) -> None:
        self._switches = switches

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        value = value_of(node.test, self._switches)
        if value is not UNKNOWN:
            taken: ast.AST = self.visit(node.body if value else node.orelse)
            return taken
        return self.generic_visit(node)


def without_dead_arms(tree: ast.Module, switches: dict[str, object]) -> ast.Module:
    """The module with every conditional expression whose condition is known as the arm that was taken."""
    taken: ast.Module = _Arms(switches).visit(tree)
    return taken


def value_of(node: ast.expr, switches: dict[str, object]) -> object:
    """What a condition on switches, or one of them, comes to; UNKNOWN when it asks anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name | ast.Attribute):
        return switches.get(dotted(node), UNKNOWN)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        value = value_of(node.operand, switches)
        return UNKNOWN if value is UNKNOWN else not value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = value_of(node.operand, switches)
        return -value if isinstance(value, int | float) else UNKNOWN
    if isinstance(node, ast.BoolOp):
        return _joined(isinstance(node.op, ast.And), [value_of(part, switches) for part in node.values])
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        parts = tuple(value_of(part, switches) for part in node.elts)
        return UNKNOWN if UNKNOWN in parts else parts
    if isinstance(node, ast.Subscript):
        return _item(value_of(node.value, switches), node.slice, switches)
    if isinstance(node, ast.Call) and dotted(node.func) == "len" and len(node.args) == 1:
        value = value_of(node.args[0], switches)
        return len(value) if isinstance(value, str | tuple) else UNKNOWN
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = value_of(node.left, switches), value_of(node.comparators[0], switches)
        if UNKNOWN not in (left, right):
            return _compared(node.ops[0], left, right)
    return UNKNOWN


def _item(value: object, index: ast.expr, switches: dict[str, object]) -> object:
    """`value[index]` of a text or a tuple; UNKNOWN where there is none."""
    if not isinstance(value, str | tuple):
        return UNKNOWN
    if isinstance(index, ast.Slice):
        ends = (None if end is None else value_of(end, switches) for end in (index.lower, index.upper, index.step))
        whole_ends = [end for end in ends if end is None or isinstance(end, int)]
        return value[slice(*whole_ends)] if len(whole_ends) == 3 else UNKNOWN
    place = value_of(index, switches)
    return value[place] if isinstance(place, int) and -len(value) <= place < len(value) else UNKNOWN


def _joined(is_and: bool, values: list[object]) -> object:
    if any(value is not UNKNOWN and bool(value) is not is_and for value in values):
        return not is_and
    return UNKNOWN if any(value is UNKNOWN for value in values) else is_and


def _compared(op: ast.cmpop, left: object, right: object) -> object:
    if isinstance(op, ast.Eq | ast.Is):
        return left == right
    if isinstance(op, ast.NotEq | ast.IsNot):
        return left != right
    if isinstance(op, ast.In | ast.NotIn) and isinstance(right, tuple):
        return (left in right) is isinstance(op, ast.In)
    if isinstance(left, int | float) and isinstance(right, int | float):
        found = {ast.Lt: left < right, ast.LtE: left <= right, ast.Gt: left > right, ast.GtE: left >= right}
        return found.get(type(op), UNKNOWN)
    return UNKNOWN
