"""Each rule of a Program, broken once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from lowtide.errors import MalformedProgram
from lowtide.program import Op, Program, Resident, Value, verify
from tests.drafts import ROW, chain, everything, random_programs

GOOD = chain(2)


def with_op(index: int, **changes: object) -> Program:
    ops = list(GOOD.ops)
    ops[index] = replace(ops[index], **changes)  # type: ignore[arg-type]
    return replace(GOOD, ops=tuple(ops))


BROKEN = {
    "op 'op0' names value 9 of 3": with_op(1, inputs=(9,)),
    "op 'op0' names value -1 of 3": with_op(1, inputs=(-1,)),
    "op 'op1' names value 3 of 3": with_op(2, outputs=(3,)),
    "input or output 7 of 3 values": replace(GOOD, outputs=(7,)),
    "value 1 is made by 'op0' and again by 'op1'": with_op(2, outputs=(1,)),
    "op 'op0' reads value 2 before it is made": with_op(1, inputs=(2,)),
    "op 'op0' reads value 1 before it is made": with_op(1, inputs=(1,)),
    "value 3 is an input or output and no op makes it": replace(
        GOOD, values=(*GOOD.values, Value("float32", ROW)), outputs=(3,)
    ),
    "op 'op0' comes after op 2": with_op(1, after=(2,)),
    "op 'op1' comes after op 2": with_op(2, after=(2,)),
    "op 'op1' comes after op -1": with_op(2, after=(-1,)),
    "keeps op 3 of 3": replace(GOOD, keep=(3,)),
    "op 'op1' runs body 0 of 0": with_op(2, bodies=(0,)),
    "op 'op1' takes branch 1 of 0 in turn": with_op(2, turns=(1,)),
    "two ops are called 'op0'": with_op(2, name="op0"),
    "resident 'w' is value 3 of 3": replace(GOOD, residents=(Resident("w", "parameters", 4, 3),)),
}


@pytest.mark.parametrize("problem", BROKEN)
def test_a_broken_rule_is_named(problem: str) -> None:
    with pytest.raises(MalformedProgram) as error:
        verify(BROKEN[problem])
    assert problem in str(error.value)


def test_the_rules_hold_in_bodies_too() -> None:
    with pytest.raises(MalformedProgram, match="two ops are called 'op0'"):
        verify(replace(GOOD, functions=(with_op(2, name="op0"),)))


def test_the_message_names_the_program() -> None:
    with pytest.raises(MalformedProgram, match="program train_step: keeps op 3"):
        verify(replace(GOOD, keep=(3,), name="train_step"))


def test_programs_that_keep_the_rules_pass() -> None:
    verify(GOOD)
    verify(everything())
    verify(Program((Op("alone", "NoOp", (), ()),), (), (), ()))


@given(random_programs())
@settings(max_examples=50, deadline=None)
def test_whatever_is_built_in_order_passes(program: Program) -> None:
    verify(program)
