"""From a line that holds, passes or computes something to the line that the user would change: one step back in the
code."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lowtide.diagnose.code import Code
from lowtide.diagnose.script import File, Function
from lowtide.diagnose.syntax import (
    NONE,
    Multiplied,
    Span,
    body,
    calls_in,
    copied_names,
    is_cut,
    last_name,
    multiplied,
    names_called,
    names_passed,
    whole,
)
from lowtide.program import Source


def made_for(code: Code, call: Source, argument: str = "") -> Source | None:
    """The line that makes anew, each time, what the statement at `call` passes for an argument: in the same loop, or in
    the same function if that is called in one. Without an argument: the object whose method it calls."""
    file, statement = code.file(call.file), code.statement(call)
    if file is None or statement is None:
        return None
    methods = [call.func for call in calls_in(statement) if isinstance(call.func, ast.Attribute)]
    owners = [method.value.id for method in methods if isinstance(method.value, ast.Name)]
    passed = names_passed(statement) if argument else owners
    again = [body(loop) for loop in file.loops_around(call.line)]
    if not again and (function := file.enclosing(call.line)) is not None and code.in_loop(call):
        again = [whole(function)]
    makes = {
        target.id: Source(file.name, node.lineno)
        for node in file.nodes()
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call | ast.Dict | ast.DictComp | ast.Lambda)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in passed and any(node.lineno in span for span in again)
    }
    return makes.get(argument) or (next(iter(makes.values())) if len(makes) == 1 else None)


def returned_by(code: Code, line: Source, name: str) -> Source:
    """Where the function that the statement at `line` has `name` from makes it: `x, y = load()`. Else the line."""
    statement, file = code.statement(line), code.file(line.file)
    call = _given(statement, statement.value, name) if isinstance(statement, ast.Assign) else None
    function = file.function_named(last_name(call.func)) if file and isinstance(call, ast.Call) else None
    if file is None or function is None or not isinstance(statement, ast.Assign):
        return line
    returns = _returns(file, function)
    value = _given(statement, returns[0].value, name) if len(returns) == 1 else None
    if value is None or isinstance(value, ast.Tuple):
        return line
    return _made_in(code, file, function, value) or line


def _given(statement: ast.Assign, value: ast.expr | None, name: str) -> ast.expr | None:
    """What `name` is given of a value, part by part where both are tuples: `x, y = load(), 1`."""
    target = statement.targets[0]
    if isinstance(value, ast.Tuple) and isinstance(target, ast.Tuple) and len(value.elts) == len(target.elts):
        return next((v for t, v in zip(target.elts, value.elts, strict=True) if last_name(t) == name), None)
    return value


def returned_to(code: Code, line: Source) -> Source | None:
    """Where the function makes it whose result the statement passes on at once, first of all: `fit(load(path))`."""
    file = code.file(line.file)
    for call in calls_in(code.statement(line)):
        first = call.args[0] if call.args else None
        function = file.function_named(last_name(first.func)) if file and isinstance(first, ast.Call) else None
        returns = _returns(file, function) if file is not None and function is not None else []
        value = returns[0].value if len(returns) == 1 else None
        if file is None or function is None or value is None or isinstance(value, ast.Tuple):
            continue
        return _made_in(code, file, function, value) or Source(file.name, value.lineno)
    return None


def _made_in(code: Code, file: File, function: Function, value: ast.expr) -> Source | None:
    """Where a function makes what it returns: the last line in it that gives the name its value, or the `return`."""
    if not isinstance(value, ast.Name):
        return Source(file.name, value.lineno)
    inside = [at for at in code.assigns(value.id, file.name) if at.line in body(function)]
    return max(inside, key=lambda at: at.line, default=None)


def puts_inside(code: Code, name: str) -> list[Source]:
    """Lines that fill what a function gives `name`: `report = train()`, where `train` appends and returns the list."""
    found = []
    for line in code.assigns(name):
        made = returned_by(code, line, name)
        file = code.file(made.file)
        function = file.enclosing(made.line) if file is not None and made != line else None
        if function is None or not code.ran(made):
            continue
        puts = [put for inside in code.assigned_at(made) for put in code.puts_into(inside)]
        puts = [put for put in puts if put.file == made.file and put.line in body(function)]
        found += puts or ([made] if collects(code, made) else [])
    return found


def collects(code: Code, line: Source | None) -> bool:
    """Whether the statement at a line has a comprehension that keeps what it makes."""
    statement = code.statement(line) if line is not None else None
    return statement is not None and any(isinstance(n, ast.ListComp | ast.DictComp) for n in ast.walk(statement))


def collected_for_a_while(code: Code, line: Source) -> bool:
    """Whether the statement collects things that its own function, or a line that runs once, lets go or has for good:
    nobody puts them anywhere else, so that they do not become more with each turn of a loop."""
    if not collects(code, line) or any(at == line for at in code.puts()):
        return False
    names = code.assigned_at(line)
    return not code.in_loop(line) or (code.in_function(line) and bool(names) and not any(map(code.keeps, names)))


def collected_for(code: Code, line: Source) -> Source | None:
    """The line of the same function that collects what the statement at a line reads: `draws = np.stack([...])`."""
    file, statement = code.file(line.file), code.statement(line)
    if file is None or statement is None:
        return None
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    function = file.enclosing(line.line)
    made = [at for name in names for at in code.assigns(name, file.name) if file.enclosing(at.line) is function]
    return next((at for at in made if at != line and function and collected_for_a_while(code, at)), None)


def copied_and_kept(code: Code, line: Source) -> list[str]:
    """Names whose contents the statement at a line writes out again, and that are there afterwards as well: each was
    given something in the same function or in the script itself, and nobody deletes it or gives it something else."""
    file, statement = code.file(line.file), code.statement(line)
    if file is None or statement is None:
        return []
    inside, given = file.enclosing(line.line), code.assigned_at(line)
    deleted = {last_name(to) for node in file.nodes() if isinstance(node, ast.Delete) for to in node.targets}
    names = [name for name in copied_names(statement) if name not in deleted and name not in given]

    def is_there(at: Source) -> bool:
        return at.line < line.line and file.enclosing(at.line) in (inside, None)

    return [name for name in names if any(map(is_there, code.assigns(name, line.file)))]


def collected_by(code: Code, line: Source) -> Source | None:
    """The comprehension that keeps what the function which the line is in returns for each of its parts: the line makes
    one of them, that one has them all."""
    collecting = code.comprehended_at(line)
    return collecting if collects(code, collecting) else None


def put_away(code: Code, line: Source) -> Source | None:
    """The one line of the same function that keeps what the statement at `line` makes or fills: `seen.append(it)`."""
    file, statement = code.file(line.file), code.statement(line)
    if file is None or statement is None:
        return None
    names = {*code.assigned_at(line), *names_passed(statement)}
    function = file.enclosing(line.line)
    kept = {at for name in names for at in code.keeps(name) if at.file == file.name and at.line != line.line}
    found = [at for at in kept if file.enclosing(at.line) is function and code.in_loop(at)]
    return found[0] if len(found) == 1 else None


def _returns(file: File, function: ast.AST) -> list[ast.Return]:
    return [n for n in file.nodes() if isinstance(n, ast.Return) and file.enclosing(n.lineno) is function]


def cut_for(code: Code, source: Source) -> Source | None:
    """The line that cuts a piece off something for the statement at `source`: by a name it reads, or a call. If it only
    passes on what its function was given, then for those who call that."""
    found = _cut_for(code, source)
    file = code.file(source.file)
    function = file.enclosing(source.line) if file is not None and found is None else None
    if function is None:
        return found
    return next((cut for line in code.used_often(function.name) if (cut := _cut_for(code, line)) is not None), None)


def _cut_for(code: Code, source: Source) -> Source | None:
    statement = code.statement(source)
    parts = list(ast.walk(statement)) if statement is not None else []
    read = {node.id for node in parts if isinstance(node, ast.Name)}
    called = names_called(statement)
    named, returned = list[Source](), list[Source]()
    for file in code.files():
        for node in file.nodes():
            if isinstance(node, ast.Return):
                function = file.enclosing(node.lineno)
                if function is not None and function.name in called and _is_cut_in(node.value, function):
                    returned.append(Source(file.name, node.lineno))
            elif isinstance(node, ast.Assign) and is_cut(node.value) and file.name == source.file:
                names = {target.id for target in node.targets if isinstance(target, ast.Name)}
                if read & names and code.in_loop(Source(file.name, node.lineno)):
                    named.append(Source(file.name, node.lineno))
    return next(iter([*returned, *reversed(named)]), None)


def _is_cut_in(value: ast.expr | None, function: ast.AST) -> bool:
    """A piece of something, or a name that the function gave such a piece and nothing else."""
    name = value.id if isinstance(value, ast.Name) else ""
    given = [
        one.value for one in ast.walk(function)
        if isinstance(one, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in one.targets)
    ]  # fmt: skip
    return is_cut(value) or (bool(given) and all(map(is_cut, given)))


def widened_for(code: Code, source: Source, dtype: str = "float64") -> Source | None:
    """The line that makes floats of something for the statement at `source`: there, in a function that it calls, or in
    one that gave it the names it reads. `/` and `astype(float)` do; of float64, where nothing says float32."""
    statement = code.statement(source)
    if statement is None:
        return None
    names = dict.fromkeys(node.id for node in ast.walk(statement) if isinstance(node, ast.Name))
    for line in (source, *(line for name in names for line in code.assigns(name, source.file))):
        found = [at for at, part in _given_by(code, line) if code.ran(at) and _widens(part, dtype)]
        if found:
            return found[-1]
    return None


def _given_by(code: Code, line: Source) -> Iterator[tuple[Source, ast.AST]]:
    """The statement at a line, and those of the functions that it calls."""
    statement, file = code.statement(line), code.file(line.file)
    if statement is None or file is None:
        return
    yield line, statement
    functions = [f for name in names_called(statement) if (f := file.function_named(name)) is not None]
    for node in file.nodes() if functions else ():
        if isinstance(node, ast.Assign | ast.Expr | ast.Return) and file.enclosing(node.lineno) in functions:
            yield Source(file.name, node.lineno), node


def _widens(part: ast.AST, dtype: str) -> bool:
    text = ast.unparse(part)
    divides = any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) for node in ast.walk(part))
    casts = any(word in text for word in (dtype, "astype(float)", "astype('float')", "dtype=float"))
    narrower = {"float32", "float16", "tf."} - {dtype}
    return (divides or casts) and not any(word in text for word in narrower)


_SIZES = frozenset({"batch_size", "maxlen", "max_len", "max_length", "output_sequence_length"})


def sized_by(code: Code, source: Source) -> Source | None:
    """The line that takes from all of the data the size which the statement at `source` passes on: `maxlen=longest`."""
    calls = calls_in(code.statement(source))
    names = [last_name(k.value) for call in calls for k in call.keywords if k.arg in _SIZES]
    lines = (line for name in names if name for line in code.assigns(name) if code.ran(line))
    return next((line for line in lines if names_called(code.statement(line)) & {"max", "len"}), None)


def taken_from(code: Code, source: Source) -> Source | None:
    """Where the line is one of a generator: the one line that puts away what a loop takes from it."""
    file = code.file(source.file)
    function = file.enclosing(source.line) if file is not None else None
    if file is None or function is None or not any(isinstance(part, ast.Yield) for part in ast.walk(function)):
        return None
    loops = [node for node in file.nodes() if isinstance(node, ast.For)]
    through = [loop for loop in loops if isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) == function.name]
    puts = [line for line in code.puts() for loop in through if line.file == file.name and line.line in body(loop)]
    return puts[0] if len(puts) == 1 else None


def returned_with(code: Code, source: Source, key: str) -> Source | None:
    """The line that returns a dict with `key`, or an object given what goes by that name, of a function that the
    statement at `source` calls."""
    file = code.file(source.file)
    if file is None:
        return None
    functions = [f for name in names_called(code.statement(source)) if (f := file.function_named(name)) is not None]
    return next((line for function in functions for line in _returning(code, file, function, key)), None)


def _returning(code: Code, file: File, function: ast.AST, key: str) -> list[Source]:
    """Lines of a function that return something with `key`, and ran."""
    lines = [Source(file.name, made.lineno) for made in _returns(file, function) if _has_key(made.value, key)]
    return [line for line in lines if code.ran(line)]


def _has_key(value: ast.expr | None, key: str) -> bool:
    if isinstance(value, ast.Dict):
        return any(isinstance(k, ast.Constant) and k.value == key for k in value.keys)
    if isinstance(value, ast.Call):
        if key == "_model" and last_name(value.func) == "fit":
            return True  # the History that `fit` returns has the model
        return any(k.arg == key for k in value.keywords) or any(last_name(argument) == key for argument in value.args)
    return False


_STEPS = ("train_step", "test_step")


def logged_as(code: Code, key: str) -> Source | None:
    """The line that puts something into Keras's logs: what a model's own step returns, or a callback sets."""
    key = key.removeprefix("val_")
    for file in code.files():
        steps = [f for name in _STEPS if (f := file.function_named(name)) is not None]
        if lines := [line for step in steps for line in _returning(code, file, step, key)]:
            return lines[0]
    return next((line for line in code.puts_into("logs") if key in code.keys_at(line)), None)


def multiplied_for(code: Code, line: Source, name: str) -> Multiplied:
    """As `multiplied`, of what the statement at a line gives `name`, or of what the function that it calls returns."""
    statement, file = code.statement(line), code.file(line.file)
    call = _given(statement, statement.value, name) if isinstance(statement, ast.Assign) else statement
    found = multiplied(call) if call is not None else NONE
    function = file.function_named(last_name(call.func)) if file and isinstance(call, ast.Call) else None
    if found.surely or file is None or function is None or statement is None:
        return found
    surely = any(multiplied(made).surely for made in _returns(file, function))
    return Multiplied(frozenset(names_passed(call)), True) if surely and call is not None else found


def made_empty(code: Code, source: Source) -> Source | None:
    """Where the array is made that a statement fills, `table[i] = ...`: its memory comes as it is filled."""
    file, statement = code.file(source.file), code.statement(source)
    if file is None or not isinstance(statement, ast.Assign | ast.AugAssign):
        return None
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    filled = {t.value.id for t in targets if isinstance(t, ast.Subscript) and isinstance(t.value, ast.Name)}
    function = file.enclosing(source.line)
    makes = [
        node for node in file.nodes()
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.lineno < source.line
        and last_name(node.value.func) in _EMPTY and {last_name(t) for t in node.targets} & filled
        and file.enclosing(node.lineno) is function
    ]  # fmt: skip
    return Source(file.name, makes[-1].lineno) if makes else None


_EMPTY = frozenset({"zeros", "empty", "zeros_like", "empty_like"})


def lines_given(code: Code, line: Source, given: ast.expr) -> Span | None:
    """The lines of the function that a call on `line` is given."""
    if isinstance(given, ast.Lambda):
        return whole(given)
    file = code.file(line.file)
    function = file.function_named(given.id) if file is not None and isinstance(given, ast.Name) else None
    return whole(function) if function is not None else None


def runs_in(code: Code, line: Source, given: ast.expr, at: Source) -> bool:
    """Whether the function that a call on `line` is given has the line `at`, or one that it calls has."""
    file = code.file(line.file)
    if file is None or at.file != file.name:
        return False
    function = file.function_named(given.id) if isinstance(given, ast.Name) else None
    start = given if isinstance(given, ast.Lambda) else function
    return start is not None and any(at.line in whole(part) for part in with_functions_called(file, start))


def is_handed_out(code: Code, source: Source) -> bool:
    """Whether a function returns what it makes on a line: who calls it has made it, then."""
    file = code.file(source.file)
    function = file.enclosing(source.line) if file else None
    statement = code.statement(source)
    made = [statement.name] if isinstance(statement, Function) else code.assigned_at(source)
    returns = _returns(file, function) if file is not None and function is not None else []
    return any(r.lineno == source.line or (isinstance(r.value, ast.Name) and r.value.id in made) for r in returns)


def blamed_caller(code: Code, source: Source) -> Source | None:
    """Of a function that several places call, the one that did: a line that they share is not what made it large."""
    file = code.file(source.file)
    function = file.enclosing(source.line) if file is not None else None
    if file is None or function is None:
        return None
    calls = [n for n in file.all_nodes if isinstance(n, ast.Call) and last_name(n.func) == function.name]
    ran = [at for at in code.uses(function.name) if at.file == file.name and at.line not in whole(function)]
    return ran[0] if len(calls) > 1 and len(ran) == 1 else None


def with_functions_called(file: File, node: ast.AST) -> list[ast.AST]:
    """A piece of code, and the functions of the same file that it calls, and that these call."""
    found, names = [node], set[str]()
    for part in found:  # grows while it is walked
        for name in names_called(part) - names:
            names.add(name)
            function = file.function_named(name)
            if function is not None and function not in found:
                found.append(function)
    return found
