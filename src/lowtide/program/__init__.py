"""The one representation of a training step: Program, Op, Value; verify, text form, load and save."""

from lowtide.program.store import load_program, save_program
from lowtide.program.text import to_text
from lowtide.program.types import (
    ITEM_BYTES,
    UNLISTED,
    Chunk,
    Dim,
    Note,
    Op,
    Program,
    Resident,
    Shape,
    Source,
    Times,
    Value,
)
from lowtide.program.verify import verify

__all__ = [
    "ITEM_BYTES",
    "UNLISTED",
    "Chunk",
    "Dim",
    "Note",
    "Op",
    "Program",
    "Resident",
    "Shape",
    "Source",
    "Times",
    "Value",
    "load_program",
    "save_program",
    "to_text",
    "verify",
]
