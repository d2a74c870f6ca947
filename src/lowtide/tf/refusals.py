"""What TensorFlow says when it runs out of memory, taken apart. Imports no TensorFlow."""

from __future__ import annotations

import re
from math import prod

from lowtide.program import ITEM_BYTES, Source
from lowtide.record import Refusal

_TENSOR = re.compile(
    r"OOM when allocating tensor with shape\s*\[(?P<shape>[\d,\s]*)\] and type (?P<dtype>\w+)"
    r"(?: on (?P<device>\S+))?",
)
_BYTES = re.compile(r"(?:failed to allocate|tried to allocate|Out of memory.*?allocat\w+) (?P<bytes>\d+) ?(?:bytes|B)?")
_NODE = re.compile(r"\{\{node (?P<node>[^}]+)\}\}")
_OP = re.compile(r"\[Op:(?P<op>\w+)\]")
_DTYPES = {"float": "float32", "double": "float64", "half": "float16"}
_SIGNS = (
    "OOM when allocating", "Dst tensor is not initialized", "std::bad_alloc", "Out of memory", "failed to alloc",
    "Cannot parse tensor from proto",  # a constant for which there is no room
)


def refusal_of(message: str, source: Source | None) -> Refusal | None:
    """What was asked for and by which op, when a message is of an allocation that failed."""
    if not any(sign in message for sign in _SIGNS):
        return None
    tensor, size = _TENSOR.search(message), _BYTES.search(message)
    node, op = _NODE.search(message), _OP.search(message)
    name = node["node"] if node else op["op"] if op else ""
    if tensor is None:
        return Refusal(int(size["bytes"]) if size else None, "", "", name, "", source)
    dtype = _DTYPES.get(tensor["dtype"], tensor["dtype"])
    shape = tuple(int(part) for part in tensor["shape"].split(",") if part.strip())
    requested = prod(shape) * ITEM_BYTES[dtype] if dtype in ITEM_BYTES else None
    return Refusal(requested, str(shape), dtype, name, tensor["device"] or "", source)


def out_of_memory(kind: str, message: str) -> bool:
    """Whether an exception means that memory ran out, TensorFlow's or Python's."""
    return kind in ("ResourceExhaustedError", "MemoryError", "_ArrayMemoryError") or any(s in message for s in _SIGNS)
