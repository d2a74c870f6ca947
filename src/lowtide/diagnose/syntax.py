"""Small questions to Python's syntax trees: names, spans of lines, looks of a value."""

from __future__ import annotations

import ast
from typing import NamedTuple

_SMALL = frozenset({"float", "int", "str", "len", "round", "bool", "repr", "format", "item"})
"""Calls whose result is a number or a text, whatever they are given."""


class Span(NamedTuple):
    """Lines of a statement, both ends included."""

    first: int
    last: int

    def __contains__(self, line: object) -> bool:
        return isinstance(line, int) and self.first <= line <= self.last


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a name or attribute; calls and items on the way are left out."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return dotted(node.func)
    return dotted(node.value) if isinstance(node, ast.Subscript) else ""


def mentioned(node: ast.AST) -> set[str]:
    """Every name in it, dotted, and the names that these begin with: `self.a.b`, `self.a`, `self`."""
    return {dotted(part) for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute)}


def last_name(node: ast.expr) -> str:
    """The name that an expression ends in: `seen` of `self.seen` and of `self.seen["a"]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def depth(node: ast.expr) -> int:
    """How many items deep: 2 of `seen["a"][3]`."""
    return 1 + depth(node.value) if isinstance(node, ast.Subscript) else 0


def written(node: ast.AST) -> list[ast.expr]:
    """What a statement or a call writes to: targets, parts of targets, `out=` of a call, the first of `copyto`."""
    if isinstance(node, ast.Assign):
        return [part for to in node.targets for part in (to.elts if isinstance(to, ast.Tuple | ast.List) else [to])]
    if isinstance(node, ast.AugAssign):
        return [node.target]
    if not isinstance(node, ast.Call):
        return []
    return [k.value for k in node.keywords if k.arg == "out"] + node.args[: last_name(node.func) == "copyto"]


def calls_in(node: ast.AST | None) -> list[ast.Call]:
    return [part for part in ast.walk(node) if isinstance(part, ast.Call)] if node is not None else []


def comprehended(node: ast.AST) -> list[ast.expr]:
    """What a comprehension computes for each of its parts."""
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return [node.elt]
    return [node.key, node.value] if isinstance(node, ast.DictComp) else []


def names_called(node: ast.AST | None) -> set[str]:
    """The last names of what is called in a statement."""
    return {last_name(call.func) for call in calls_in(node)}


def names_passed(statement: ast.AST) -> list[str]:
    """Names that the calls in a statement are given as arguments, each once."""
    values = [value for call in calls_in(statement) for value in (*call.args, *(k.value for k in call.keywords))]
    return list(dict.fromkeys(value.id for value in values if isinstance(value, ast.Name)))


_COPIES = frozenset(
    {"array", "stack", "concatenate", "vstack", "hstack", "astype", "copy", "deepcopy", "take", "asarray", "float32"}
)


def copied_names(statement: ast.AST | None) -> list[str]:
    """Names whose contents an assignment writes out again: `np.array(images)`, `x.astype("float32")`, `x[order]`."""
    found: list[str] = []
    for node in ast.walk(statement) if isinstance(statement, ast.Assign) else ():
        if isinstance(node, ast.Call) and last_name(node.func) in _COPIES:
            method_of = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            parts = [part for given in (*node.args[:1], *method_of) for part in getattr(given, "elts", [given])]
            found += [part.id for part in parts if isinstance(part, ast.Name)]
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name | ast.Subscript | ast.Compare):
            found += [node.value.id] if isinstance(node.value, ast.Name) else []  # by places: that is no view
    return list(dict.fromkeys(found))


def is_small(value: ast.expr) -> bool:
    """A number or a text by its looks."""
    if isinstance(value, ast.Tuple | ast.List):
        return all(is_small(part) for part in value.elts)
    if isinstance(value, ast.Call):
        return dotted(value.func).rpartition(".")[2] in _SMALL
    return isinstance(value, ast.Constant | ast.JoinedStr | ast.Compare)


def constant_keys(node: ast.AST) -> set[str]:
    """Constant keys of the subscripts in an expression."""
    subscripts = [part.slice for part in ast.walk(node) if isinstance(part, ast.Subscript)]
    return {str(key.value) for key in subscripts if isinstance(key, ast.Constant)}


def is_among(name: str, value: ast.expr) -> bool:
    """Whether a value is a name, or a tuple, list or dict with it; what a call makes of it is something else."""
    if isinstance(value, ast.Tuple | ast.List):
        return any(is_among(name, part) for part in value.elts)
    if isinstance(value, ast.Dict):
        return any(is_among(name, part) for part in value.values)
    return isinstance(value, ast.Name) and value.id == name


_TAKE_OUT = frozenset({"pop", "popleft", "popitem", "remove", "clear"})


def is_counted(name: str, test: ast.expr) -> bool:
    """Whether a condition asks for the length of what `name` holds."""
    counts = [call for call in calls_in(test) if dotted(call.func) == "len" and call.args]
    return any(last_name(call.args[0]) == name for call in counts)


def is_taken_from(name: str, node: ast.AST) -> bool:
    """Whether something is taken out of `name` inside a node: by a method, `del`, or a piece of it put in its place."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _TAKE_OUT:
            if last_name(part.func.value) == name:
                return True
        elif isinstance(part, ast.Delete) and any(last_name(to) == name and depth(to) for to in part.targets):
            return True
        elif isinstance(part, ast.Assign) and is_cut(part.value) and last_name(part.value) == name:
            return any(last_name(to) == name for to in part.targets)
    return False


