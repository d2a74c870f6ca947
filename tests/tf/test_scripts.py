"""`lowtide predict` on scripts as users write them, through the command itself."""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import keras
import pytest

from lowtide import errors
from tests.tf.children import lowtide

pytestmark = pytest.mark.tensorflow

DENSE = """
    import keras
    import numpy as np
    import tensorflow as tf

    def make_model(**options):
        model = keras.Sequential([
            keras.Input([64]),
            keras.layers.Dense(512, activation="relu", name="wide"),
            keras.layers.Dense(10, name="narrow"),
        ])
        model.compile("adam", "mse", **options)
        return model

    x, y = np.zeros([200, 64], "float32"), np.zeros([200, 10], "float32")
"""
WEIGHTS = (64 * 512 + 512 + 512 * 10 + 10) * 4


def written(folder: Path, *parts: str) -> Path:
    path = folder / "train.py"
    path.write_text("".join(textwrap.dedent(part) for part in parts))
    return path


def answer_of(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def predicted(folder: Path, *parts: str) -> Any:
    return answer_of(lowtide("predict", "--json", str(written(folder, *parts))))


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    """What the command itself says, when that is all there is to say."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if line.startswith("lowtide:")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def check(answer: Any, batch: int, parameters: int) -> None:
    """What must be so of any step of a model with so many bytes of weights."""
    assert answer["batch"] == batch
    assert parameters <= answer["categories"]["parameters"] <= parameters * 1.02 + 4096
    assert answer["resident_bytes"] < answer["peak_bytes"]
    assert answer["plain_low_bytes"] <= answer["plain_high_bytes"]
    assert answer["largest_batch"] is None or answer["largest_batch"] > batch
    assert set(answer["versions"]) >= {"tensorflow", "keras"}


# --- a script runs as itself, up to its first step and no further ---

WELL_BEHAVED = """
    import atexit, pathlib, sys

    import helper

    assert __name__ == "__main__"
    assert sys.argv == [__file__, "--epochs", "3", "--json"], sys.argv
    here = pathlib.Path(__file__).parent
    print("before training, to standard output")
    (here / "before").touch()

    class Writes(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            (here / "callback").touch()

    atexit.register((here / "atexit").touch)
    model = make_model()
    model.evaluate(x, y, verbose=0)
    model.predict(x, verbose=0)
    try:
        model.fit(x, y, batch_size=25, callbacks=[Writes()])
        (here / "after").touch()
    finally:
        (here / "finally").touch()
"""


@pytest.fixture(scope="module")
def well_behaved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """Its folder, and the answers for its own batch of 25 and for 400."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "helper.py").write_text("")
    script = str(written(folder, DENSE, WELL_BEHAVED))
    own = lowtide("predict", "--json", script, "--epochs", "3", "--json")
    other = lowtide("predict", "--json", "--batch", "400", "--budget", "64MiB", script, "--epochs", "3", "--json")
    return folder, answer_of(own), answer_of(other)


def test_a_script_sees_its_own_arguments_and_its_output_does_not_mix_with_the_answer(well_behaved: Any) -> None:
    _, own, _ = well_behaved
    check(own, 25, WEIGHTS)
    assert own["unknown"] == []
    assert own["compiler"] == "executor"


def test_side_effects_stop_where_training_would_begin(well_behaved: Any) -> None:
    folder, _, _ = well_behaved
    left = {path.name for path in folder.iterdir()} - {"train.py", "helper.py", "__pycache__"}
    assert left == {"before"}


def test_another_batch_changes_the_numbers_by_the_law(well_behaved: Any) -> None:
    _, own, other = well_behaved
    assert other["batch"] == 400
    assert other["budget_bytes"] == 64 << 20
    # A row of the batch and what the wide layer keeps of it. At 25 the optimizer sets the peak, here the way back.
    assert (64 + 10 + 512) * 4 <= other["per_sample_bytes"] <= 3 * 512 * 4
    law = other["fixed_bytes"] + 400 * other["per_sample_bytes"]
    assert law == pytest.approx(other["peak_bytes"], abs=400)
    assert own["peak_bytes"] < other["peak_bytes"]


def test_the_peak_and_the_tensors_point_into_the_script(well_behaved: Any) -> None:
    folder, _, own = well_behaved
    script = str(folder / "train.py")
    lines = (folder / "train.py").read_text().splitlines()
    wide = [t for t in own["tensors"] if t["layer"] == "wide" and t["file"] == script]
    assert wide
    assert all('name="wide"' in lines[t["line"] - 1] for t in wide)
    assert {layer["layer"] for layer in own["layers"]} >= {"wide"}
    assert own["at"]["op"]


# --- every way to train ---

FUNCTIONAL = """
    import keras
    import numpy as np
    import tensorflow as tf

    image, words = keras.Input([128], name="image"), keras.Input([6], name="words", dtype="int32")
    seen = keras.layers.Dense(256, activation="relu")(image)
    read = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(100, 256)(words))
    joined = keras.layers.Concatenate()([seen, read])
    outputs = {"kind": keras.layers.Dense(7, name="kind")(joined), "price": keras.layers.Dense(1, name="price")(joined)}
    model = keras.Model({"image": image, "words": words}, outputs)
    losses = {"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "price": "mse"}
    model.compile("rmsprop", losses, loss_weights={"kind": 1.0, "price": 0.1}, metrics={"price": ["mae"]})
    x = {"image": np.zeros([60, 128], "float32"), "words": np.zeros([60, 6], "int32")}
    y = {"kind": np.zeros([60], "int32"), "price": np.zeros([60, 1], "float32")}
    weights = {"kind": np.ones([60], "float32"), "price": np.ones([60], "float32")}
    data = tf.data.Dataset.from_tensor_slices((x, y, weights)).batch(20)
    model.fit(data.prefetch(2), epochs=2)
"""


def test_a_functional_model_with_dict_inputs_several_outputs_and_sample_weights_on_tf_data(tmp_path: Path) -> None:
    check(predicted(tmp_path, FUNCTIONAL), 20, (128 * 256 + 256 + 100 * 256 + 512 * 7 + 7 + 512 + 1) * 4)


SUBCLASSED = """
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = keras.layers.Dense(512, activation="tanh")
            self.out = keras.layers.Dense(10)

        def call(self, inputs, training=False):
            return self.out(self.hidden(inputs))

    class Data(keras.utils.PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return x[:50], y[:50]

    model = Net()
    model.compile("adam", "mse")
    model.fit(Data(), epochs=1)
"""


def test_a_subclassed_model_on_a_pydataset(tmp_path: Path) -> None:
    check(predicted(tmp_path, DENSE, SUBCLASSED), 50, WEIGHTS)


LINEAR = """
    import keras
    import numpy as np

    layers = [keras.layers.Dense(64, activation="tanh") for _ in range(6)]
    model = keras.Sequential([keras.Input([8]), *layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.zeros([1000, 8], "float32"), np.zeros([1000, 1], "float32"), batch_size=1000)
"""


def test_twice_the_batch_needs_what_the_law_says(tmp_path: Path) -> None:
    script = str(written(tmp_path, LINEAR))
    own = answer_of(lowtide("predict", "--json", script))
    double = answer_of(lowtide("predict", "--json", "--batch", "2000", script))
    data = 1000 * 9 * 4  # NumPy's array may or may not be shared with TensorFlow: its alignment decides
    grown = double["requested_peak_bytes"] - own["requested_peak_bytes"]
    assert grown == pytest.approx(1000 * own["per_sample_bytes"], abs=2 * data)
    assert own["per_sample_bytes"] >= 9 * 4 + 6 * 64 * 4
    assert double["resident_bytes"] - own["resident_bytes"] == pytest.approx(data, abs=2 * data)


def test_train_on_batch(tmp_path: Path) -> None:
    answer = predicted(tmp_path, DENSE, "\nfor _ in range(3):\n    make_model().train_on_batch(x[:40], y[:40])\n")
    check(answer, 40, WEIGHTS)


GAN = """
    import keras
    import numpy as np
    import tensorflow as tf

    class Gan(keras.Model):
        def __init__(self):
            super().__init__()
            self.critic = keras.Sequential([keras.Input([64]), keras.layers.Dense(256, "tanh"), keras.layers.Dense(1)])
            dense = keras.layers.Dense
            self.generator = keras.Sequential([keras.Input([8]), dense(256, "relu"), dense(64)])

        def compile(self, critic_optimizer, generator_optimizer):
            super().compile()
            self.critic_optimizer, self.generator_optimizer = critic_optimizer, generator_optimizer

        def train_step(self, real):
            noise = tf.random.normal([tf.shape(real)[0], 8])
            with tf.GradientTape() as tape:
                fake = self.generator(noise, training=True)
                with tf.GradientTape() as inner:
                    inner.watch(fake)
                    score = self.critic(fake, training=True)
                slope = tf.norm(inner.gradient(score, fake), axis=1)
                loss = tf.reduce_mean(score) - tf.reduce_mean(self.critic(real)) + tf.reduce_mean((slope - 1.0) ** 2)
            weights = self.critic.trainable_variables
            self.critic_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            with tf.GradientTape() as tape:
                loss = -tf.reduce_mean(self.critic(self.generator(noise, training=True)))
            weights = self.generator.trainable_variables
            self.generator_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            return {"loss": loss}

    gan = Gan()
    gan.compile(keras.optimizers.Adam(), keras.optimizers.SGD())
    gan.fit(np.zeros([90, 64], "float32"), batch_size=30)
"""


def test_an_overridden_train_step_with_two_optimizers_and_nested_tapes(tmp_path: Path) -> None:
    answer = predicted(tmp_path, GAN)
    critic, generator = (64 * 256 + 256 + 256 + 1) * 4, (8 * 256 + 256 + 256 * 64 + 64) * 4
    check(answer, 30, critic + generator)
    assert 2 * critic <= answer["categories"]["optimizer state"] <= 2 * critic + 8192


CUSTOM = """
    import numpy as np
    import tensorflow as tf

    class Model(tf.Module):
        def __init__(self):
            self.first = tf.Variable(tf.ones([64, 512]))
            self.second = tf.Variable(tf.ones([512, 10]))

    model = Model()

    @tf.function
    def scale(x):  # no training here: it runs
        return x / 255.0

    @tf.function
    def train(x, y, rate=0.1, verbose=False):
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(tf.matmul(x, model.first))
            loss = tf.reduce_mean((tf.matmul(hidden, model.second) - y) ** 2)
        variables = model.trainable_variables
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(rate * gradient)
        return loss

    x, y = scale(tf.ones([240, 64])), np.zeros([240, 10], "float32")
    for _ in range(10):
        print(float(train(x, y, verbose=True)))
"""


def test_a_custom_loop_around_a_tf_function(tmp_path: Path) -> None:
    answer = predicted(tmp_path, CUSTOM)
    check(answer, 240, (64 * 512 + 512 * 10) * 4)
    lines = (tmp_path / "train.py").read_text().splitlines()
    hidden = [t for t in answer["tensors"] if t["size_bytes"] == 240 * 512 * 4 and t["category"] == "activations"]
    assert any("hidden =" in lines[t["line"] - 1] for t in hidden)


V1 = """
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    x, y = v1.placeholder(tf.float32, [None, 64]), v1.placeholder(tf.float32, [None, 10])
    first = v1.get_variable("first", [64, 512])
    second = v1.get_variable("second", [512, 10])
    loss = tf.reduce_mean((tf.matmul(tf.nn.relu(tf.matmul(x, first)), second) - y) ** 2)
    train = v1.train.AdamOptimizer().minimize(loss)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(10):
            session.run([train, loss], {x: np.zeros([24, 64]), y: np.zeros([24, 10])})
"""


def test_a_v1_graph_and_its_session(tmp_path: Path) -> None:
    answer = predicted(tmp_path, V1)
    weights = (64 * 512 + 512 * 10) * 4
    check(answer, 24, weights)
    assert 2 * weights <= answer["categories"]["optimizer state"] <= 2 * weights + 8192
    assert answer["per_sample_bytes"] > 0


def test_a_v1_session_is_refused_by_fit_before_anything_runs_in_a_budget(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(V1))
    for budget in ("70%", "3MiB"):
        done = lowtide("fit", "--budget", budget, str(script), cwd=tmp_path)
        assert done.returncode == 2, done.stderr[-600:]
        assert "trains with a v1 Session" in done.stderr.splitlines()[-1]


V1_SPLIT = """
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    x, w = v1.placeholder(tf.float32, [None, 64]), v1.get_variable("w", [64, 512])
    one, other = tf.split(tf.matmul(x, w), 2)
    train = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(one * other))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(train, {x: np.zeros([24, 64])})
"""


def test_a_step_that_only_some_batches_go_through_is_refused_for_another(tmp_path: Path) -> None:
    answer = predicted(tmp_path, V1_SPLIT)
    check(answer, 24, 64 * 512 * 4)
    assert answer["per_sample_bytes"] > 0
    refused = lowtide("predict", "--batch", "25", str(tmp_path / "train.py"))
    assert "cannot be traced for another" in one_line(refused, 2)


def test_a_step_compiled_by_xla_has_xlas_own_plan(tmp_path: Path) -> None:
    answer = predicted(tmp_path, DENSE, "\nmake_model(jit_compile=True).fit(x, y, batch_size=40)\n")
    check(answer, 40, WEIGHTS)
    assert answer["compiler"] == "xla"
    assert any(note["treatment"] == "compiled" for note in answer["unknown"])


CLASS_WEIGHTS = """
    classes = np.arange(200) % 10
    layers = [keras.layers.Dense(512, activation="relu"), keras.layers.Dense(10, activation="softmax")]
    model = keras.Sequential([keras.Input([64]), *layers])
    model.compile("adam", "sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
    data = tf.data.Dataset.from_tensor_slices((x, classes)).batch(40)
    model.fit(data, class_weight={label: 1.0 + label for label in range(10)})
"""


def test_class_weights(tmp_path: Path) -> None:
    answer = predicted(tmp_path, DENSE, CLASS_WEIGHTS)
    check(answer, 40, WEIGHTS)
    assert answer["unknown"] == []


V1_LOOP = """
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    x, w = v1.placeholder(tf.float32, [None, 64]), v1.get_variable("w", [64, 512])
    start = tf.reduce_max(x) + 64.0
    hidden = tf.while_loop(lambda n, h: n > 1.0, lambda n, h: (n * 0.5, tf.tanh(h)), [start, tf.matmul(x, w)])[1]
    train = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(hidden))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(train, {x: np.zeros([24, 64])})
"""


def test_a_v1_loop_that_the_data_ends_is_counted_as_one_trip_and_named(tmp_path: Path) -> None:
    answer = predicted(tmp_path, V1_LOOP)
    check(answer, 24, 64 * 512 * 4)
    notes = [note for note in answer["unknown"] if "While" in note["what"]]
    assert {note["treatment"] for note in notes} == {"assumed"}
    assert all("one trip" in note["why"] for note in notes)
    assert answer["step_bytes"] > 24 * 512 * 4


MIRRORED = """
    cpu, two = tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = make_model()
    model.fit(x, y, batch_size=40)
"""


def test_a_mirrored_model_is_predicted_for_one_of_its_devices_and_says_so(tmp_path: Path) -> None:
    answer = predicted(tmp_path, DENSE, MIRRORED)
    check(answer, 20, WEIGHTS)  # half of the batch, each weight once
    assert 2 * WEIGHTS <= answer["categories"]["optimizer state"] <= 2 * WEIGHTS + 8192
    (note,) = answer["unknown"]
    assert note["what"] == "2 devices"
    assert "CPU:0 alone" in note["why"]
    assert answer["per_sample_bytes"] > 0


def test_a_factory_and_a_saved_model_are_predicted_like_a_script(tmp_path: Path) -> None:
    script = written(tmp_path, DENSE)
    made = answer_of(lowtide("predict", "--json", "--batch", "16", f"{script}:make_model"))
    check(made, 16, WEIGHTS)
    layers = [keras.layers.Dense(512, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input([64]), *layers])
    model.compile("adam", "mse")
    model.save(tmp_path / "model.keras")
    saved = answer_of(lowtide("predict", "--json", "--batch", "16", str(tmp_path / "model.keras")))
    check(saved, 16, WEIGHTS)
    assert saved["requested_peak_bytes"] == pytest.approx(made["requested_peak_bytes"], rel=0.02)


def test_the_largest_batch_of_a_factory_and_a_name_that_it_lacks(tmp_path: Path) -> None:
    script = written(tmp_path, DENSE)
    done = lowtide("batch", "--budget", "32MiB", "--json", f"{script}:make_model")
    found = answer_of(done)
    assert found["budget_bytes"] == 32 << 20
    assert found["largest_batch"] * found["per_sample_bytes"] < 32 << 20
    assert found["largest_batch"] > 100
    assert "no function 'make_modle'; it has make_model" in one_line(lowtide("predict", f"{script}:make_modle"), 2)


def test_the_report_for_people(tmp_path: Path) -> None:
    done = lowtide("predict", str(written(tmp_path, DENSE, "make_model().fit(x, y, batch_size=20, verbose=0)\n")))
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "at the peak of a training step of train.py with batch 20" in done.stdout
    assert "wide" in done.stdout


# --- scripts without a step to predict ---


def test_a_script_that_never_trains(tmp_path: Path) -> None:
    done = lowtide("predict", str(written(tmp_path, DENSE, "\nmake_model().predict(x, verbose=0)\n")))
    assert "ended without a training step" in one_line(done, 2)


def test_a_script_that_fails_shows_its_own_traceback(tmp_path: Path) -> None:
    script = written(tmp_path, "def load():\n    return {}['images']\n\nload()\n")
    done = lowtide("predict", "--json", str(script))
    assert "failed before its first training step" in one_line(done, 1)
    assert "KeyError: 'images'" in done.stderr
    assert f'File "{script}", line 2, in load' in done.stderr
    assert "runpy" not in done.stderr
    assert "worker.py" not in done.stderr


CALLBACK_FAILS = """
class Fails(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise KeyError("images")

make_model().fit(x, y, batch_size=8, verbose=0, callbacks=[Fails()])
"""


def test_a_step_that_cannot_be_traced_fails_as_it_would_when_it_trains(tmp_path: Path) -> None:
    script = written(tmp_path, DENSE, "make_model().fit(x, y[:, :7], verbose=0)\n")
    done = lowtide("predict", str(script))
    assert one_line(done, 1) == f"lowtide: {script} failed before its first training step"
    assert "train.py" in done.stderr
    assert "ValueError" in done.stderr
    assert "lowtide/tf/" not in done.stderr


@pytest.mark.parametrize("command", [("fit", "--budget", "64MiB", "--seconds", "1"), ("run",)])
def test_a_script_that_fails_while_it_trains_shows_no_lines_but_its_own_and_its_libraries(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = lowtide(*command, str(written(tmp_path, DENSE, CALLBACK_FAILS)), cwd=tmp_path)
    assert done.returncode == 1
    assert "KeyError: 'images'" in done.stderr
    assert "in on_train_batch_end" in done.stderr
    assert str(Path(errors.__file__).parent) not in done.stderr


@pytest.mark.parametrize(("code", "ends"), [("3", 1), ("'no data'", 1), ("0", 2)])
def test_a_script_that_exits_before_training(tmp_path: Path, code: str, ends: int) -> None:
    done = lowtide("predict", str(written(tmp_path, f"import sys\nsys.exit({code})\n")))
    line = one_line(done, ends)
    assert "before a training step" in line
    assert ("no data" in done.stderr) == (code == "'no data'")


EAGER = """
    model = make_model()
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x[:8]) - y[:8]) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))
"""


def test_training_eagerly_names_the_line_that_updates(tmp_path: Path) -> None:
    script = written(tmp_path, DENSE, EAGER)
    line = one_line(lowtide("predict", str(script)), 2)
    number = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if "apply_gradients" in text)
    assert f"{script}:{number}: the script trains eagerly" in line
    assert "@tf.function" in line


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    path.write_bytes(b"not a zip")
    assert "not a saved Keras model" in one_line(lowtide("predict", str(path)), 2)


def test_a_model_that_is_frozen_whole_is_not_what_trains(tmp_path: Path) -> None:
    """In a GAN trained by `train_on_batch` the discriminator may be: what trains comes after it."""
    gan = """
        judge = make_model()
        judge.trainable = False
        forge = keras.Sequential([keras.Input([32]), keras.layers.Dense(64, name="forge"), judge])
        forge.compile("adam", "mse")
        judge.train_on_batch(x[:16], y[:16])
        forge.train_on_batch(np.zeros([16, 32], "float32"), y[:16])
    """
    answer = predicted(tmp_path, DENSE, gan)
    assert answer["categories"]["optimizer state"] >= 2 * 4 * (32 * 64 + 64)
    assert any("forge" in layer["layer"] for layer in answer["layers"])


def test_ragged_rows_are_tried_out_whole(tmp_path: Path) -> None:
    ragged = """
        import tensorflow as tf

        table = tf.Variable(tf.random.normal([500, 64]))

        @tf.function
        def step(ids, y):
            with tf.GradientTape() as tape:
                rows = tf.ragged.map_flat_values(tf.nn.embedding_lookup, table, ids)
                loss = tf.reduce_mean((tf.reduce_mean(rows, axis=1) - y) ** 2)
            table.assign_sub(tf.convert_to_tensor(tape.gradient(loss, table)))
            return loss

        ids = tf.ragged.range(tf.range(1, 33))
        step(ids, tf.ones([32, 64]))
    """
    assert predicted(tmp_path, ragged)["peak_bytes"] > 2 * 500 * 64 * 4


def test_a_function_that_goes_through_a_dataset_is_refused_with_the_way_out(tmp_path: Path) -> None:
    epoch = """
        import tensorflow as tf

        total = tf.Variable(0.0)

        @tf.function
        def epoch(dataset):
            for x in dataset:
                total.assign_add(tf.reduce_sum(x))

        epoch(tf.data.Dataset.from_tensor_slices(tf.ones([8, 4])).batch(2))
    """
    assert "'epoch' is given a dataset" in one_line(lowtide("predict", str(written(tmp_path, epoch))), 2)
