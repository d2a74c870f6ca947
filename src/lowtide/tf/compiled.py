"""Calls inside a step that XLA compiles: their bytes are XLA's, read from its own buffer assignment.

Keras has XLA compile a convolution in groups on the CPU, and a user's function may say `jit_compile=True`. XLA gives
such a call one block for everything that comes and goes in it, beside its outputs. It writes down how large that is
only in a process that was started with `XLA_FLAGS=--xla_dump_to=FOLDER --xla_dump_hlo_as_text`, so the calls are
compiled in one, from sizes alone: `python -m lowtide.tf.compiled FOLDER`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from lowtide.program import Dim, Note, Op, Program, Value
from lowtide.tf import compat
from lowtide.tf.child import environment_beside
from lowtide.tf.compat import GraphDef
from lowtide.tf.graphs import edges

COMPILED = "compiled"
"""The attribute of an op that holds the name of the function which XLA compiles for it."""

XLA_CALL = "XlaCall"
"""The kind of such an op once XLA's bytes are known: an op like others, with a block of its own as its last output."""

FROM_XLA = "from XLA's buffer assignment; the law is a line through two batches"

LIBRARY, REQUESTS, ANSWERS = "library.pb", "requests.json", "answers.json"

_OWN = re.compile(r"^allocation \d+: size (\d+), (?!parameter|constant)", re.MULTILINE)
_TEMPORARY = re.compile(r"^allocation \d+: size (\d+), (?:preallocated-temp|thread-local)", re.MULTILINE)


@dataclass(frozen=True)
class Assignment:
    """What XLA allocates when a compiled function runs: all of it, and the part that comes and goes."""

    own: int
    temporary: int


@dataclass(frozen=True)
class Input:
    """An argument of a compiled function at one batch: a tensor, or a variable that it reads."""

    dtype: str
    dims: tuple[int, ...]
    is_variable: bool


Request = tuple[str, tuple[Input, ...]]
"""A function of the library and what it is called with."""


def with_compiled_calls(program: Program, graph_def: GraphDef) -> Program:
    """The Program with XLA's bytes for its compiled calls; where XLA does not give them, the note says what is assumed.

    Compiled at two batches, which give the law.
    """
    if not any(COMPILED in op.attrs for part in _parts(program) for op in part.ops):
        return program
    functions = {function.signature.name: function for function in graph_def.library.function}
    batches = [program.batch, 2 * program.batch] if program.scales else [program.batch]
    wanted = {request for part in _parts(program) for request in _requests(part, batches)}
    alike = {request: _alike(request, functions) for request in wanted}
    first = {key: request for request, key in alike.items()}
    found = _asked_of_xla(list(first.values()), graph_def)
    bytes_of = {request: found[first[key]] for request, key in alike.items() if first[key] in found}
    return _named(_answered(program, batches, bytes_of))


def _named(program: Program) -> Program:
    """One note for all of them, in place of what was assumed of each."""
    calls = [(part, op) for part in _parts(program) for op in part.ops if op.kind == XLA_CALL]
    if not calls:
        return program
    largest = max(part.values[op.outputs[-1]].bytes(program.batch) for part, op in calls)
    why = f"{len(calls)} of them, at most so much for one beside its outputs: {FROM_XLA}"
    names = {op.name for _, op in calls}
    others = [note for note in program.notes if note.what.partition(" ")[2] not in names]
    return replace(program, notes=(*others, Note("calls that XLA compiles", "compiled", largest, why)))


def _parts(program: Program) -> Iterator[Program]:
    yield program
    for function in program.functions:
        yield from _parts(function)


def _requests(part: Program, batches: Sequence[int]) -> Iterator[Request]:
    for op in part.ops:
        for batch in batches if COMPILED in op.attrs else ():
            if request := _request(part, op, batch):
                yield request


def _request(part: Program, op: Op, batch: int) -> Request | None:
    body = part.functions[op.bodies[0]]
    inputs = [
        _input(part.values[outside], body, inside, batch)
        for outside, inside in zip(op.inputs, body.inputs, strict=True)
    ]
    return None if None in inputs else (str(op.attrs[COMPILED]), tuple(one for one in inputs if one))


