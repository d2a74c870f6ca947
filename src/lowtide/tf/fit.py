"""A model or a function trains within a budget: captured, planned, and its step replaced by the planned one."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from lowtide.errors import BadUse, Infeasible, NotCapturable
from lowtide.plan import Plan
from lowtide.plan.aside import MakePlan
from lowtide.plan.plan import Pattern
from lowtide.program import Program
from lowtide.tf import compat, profile
from lowtide.tf.capture import Step
from lowtide.tf.child import NO_GRAPH, ORDERED_BY_XLA
from lowtide.tf.hooks import iterated
from lowtide.tf.rehearse import needs_rehearsal, rehearse, why_not_twice
from lowtide.tf.rewrite import as_function, planned_graph
from lowtide.tf.room import Room
from lowtide.tf.state import State
from lowtide.tf.trace import Seen, batch_of, capture_function, capture_model, flat_tensors

MUCH_LARGER = 0.2  # times the bytes of a step's tensors: a plan for it would compute too much again
CROWD = 0.02  # of the budget: so much more beside a step, and its plan is not trusted any longer
MOST_AHEAD = 64  # batches that room is made for

Planned = tuple[int, Plan, Callable[..., list[Any]]]
"""The largest batch that the plan is for, the plan, and the step that runs so."""


@dataclass(frozen=True)
class _Kind:
    """What has to be the same for two calls to be of one step: structure, types, and every leaf that is no tensor.

    Trailing Nones do not count: Keras passes (x, y) here and (x, y, None) there.
    """

    structure: Any
    leaves: tuple[Any, ...]

    @classmethod
    def of(cls, data: Any) -> _Kind:
        while isinstance(data, tuple) and data and data[-1] is None:
            data = data[:-1]
        leaves = tf.nest.flatten(data, expand_composites=True)
        return cls(tf.nest.map_structure(lambda _: None, data), tuple(_described(leaf) for leaf in leaves))


def _described(leaf: Any) -> Any:
    return tf.as_dtype(leaf.dtype) if isinstance(leaf, tf.Tensor | np.ndarray | np.generic) else (type(leaf), leaf)


@dataclass
class Variant:
    """The step for one kind of data, planned for batches up to `batch`. `given` are the shapes of what it was captured
    for: other dimensions than the batch may be open too, each by itself, and are counted as they were."""

    kind: _Kind
    step: Step
    shapes: tuple[Any, ...]
    given: tuple[Any, ...]
    batch: int
    plan: Plan
    call: Callable[..., list[Any]]
    room: Room | None = field(init=False)
    at_first: int = field(init=False)  # in use before the step when it was planned first

    def __post_init__(self) -> None:
        self.room = Room.of(self.plan)
        self.at_first = self.plan.timeline.chunk_resident if self.room else 0

    def replan(self, batch: int, plan: Plan, call: Callable[..., list[Any]]) -> None:
        self.batch, self.plan, self.call = batch, plan, call
        self.room = Room.of(plan)

    def takes(self, kind: _Kind, tensors: Sequence[Any]) -> bool:
        """Whether it was traced for such data, and no dimension but the batch is larger than it was. A step that knows
        its batch by number takes that batch only."""
        if kind != self.kind or len(tensors) != len(self.shapes):
            return False
        if not all(shape.is_compatible_with(t.shape) for shape, t in zip(self.shapes, tensors, strict=True)):
            return False
        return all(now <= then for then, now in self._dimensions(tensors) if then != self.step.program.batch)

    def rows(self, tensors: Sequence[Any]) -> int:
        """The batch, or another dimension that was as large: the two need not go together."""
        return max((now for then, now in self._dimensions(tensors) if then == self.step.program.batch), default=1)

    def _dimensions(self, tensors: Sequence[Any]) -> Iterator[tuple[int, int]]:
        """Each that is open: what it was, and what it is."""
        for shape, given, tensor in zip(self.shapes, self.given, tensors, strict=True):
            fixed = [None] * len(given) if shape.rank is None else shape.as_list()
            yield from ((then, now) for dim, then, now in zip(fixed, given, tensor.shape, strict=True) if dim is None)


class PlannedStep:
    """A training step that runs as planned.

    It is captured and planned for the first data it meets, planned anew for a larger batch than any before or when
    something else has taken a part of the budget, and captured anew for data of another kind: sample weights that come
    later, another sequence length. `plan` is the latest plan. When no plan is found, nothing has changed. `under_way`
    stays true when a step fails.
    """

    def __init__(self, capture: Callable[[Any], Step], make: MakePlan) -> None:
        self._capture, self._make = capture, make
        self.variants: list[Variant] = []
        self.under_way = False
        self.plan: Plan

    def prepare(self, data: Any, batch: int | None = None) -> Plan:
        """Plan for data like this, and for batches up to `batch` or its own."""
        return self._variant(data, flat_tensors(data), batch).plan

    def __call__(self, data: Any) -> Any:
        tensors = flat_tensors(data)
        variant = self._variant(data, tensors)
        self.under_way = True
        results = variant.call(*tensors)
        self.under_way = False
        if variant.room:
            variant.room.has_run = True
        return variant.step.pack(results)

    def _variant(self, data: Any, tensors: Sequence[Any], batch: int | None = None) -> Variant:
        kind, size = _Kind.of(data), batch or batch_of(data) or 1
        known = next((variant for variant in self.variants if variant.takes(kind, tensors)), None)
        if known is None:
            known = self._added(kind, self._captured(data, tensors, size), tensors, size)
        elif (rows := max(size, known.rows(tensors))) > known.batch:
            self._plan_anew(known, rows)
        if known.room and known.room.would_not_do(in_use := profile.device_bytes()["current"]):
            self._make_room(known, known.room, in_use)
        self.plan = known.plan
        return known

    def _captured(self, data: Any, tensors: Sequence[Any], batch: int) -> Step:
        """A device that has the budget and no more has none for trying out what training has begun with."""
        step = self._capture(data)
        if any(known.room for known in self.variants) and needs_rehearsal(step.program):
            now = ", ".join(str(tuple(t.shape)) for t in tensors)
            then = ", ".join(str(shape) for shape in self.variants[-1].given)
            raise NotCapturable(
                f"training began, and then data came that its step was not planned for: {now}, after {then}; sizes in "
                "it depend on the data, and there is no room to try that out: pad the data to one size, or sort it so "
                "that the largest comes first"
            )
        return settled(step, tensors, batch)

    def _added(self, kind: _Kind, step: Step, tensors: Sequence[Any], batch: int) -> Variant:
        alike = self._alike(step, batch)
        planned = alike or self._planned(step, batch, like=self._pattern_for(step, batch))
        added = Variant(kind, step, _shapes(step), tuple(tuple(t.shape) for t in tensors), *planned)
        if alike and added.room:
            added.room.has_run = True  # what it sets apart is there, and nobody has looked at what else is
        self.variants.append(added)
        return added

    def _make_room(self, known: Variant, room: Room, in_use: int) -> None:
        """Plan again beside what has come, and with room for as much again, since it may go on coming; or without. As
        long as it is little and no plan is found, the one there is may still do."""
        grown, much = max(0, in_use - known.at_first), int(CROWD * known.plan.budget)
        refused: Infeasible | None = None
        for more in dict.fromkeys((min(MOST_AHEAD, room.in_batches(grown)), 0)):
            try:
                return self._plan_anew(known, known.batch, more)
            except Infeasible as error:
                refused = error
        if refused is not None and grown > much:
            raise refused
        room.trust_up_to(known.at_first + much)
        return None

    def _plan_anew(self, known: Variant, batch: int, more_ahead: int = 0) -> None:
        """The step as it was is let go before: its constants and what it sets apart do not lie beside the new one."""
        del known.call
        try:
            known.replan(*self._planned(known.step, batch, more_ahead, known.plan.pattern))
        except BaseException:
            known.call = planned_call(known.step, known.plan)
            raise

    def _alike(self, step: Step, batch: int) -> Planned | None:
        """Where only a number from Python is another, the ops are the same, and so is the plan."""
        ops, values = step.program.ops, step.program.values
        for known in self.variants:
            if batch <= known.batch and (known.step.program.ops, known.step.program.values) == (ops, values):
                return known.batch, known.plan, as_function(step, planned_graph(step.graph_def, known.plan))
        return None

    def _pattern_for(self, step: Step, batch: int) -> Pattern | None:
        """How a step of the same ops runs that is a little larger: another length of sequences. Or else the largest of
        the smaller ones: it may do for this one, too."""
        size, ops = _all_bytes(step, batch), _skeleton(step)
        same = [(_all_bytes(v.step, v.batch), v.plan.pattern) for v in self.variants if _skeleton(v.step) == ops]
        larger = min((one for one in same if size <= one[0] <= (1 + MUCH_LARGER) * size), default=None)
        chosen = larger or max((one for one in same if one[0] < size), default=None)
        return chosen[1] if chosen else None

    def _planned(self, step: Step, batch: int, more_ahead: int = 0, like: Pattern | None = None) -> Planned:
        """Planned for the allocator as it is now."""
        try:
            plan = self._make(program_as_it_lies(step), batch, more_ahead, like)
        except Infeasible as error:
            if not self.variants:
                raise
            shapes = ", ".join(str(shape) for shape in _shapes(step))
            raise Infeasible(
                f"training began, and then a step came that does not fit, with what lies beside it by now: "
                f"batch {batch}, given {shapes}; {error}",
                error.smallest_bytes,
            ) from None
        return batch, plan, planned_call(step, plan)


def planned_call(step: Step, plan: Plan) -> Callable[..., list[Any]]:
    """The step as planned. The allocator is prepared for it when it is called first."""
    return as_function(step, planned_graph(step.graph_def, plan), plan.timeline.preparation)


def program_as_it_lies(step: Step) -> Program:
    """The step's Program with the allocator's map, and where its variables lie in it, as they are now."""
    gc.collect()  # what is garbage now would be freed in the middle of a step
    State(step).settle()
    program = step.program
    inside = program.inputs[len(program.inputs) - len(step.captured) :]
    outside = {value: tensor for value, (_, tensor) in zip(inside, step.captured, strict=True)}
    residents = tuple(replace(r, address=compat.address_of(outside[r.value])) for r in program.residents)
    return replace(program, residents=residents, chunks=profile.chunks())


def _skeleton(step: Step) -> list[tuple[Any, ...]]:
    """A step's ops without sizes."""
    return [(op.name, op.kind, op.inputs, op.outputs, op.after) for op in step.program.ops]


