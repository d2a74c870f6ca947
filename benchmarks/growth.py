"""The simulator's own time on Programs of growing size: a training step of residual blocks, made up, no TensorFlow."""

from __future__ import annotations

import time
from typing import Any

from lowtide.program import Dim, Op, Program, Value
from lowtide.simulate import forecast

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)


def made_up_program(ops: int) -> Program:
    """A chain of blocks forward, the same chain backward, each step of it reading what its forward op left."""
    depth = ops // 4
    value = Value("float32", (Dim(0, 1), Dim(256)))
    listed = [Op("input", "Placeholder", (), (0,))]
    values = [value]
    for index in range(depth):
        kind = ("Softmax", "Square", "Relu")[index % 3]
        listed.append(Op(f"forward_{index}", kind, (len(values) - 1,), (len(values),)))
        values.append(value)
    made = list(range(1, depth + 1))
    for index in reversed(range(depth)):
        for step, kind in enumerate(("ReluGrad", "Mul", "AddV2")):
            inputs = (len(values) - 1, made[index])
            listed.append(Op(f"gradient_{index}_{step}", kind, inputs, (len(values),), phase="backward"))
            values.append(value)
    return Program(tuple(listed), tuple(values), inputs=(0,), outputs=(len(values) - 1,), batch=8)


def growth_curve(sizes: tuple[int, ...] = SIZES) -> list[dict[str, Any]]:
    points = []
    for size in sizes:
        program = made_up_program(size)
        started = time.process_time()
        forecast(program)
        seconds = time.process_time() - started
        ops = len(program.ops)
        points.append({"ops": ops, "seconds": seconds, "microseconds_per_op": seconds / ops * 1e6})
    return points
