"""The one representation of a training step: Program, Op, Value; verify, text form, load and save."""

from lowtide.program.types import ITEM_BYTES, Dim, Note, Op, Program, Resident, Shape, Source, Value

__all__ = ["ITEM_BYTES", "Dim", "Note", "Op", "Program", "Resident", "Shape", "Source", "Value"]