def _input(value: Value, body: Program, inside: int, batch: int) -> Input | None:
    """None when its size is not known."""
    is_variable = value.dtype == "resource"
    if is_variable:
        read = [op.outputs[0] for op in body.ops if op.kind == "ReadVariableOp" and op.inputs[0] == inside]
        if not read:
            return None
        value = body.values[read[0]]
    if value.shape is None:
        return None
    return Input(value.dtype, tuple(dim.at(batch) for dim in value.shape), is_variable)


def _alike(request: Request, functions: Mapping[str, Any]) -> tuple[object, ...]:
    """The same for blocks of a model that differ in nothing but names."""
    function = functions[request[0]]
    arguments = {argument.name: f"argument {i}" for i, argument in enumerate(function.signature.input_arg)}
    number = {**arguments, **{node.name: f"node {i}" for i, node in enumerate(function.node_def)}}

    def numbered(text: str) -> str:
        name, colon, output = text.removeprefix("^").partition(":")
        return f"{number[name]}{colon}{output}"

    nodes = [
        (
            node.op,
            tuple(map(numbered, node.input)),
            tuple(sorted((name, attr.SerializeToString(deterministic=True)) for name, attr in node.attr.items())),
        )
        for node in function.node_def
    ]
    returned = tuple(numbered(function.ret[output.name]) for output in function.signature.output_arg)
    return tuple(nodes), returned, request[1]


def _answered(program: Program, batches: Sequence[int], found: Mapping[Request, Assignment]) -> Program:
    functions = tuple(_answered(function, batches, found) for function in program.functions)
    values, ops = list(program.values), []
    for op in program.ops:
        requests = [_request(program, op, batch) for batch in batches] if COMPILED in op.attrs else []
        points = [(batch, found[r]) for batch, r in zip(batches, requests, strict=False) if r and r in found]
        if points and len(points) == len(batches):
            blocks = [(batch, _beside_outputs(program, op, batch, given.own)) for batch, given in points]
            values.append(Value("int8", (line(blocks),)))
            attrs = {name: value for name, value in op.attrs.items() if name != COMPILED}
            op = replace(op, kind=XLA_CALL, outputs=(*op.outputs, len(values) - 1), bodies=(), attrs=attrs)
        ops.append(op)
    return replace(program, ops=tuple(ops), values=tuple(values), functions=functions)


def _beside_outputs(program: Program, op: Op, batch: int, own: int) -> int:
    return max(0, own - sum(program.values[value].bytes(batch) for value in op.outputs))


def line(points: Sequence[tuple[int, int]]) -> Dim:
    """Exact at the first batch; where there is a second, the line through both."""
    (first, needed), *more = points
    slope = (more[0][1] - needed) // (more[0][0] - first) if more else 0
    return Dim(needed - slope * first, slope)


