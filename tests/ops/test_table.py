"""What the tables say of an op at a batch: where its outputs live."""

from __future__ import annotations

import pytest

from lowtide.ops import ANY_INPUT, UNKNOWN, WANTED_ATTRIBUTES, WANTS_CONSTANTS, Act, rule_at, rule_of
from lowtide.ops.table import TABLE
from lowtide.program import Dim, Op, Value
from lowtide.simulate.machine import _Machine
from tests.drafts import SCALAR, SQUARE, Draft

Sizes = tuple[int, ...]


def act(
    kind: str,
    given: Sizes,
    made: Sizes,
    attrs: dict[str, object] | None = None,
    dtypes: tuple[str, str] = ("float32", "float32"),
) -> Act:
    """What a `kind` does that makes one tensor of another."""
    values = [Value(dtypes[0], tuple(map(Dim, given))), Value(dtypes[1], tuple(map(Dim, made)))]
    rule = rule_at(Op("op", kind, (0,), (1,), attrs=attrs or {}), values, batch=1)
    assert rule is not None
    return rule.act


@pytest.mark.parametrize("kind", ["Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "Bitcast"])
def test_ops_that_only_rename_are_views(kind: str) -> None:
    assert rule_of(kind).act is Act.VIEW  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "candidates"),
    [("Relu", (0,)), ("AddV2", (0, 1)), ("Mul", (0, 1)), ("AddN", ANY_INPUT), ("SelectV2", (1, 2)), ("BiasAdd", (0,))],
)
def test_elementwise_ops_may_take_over_an_input(kind: str, candidates: tuple[int, ...]) -> None:
    rule = rule_of(kind)
    assert rule is not None
    assert (rule.act, rule.inputs) == (Act.REUSE, candidates)


def test_a_loss_on_logits_reuses_them_for_the_gradient_and_not_for_the_loss() -> None:
    for kind in ("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"):
        rule = rule_of(kind)
        assert rule is not None
        assert (rule.act, rule.inputs, rule.output) == (Act.REUSE, (0,), 1)
        assert rule.scratch is not None


@pytest.mark.parametrize(
    ("given", "order", "expected"),
    [
        ((4, 5), (1, 0), Act.FRESH),
        ((4, 5), (0, 1), Act.VIEW),
        ((1, 5), (1, 0), Act.VIEW),
        ((4, 1, 5), (1, 0, 2), Act.VIEW),
        ((4, 1, 5), (2, 1, 0), Act.FRESH),
        ((1, 1), (1, 0), Act.VIEW),
    ],
)
def test_a_transpose_that_moves_only_dimensions_of_one_moves_nothing(
    given: Sizes, order: Sizes, expected: Act
) -> None:
    made = tuple(given[axis] for axis in order)
    assert act("Transpose", given, made, {"input_1": order}) is expected


def test_a_transpose_of_unknown_order_is_taken_to_move() -> None:
    assert act("Transpose", (1, 5), (5, 1)) is Act.FRESH


def test_a_batch_of_one_can_make_a_transpose_a_view() -> None:
    values = [Value("float32", (Dim(0, 1), Dim(5))), Value("float32", (Dim(5), Dim(0, 1)))]
    op = Op("t", "Transpose", (0,), (1,), attrs={"input_1": (1, 0)})
    assert rule_at(op, values, 1).act is Act.VIEW  # type: ignore[union-attr]
    assert rule_at(op, values, 2).act is Act.FRESH  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "made", "expected"),
    [((4, 5), (4,), Act.FRESH), ((4, 1), (4,), Act.VIEW), ((4, 5), (), Act.FRESH), ((1, 1), (), Act.VIEW)],
)
@pytest.mark.parametrize("kind", ["Sum", "Mean", "Max"])
def test_a_reduction_over_dimensions_of_one_only_renames(kind: str, given: Sizes, made: Sizes, expected: Act) -> None:
    assert act(kind, given, made) is expected


