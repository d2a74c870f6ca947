"""The text form is for diffs: it changes when the Program does, and never otherwise."""

from __future__ import annotations

from pathlib import Path

from lowtide.program import load_program, save_program, to_text
from tests.drafts import chain, everything

EVERYTHING = """\
program train_step batch 8
  resident w: 1024 bytes, parameters
  %0: resource[] = Placeholder() # forward w
  %1: int32[] = Placeholder() # forward start
  %2: float32[16,16] = ReadVariableOp(%0) # forward read
  %3: float32[2B+3,16] = Transpose(%2) # forward turn
  %4: int64[?] = Where(%3) after [0, 2] # forward where
  %5: int32[] = While(%1) bodies [0, 0] trips B+5 # forward loop
  return %4, %5
  body 0:
    program - batch 4
      %0: int32[] = Placeholder() # forward i
      %1: int32[] = AddV2(%0, %0) # forward bump
      return %1
"""


def test_the_text_form_is_stable() -> None:
    assert to_text(everything()) == EVERYTHING


def test_an_op_that_leaves_nothing_shows_so() -> None:
    from tests.drafts import Draft

    draft = Draft()
    draft.effect("done", "NoOp")
    assert to_text(draft.program()) == "program - batch 4\n  () = NoOp() # update done\n  return \n"


def test_a_round_trip_changes_no_letter(tmp_path: Path) -> None:
    for program in (everything(), chain(3)):
        save_program(program, tmp_path / "p")
        assert to_text(load_program(tmp_path / "p")) == to_text(program)