_JOINS = frozenset({"concatenate", "stack", "vstack", "hstack", "append", "array"})
_REPEATS = frozenset({"repeat", "tile"})


class Multiplied(NamedTuple):
    """Names whose contents an expression puts into one array several times over; `surely` without a look at sizes."""

    names: frozenset[str]
    surely: bool


NONE = Multiplied(frozenset(), False)


def multiplied(value: ast.AST) -> Multiplied:
    """By its looks: an array joined with itself, repeated, or cut into windows of which all are copied."""
    names: set[str] = set()
    surely = False
    for call in calls_in(value):
        ending = dotted(call.func).rpartition(".")[2]
        read = [node.id for part in call.args for node in ast.walk(part) if isinstance(node, ast.Name)]
        windows = [last_name(cut.value) for part in call.args for cut in _windows(part)] if ending in _JOINS else []
        if ending in _REPEATS or windows:
            names |= set(windows or read[:1])
            surely = True
        elif ending in _JOINS:
            names |= {name for name in read if read.count(name) > 1}
    return Multiplied(frozenset(names), surely)


def _windows(part: ast.AST) -> list[ast.Subscript]:
    """Slices with a beginning and an end inside a comprehension: `x[i : i + n] for i in ...`."""
    loops = [node for node in ast.walk(part) if isinstance(node, ast.ListComp | ast.GeneratorExp)]
    cuts = [node for loop in loops for node in ast.walk(loop.elt) if isinstance(node, ast.Subscript)]
    return [cut for cut in cuts if isinstance(cut.slice, ast.Slice) and cut.slice.lower and cut.slice.upper]


def is_cut(value: ast.expr | None) -> bool:
    """A piece of something: `x[:8]`, or that on a condition."""
    if isinstance(value, ast.IfExp):
        return is_cut(value.body) or is_cut(value.orelse)
    return isinstance(value, ast.Subscript)


_LIBRARIES = frozenset({"tf", "tensorflow", "np", "numpy", "keras", "ops", "math"})


def unchanged_in(loop: ast.For | ast.While, statement: ast.stmt) -> list[ast.expr]:
    """Parts of a statement that call something on names, none of which the loop around it sets; no random numbers."""
    kept = {part.id for part in ast.walk(loop) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    found: list[ast.expr] = []
    for part in ast.walk(statement):
        if isinstance(part, ast.BinOp | ast.Call) and calls_in(part) and "random" not in ast.unparse(part):
            called = {call.func.id for call in calls_in(part) if isinstance(call.func, ast.Name)}
            names = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)} - _LIBRARIES - called
            if names and not names & kept and "self" not in names:
                found.append(part)
    return found


def reads(value: ast.AST, target: ast.expr) -> bool:
    """Whether an expression reads the name or the attribute that `target` is; `state` is not `self.state`."""
    kind, name = type(target), last_name(target)
    return any(type(node) is kind and last_name(node) == name for node in ast.walk(value) if isinstance(node, ast.expr))


def whole(node: ast.AST) -> Span:
    first = getattr(node, "lineno", 0)
    decorators = [d.lineno for d in getattr(node, "decorator_list", ())]
    return Span(min([first, *decorators]), getattr(node, "end_lineno", first) or first)


def body(node: ast.For | ast.While | ast.FunctionDef | ast.AsyncFunctionDef) -> Span:
    return Span(whole(node.body[0]).first, whole(node.body[-1]).last)


def head(node: ast.stmt) -> Span:
    """A compound statement without what is inside it."""
    span, inside = whole(node), getattr(node, "body", None)
    if isinstance(inside, list) and inside:
        return Span(span.first, max(span.first, whole(inside[0]).first - 1))
    return span


def given_to_results(node: ast.AST, makers: set[str]) -> list[str]:
    """Names that a node gives to what these functions return: of a function that they decorate, of an assignment."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        by = (decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in node.decorator_list)
        return [node.name] if makers & set(map(last_name, by)) else []
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and last_name(node.value.func) in makers:
        return [last_name(target) for target in node.targets]
    return []


def other_names(node: ast.AST, function: str) -> list[str]:
    """Names that an assignment gives to a function itself, not to what it returns."""
    if not isinstance(node, ast.Assign):
        return []
    called = {id(call.func) for call in calls_in(node)}
    named = (part for part in ast.walk(node.value) if isinstance(part, ast.Name) and id(part) not in called)
    return [last_name(target) for target in node.targets] if any(part.id == function for part in named) else []
