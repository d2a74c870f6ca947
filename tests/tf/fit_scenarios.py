"""What people do with `fit`, done twice from the same start: planned to fit a budget, and captured without a plan.

`python -m tests.tf.fit_scenarios NAME ...` prints one JSON object: for each name, what differs between the two, which
is nothing where all is well, and what the scenario itself wants to say.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import lowtide
from lowtide.plan.aside import planning
from lowtide.tf import compat, profile
from lowtide.tf.fit import PlannedStep, install
from lowtide.tf.fit import planned_function as planned_step
from lowtide.tf.rewrite import as_function, ordered_graph
from lowtide.tf.trace import capture_function, capture_model

BUDGET, BATCH, SECONDS = "95%", 8, 4.0
SAMPLES = 20  # two batches and a half

random = np.random.default_rng(0)
X = random.normal(size=(SAMPLES, 16, 16, 3)).astype("float32")
Y = random.integers(0, 4, SAMPLES).astype("int32")


def make_model(optimizer: Any = "adam", **options: Any) -> Any:
    keras.utils.set_random_seed(5)
    layers = keras.layers
    blocks = [
        layer
        for filters in (8, 8, 16)
        for layer in (
            layers.Conv2D(filters, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Dropout(0.2),
        )
    ]
    model = keras.Sequential([keras.Input((16, 16, 3)), *blocks, layers.GlobalAveragePooling2D(), layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], **options)
    return model


class Unplanned(PlannedStep):
    """The captured step as it is: in order, nothing twice."""

    def _alike(self, step: Any, batch: int) -> None:
        return None

    def _pattern_for(self, step: Any, batch: int) -> None:
        return None

    def _plan_anew(self, known: Any, batch: int, ahead: int = 0) -> None:
        known.replan(*self._planned(known.step, batch))

    def _planned(self, step: Any, batch: int, ahead: int = 0, like: Any = None) -> Any:
        return batch, None, as_function(step, ordered_graph(step.graph_def))


Fit = Callable[..., None]
"""Makes a compiled model train in one of the two ways."""


def planned(model: Any, budget: str = BUDGET) -> None:
    lowtide.fit_within(model, budget, BATCH, seconds=SECONDS)


def unplanned(model: Any, budget: str = BUDGET) -> None:
    install(model, Unplanned(lambda data: capture_model(model, data), None))  # type: ignore[arg-type]  # plans nothing


def state_of(model: Any) -> list[bytes]:
    variables = [*model.variables, *model.optimizer.variables]
    return [np.asarray(variable).tobytes() for variable in variables]


def both(scenario: Callable[[Fit], tuple[Any, Any]]) -> dict[str, Any]:
    """The scenario in both ways; it gives the model it trained and what it saw on the way."""
    (one, seen), (other, expected) = scenario(planned), scenario(unplanned)
    differ = sum(a != b for a, b in zip(state_of(one), state_of(other), strict=True))
    return {"different_variables": differ, "same_seen": seen == expected, "seen": seen}


# What `fit` takes and does -----------------------------------------------------------------------------------------


def arrays_with_everything(fit: Fit) -> tuple[Any, Any]:
    """Metrics, validation, callbacks, a short last batch, and a second fit."""
    model, calls = make_model(), []
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: calls.append((batch, logs["loss"])),
        on_epoch_end=lambda epoch, logs: calls.append((epoch, logs["val_loss"], logs["accuracy"])),
    )
    fit(model)
    options = {"epochs": 2, "validation_data": (X[:6], Y[:6]), "callbacks": [watch]}
    first = model.fit(X, Y, BATCH, shuffle=False, verbose=0, **options).history
    second = model.fit(X, Y, BATCH, shuffle=False, epochs=1, verbose=0).history
    assert model.train_function is not None
    return model, [calls, first, second]


def several_steps_per_execution(fit: Fit) -> tuple[Any, Any]:
    model = make_model(steps_per_execution=2)
    fit(model)
    history = model.fit(X, Y, BATCH, shuffle=False, epochs=2, verbose=0).history
    return model, [history, int(model.optimizer.iterations)]


def class_and_sample_weights(fit: Fit) -> tuple[Any, Any]:
    """Weights come after the plan was made, and go again."""
    model = make_model()
    fit(model)
    weights = ({"class_weight": {0: 2.0, 1: 1.0, 2: 1.0, 3: 0.5}}, {"sample_weight": np.linspace(0, 1, SAMPLES)}, {})
    histories = [model.fit(X, Y, BATCH, shuffle=False, verbose=0, **options).history for options in weights]
    return model, histories


class Rows(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return X[rows], Y[rows]


def datasets_of_both_kinds(fit: Fit) -> tuple[Any, Any]:
    model = make_model()
    fit(model)
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH).prefetch(2)
    histories = [model.fit(dataset, verbose=0).history, model.fit(Rows(), shuffle=False, verbose=0).history]
    return model, histories


def learning_rates_that_change(fit: Fit) -> tuple[Any, Any]:
    """By a schedule in the step; and by a callback between steps."""
    schedule = keras.optimizers.schedules.ExponentialDecay(1e-2, 2, 0.5)
    model = make_model(keras.optimizers.SGD(schedule, momentum=0.9))
    fit(model)
    model.fit(X, Y, BATCH, shuffle=False, epochs=2, verbose=0)
    other = make_model(keras.optimizers.Adam(1e-2))
    fit(other)
    halve = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    history = other.fit(X, Y, BATCH, shuffle=False, epochs=2, callbacks=[halve], verbose=0).history
    return other, [history, [value.hex() for value in state_of(model)]]


OPTIMIZERS: tuple[Callable[[], Any], ...] = (
    lambda: keras.optimizers.SGD(1e-2, momentum=0.9, nesterov=True, use_ema=True),
    lambda: keras.optimizers.Adafactor(1e-2),
    lambda: keras.optimizers.Adam(1e-2, gradient_accumulation_steps=2),  # assigns in a branch
)


def optimizers_that_assign(fit: Fit) -> tuple[Any, Any]:
    """A plan has them write in place what they would put elsewhere."""
    seen = []
    for make in OPTIMIZERS:
        model = make_model(make())
        fit(model)
        seen += [model.fit(X, Y, BATCH, shuffle=False, epochs=2, verbose=0).history]
        seen += [value.hex() for value in state_of(model)]
    return model, seen


def batches_of_several_sizes(fit: Fit) -> tuple[Any, Any]:
    """Smaller and larger than planned: the budget has to do for the largest, too."""
    model = make_model()
    fit(model, "105%")

    def batches() -> Iterator[Any]:
        for size in (8, 3, 9, 8, 1):
            yield X[:size], Y[:size]

    types = (tf.TensorSpec((None, 16, 16, 3)), tf.TensorSpec((None,), tf.int32))
    history = model.fit(tf.data.Dataset.from_generator(batches, output_signature=types), verbose=0).history
    single = [model.train_on_batch(X[:5], Y[:5]), model.train_on_batch(X[:7], Y[:7], np.ones(7, "float32"))]
    return model, [history, single]


def saving_and_loading(fit: Fit) -> tuple[Any, Any]:
    """A saved model has no plan and all the weights; loaded weights are what training goes on from."""
    model = make_model()
    fit(model)
    model.fit(X, Y, BATCH, shuffle=False, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model.keras"))
        model.save_weights(Path(folder, "w.weights.h5"))
        loaded = keras.saving.load_model(Path(folder, "model.keras"))
        model.fit(X, Y, BATCH, shuffle=False, verbose=0)
        model.load_weights(Path(folder, "w.weights.h5"))
    same = [np.array_equal(a, b) for a, b in zip(loaded.get_weights(), model.get_weights(), strict=True)]
    assert all(same), "the file has the weights of the planned model"
    assert loaded.train_function is None
    history = model.fit(X, Y, BATCH, shuffle=False, verbose=0).history
    return model, [history, model.predict(X, verbose=0).tobytes().hex(), loaded.optimizer.iterations.numpy() == 3]


# Custom loops ------------------------------------------------------------------------------------------------------


def planned_function(function: Callable[..., Any]) -> Callable[..., Any]:
    return lowtide.function(BUDGET, SECONDS)(function)


def unplanned_function(function: Callable[..., Any]) -> Callable[..., Any]:
    traced = tf.function(function)
    step = Unplanned(lambda call: capture_function(traced, call[0], call[1]), None)  # type: ignore[arg-type]
    return lambda *arguments, **options: step((arguments, options))


def custom_loop(make: Callable[..., Any]) -> dict[str, list[bytes]]:
    """A step that is given a number from Python, which changes, and that divides by its rows, counted in Python."""
    weights = [tf.Variable(0.1 * random_like(i, 128, 128)) for i in range(6)]

    def step(x: Any, rate: float, flip: bool = False) -> Any:
        rows = x.shape[0] + 0  # not known while the batch is open
        with tf.GradientTape() as tape:
            h = -x if flip else x
            for weight in weights:
                h = tf.nn.softplus(tf.repeat(h, 4, axis=0) @ weight)[::4]
            loss = tf.reduce_sum(h**2) / rows
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(rate * gradient)
        return {"loss": loss, "rows": tf.constant(rows)}

    train = make(step)
    x = random_like(9, 128, 128)
    calls = [train(x, 0.1), train(x, 0.1), train(x, 0.05), train(x[:60], 0.05), train(x, rate=0.1, flip=True)]
    return {
        "outputs": [np.asarray(value).tobytes() for call in calls for value in (call["loss"], call["rows"])],
        "weights": [variable.numpy().tobytes() for variable in weights],
    }


def random_like(seed: int, *shape: int) -> Any:
    return tf.random.stateless_normal(shape, [seed, 1])


def custom_loops() -> dict[str, Any]:
    found, expected = custom_loop(planned_function), custom_loop(unplanned_function)
    differ = sum(a != b for a, b in zip(found["weights"], expected["weights"], strict=True))
    return {"different_variables": differ, "same_seen": found["outputs"] == expected["outputs"]}


def nothing_returned() -> dict[str, Any]:
    """A step that only updates."""
    total = tf.Variable(0.0)

    @lowtide.function(budget="64 MiB", seconds=SECONDS)
    def add_up(x: Any) -> None:
        total.assign_add(tf.reduce_sum(x))

    return {"returned": [add_up(tf.ones([4, 4])) for _ in range(3)], "total": float(total)}


def dimensions_of_their_own() -> dict[str, Any]:
    """A graph has nodes and edges, and more of one does not mean more of the other."""
    specs = [tf.TensorSpec([None, 16]), tf.TensorSpec([None], tf.int32)]
    weights = tf.Variable(tf.ones([16, 64]))

    @tf.function(input_signature=specs)
    def step(nodes: Any, edges: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.tanh(tf.gather(nodes @ weights, edges)))
        weights.assign_sub(tape.gradient(loss, weights))
        return loss

    def call(nodes: int, edges: int) -> tuple[Any, Any]:
        return (random_like(0, nodes, 16), tf.range(edges) % nodes), {}

    planned = planned_step(step, *call(8, 1000), planning(64 << 20, SECONDS))
    seen = []
    for nodes, edges in ((8, 1000), (8, 600), (4, 900), (8, 2000), (2000, 2000)):
        planned(call(nodes, edges))
        seen.append([len(planned.variants), planned.plan.timeline.batch])
    return {"seen": seen}


# What is undone, and what is refused -------------------------------------------------------------------------------


def places_of_variables() -> dict[str, Any]:
    """Where the variables of the optimizers that assign lie after a step and after more, and when read twice."""
    moved, copied, large = 0, 0, 0
    for make in OPTIMIZERS:
        model = make_model(make())
        planned(model)
        model.train_on_batch(X[:BATCH], Y[:BATCH])
        variables = [v.value for v in (*model.variables, *model.optimizer.variables)]
        handles = [v.handle for v in variables if v.dtype.is_floating and 4 * np.prod(v.shape) >= 1024]
        places = [compat.address_of(handle) for handle in handles]
        for _ in range(4):
            model.train_on_batch(X[:BATCH], Y[:BATCH])
        later = [compat.address_of(handle) for handle in handles]
        reads = [[tf.raw_ops.ReadVariableOp(resource=h, dtype=tf.float32) for _ in range(2)] for h in handles]
        copied += sum(compat.address_of(one) != compat.address_of(other) for one, other in reads)
        moved += sum(one != other for one, other in zip(places, later, strict=True))
        large += len(handles)
    return {"large": large, "moved": moved, "copied_on_read": copied}


def weights_set_from_an_array() -> dict[str, Any]:
    """TensorFlow copies an array and, where the copy happens to begin at a multiple of 64, a variable that is set from
    it lies there, outside the device: a plan's variables are all on it."""
    model = make_model()
    kernel = model.layers[4].kernel
    values = kernel.numpy()
    on_device = lambda: compat.address_of(kernel.value.handle) in {c.address for c in profile.chunks() or ()}  # noqa: E731
    copies = []
    for _ in range(500):
        copies.append(values.copy())  # kept, so that each is somewhere else
        kernel.assign(copies[-1])
        if not (before := on_device()):
            break
    planned(model)
    return {"before": before, "after": on_device(), "same": bool(np.array_equal(values, kernel.numpy()))}


