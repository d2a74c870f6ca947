"""From what a user trains with to a captured Step: a Keras model and a batch, or a tf.function and its arguments.

The step is traced with an open batch dimension, so that one Program answers for every batch. Where the user's code
needs a number there, it is traced at several numbers instead, and sizes are fitted through them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lowtide.errors import BadUse, NotCapturable
from lowtide.program import Note, Program, Source
from lowtide.tf import compat
from lowtide.tf.capture import Step, Trace, VariableFact, capture
from lowtide.tf.child import RUN_EAGERLY
from lowtide.tf.known import Known
from lowtide.tf.labels import LayerNames
from lowtide.tf.lines import probe_batches
from lowtide.tf.scopes import traced


@dataclass(frozen=True)
class Seen:
    """What was noticed while the script ran up to its step: which line made which layer.

    `batches` are those that a prediction is asked for, beside the script's own.
    """

    layer_sources: Mapping[str, Source] = field(default_factory=dict)
    batches: tuple[int, ...] = ()


def capture_model(model: Any, data: Any, seen: Seen | None = None) -> Step:
    """The train step of a compiled Keras model on a batch like `data`: (x,), (x, y) or (x, y, sample_weight)."""
    require_compiled(model)
    if compat.replicas(model) > 1:
        with model.distribute_strategy.scope():
            compat.build_for_training(model, one_replicas(data))
    else:
        compat.build_for_training(model, data)
    one_step = step_function(model)
    layers = _layer_names([model], seen)
    return _capture_call(one_step, (data,), {}, layers, lambda: _model_variables(model, layers), _asked(seen))


def step_function(model: Any, jit_compile: bool = False) -> Any:
    """What Keras makes of a model's train step: a tf.function of one batch."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]  # TensorFlow ships no types
    def one_step(data: Any) -> Any:
        return model.distribute_strategy.run(model.train_step, args=(data,))

    return tf.function(one_step, reduce_retracing=True, jit_compile=jit_compile)


def capture_function(
    function: Any, arguments: Sequence[Any], options: Mapping[str, Any], seen: Seen | None = None
) -> Step:
    """The step that a tf.function is when called like this."""
    if any(isinstance(leaf, tf.data.Dataset) for leaf in tf.nest.flatten((arguments, dict(options)))):
        name = getattr(function, "__name__", "")
        raise NotCapturable(
            f"the tf.function {name!r} is given a dataset and goes through it itself; expected a step of one batch: "
            "put what is done for a batch in a tf.function of its own, and loop over the dataset outside"
        )
    names = set(seen.layer_sources) if seen else set()
    layers = LayerNames(names, seen.layer_sources if seen else None)
    return _capture_call(function, arguments, options, layers, dict, _asked(seen))


def _asked(seen: Seen | None) -> tuple[int, ...]:
    return seen.batches if seen else ()


def as_if_compiled(program: Program) -> Program:
    """The Program of a step that is run op by op: the same compiled, and a note that says so."""
    eager = Note(RUN_EAGERLY, "assumed", 0, "the step is run op by op; this is it compiled")
    return replace(program, notes=(eager, *program.notes))


def require_compiled(model: Any) -> None:
    if not isinstance(model, keras.Model):
        raise BadUse(f"expected a Keras model, received {type(model).__name__}; pass a compiled keras.Model")
    if not model.compiled:
        raise BadUse(f"model {model.name!r} is not compiled; call model.compile(optimizer, loss) first")


def replicas_of(model: Any) -> int:
    """How many devices a compiled model trains on at once."""
    require_compiled(model)
    return compat.replicas(model)


def example_batch(model: Any, batch: int) -> Any:
    """Made-up data of the right shapes for a model with known inputs: targets as its loss expects them."""
    require_compiled(model)
    if not getattr(model, "inputs", None):
        raise BadUse(
            f"model {model.name!r} does not say what its inputs look like; pass data=, an example batch "
            "(x, y) or a dataset, or build it with keras.Input"
        )
    x = tf.nest.map_structure(lambda t: _made_up(t.shape, t.dtype, batch), compat.inputs_of(model))
    y = compat.targets_like(model, lambda shape, dtype: _made_up(shape, dtype, batch))
    return (x, y)


def first_batch(data: Any, batch: int | None) -> Any:
    """A batch from what `fit` takes: arrays (x, y), a tf.data.Dataset, or a keras PyDataset."""
    if isinstance(data, tf.data.Dataset):
        return next(iter(data))
    if isinstance(data, keras.utils.PyDataset):
        return data[0]
    size = batch or 32
    return tf.nest.map_structure(lambda a: None if a is None else tf.convert_to_tensor(a[:size]), data)


def _made_up(shape: Sequence[int | None], dtype: Any, batch: int) -> Any:
    dims = [batch if i == 0 else d for i, d in enumerate(shape)]
    if None in dims:
        raise BadUse(
            f"an input of shape {tuple(shape)} has open dimensions besides the batch; pass data=, an example batch"
        )
    return tf.zeros(dims, dtype)


def _capture_call(
    function: Any,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    layers: LayerNames,
    variables: Callable[[], Mapping[int, VariableFact]],
    asked: Sequence[int],
) -> Step:
    batch = batch_of((arguments, options))
    traces = _open_traces(function, arguments, options, batch, asked)
    traces = traces or _closed_traces(function, arguments, options, batch)
    try:
        return capture(traces, batch or 1, layers, variables())
    except ValueError:  # some batch does not go through the step, such as an odd one through a split in two: no law
        return capture([_closed_trace(function, arguments, options, batch, batch)], batch or 1, layers, variables())