def _asked_of_xla(requests: Sequence[Request], graph_def: GraphDef) -> dict[Request, Assignment]:
    """What the other process says; nothing when it could not be had."""
    with tempfile.TemporaryDirectory(prefix="lowtide-") as name:
        folder = Path(name)
        library = GraphDef(library=graph_def.library, versions=graph_def.versions)
        (folder / LIBRARY).write_bytes(library.SerializeToString())
        listed = [[function, [[i.dtype, i.dims, i.is_variable] for i in inputs]] for function, inputs in requests]
        (folder / REQUESTS).write_text(json.dumps(listed))
        subprocess.run(
            [sys.executable, "-m", "lowtide.tf.compiled", name],
            env=environment_beside(name),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if not (folder / ANSWERS).exists():
            return {}
        answers = json.loads((folder / ANSWERS).read_text())
    return {request: Assignment(*given) for request, given in zip(requests, answers, strict=True) if given}


# --- in a process that XLA dumps from ---


def assignment(function: Any, arguments: Sequence[Any], folder: Path) -> Assignment | None:
    """Have XLA compile `function(*arguments)`, a tf.function of tensor specs, and read its assignment from `folder`.

    None when XLA wrote none: it was started before Lowtide could ask for it.
    """
    before = set(folder.glob("*buffer-assignment.txt"))
    function.experimental_get_compiler_ir(*arguments)(stage="optimized_hlo")
    written = set(folder.glob("*buffer-assignment.txt")) - before
    if not written:
        return None
    text = max(written, key=lambda path: path.stat().st_mtime_ns).read_text()
    own, temporary = (sum(map(int, pattern.findall(text))) for pattern in (_OWN, _TEMPORARY))
    return Assignment(own, temporary)


def callable_graph(
    graph_def: GraphDef,
    arguments: Sequence[str],
    captured: Sequence[tuple[str, Any]],
    outputs: Sequence[str],
    control_outputs: Sequence[str],
) -> Callable[..., list[Any]]:
    """A graph as something to trace: shapes are inferred anew from what its placeholders are given."""
    placeholders = [*arguments, *(name for name, _ in captured)]
    read = {edge.node for node in graph_def.node for edge in edges(node)}
    inner = GraphDef()
    inner.CopyFrom(graph_def)
    del inner.node[:]  # XLA takes no placeholder, also none that nobody reads
    inner.node.extend(node for node in graph_def.node if node.name not in placeholders)

    def call(*given: Any) -> list[Any]:
        inside = [*given, *(compat.capture_into_current_graph(tensor) for _, tensor in captured)]
        tensors = dict(zip(placeholders, inside, strict=True))
        mapping = {f"{name}:0": tensor for name, tensor in tensors.items() if name in read}
        passed_on = {f"{name}:0": tensor for name, tensor in tensors.items()}
        wanted = [name for name in (*outputs, *control_outputs) if name not in passed_on]
        found = tf.graph_util.import_graph_def(inner, input_map=mapping, return_elements=wanted, name="")
        made = {**passed_on, **dict(zip(wanted, found, strict=True))}
        with tf.control_dependencies([made[name] for name in control_outputs]):
            return [tf.identity(made[name]) for name in outputs]

    return call


def _answer(library: GraphDef, name: str, inputs: Sequence[Input], folder: Path) -> Assignment | None:
    function = next(f for f in library.library.function if f.signature.name == name)
    graph_def, names = compat.function_as_graph(function)
    graph_def.library.CopyFrom(library.library)
    arguments = [argument.name for argument in function.signature.input_arg]
    variables = {i: tf.Variable(tf.zeros(one.dims, one.dtype)) for i, one in enumerate(inputs) if one.is_variable}
    captured = [(arguments[i], variable.handle) for i, variable in variables.items()]
    tensors = [i for i in range(len(inputs)) if i not in variables]
    outputs = [names[function.ret[output.name]] for output in function.signature.output_arg]
    call = callable_graph(
        graph_def, [arguments[i] for i in tensors], captured, outputs, list(function.control_ret.values())
    )
    specs = [tf.TensorSpec(inputs[i].dims, inputs[i].dtype) for i in tensors]
    compiled = tf.function(call, jit_compile=True, autograph=False)
    try:
        return assignment(compiled, specs, folder)
    except (tf.errors.OpError, ValueError, TypeError) as error:  # XLA cannot compile it from sizes alone
        print(f"{name}: {error}", file=sys.stderr)
        return None


def main(name: str) -> None:
    folder = Path(name)
    library = GraphDef()
    library.ParseFromString((folder / LIBRARY).read_bytes())
    requests = json.loads((folder / REQUESTS).read_text())
    answers = [
        _answer(
            library, function, [Input(dtype, tuple(dims), variable) for dtype, dims, variable in inputs], folder / "xla"
        )
        for function, inputs in requests
    ]
    (folder / ANSWERS).write_text(json.dumps([given and [given.own, given.temporary] for given in answers]))


if __name__ == "__main__":
    main(sys.argv[1])