def undoing() -> dict[str, Any]:
    """After `release`, or another `compile`, the model trains as TensorFlow would have it."""
    model = make_model()
    planned(model)
    lowtide.release(model)
    released = model.train_function is None
    model.fit(X, Y, BATCH, shuffle=False, verbose=0)
    planned(model)
    model.compile("sgd", "sparse_categorical_crossentropy")
    return {"released": released, "compiled": model.train_function is None}


def a_budget_that_cannot_be_met() -> dict[str, Any]:
    """An error that says what would do, and nothing half-applied: an earlier plan goes on."""
    model = make_model()
    plan = lowtide.fit_within(model, BUDGET, BATCH, seconds=SECONDS)
    before, step = state_of(model), model.train_function
    try:
        lowtide.fit_within(model, plan.timeline.chunk_resident + 1000, BATCH, seconds=SECONDS)
    except lowtide.Infeasible as error:
        message, smallest = str(error), error.smallest_bytes
    untouched = state_of(model) == before and model.train_function is step
    again = lowtide.fit_within(model, int(smallest * 1.1), BATCH, seconds=2 * SECONDS)
    model.fit(X, Y, BATCH, shuffle=False, verbose=0)
    return {"message": message, "untouched": untouched, "smallest": smallest, "then": again.peak}