def _open_traces(
    function: Any, arguments: Any, options: Any, batch: int | None, asked: Sequence[int]
) -> list[Trace]:
    """One trace with an open batch, examples of it at the probes; nothing when the code needs a number."""
    if batch is None:
        return []
    specs = relaxed((arguments, options), batch, None)
    try:
        concrete = traced(function, *specs)
    except Exception:  # noqa: BLE001  # whatever the user's code raises on an open batch, numbers are tried next
        return []
    if not any(t.shape.rank and t.shape[0] is None for t in _argument_placeholders(concrete)):
        return []
    return [Trace(size, concrete, _examples((arguments, options), batch, size)) for size in probe_batches(batch, asked)]


def _closed_traces(function: Any, arguments: Any, options: Any, batch: int | None) -> list[Trace]:
    """Traces at the script's own batch and, where the code lets us, at others."""
    try:
        traces = [_closed_trace(function, arguments, options, batch, batch)]
    except tf.errors.OpError as error:
        raise NotCapturable(f"the step cannot be traced: {error.message}") from error
    for size in () if batch is None else (batch + 1, 2 * batch + 3):
        try:
            traces.append(_closed_trace(function, arguments, options, batch, size))
        except Exception:  # noqa: BLE001  # the code insists on its batch: then there is no law, and notes say so
            break
    return traces


def _closed_trace(function: Any, arguments: Any, options: Any, batch: int | None, size: int | None) -> Trace:
    specs = relaxed((arguments, options), batch, size)
    concrete = traced(function, *specs)
    return Trace(size or 1, concrete, _examples((arguments, options), batch, size))


def one_replicas(data: Any) -> Any:
    """The batch that the first of several devices gets."""
    return tf.nest.map_structure(
        lambda leaf: compat.per_replica(leaf)[0] if isinstance(leaf, tf.distribute.DistributedValues) else leaf, data
    )


def batch_of(structure: Any) -> int | None:
    """The leading dimension of the first tensor that has one; the rows of a ragged one, not all that is in them."""
    for leaf in tf.nest.flatten(structure):
        if isinstance(leaf, tf.RaggedTensor):
            return int(leaf.nrows())
        if _is_tensor(leaf) and len(leaf.shape) and leaf.shape[0]:
            return int(leaf.shape[0])
    for leaf in tf.nest.flatten(structure, expand_composites=True):
        if _is_tensor(leaf) and len(leaf.shape) and leaf.shape[0]:
            return int(leaf.shape[0])
    return None


def flat_tensors(structure: Any) -> list[Any]:
    """The tensors among the leaves, in the order a traced function takes them."""
    leaves = tf.nest.flatten(structure, expand_composites=True)
    return [tf.convert_to_tensor(leaf) for leaf in leaves if _is_tensor(leaf)]


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, tf.Tensor | np.ndarray | np.generic)


def relaxed(structure: Any, batch: int | None, size: int | None) -> Any:
    """The same structure with specs for tensors, whose leading dimension is `size` where it was the batch."""

    def spec(leaf: Any) -> Any:
        if isinstance(leaf, tf.distribute.DistributedValues):
            return compat.per_replica_spec(leaf, [spec(value) for value in compat.per_replica(leaf)])
        if not _is_tensor(leaf):
            return leaf
        dims = list(leaf.shape)
        if dims and dims[0] == batch and batch is not None:
            dims[0] = size
        return tf.TensorSpec(dims, tf.as_dtype(leaf.dtype))

    return tf.nest.map_structure(spec, structure)


def _examples(structure: Any, batch: int | None, size: int | None) -> list[Known]:
    """What the script passes, flat, were its batch `size`."""
    examples = []
    for leaf in tf.nest.flatten(structure, expand_composites=True):
        if not _is_tensor(leaf):
            continue
        dims = list(leaf.shape)
        if dims and dims[0] == batch and size is not None:
            dims[0] = size
        small = np.size(leaf) <= 64 and not dims and tf.as_dtype(leaf.dtype).is_integer
        examples.append(Known(tf.as_dtype(leaf.dtype).name, tuple(dims), value=np.asarray(leaf) if small else None))
    return examples


def _argument_placeholders(concrete: Any) -> list[Any]:
    return list(concrete.graph.inputs[: len(concrete.graph.inputs) - len(concrete.captured_inputs)])


def _layer_names(models: Sequence[Any], seen: Seen | None) -> LayerNames:
    names = {layer.name for model in models for layer in compat.layers_of(model)}
    sources = seen.layer_sources if seen else {}
    return LayerNames(names | set(sources), sources)


def _model_variables(model: Any, layers: LayerNames) -> dict[int, VariableFact]:
    """Name, category and layer of each variable of a Keras model, by the identity of its handle."""
    optimizers = [value for value in vars(model).values() if isinstance(value, keras.optimizers.Optimizer)]
    if model.optimizer is not None:
        optimizers.append(model.optimizer)
    facts = {}
    for variable in model.metrics_variables:
        facts[id(compat.handle_of(variable))] = VariableFact(variable.path, "other")
    served = {variable.path: layers.layer_of(variable.path) for variable in model.variables}
    in_slots = {path.replace("/", "_"): layer for path, layer in served.items()}
    for variable in model.variables:
        facts[id(compat.handle_of(variable))] = VariableFact(variable.path, "parameters", served[variable.path])
    for optimizer in optimizers:
        for variable in optimizer.variables:
            layer = _layer_served(variable.path, in_slots)
            facts[id(compat.handle_of(variable))] = VariableFact(variable.path, "optimizer state", layer)
    return facts


def _layer_served(slot: str, served: Mapping[str, str]) -> str:
    """The layer of the variable that an optimizer's slot is for: Keras puts that variable's path in the slot's name."""
    name = slot.rpartition("/")[2]
    while name and name not in served:
        name = name.rpartition("_")[0]
    return served.get(name, "")