def test_a_cast_to_the_same_type_is_a_view() -> None:
    assert act("Cast", (4,), (4,), dtypes=("float32", "float32")) is Act.VIEW
    assert act("Cast", (4,), (4,), dtypes=("float32", "half")) is Act.FRESH


@pytest.mark.parametrize("kind", ["Tile", "Pad", "BroadcastTo"])
def test_what_repeats_or_pads_nothing_is_a_view(kind: str) -> None:
    assert act(kind, (4, 5), (4, 5)) is Act.VIEW
    assert act(kind, (4, 5), (8, 5)) is Act.FRESH


@pytest.mark.parametrize(
    ("given", "begin", "made", "expected"),
    [
        ((8, 16), (2, 0), (3, 16), Act.VIEW),  # rows of 64 bytes
        ((8, 15), (2, 0), (3, 15), Act.FRESH),  # rows of 60 bytes do not start where they must
        ((8, 16), (0, 2), (8, 8), Act.FRESH),  # columns
        ((8, 15), (0, 0), (8, 15), Act.VIEW),  # all of it
        ((64,), (16,), (16,), Act.VIEW),  # 64 bytes in, 64 long
        ((64,), (16,), (17,), Act.FRESH),
        ((64,), (15,), (17,), Act.FRESH),
        ((64,), (-16,), (16,), Act.VIEW),  # from the end
    ],
)
def test_a_slice_of_whole_aligned_rows_is_a_view(given: Sizes, begin: Sizes, made: Sizes, expected: Act) -> None:
    assert act("Slice", given, made, {"input_1": begin}) is expected


def test_a_slice_of_aligned_rows_is_a_view_wherever_it_begins() -> None:
    """Such as the gradient of a concatenation: where it begins depends on the batch."""
    assert act("Slice", (8, 16), (3, 16)) is Act.VIEW
    assert act("Slice", (8, 15), (3, 15)) is Act.FRESH
    assert act("Slice", (64,), (16,)) is Act.FRESH


def strided(begin: Sizes, begin_mask: int = 0, end_mask: int = 0, strides: Sizes | None = None, **more: int) -> dict:
    steps = strides or (1,) * len(begin)
    return {"input_1": begin, "input_3": steps, "begin_mask": begin_mask, "end_mask": end_mask, **more}


@pytest.mark.parametrize(
    ("given", "made", "attrs", "expected"),
    [
        ((8, 16), (3, 16), strided((2, 0), 0b10, 0b10), Act.VIEW),
        ((8, 16), (16,), strided((2,), shrink_axis_mask=1), Act.VIEW),
        ((8, 16), (3, 16), strided((2,)), Act.VIEW),
        ((8, 16), (3, 8), strided((2, 0)), Act.FRESH),
        ((8, 16), (4, 16), strided((0,), strides=(2,)), Act.FRESH),
        ((8, 16), (3, 1, 16), strided((2, 0), new_axis_mask=2), Act.FRESH),
        ((8, 15), (3, 15), strided((2,)), Act.FRESH),
    ],
)
def test_a_strided_slice_of_whole_aligned_rows_is_a_view(given: Sizes, made: Sizes, attrs: dict, expected: Act) -> None:
    assert act("StridedSlice", given, made, attrs) is expected


