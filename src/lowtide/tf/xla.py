"""A step that XLA compiles has XLA's memory plan: read from its own buffer assignment, without running anything.

The process must have been started with `XLA_FLAGS=--xla_dump_to=FOLDER --xla_dump_hlo_as_text`, as
`lowtide.tf.child` does. XLA gives each compiled step one block for everything that comes and goes in it: the Program
of such a step is its residents, its batch, and one op that needs that block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from lowtide.errors import NotCapturable
from lowtide.program import Note, Op, Program, Value
from lowtide.tf.compiled import FROM_XLA, assignment, line
from lowtide.tf.trace import batch_of, relaxed


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


def _temporary_bytes(function: Any, arguments: Any, options: Any, batch: int | None, size: int, folder: Path) -> int:
    given = assignment(*_flattened(function, relaxed((arguments, options), batch, size)), folder)
    if given is None:
        raise NotCapturable(
            "XLA wrote no buffer assignment: it was started before Lowtide could ask for one, or XLA_FLAGS of the "
            "script overrides --xla_dump_to"
        )
    return given.temporary


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
    points = list(temporaries.items())
    values = list(program.values)
    values.append(Value("int8", (line(points),)))
    sources = [op for op in program.ops if op.outputs and op.outputs[0] in program.inputs]
    step = Op("XLA step", "XlaStep", program.inputs, (len(values) - 1,))
    note = Note("XLA step", "compiled", points[0][1], FROM_XLA)
    return replace(
        program,
        ops=(*(replace(op, after=()) for op in sources), step),
        values=tuple(values),
        outputs=(),
        keep=(len(sources),),
        functions=(),
        notes=(note,),
    )
