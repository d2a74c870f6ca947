"""What cannot be computed of a step, found out in a process of its own: for callers whose own process must not notice.

The commands run the user's script in a process that ends right after, and can rehearse the step and ask XLA there.
From Python the model belongs to the caller. So the captured graph, the variables' values and a few rows of data are
written to a folder, and `python -m lowtide.tf.aside FOLDER` makes a step of its own of them: it rehearses it, or has
XLA compile it, and writes the Program that comes out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from lowtide.errors import NotCapturable
from lowtide.program import Note, Program, load_program, save_program
from lowtide.tf import compat
from lowtide.tf.capture import Step, as_traced
from lowtide.tf.child import environment_beside
from lowtide.tf.compat import GraphDef
from lowtide.tf.compiled import callable_graph
from lowtide.tf.rehearse import SMALL_BATCH, first_rows, needs_rehearsal, rehearse, unanswered
from lowtide.tf.trace import Seen, as_if_compiled, batch_of, capture_model, flat_tensors, relaxed, step_function
from lowtide.tf.xla import as_compiled

PROGRAM, GRAPH, REQUEST, SETTLED = "program.lowtide", "graph.pb", "request.json", "settled.lowtide"


def settled_model(model: Any, data: Any, asked: int, real: bool) -> tuple[Program, str]:
    """The step of a compiled Keras model on a batch like `data`, with nothing left open, and its compiler: "xla" or "".

    `asked` is a batch that it has to be right at, beside that of `data`. `real`: the data is the user's, so that the
    branches it chooses are those that count. Where the other process fails, a note says so, and what was assumed.
    """
    step = capture_model(model, data, Seen(batches=(asked,)))
    program = step.program
    if model.run_eagerly:
        program = as_if_compiled(program)
    compiled = bool(model.jit_compile) and not model.run_eagerly
    if not compiled and not needs_rehearsal(program, choose_branches=real):
        return program, ""
    try:
        step = _as_xla_takes_it(model, data, program) if compiled else replace(step, program=program)
        return _settled(step, flat_tensors(data), batch_of(data) or 1, compiled, real)
    except (NotCapturable, tf.errors.OpError) as error:
        why = str(error).splitlines()[0]
        return (_as_if_not_compiled(program, why) if compiled else unanswered(program, why)), ""


def _as_xla_takes_it(model: Any, data: Any, program: Program) -> Step:
    """Traced with an open batch or, where the user's code needs a number there, with this one."""
    function, batch = step_function(model), batch_of(data)
    try:
        concrete = function.get_concrete_function(*relaxed((data,), batch, None))
    except Exception:  # noqa: BLE001  # whatever the user's code raises on an open batch
        concrete = function.get_concrete_function(*relaxed((data,), batch, batch))
    return as_traced(concrete, program)


def _settled(step: Step, arguments: Sequence[Any], batch: int, compiled: bool, real: bool) -> tuple[Program, str]:
    with tempfile.TemporaryDirectory(prefix="lowtide-") as name:
        _write(step, arguments, batch, compiled, real, Path(name))
        return _run(Path(name)), "xla" if compiled else ""


def _as_if_not_compiled(program: Program, why: str) -> Program:
    text = f"XLA's plan could not be had ({why}); this is the step as TensorFlow's executor runs it"
    answered = unanswered(program, why)
    return replace(answered, notes=(Note("jit_compile=True", "assumed", 0, text), *answered.notes))


def _run(folder: Path) -> Program:
    command = [sys.executable, "-m", "lowtide.tf.aside", str(folder)]
    environment = environment_beside(str(folder))
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if not (folder / SETTLED).exists():
        words = done.stderr.strip().splitlines()
        raise NotCapturable(words[-1] if words else f"exit code {done.returncode}")
    return load_program(folder / SETTLED)


# --- a step as files ---


