"""A step that XLA compiles has XLA's memory plan: read from its own buffer assignment, without running anything.

The process must have been started with `XLA_FLAGS=--xla_dump_to=FOLDER --xla_dump_hlo_as_text`, as
`lowtide.tf.child` does. XLA gives each compiled step one block for everything that comes and goes in it: the Program
of such a step is its residents, its batch, and one op that needs that block.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from lowtide.errors import NotCapturable
from lowtide.program import Dim, Note, Op, Program, Value
from lowtide.tf.trace import batch_of, relaxed

_TEMPORARY = re.compile(r"^allocation \d+: size (\d+), (?:preallocated-temp|thread-local)", re.MULTILINE)


def as_compiled(
    program: Program,
    function: Any,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    folder: Path,
    law: bool = True,
) -> Program:
    """The Program of the same step compiled by XLA: compiled here at two batch sizes, which give the law.

    `law`: whether `function` takes another batch than this one.
    """
    batch = batch_of((arguments, options))
    several = law and batch is not None and program.scales
    sizes = [program.batch, 2 * program.batch] if several else [program.batch]
    temporaries = {size: _temporary_bytes(function, arguments, options, batch, size, folder) for size in sizes}
    return _one_op_program(program, temporaries)


def _temporary_bytes(
    function: Any, arguments: Any, options: Any, batch: int | None, size: int, folder: Path
) -> int:
    before = set(folder.glob("*buffer-assignment.txt"))
    flat, specs = _flattened(function, relaxed((arguments, options), batch, size))
    flat.experimental_get_compiler_ir(*specs)(stage="optimized_hlo")
    written = set(folder.glob("*buffer-assignment.txt")) - before
    if not written:
        raise NotCapturable(
            "XLA wrote no buffer assignment: it was started before Lowtide could ask for one, or XLA_FLAGS of the "
            "script overrides --xla_dump_to"
        )
    newest = max(written, key=lambda path: path.stat().st_mtime_ns)
    return sum(int(size) for size in _TEMPORARY.findall(newest.read_text()))


def _flattened(function: Any, specs: Any) -> tuple[Any, list[Any]]:
    """The function of its flat tensor arguments, which is all that XLA's inspection takes, and their specs."""
    leaves = tf.nest.flatten(specs, expand_composites=True)
    tensors = [index for index, leaf in enumerate(leaves) if isinstance(leaf, tf.TensorSpec)]

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]  # TensorFlow ships no types
    def flat(*given: Any) -> Any:
        filled = dict(zip(tensors, given, strict=True))
        packed = [filled.get(index, leaf) for index, leaf in enumerate(leaves)]
        arguments, options = tf.nest.pack_sequence_as(specs, packed, expand_composites=True)
        return function(*arguments, **options)

    return tf.function(flat, jit_compile=True), [leaves[index] for index in tensors]


def _one_op_program(program: Program, temporaries: Mapping[int, int]) -> Program:
    (first, needed), *more = temporaries.items()
    slope = (more[0][1] - needed) // (more[0][0] - first) if more else 0
    values = list(program.values)
    values.append(Value("int8", (Dim(needed - slope * first, slope),)))
    sources = [op for op in program.ops if op.outputs and op.outputs[0] in program.inputs]
    step = Op("XLA step", "XlaStep", program.inputs, (len(values) - 1,))
    note = Note("XLA step", "compiled", needed, "from XLA's buffer assignment; the law is a line through two batches")
    return replace(
        program,
        ops=(*(replace(op, after=()) for op in sources), step),
        values=tuple(values),
        outputs=(),
        keep=(len(sources),),
        functions=(),
        notes=(note,),
    )