def split(kind: str, rows: int, columns: int, axis: int | None, parts: int = 2) -> Act:
    source, number = Value("float32", (Dim(rows), Dim(columns))), Value("int32", SCALAR)
    part = Value("float32", (Dim(rows // parts), Dim(columns)))
    inputs = (1, 0) if kind == "Split" else (0, 1, 1)
    attrs = {} if axis is None else {"input_0" if kind == "Split" else "input_2": axis}
    op = Op("split", kind, inputs, tuple(range(2, 2 + parts)), attrs=attrs)
    rule = rule_at(op, [source, number, *[part] * parts], 1)
    assert rule is not None
    if rule.act is Act.VIEW:
        assert inputs[rule.inputs[0]] == 0, "the tensor is what is viewed, not the axis"
    return rule.act


@pytest.mark.parametrize("kind", ["Split", "SplitV"])
def test_a_split_into_aligned_rows_gives_views(kind: str) -> None:
    assert split(kind, 8, 16, axis=0) is Act.VIEW
    assert split(kind, 8, 15, axis=0) is Act.FRESH
    assert split(kind, 8, 16, axis=1) is Act.FRESH
    assert split(kind, 8, 16, axis=None) is Act.FRESH
    assert split(kind, 8, 15, axis=1, parts=1) is Act.VIEW


@pytest.mark.parametrize(
    ("given", "axis", "expected"),
    [((8, 16), 0, Act.VIEW), ((8, 15), 0, Act.FRESH), ((8, 16), 1, Act.FRESH), ((8,), 0, Act.FRESH)],
)
def test_unpacking_aligned_rows_gives_views(given: Sizes, axis: int, expected: Act) -> None:
    made = given[:axis] + given[axis + 1 :]
    assert act("Unpack", given, made, {"axis": axis}) is expected


def test_reversing_moves_everything_though_the_shape_stays() -> None:
    assert act("ReverseV2", (8, 16), (8, 16)) is Act.FRESH


@pytest.mark.parametrize(("kind", "expected"), [("ZerosLike", Act.LIST_ZEROS), ("AddN", Act.LIST_ADD)])
def test_elementwise_ops_on_tensor_lists_make_lists(kind: str, expected: Act) -> None:
    assert act(kind, (), (), dtypes=("variant", "variant")) is expected


def test_an_op_without_a_row_is_nothing_known_and_not_nothing() -> None:
    assert rule_of("BrandNewOp") is None
    assert rule_at(Op("new", "BrandNewOp", (), ()), [], 1) is None
    assert UNKNOWN.act is Act.FRESH
    assert not UNKNOWN.recomputable


def test_ops_with_side_effects_and_stateful_random_numbers_are_never_recomputed() -> None:
    for kind in ("AssignVariableOp", "ResourceApplyAdam", "RandomUniform", "ReadVariableOp", "While", "Placeholder"):
        assert not rule_of(kind).recomputable, kind  # type: ignore[union-attr]
    for kind in ("MatMul", "Conv2D", "Relu", "StatelessRandomUniformV2"):
        assert rule_of(kind).recomputable, kind  # type: ignore[union-attr]


def test_every_act_is_one_that_the_machine_knows_how_to_do() -> None:
    machine = _Machine(Draft().program(), 1)
    assert set(machine._acts) == set(Act)


def test_the_tables_of_wanted_facts_speak_of_ops_that_have_a_row() -> None:
    assert set(WANTED_ATTRIBUTES) <= set(TABLE)
    assert set(WANTS_CONSTANTS) <= set(TABLE)


def test_scratch_is_counted_where_kernels_take_it() -> None:
    square = Value("float32", SQUARE)
    for kind in ("Conv2D", "_FusedConv2D", "BatchMatMulV2"):
        rule = rule_of(kind)
        assert rule is not None
        assert rule.scratch is not None
        assert rule.scratch(Op("op", kind, (0, 1), (2,)), [square, square], [square], 1) > 0


@pytest.mark.parametrize(("side", "rows", "columns"), [("adj_x", 32, 32), ("adj_y", 64, 32)])
def test_a_transposed_operand_of_a_matrix_product_is_copied_matrix_by_matrix_in_whole_blocks(
    side: str, rows: int, columns: int
) -> None:
    rule = rule_of("BatchMatMulV2")
    assert rule is not None
    assert rule.scratch is not None
    stack = Value("float32", (Dim(0, 1), Dim(20), Dim(20)))
    plain, turned = (
        rule.scratch(Op("op", "BatchMatMulV2", (0, 1), (2,), attrs=attrs), [stack, stack], [stack], 8)
        for attrs in ({}, {side: True})
    )
    assert turned - plain == 2 * rows * columns * 4
