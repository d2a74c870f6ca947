"""Tensors that hold other tensors: tensor lists, and the optional values that a branch keeps for its gradient."""

from __future__ import annotations

from lowtide.program import Op
from lowtide.simulate.buffers import Buffers, Compiled

_NO_LIMIT = 1 << 62


def room_in(op: Op) -> int:
    """How many elements fit into the list that an op makes."""
    room = op.attrs.get("input_1")
    return room if isinstance(room, int) and room > 0 else _NO_LIMIT


class TensorLists(Buffers):
    """One method an Act, as in `lowtide.simulate.machine`: (code, index, op, where)."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self._batch = batch
        self._room: dict[int, int] = {}
        self._reads: dict[int, int] = {}

    def _list_new(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        self._fresh(code, index, op, where)
        self._new_list(where[op.outputs[0]], [], room_in(op))

    def _new_list(self, buffer: int, elements: list[int], room: int | None = None) -> None:
        """`room`: how many elements fit; a list that is full gives one up for each that is set."""
        self._hold(elements)
        self._contents[buffer] = elements
        self._room[buffer] = len(elements) if room is None else room

    def _list_zeros(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        """New elements of the same sizes."""
        self._list_new(code, index, op, where)
        sizes = [self._bytes[element] for element in self._contents.get(where[op.inputs[0]], ())]
        elements = [self._allocate(size, (code.path, index)) for size in sizes]
        self._new_list(where[op.outputs[0]], elements, self._room.get(where[op.inputs[0]]))

    def _list_add(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        """Elements that both lists have are summed into new ones, the others are shared: a loop sums one a trip."""
        lists = sorted((self._contents.get(where[value], []) for value in op.inputs), key=len)
        shared = len(lists[-2]) if len(lists) > 1 else 0
        sums = [self._allocate(self._bytes[element], (code.path, index)) for element in lists[-1][:shared]]
        self._list_new(code, index, op, where)
        self._new_list(where[op.outputs[0]], lists[-1][shared:] + sums, self._room.get(where[op.inputs[0]]))

    def _list_split(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        """Each row becomes a tensor of its own: TensorFlow copies them."""
        self._list_new(code, index, op, where)
        shape = code.program.values[op.inputs[0]].shape
        rows = shape[0].at(self._batch) if shape else 1
        row_bytes = code.bytes[op.inputs[0]] // max(rows, 1)
        elements = [self._allocate(row_bytes, (code.path, index)) for _ in range(rows)]
        self._new_list(where[op.outputs[0]], elements)

    def _own_list(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> list[int]:
        """The output list: the input list itself when nobody else holds it, else a copy of its references."""
        source = where[op.inputs[0]]
        if source >= 0 and self._refs[source] == 1:
            self._give(code, where, op.outputs[0], source)
            return self._contents.setdefault(source, [])
        elements = list(self._contents.get(source, ()))
        buffer = self._allocate(code.bytes[op.outputs[0]], (code.path, index))
        self._give(code, where, op.outputs[0], buffer)
        self._new_list(buffer, elements, self._room.get(source, _NO_LIMIT))
        return elements

    def _list_put(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        contents = self._own_list(code, index, op, where)
        element = where[op.inputs[code.rules[index].inputs[1]]]
        if element >= 0:
            self._refs[element] += 1
            contents.append(element)
        if op.kind == "TensorListSetItem" and len(contents) > self._room[where[op.outputs[0]]]:
            self._release(contents.pop(0))

    def _list_pop(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        contents = self._own_list(code, index, op, where)
        taken = op.outputs[1]
        if not contents:
            self._give(code, where, taken, self._allocate(code.bytes[taken], (code.path, index)))
            return
        element = contents.pop()
        self._give(code, where, taken, element)
        self._release(element)

    def _list_get(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        """Loops read a list from one end to the other: the n-th read is of the n-th element."""
        source = where[op.inputs[0]]
        contents = self._contents.get(source)
        if contents:
            reads = self._reads[source] = self._reads.get(source, -1) + 1
            self._give(code, where, op.outputs[0], contents[reads % len(contents)])
        else:
            self._fresh(code, index, op, where)

    def _wrap(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        """An optional value: holds its parts."""
        self._fresh(code, index, op, where)
        self._new_list(where[op.outputs[0]], [where[value] for value in op.inputs])

    def _unwrap(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        """The parts again. A branch that was not taken wrapped nothing: then they count as new."""
        parts = self._contents.get(where[op.inputs[0]], [])
        if len(parts) != len(op.outputs):
            self._fresh(code, index, op, where)
            return
        for value, part in zip(op.outputs, parts, strict=True):
            self._give(code, where, value, part)