def _all_bytes(step: Step, batch: int) -> int:
    return sum(value.bytes(batch) for value in step.program.values)


def _shapes(step: Step) -> tuple[Any, ...]:
    nodes = {node.name: node for node in step.graph_def.node}
    return tuple(tf.TensorShape(nodes[name].attr["shape"].shape) for name in step.arguments)


def settled(step: Step, tensors: Sequence[Any], batch: int) -> Step:
    """The step with its open questions answered by a rehearsal, after which every variable is as it was."""
    devices = {node.device for node in step.graph_def.node if node.device}
    if len({device for device in devices if device.split(":")[-2] == compat.default_device().split(":")[-2]}) > 1:
        raise BadUse("the step runs on several devices; a plan is for one: build it without a distribution strategy")
    if not needs_rehearsal(step.program):
        return step
    if reason := why_not_twice(step.program):
        unknown = next(note.what for note in step.program.notes if note.treatment == "unknown")
        raise NotCapturable(f"the size of {unknown} depends on the data, and {reason}; take that out of the step")
    state = State(step)
    start = state.read()
    try:
        program = rehearse(step, tensors, batch)
    finally:
        state.write(start)
    opened = {note.what for note in step.program.notes if note.treatment == "unknown"}
    for note in program.notes:
        if note.what in opened and note.treatment == "assumed":  # a budget that rests on a guess would be broken
            raise NotCapturable(
                f"the size of {note.what} depends on the data, and {note.why}; pad the data to one size, or give it a "
                "larger budget"
            )
    return replace(step, program=program)