def _write(step: Step, arguments: Sequence[Any], batch: int, compiled: bool, real: bool, folder: Path) -> None:
    """XLA takes the graph as it was traced, and sizes instead of data; a rehearsal takes what Grappler made of it."""
    (folder / GRAPH).write_bytes(step.graph_def.SerializeToString())
    save_program(step.program, folder / PROGRAM)
    given = [list(tensor.shape) for tensor in arguments] if compiled else []
    if not compiled:
        for index, tensor in enumerate(arguments):
            _write_tensor(first_rows(tensor, batch, SMALL_BATCH), folder / f"argument_{index}")
    captured = [
        [name, *_write_captured(outside, folder / f"captured_{index}", with_value=not compiled)]
        for index, (name, outside) in enumerate(step.captured)
    ]
    open_batch = any(node.name in step.arguments and _is_open(node) for node in step.graph_def.node)
    request = {
        "compiled": compiled,
        "real": real,
        "law": open_batch,
        "batch": batch,
        "given": given,
        "types": [tensor.dtype.name for tensor in arguments],
        "arguments": step.arguments,
        "captured": captured,
        "outputs": step.outputs,
        "control_outputs": step.control_outputs,
    }
    (folder / REQUEST).write_text(json.dumps(request))


def _is_open(placeholder: Any) -> bool:
    return any(dim.size < 0 for dim in placeholder.attr["shape"].shape.dim)


def _write_captured(outside: Any, file: Path, with_value: bool) -> tuple[bool, str, list[int]]:
    """(whether it is a variable, type, shape); its value goes to `file`."""
    if outside.dtype != tf.resource:
        _write_tensor(outside, file)
        return False, outside.dtype.name, list(outside.shape)
    kind = compat.variable_type(outside)
    if kind is None or kind[1] is None:
        raise NotCapturable("the step uses a table, an iterator or another resource that is no variable")
    if with_value:
        _write_tensor(tf.raw_ops.ReadVariableOp(resource=outside, dtype=tf.as_dtype(kind[0])), file)
    return True, kind[0], list(kind[1])


def _write_tensor(tensor: Any, file: Path) -> None:
    file.write_bytes(tf.io.serialize_tensor(tensor).numpy())


def _read_tensor(file: Path, dtype: str) -> Any:
    return tf.io.parse_tensor(file.read_bytes(), tf.as_dtype(dtype))


# --- the other process ---


def main(name: str) -> None:
    folder = Path(name)
    request = json.loads((folder / REQUEST).read_text())
    step, variables = _read(folder, request)
    if request["compiled"]:
        sizes = zip(request["given"], request["types"], strict=True)
        given = tuple(np.zeros(shape, tf.as_dtype(dtype).as_numpy_dtype) for shape, dtype in sizes)
        traced = callable_graph(step.graph_def, step.arguments, step.captured, step.outputs, step.control_outputs)
        settled = as_compiled(step.program, traced, given, {}, folder / "xla", request["law"])
    else:
        types = enumerate(request["types"])
        rows = [_read_tensor(folder / f"argument_{index}", dtype) for index, dtype in types]
        settled = rehearse(step, rows, min(request["batch"], SMALL_BATCH), choose_branches=request["real"])
    save_program(settled, folder / SETTLED)
    del variables  # alive until here: the step has their handles only


def _read(folder: Path, request: dict[str, Any]) -> tuple[Step, list[Any]]:
    graph_def = GraphDef()
    graph_def.ParseFromString((folder / GRAPH).read_bytes())
    captured, variables = [], []
    for index, (name, is_variable, dtype, shape) in enumerate(request["captured"]):
        file = folder / f"captured_{index}"
        value = _read_tensor(file, dtype) if file.exists() else tf.zeros(shape, dtype)
        if is_variable:
            variables.append(tf.Variable(value))
            value = variables[-1].handle
        captured.append((name, value))
    step = Step(
        load_program(folder / PROGRAM),
        graph_def,
        tuple(request["arguments"]),
        tuple(captured),
        tuple(request["outputs"]),
        tuple(request["control_outputs"]),
    )
    return step, variables


if __name__ == "__main__":
    main(sys.argv[1])
