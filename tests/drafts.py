"""Programs in the making: small ones by hand, and random ones for hypothesis."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from lowtide.program import Chunk, Dim, Note, Op, Program, Resident, Shape, Source, Times, Value

KB = 1024
ROW: Shape = (Dim(0, 1), Dim(256))
"""A kilobyte a sample."""
SQUARE: Shape = (Dim(16), Dim(16))
"""A kilobyte whatever the batch."""
SCALAR: Shape = ()


class Draft:
    """Names are the caller's; every method returns the value that was made."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.values: list[Value] = []
        self.inputs: list[int] = []
        self.residents: list[Resident] = []

    def value(self, shape: Shape | None = ROW, dtype: str = "float32") -> int:
        self.values.append(Value(dtype, shape))
        return len(self.values) - 1

    def argument(self, name: str = "x", shape: Shape = ROW, dtype: str = "float32") -> int:
        value = self.value(shape, dtype)
        self.inputs.append(value)
        self.ops.append(Op(name, "Placeholder", (), (value,)))
        return value

    def variable(self, name: str = "w", shape: Shape = SQUARE, category: str = "parameters", layer: str = "") -> int:
        handle = self.argument(name, SCALAR, "resource")
        self.residents.append(Resident(name, category, Value("float32", shape).bytes(1), handle, layer))
        return handle

    def op(
        self, name: str, kind: str, *inputs: int, shape: Shape | None = ROW, dtype: str = "float32",
        after: tuple[int, ...] = (), layer: str = "", phase: str = "forward", source: Source | None = None,
        attrs: dict[str, object] | None = None,
    ) -> int:  # fmt: skip
        value = self.value(shape, dtype)
        self.ops.append(Op(name, kind, inputs, (value,), after, attrs or {}, layer, source, phase))
        return value

    def effect(self, name: str, kind: str, *inputs: int, phase: str = "update", after: tuple[int, ...] = ()) -> int:
        """An op that leaves nothing; returns its index."""
        self.ops.append(Op(name, kind, inputs, (), after, phase=phase))
        return len(self.ops) - 1

    def program(self, *outputs: int, functions: Sequence[Program] = (), batch: int = 4, name: str = "") -> Program:
        return Program(
            tuple(self.ops), tuple(self.values), tuple(self.inputs), outputs,
            residents=tuple(self.residents), functions=tuple(functions), batch=batch, name=name,
        )  # fmt: skip


def chain(length: int, kind: str = "MatMul", shape: Shape = ROW) -> Program:
    """Every op reads the one before and nothing else."""
    draft = Draft()
    value = draft.argument(shape=shape)
    for number in range(length):
        value = draft.op(f"op{number}", kind, value, shape=shape)
    return draft.program(value)


def kept_for_backward(layers: int) -> Program:
    """Forward and back: every activation is read once more on the way back, and every weight is updated."""
    draft = Draft()
    handles = [draft.variable(f"w{n}", (Dim(256), Dim(256)), layer=f"dense{n}") for n in range(layers)]
    activations = [draft.argument()]
    weights = []
    for n, handle in enumerate(handles):
        weights.append(draft.op(f"read{n}", "ReadVariableOp", handle, shape=(Dim(256), Dim(256))))
        activations.append(draft.op(f"act{n}", "MatMul", activations[-1], weights[-1], layer=f"dense{n}"))
    gradient = draft.op("loss_grad", "MatMul", activations[-1], phase="backward")
    for n in reversed(range(layers)):
        update = draft.op(
            f"w_grad{n}", "MatMul", activations[n], gradient, shape=(Dim(256), Dim(256)), phase="backward"
        )
        gradient = draft.op(f"grad{n}", "MatMul", gradient, weights[n], phase="backward")
        draft.effect(f"update{n}", "AssignSubVariableOp", handles[n], update)
    return draft.program(gradient)


KINDS = ("MatMul", "Neg", "AddV2", "Reshape", "AddN")


@st.composite
def random_programs(draw: st.DrawFn, most_ops: int = 25) -> Program:
    """A random DAG of fresh, reusing and viewing ops, with control edges and a few outputs."""
    draft = Draft()
    known = [draft.argument("x0"), draft.argument("x1", (Dim(64), Dim(3, 2)))]
    for number in range(draw(st.integers(1, most_ops))):
        kind = draw(st.sampled_from(KINDS))
        reads = draw(st.lists(st.sampled_from(known), min_size=2, max_size=2))
        reads = reads if kind in ("AddV2", "AddN", "MatMul") else reads[:1]
        shape = draft.values[reads[0]].shape if kind != "MatMul" else draw(st.sampled_from([ROW, SQUARE, SCALAR]))
        after = tuple(sorted(draw(st.sets(st.integers(0, len(draft.ops) - 1), max_size=2))))
        phase = draw(st.sampled_from(["forward", "backward", "update"]))
        known.append(draft.op(f"op{number}", kind, *reads, shape=shape, after=after, phase=phase))
    outputs = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
    return draft.program(*outputs)


def everything() -> Program:
    """One of each thing a Program can hold."""
    body = Draft()
    inner = body.argument("i", SCALAR, "int32")
    bumped = body.op("bump", "AddV2", inner, inner, shape=SCALAR, dtype="int32")
    draft = Draft()
    handle = draft.variable("w", SQUARE, layer="dense")
    start = draft.argument("start", SCALAR, "int32")
    weights = draft.op("read", "ReadVariableOp", handle, shape=SQUARE, layer="dense", source=Source("train.py", 7))
    turned = draft.op("turn", "Transpose", weights, shape=(Dim(3, 2), Dim(16)), attrs={"input_1": (1, 0), "adj": True})
    unknown = draft.op("where", "Where", turned, shape=None, dtype="int64", after=(0, 2))
    looped = draft.value(SCALAR, "int32")
    draft.ops.append(Op("loop", "While", (start,), (looped,), bodies=(0, 0), trips=Dim(5, 1)))
    made = draft.program(unknown, looped, functions=[body.program(bumped)], batch=8, name="train_step")
    return Program(
        made.ops, made.values, made.inputs, made.outputs, (4,), made.residents, made.functions, made.batch,
        chunks=(Chunk(1 << 20, 256, 4, True), Chunk((1 << 20) + 256, 512, 512, False)),
        name=made.name,
        notes=(Note("Where where", "bounded", 128, "its shape depends on the data"),),
        versions={"tensorflow": "2.21.0"},
        times=Times(4, {"turn": 1e-5}),
    )  # fmt: skip