def refusals() -> dict[str, Any]:
    said = {}
    for name, options in (("eager", {"run_eagerly": True}), ("xla", {"jit_compile": True})):
        try:
            lowtide.fit_within(make_model(**options), BUDGET, BATCH)
        except lowtide.LowtideError as error:
            said[name] = str(error)
    for name, make in (("not compiled", lambda: keras.Sequential([keras.Input((2,))])), ("no model", lambda: 3)):
        try:
            lowtide.fit_within(make(), BUDGET, BATCH)
        except lowtide.LowtideError as error:
            said[name] = str(error)
    for name, misused in (("no budget", lambda: lowtide.function(print)), ("released", lambda: lowtide.release("x"))):
        try:
            misused()
        except lowtide.LowtideError as error:
            said[name] = str(error)
    for name, budget in (("no size", "lots"), ("nothing", 0)):
        try:
            lowtide.fit_within(make_model(), budget, BATCH)
        except lowtide.LowtideError as error:
            said[name] = str(error)
    return said


COMPARED = (
    arrays_with_everything,
    several_steps_per_execution,
    class_and_sample_weights,
    datasets_of_both_kinds,
    learning_rates_that_change,
    batches_of_several_sizes,
    saving_and_loading,
    optimizers_that_assign,
)
OTHERS: tuple[Callable[[], Any], ...] = (
    custom_loops,
    nothing_returned,
    undoing,
    a_budget_that_cannot_be_met,
    refusals,
    places_of_variables,
    weights_set_from_an_array,
    dimensions_of_their_own,
)


def main(names: list[str]) -> None:
    tf.config.experimental.enable_op_determinism()
    scenarios: dict[str, Callable[[], Any]] = {s.__name__: partial(both, s) for s in COMPARED}
    scenarios.update({s.__name__: s for s in OTHERS})
    print(json.dumps({name: scenarios[name]() for name in names}, default=str))


if __name__ == "__main__":
    main(sys.argv[1:])
