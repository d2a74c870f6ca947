"""What is known of each op type's memory behaviour on TensorFlow's CPU kernels, as a table.

A row says where the outputs live. `View`: output 0 shares the buffer of an input. `Reuse`: output 0 takes over the
buffer of an input that nobody else needs any more and that has the same type and number of elements (TensorFlow
calls it forwarding). `Fresh`: every output is a new buffer. The others change or read state, or hold other tensors.
An op without a row is unknown: whoever meets it must say so, never count it as nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from lowtide.ops.scratch import SCRATCH, Scratch
from lowtide.program import Op, Value


class Act(Enum):
    """What executing an op does to buffers."""

    FRESH = "allocates its outputs"
    COMPILED = "allocates its outputs as XLA does: the largest first, and last a block for what comes and goes"
    VIEW = "every output is a view of one input"
    VIEW_EACH = "output i is a view of input i"
    REUSE = "output 0 may take over an input's buffer"
    SOURCE = "comes from outside the step: argument, constant, handle"
    NOTHING = "leaves nothing"
    READ = "a view of a variable"
    ASSIGN = "a variable takes a new value"
    UPDATE = "a variable is changed in place, or copied first if a read of it is alive"
    LIST_NEW = "an empty tensor list"
    LIST_ZEROS = "a tensor list with elements of its own like those of another"
    LIST_ADD = "a tensor list of sums"
    LIST_SPLIT = "a tensor list of slices"
    LIST_PUT = "a tensor list gains an element"
    LIST_POP = "a tensor list gives up an element"
    LIST_GET = "a view of a tensor list's element"
    WRAP = "an optional value that holds its inputs"
    UNWRAP = "views of what an optional value holds"
    CONTROL_FLOW = "runs a body"


Condition = Callable[[Op, Sequence[Value], Sequence[Value], int], bool]
"""(op, inputs, outputs, batch) -> whether the row's exception holds."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row. `inputs` are positions: of the viewed input, of the buffers that may be reused, of the handles.

    `output` is the one the reuse is for. When `view_when` holds, every output is a view of input `viewed` instead.
    """

    act: Act
    inputs: tuple[int, ...] = ()
    output: int = 0
    scratch: Scratch | None = None
    recomputable: bool = True
    view_when: Condition | None = None
    viewed: int = 0


ANY_INPUT = (-1,)
"""Reuse tries every input in turn."""


def rule_of(kind: str) -> Rule | None:
    """The row of an op type; None when there is none."""
    return TABLE.get(kind)


UNKNOWN = Rule(Act.FRESH, recomputable=False)
"""What to assume of an op without a row: the most bytes, and no liberties."""


def rule_at(op: Op, values: Sequence[Value], batch: int) -> Rule | None:
    """The row as it applies to this op at this batch: exceptions decided."""
    rule = rule_of(op.kind)
    if rule is None:
        return None
    if rule.act is Act.REUSE and values[op.outputs[0]].dtype == "variant":
        return Rule(Act.LIST_ZEROS if op.kind == "ZerosLike" else Act.LIST_ADD)
    if rule.view_when is not None:
        given, made = [values[v] for v in op.inputs], [values[v] for v in op.outputs]
        if rule.view_when(op, given, made, batch):
            return Rule(Act.VIEW, (rule.viewed,))
    return rule


def _rows(act: Act, names: str, **fields: object) -> dict[str, Rule]:
    return {name: Rule(act, scratch=SCRATCH.get(name), **fields) for name in names.split()}  # type: ignore[arg-type]


def _same_shape(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> bool:
    return given[0].shape is not None and given[0].shape == made[0].shape


def _same_count(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> bool:
    """A reduction over dimensions of size one only renames them."""
    return given[0].shape is not None and given[0].elements(batch) == made[0].elements(batch)


def _same_type(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> bool:
    return given[0].dtype == made[0].dtype


def _no_real_transpose(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> bool:
    """A permutation that moves only dimensions of size one moves no data."""
    order, shape = op.attrs.get("input_1"), given[0].shape
    if not isinstance(order, tuple) or shape is None or len(shape) != len(order):
        return False  # of what was measured only the size is known
    kept = [axis for axis in order if shape[axis].at(batch) != 1]
    return kept == sorted(kept)


def _aligned_rows(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> bool:
    """A slice along the first dimension of rows that keep the alignment is a view."""
    source = given[0]
    if source.shape is None or made[0].shape is None or not source.shape:
        return False
    if source.elements(batch) == made[0].elements(batch):
        return True
    if not _slices_rows_only(op, source, made[0]):
        return False
    rows = source.shape[0].at(batch)
    row = source.bytes(batch) // max(rows, 1)
    if len(source.shape) > 1:
        return row % ALIGNMENT == 0
    begin = op.attrs.get("input_1")
    if not isinstance(begin, tuple):
        return False
    first = 0 if _bit(op, "begin_mask", 0) else begin[0] % max(rows, 1)
    return first * row % ALIGNMENT == 0 and (first + made[0].elements(batch)) * row % ALIGNMENT == 0


def _slices_rows_only(op: Op, source: Value, result: Value) -> bool:
    assert source.shape is not None
    if op.kind == "Slice":
        return source.shape[1:] == (result.shape or ())[1:]
    begin, strides = op.attrs.get("input_1"), op.attrs.get("input_3")
    if not isinstance(begin, tuple) or not isinstance(strides, tuple):
        return False
    if op.attrs.get("ellipsis_mask") or op.attrs.get("new_axis_mask") or any(s != 1 for s in strides):
        return False
    return all(_bit(op, "begin_mask", i) and _bit(op, "end_mask", i) for i in range(1, len(begin)))


def _bit(op: Op, name: str, position: int) -> bool:
    mask = op.attrs.get(name, 0)
    return isinstance(mask, int) and bool(mask >> position & 1)


def _parts_are_rows(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> bool:
    """Split along the first dimension into aligned parts: each part is a view. One part is the input itself."""
    if len(made) == 1:
        return True
    axis_at = 0 if op.kind == "Split" else 2
    source = given[1 - axis_at if op.kind == "Split" else 0]
    if op.attrs.get(f"input_{axis_at}") != 0 or source.shape is None or not source.shape:
        return False
    row = source.bytes(batch) // max(source.shape[0].at(batch), 1)
    return row % ALIGNMENT == 0


def _unpacked_rows(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> bool:
    """Unpack along the first dimension into aligned rows: each row is a view."""
    source = given[0]
    if op.attrs.get("axis") != 0 or not source.shape:
        return False
    return source.bytes(batch) // max(source.shape[0].at(batch), 1) % ALIGNMENT == 0


ALIGNMENT = 64
"""Bytes. TensorFlow shares part of a buffer only when the part starts at a multiple of this."""


_ELEMENTWISE = """
Abs Acos Acosh Asin Asinh Atan Atanh Ceil Conj Cos Cosh Digamma Erf Erfc Erfinv Exp Expm1 Floor Inv Invert Lgamma Log
Log1p LogicalNot Ndtri Neg Reciprocal Rint Round Rsqrt Sigmoid Sign Sin Sinh Sqrt Square Tan Tanh
Relu Relu6 LeakyRelu Elu Selu Softplus Softsign ZerosLike OnesLike ClipByValue
Softmax LogSoftmax BiasAdd BiasAddV1 MatrixBandPart _UnaryOpsComposition
"""
_TWO_OPERANDS = """
Add AddV2 Atan2 BitwiseAnd BitwiseOr BitwiseXor Div DivNoNan Equal NotEqual FloorDiv FloorMod Greater GreaterEqual
LeftShift Less LessEqual LogicalAnd LogicalOr Maximum Minimum Mod Mul MulNoNan Pow RealDiv RightShift
SquaredDifference Sub TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Igamma Igammac NextAfter
TanhGrad SigmoidGrad SqrtGrad RsqrtGrad ReciprocalGrad InvGrad
ReluGrad Relu6Grad LeakyReluGrad EluGrad SeluGrad SoftplusGrad SoftsignGrad
"""
_VIEWS = """
Identity Reshape Squeeze ExpandDims StopGradient PreventGradient EnsureShape CheckNumerics Bitcast
PlaceholderWithDefault Snapshot
"""
_ALLOCATES = """
Empty TensorScatterAdd TensorScatterSub TensorScatterUpdate TensorScatterMin TensorScatterMax
All Any ArgMax ArgMin AvgPool AvgPoolGrad AvgPool3D AvgPool3DGrad BatchMatMul BatchMatMulV2 BatchMatMulV3 _MklSwish
BatchToSpaceND BiasAddGrad Bincount DenseBincount BroadcastArgs BroadcastGradientArgs BroadcastTo Bucketize Cholesky
Complex ComplexAbs Concat ConcatOffset ConcatV2 Conv2D Conv2DBackpropFilter Conv2DBackpropInput Conv3D
Conv3DBackpropFilterV2
Conv3DBackpropInputV2 Cross Cumprod Cumsum DepthToSpace DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter
DepthwiseConv2dNativeBackpropInput Diag DiagPart Dilation2D DynamicPartition DynamicStitch ParallelDynamicStitch
Einsum EuclideanNorm ExtractImagePatches Eye FFT FFT2D FFT3D Fill FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3
FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 Gather GatherNd GatherV2 Histogram HistogramFixedWidth
IFFT IFFT2D Imag InTopK InTopKV2 InvertPermutation IRFFT IsFinite IsInf IsNan L2Loss LinSpace LRN LRNGrad MatMul
MatrixDeterminant MatrixDiag MatrixDiagV2 MatrixDiagV3 MatrixDiagPart MatrixDiagPartV2
MatrixDiagPartV3 MatrixInverse MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MatrixSolve MatrixTriangularSolve Max
MaxPool MaxPoolGrad MaxPoolGradGrad MaxPoolGradV2 MaxPoolV2 MaxPoolWithArgmax MaxPool3D MaxPool3DGrad Mean Min
MirrorPad MirrorPadGrad Multinomial OneHot Pack Pad PadV2 Polygamma Prod Qr Range Rank Real ResizeBicubic
ResizeBicubicGrad ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad ResourceGather
ResourceGatherNd Reverse ReverseSequence ReverseV2 RFFT Roll ScatterNd SegmentMax SegmentMean SegmentSum Shape ShapeN
Size Slice SpaceToBatchND SpaceToDepth SparseSegmentMean SparseSegmentSum SparseSoftmaxCrossEntropyWithLogits
SoftmaxCrossEntropyWithLogits Split SplitV StridedSlice StridedSliceGrad Sum Svd Tile TopK TopKV2 Transpose
ConjugateTranspose Unique UniqueV2 UniqueWithCounts Unpack UnsortedSegmentMax UnsortedSegmentMin
UnsortedSegmentProd UnsortedSegmentSum VariableShape Where ZetaGrad Zeta CropAndResize NonMaxSuppressionV3
CropAndResizeGradImage
TensorListStack TensorListConcatV2 TensorListLength TensorListElementShape TensorListGather
StatelessRandomUniformV2 StatelessRandomNormalV2 StatelessTruncatedNormalV2 StatelessRandomUniformIntV2
StatelessRandomUniformFullIntV2 StatelessRandomGetKeyCounter StatelessRandomGetAlg StatelessRandomGetKeyCounterAlg
StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal StatelessRandomUniformInt StatelessMultinomial
StatelessRandomGammaV2 StatelessRandomGammaV3 StatelessRandomPoisson StatelessRandomBinomial StatelessShuffle
_FusedConv2D _FusedMatMul _FusedBatchNormEx _FusedBatchNormGradEx _FusedBatchMatMulV2 _FusedConv3D
_FusedDepthwiseConv2dNative
"""
_RANDOM = """
RandomUniform RandomStandardNormal RandomUniformInt TruncatedNormal RandomShuffle RandomGamma
StatefulUniform StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniformInt StatefulUniformFullInt
RngReadAndSkip RngSkip StatefulRandomBinomial
"""
_REFERENCE_UPDATES = """
Assign AssignAdd AssignSub ApplyAdam ApplyAdaMax ApplyAdagrad ApplyAdagradV2 ApplyAdadelta ApplyFtrl ApplyFtrlV2
ApplyGradientDescent ApplyMomentum ApplyRMSProp ApplyCenteredRMSProp ApplyProximalGradientDescent ApplyAddSign
ApplyPowerSign ScatterAdd ScatterSub ScatterUpdate SparseApplyAdagrad SparseApplyMomentum SparseApplyRMSProp
"""
_APPLY = """
ResourceApplyAdam ResourceApplyAdaMax ResourceApplyAdagrad ResourceApplyAdagradV2 ResourceApplyAdadelta
ResourceApplyFtrl ResourceApplyFtrlV2 ResourceApplyGradientDescent ResourceApplyMomentum
ResourceApplyKerasMomentum ResourceApplyRMSProp ResourceApplyCenteredRMSProp ResourceApplyAdamWithAmsgrad
ResourceSparseApplyAdagrad ResourceSparseApplyAdagradV2 ResourceSparseApplyMomentum
ResourceSparseApplyKerasMomentum ResourceSparseApplyRMSProp ResourceSparseApplyFtrl
AssignAddVariableOp AssignSubVariableOp ResourceScatterAdd ResourceScatterSub ResourceScatterMul ResourceScatterDiv
ResourceScatterMin ResourceScatterMax ResourceScatterUpdate ResourceScatterNdAdd ResourceScatterNdUpdate
ResourceScatterNdSub ResourceStridedSliceAssign
"""

TABLE: Mapping[str, Rule] = {
    **_rows(Act.FRESH, _ALLOCATES),
    **_rows(Act.FRESH, _RANDOM, recomputable=False),
    **_rows(Act.REUSE, _ELEMENTWISE, inputs=(0,)),
    **_rows(Act.REUSE, _TWO_OPERANDS, inputs=(0, 1)),
    **_rows(Act.REUSE, "AddN AccumulateNV2", inputs=ANY_INPUT),
    **_rows(Act.REUSE, "CollectiveReduce CollectiveReduceV2 CollectiveReduceV3", inputs=(0,), recomputable=False),
    **_rows(Act.REUSE, "Select SelectV2", inputs=(1, 2)),
    **_rows(Act.VIEW, _VIEWS, inputs=(0,)),
    **_rows(Act.VIEW_EACH, "IdentityN"),
    **_rows(Act.SOURCE, "Placeholder _Arg Const VarHandleOp VariableV2 Variable", recomputable=False),
    **_rows(Act.VIEW, _REFERENCE_UPDATES, inputs=(0,), recomputable=False),
    **_rows(Act.NOTHING, "NoOp Assert PrintV2 ControlTrigger DisableCopyOnRead", recomputable=False),
    **_rows(Act.READ, "ReadVariableOp", inputs=(0,), recomputable=False),
    **_rows(Act.ASSIGN, "AssignVariableOp", inputs=(0, 1), recomputable=False),
    **_rows(Act.UPDATE, _APPLY, recomputable=False),
    **_rows(Act.FRESH, "VarIsInitializedOp XlaStep _Recv OptionalNone OptionalHasValue", recomputable=False),
    **_rows(Act.COMPILED, "XlaCall", recomputable=False),
    **_rows(Act.WRAP, "OptionalFromValue", recomputable=False),
    **_rows(Act.UNWRAP, "OptionalGetValue", recomputable=False),
    **_rows(Act.LIST_NEW, "EmptyTensorList TensorListReserve"),
    **_rows(Act.LIST_SPLIT, "TensorListFromTensor", inputs=(0,)),
    **_rows(Act.LIST_PUT, "TensorListPushBack", inputs=(0, 1)),
    **_rows(Act.LIST_PUT, "TensorListSetItem", inputs=(0, 2)),
    **_rows(Act.LIST_POP, "TensorListPopBack", inputs=(0,)),
    **_rows(Act.LIST_GET, "TensorListGetItem", inputs=(0,)),
    **_rows(Act.VIEW, "TensorListResize", inputs=(0,)),
    **_rows(Act.CONTROL_FLOW, "While StatelessWhile If StatelessIf Case StatelessCase PartitionedCall "
            "StatefulPartitionedCall", recomputable=False),
    **_rows(Act.FRESH, "Cast", view_when=_same_type),
    **_rows(Act.FRESH, "Transpose ConjugateTranspose", view_when=_no_real_transpose),
    **_rows(Act.FRESH, "Slice StridedSlice", view_when=_aligned_rows),
    **_rows(Act.FRESH, "Pad PadV2 MirrorPad Tile BroadcastTo", view_when=_same_shape),
    **_rows(Act.FRESH, "Sum Mean Max Min Prod All Any", view_when=_same_count),
    **_rows(Act.FRESH, "Split", view_when=_parts_are_rows, viewed=1),
    **_rows(Act.FRESH, "SplitV", view_when=_parts_are_rows),
    **_rows(Act.FRESH, "Unpack", view_when=_unpacked_rows),
    "SparseSoftmaxCrossEntropyWithLogits": Rule(
        Act.REUSE, (0,), output=1, scratch=SCRATCH.get("SparseSoftmaxCrossEntropyWithLogits")
    ),
    "SoftmaxCrossEntropyWithLogits": Rule(
        Act.REUSE, (0,), output=1, scratch=SCRATCH.get("SoftmaxCrossEntropyWithLogits")
    ),
}  # fmt: skip

TRIPS_AT_ONCE = "parallel_iterations"
"""The attribute of a loop that says how many of its trips may be under way at once."""
LOWERING_ATTRIBUTE = "_lower_using_switch_merge"
"""Of a loop or branches that TensorFlow runs as ops among ops. Without it one kernel runs the bodies as functions."""
LOOPS = frozenset({"While", "StatelessWhile"})
BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})

WANTED_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("VariableV2", "Variable", "VarHandleOp"), ("shape", "dtype")),
    **dict.fromkeys(("MatMul", "_FusedMatMul"), ("transpose_a", "transpose_b")),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), ("adj_x", "adj_y")),
    **dict.fromkeys(LOOPS, (TRIPS_AT_ONCE, LOWERING_ATTRIBUTE)),
    **dict.fromkeys(BRANCHES, (LOWERING_ATTRIBUTE,)),
    "Einsum": ("equation",),
    "Unpack": ("axis",),
    "StridedSlice": ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"),
}
"""Node attributes that rows of the tables read."""

WANTS_CONSTANTS: Mapping[str, tuple[int, ...]] = {
    "Transpose": (1,),
    "ConjugateTranspose": (1,),
    "TensorListReserve": (1,),
    "Slice": (1,),
    "StridedSlice": (1, 2, 3),
    "Split": (0,),
    "SplitV": (2,),
    "Sum": (1,), "Mean": (1,), "Max": (1,), "Min": (1,), "Prod": (1,), "All": (1,), "Any": (1,),
}  # fmt: skip
"""Positions of inputs whose constant value rows of the tables read, as `input_<position>` of `Op.attrs`."""
