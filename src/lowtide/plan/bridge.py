"""Program -> Problem and back: a step as the planner's game, and a schedule as a Program with copies.

What the game leaves out, and the simulator puts back: the allocator's rounding, and the insides of loops, which count
as one node with the bytes they were simulated to need. A loop of pure ops is pure: it may run again, with all the lists
that it leaves for its gradient, as long as no variable that it reads has been changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lowtide.ops import ANY_INPUT, LOOPS, UNKNOWN, Act, Rule, rule_at, rule_of
from lowtide.plan.costs import op_seconds
from lowtide.plan.problem import Node, Problem, Schedule, Value
from lowtide.program import Op, Program
from lowtide.simulate.insides import op_needs

_GIVEN = frozenset({Act.SOURCE, Act.READ})
COPY = "lowtide_again"
"""Scope of the names of recomputed ops."""


Costs = Callable[[Program, int], Sequence[float]]
"""(the step, a batch) -> seconds that each of its ops takes."""


def problem_of(program: Program, batch: int, order: Sequence[int], costs: Costs = op_seconds) -> Problem:
    """The game of the step at `batch`; node n is op `order[n]`."""
    rules = [rule_at(op, program.values, batch) or UNKNOWN for op in program.ops]
    position = {op: n for n, op in enumerate(order)}
    seconds = costs(program, batch)
    needs = op_needs(program, batch, order)
    values = _values(program, batch, rules, needs.held)
    pure = [_is_pure(program, op, rule) for op, rule in zip(program.ops, rules, strict=True)]
    ends = _ended_reads(program, rules, pure, order)
    nodes = []
    may_be_read = _only_changed_at_the_end(program, rules, pure, ends)
    for index in order:
        op = program.ops[index]
        nodes.append(
            Node(
                cost=seconds[index],
                inputs=op.inputs,
                outputs=op.outputs,
                scratch=needs.scratch.get(index, 0),
                recomputable=pure[index] and all(handle in may_be_read for handle in _handles(program, op)),
                after=tuple(position[before] for before in op.after),
                ends=ends.get(index, ()),
            )
        )
    labels = tuple(f"{program.ops[i].kind} {program.ops[i].name}" for i in order)
    return Problem(tuple(nodes), values, program.name, labels)


def _is_pure(program: Program, op: Op, rule: Rule) -> bool:
    """Whether it computes the same again from the same; a loop may read variables, which it then has to do in time."""
    if op.kind not in LOOPS:
        return rule.recomputable and rule.act is not Act.CONTROL_FLOW
    bodies = [program.functions[body] for body in op.bodies]
    return all(
        part.kind in _HARMLESS or _is_pure(body, part, rule_of(part.kind) or UNKNOWN)
        for body in bodies
        for part in body.ops
    )


_HARMLESS = frozenset({"Const", "Placeholder", "_Arg", "NoOp", "ReadVariableOp"})
"""In a loop: they are there from the start, do nothing, or read a variable that the loop is given."""


def _handles(program: Program, op: Op) -> list[int]:
    return [value for value in op.inputs if program.values[value].dtype == "resource"]


def _values(
    program: Program, batch: int, rules: Sequence[Rule], held: dict[int, int]
) -> tuple[Value, ...]:
    kept = set(program.outputs)
    values = [Value(held.get(v, value.bytes(batch)), kept=v in kept) for v, value in enumerate(program.values)]
    for op, rule in zip(program.ops, rules, strict=True):
        for position, value in enumerate(op.outputs):
            if rule.act in _GIVEN:
                size = 0 if rule.act is Act.READ else values[value].bytes
                values[value] = replace(values[value], bytes=size, resident=True, kept=False)
            elif rule.act is Act.VIEW or (rule.act is Act.VIEW_EACH and position < len(op.inputs)):
                source = op.inputs[rule.inputs[0] if rule.act is Act.VIEW else position]
                values[value] = replace(values[value], alias_of=source)
            elif rule.act is Act.REUSE and position == rule.output:
                candidates = op.inputs if rule.inputs == ANY_INPUT else [op.inputs[i] for i in rule.inputs]
                dtype = program.values[value].dtype
                reusable = [c for c in dict.fromkeys(candidates) if program.values[c].dtype == dtype]
                values[value] = replace(values[value], may_reuse=tuple(reusable))
            elif rule.act is Act.UPDATE:
                values[value] = replace(values[value], bytes=0)
    return tuple(values)


def _only_changed_at_the_end(
    program: Program, rules: Sequence[Rule], pure: Sequence[bool], ends: dict[int, tuple[int, ...]]
) -> set[int]:
    """Variables that a loop may read again: whoever changes one ends its reading."""
    handles = {handle for op in program.ops for handle in _handles(program, op)}
    for index, op in enumerate(program.ops):
        if rules[index].act is not Act.READ and not pure[index]:
            handles -= {handle for handle in _handles(program, op) if handle not in ends.get(index, ())}
    return handles


def _ended_reads(
    program: Program, rules: Sequence[Rule], pure: Sequence[bool], order: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """For each op that changes a variable, what was read from it before: reading that later would keep a second copy.
    Where a loop that may run again reads the variable, that is the variable itself.

    Where the given order itself reads later, the second copy is there anyway, and nothing is ended.
    """
    position = {op: n for n, op in enumerate(order)}
    last_read: dict[int, int] = {}
    for op_index, op in enumerate(program.ops):
        for value in op.inputs:
            last_read[value] = max(last_read.get(value, -1), position[op_index])
    reads: dict[int, list[tuple[int, int]]] = {}
    for index, rule in enumerate(rules):
        if rule.act is Act.READ:
            op = program.ops[index]
            reads.setdefault(op.inputs[0], []).append((index, op.outputs[0]))
        elif pure[index]:
            for handle in _handles(program, program.ops[index]):
                reads.setdefault(handle, []).append((index, handle))
    ended: dict[int, tuple[int, ...]] = {}
    for index, rule in enumerate(rules):
        if rule.act in (Act.ASSIGN, Act.UPDATE):
            handles = [v for v in program.ops[index].inputs if v in reads]
            ended[index] = tuple(
                value
                for handle in handles
                for read, value in reads[handle]
                if position[read] < position[index] and last_read.get(value, -1) <= position[index]
            )
    return ended


def with_copies(program: Program, order: Sequence[int], schedule: Schedule) -> Program:
    """The Program that runs `schedule`: each execution an op of its own, each read wired to the latest before it."""
    ops: list[Op] = []
    values = list(program.values)
    latest: dict[int, int] = {}
    first: dict[int, int] = {}
    runs: dict[int, int] = {}
    for node in schedule:
        index = order[node]
        op = program.ops[index]
        again = runs.get(index, 0)
        runs[index] = again + 1
        inputs = tuple(latest.get(value, value) for value in op.inputs)
        if not again:
            first[index] = len(ops)
            after = tuple(sorted(first[before] for before in op.after))
            ops.append(replace(op, inputs=inputs, after=after))
            continue
        outputs = []
        for value in op.outputs:
            latest[value] = len(values)
            outputs.append(len(values))
            values.append(program.values[value])
        ops.append(replace(op, name=copy_name(op.name, again), inputs=inputs, outputs=tuple(outputs), after=()))
    return replace(
        program,
        ops=tuple(ops),
        values=tuple(values),
        outputs=tuple(latest.get(value, value) for value in program.outputs),
        keep=tuple(first[index] for index in program.keep),
    )


def copy_name(name: str, again: int) -> str:
    return f"{name}/{COPY}_{again}"