def install(model: Any, step: PlannedStep) -> None:
    """`fit` and `train_on_batch` call the planned step from here on, until `release` or another `compile`."""
    model.train_function = iterated(model, step)


def release(model: Any) -> None:
    """The model trains as TensorFlow would have it again."""
    model.train_function = None


def planned_model(model: Any, data: Any, make: MakePlan, batch: int, seen: Seen | None = None) -> PlannedStep:
    """The train step of a compiled Keras model, planned for data like this."""
    if compat.replicas(model) > 1:
        raise BadUse("the model is distributed over several devices; a plan is for one: build it without a strategy")
    if model.run_eagerly:
        raise BadUse(NO_GRAPH)
    if model.jit_compile:
        raise BadUse(ORDERED_BY_XLA)
    return _prepared(lambda example: capture_model(model, example, seen), make, data, batch)


def planned_function(
    function: Any, arguments: Sequence[Any], options: Mapping[str, Any], make: MakePlan, seen: Seen | None = None
) -> PlannedStep:
    """A tf.function, planned for arguments like these. It is called with the pair (arguments, options)."""
    if compat.is_compiled_by_xla(function):
        raise BadUse(ORDERED_BY_XLA)
    return _prepared(lambda call: capture_function(function, call[0], call[1], seen), make, (arguments, options), None)


def _prepared(capture: Callable[[Any], Step], make: MakePlan, data: Any, batch: int | None) -> PlannedStep:
    step = PlannedStep(capture, make)
    step.prepare(data, batch)
    return step


def budgeted_function(python_function: Callable[..., Any], make: MakePlan) -> Callable[..., Any]:
    """`tf.function`, planned at its first call for the arguments it is given there."""
    function = tf.function(python_function)
    planned: list[PlannedStep] = []

    def call(*arguments: Any, **options: Any) -> Any:
        if not planned:
            planned.append(planned_function(function, arguments, options, make))
        return planned[0]((arguments, options))

    return call
