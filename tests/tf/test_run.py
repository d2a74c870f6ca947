"""`lowtide run` on real scripts and the real allocator: every way to run TensorFlow, and every way to end."""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lowtide.diagnose import diagnose
from lowtide.record import Detail, Recording, load_recording
from lowtide.record.views import (
    by_category,
    by_layer,
    by_line,
    device_peak,
    fullest_detail,
    growth,
    host_peak,
    main_kind,
    main_steps,
)
from tests.tf.children import lowtide

pytestmark = pytest.mark.tensorflow


class Ran(NamedTuple):
    done: subprocess.CompletedProcess[str]
    recording: Recording
    script: Path

    def line(self, code: str) -> int:
        """The number of the one line of the script that has this in it."""
        (found,) = [n for n, text in enumerate(self.script.read_text().splitlines(), 1) if code in text]
        return found

    def said(self) -> Any:
        """The JSON that the script printed last."""
        return json.loads(self.done.stdout.splitlines()[-1])


def run(folder: Path, script: str, *arguments: str, options: tuple[str, ...] = ()) -> Ran:
    path = folder / "train.py"
    path.write_text(textwrap.dedent(script))
    out = folder / "run.db"
    done = lowtide("run", "--out", str(out), *options, str(path), *arguments, cwd=folder)
    assert out.exists(), done.stderr
    return Ran(done, load_recording(out), path)


def check_sums(recording: Recording) -> None:
    """What every detailed step must keep: its parts are the whole, to the byte, and no more than the run's peak."""
    assert recording.details
    peak = device_peak(recording)
    assert peak is not None
    for detail in recording.details:
        assert sum(by_category(detail).values()) == detail.peak_bytes <= peak.bytes
        assert sum(by_category(detail, 0).values()) == detail.begin_bytes
        assert sum(by_category(detail, len(detail.times) - 1).values()) == detail.end_bytes
        assert all(a.chunk_bytes >= a.requested_bytes for a in detail.allocations)
        nameless = sum(a.chunk_bytes for a in detail.at_peak if detail.sites[a.site].op == "held by TensorFlow")
        assert nameless <= 0.1 * detail.peak_bytes + 64 * 1024


def requested(detail: Detail, category: str) -> int:
    """Bytes alive at the peak as they were asked for: chunks are larger by what the allocator happens to have."""
    return sum(a.requested_bytes for a in detail.at_peak if a.category == category)


def details_of(recording: Recording, kind: str, reason: str) -> list[Detail]:
    return [d for d in recording.details if recording.steps[d.step].kind == kind and d.reason == reason]


# --- custom loops: compiled, eager, inference ---

LOOPS = """
    import json
    import tensorflow as tf

    weights = [tf.Variable(tf.random.normal((256, 256)), name=f"w{i}") for i in range(3)]
    x = tf.random.normal((512, 256))
    kept = []

    def loss_of(x):
        for w in weights:
            x = tf.tanh(x @ w)  # forward
        return tf.reduce_mean(x * x)

    @tf.function
    def compiled(x):
        with tf.GradientTape() as tape:
            loss = loss_of(x)
        for v, g in zip(weights, tape.gradient(loss, weights)):
            v.assign_sub(0.01 * g)
        return loss

    def eager(x):
        with tf.GradientTape() as tape:  # eager tape
            loss = loss_of(x)
        for v, g in zip(weights, tape.gradient(loss, weights)):
            v.assign_sub(0.01 * g)
        kept.append(tf.ones((1024, 1024)))  # leak
        return loss

    peaks = []
    for _ in range(8):
        tf.config.experimental.reset_memory_stats("CPU:0")
        compiled(x)
        peaks.append(tf.config.experimental.get_memory_info("CPU:0")["peak"])
    for _ in range(8):
        eager(x)
    infer = tf.function(lambda x: loss_of(x), input_signature=[tf.TensorSpec([None, 256])])
    for _ in range(12):
        infer(x)
    infer(tf.ones((16384, 256)))  # once
    print(json.dumps(peaks))
"""


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    ran = run(tmp_path_factory.mktemp("loops"), LOOPS)
    assert ran.done.returncode == 0, ran.done.stderr
    return ran


def test_compiled_eager_and_inference_steps_are_told_apart(loops: Ran) -> None:
    kinds = [step.kind for step in loops.recording.steps]
    assert kinds.count("function") == 8
    assert kinds.count("gradient") == 8
    assert kinds.count("call") == 13
    assert main_kind(loops.recording) == "function"
    assert loops.recording.outcome.how == "done"
    assert loops.recording.notes == ()


def test_what_a_detailed_step_is_made_of_sums_to_what_the_allocator_says(loops: Ran) -> None:
    check_sums(loops.recording)


def test_the_peak_of_a_detailed_step_is_the_peak_that_the_script_is_told(loops: Ran) -> None:
    """The script asks TensorFlow itself; that Lowtide resets the same counter does not show."""
    told = loops.said()
    numbers = [number for number, _ in main_steps(loops.recording)]
    warm = details_of(loops.recording, "function", "after warm-up")
    assert len(warm) == 2
    for detail in warm:
        assert detail.peak_bytes == told[numbers.index(detail.step)]
    steps = [step.device_peak_bytes for _, step in main_steps(loops.recording)]
    assert steps == told


def test_a_high_that_comes_once_is_caught(loops: Ran) -> None:
    """No new trace, and no second chance: the function takes any number of rows, and is given more than ever."""
    peak = device_peak(loops.recording)
    assert peak is not None
    assert peak.detail is not None
    assert peak.detail.peak_bytes == peak.bytes
    assert max(a.requested_bytes for a in peak.detail.at_peak) >= 16384 * 256 * 4


def test_a_compiled_steps_buffers_have_categories_ops_and_lines(loops: Ran) -> None:
    detail = details_of(loops.recording, "function", "after warm-up")[0]
    assert requested(detail, "parameters") == 3 * 256 * 256 * 4
    assert 512 * 256 * 4 <= requested(detail, "inputs") <= 512 * 256 * 4 + 1024
    assert requested(detail, "activations") >= 2 * 512 * 256 * 4
    forward = [detail.sites[a.site] for a in detail.allocations if a.category == "activations"]
    assert {site.source.line for site in forward if site.source} >= {loops.line("# forward")}
    assert {site.mode for site in forward} == {"graph"}
    assert {site.op for site in (detail.sites[a.site] for a in detail.at_peak)} >= {"w0", "w1", "w2"}


def test_eager_ops_have_lines_and_what_the_tape_keeps_is_activations(loops: Ran) -> None:
    detail = details_of(loops.recording, "gradient", "new high")[-1]
    eager = [(a, detail.sites[a.site]) for a in detail.allocations if a.start and detail.sites[a.site].mode == "eager"]
    kept = [site for a, site in eager if a.category == "activations" and site.kind == "Tanh"]
    assert len(kept) == 3
    assert {site.source.line for site in kept if site.source} == {loops.line("# forward")}


def test_the_census_is_taken_before_atexit_and_leaves_out_what_is_on_disk(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        """
        import atexit
        import numpy as np
        import tensorflow as tf

        held = [tf.ones((512, 1024)) for _ in range(5)]
        atexit.register(held.clear)
        mapped = np.memmap("rows.bin", "float32", "w+", shape=(4096, 1024))
        """,
    )
    assert ran.done.returncode == 0
    last = max(row.time for row in ran.recording.census)
    rows = [row for row in ran.recording.census if row.time == last]
    assert [(row.kind, row.objects) for row in rows if row.example == "float32 (512, 1024)"] == [("tensor", 5)]
    assert not [row for row in rows if row.kind == "array"]


def test_what_the_script_keeps_is_in_the_census_with_its_line_and_its_holder(loops: Ran) -> None:
    last = max(row.time for row in loops.recording.census)
    (row,) = [r for r in loops.recording.census if r.time == last and r.example == "float32 (1024, 1024)"]
    assert (row.kind, row.objects, row.bytes) == ("tensor", 8, 8 * 4 << 20)
    assert "kept (list of 8, global of train.py)" in row.holder
    assert row.held_at is not None
    assert row.held_at.line == loops.line("# leak")
    assert row.made == row.held_at


def test_tapes_and_traces_are_counted_where_they_are_made(loops: Ran) -> None:
    (tape,) = loops.recording.tapes
    assert tape.source is not None
    assert tape.source.line == loops.line("# eager tape")
    assert (tape.made, tape.gradients, tape.gradients_inside, tape.persistent) == (8, 8, 0, False)
    assert loops.recording.traces[0].function == "compiled"
    assert all(trace.cause == "first call" for trace in loops.recording.traces)


def test_the_summary_fits_a_screen_and_says_where_the_peak_was(loops: Ran) -> None:
    lines = loops.done.stderr.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("train.py ran for"))
    assert max(len(line.rstrip()) for line in lines[start:]) <= 80
    text = "\n".join(lines[start:])
    for words in ("device peak", "host peak", "reserved", "growth", "by category", "by layer", "by line", "Next"):
        assert words in text
    assert "Traceback" not in loops.done.stderr


# --- Keras, with all that a script may do besides ---

KERAS = """
    import multiprocessing, sys

    import keras
    import numpy as np
    import tensorflow as tf

    import helper

    def square(x):
        return x * x

    def main():
        assert sys.argv == [__file__, "--epochs", "2", "--out", "x"], sys.argv
        model = keras.Sequential([
            keras.Input([64]),
            keras.layers.Dense(512, activation="relu"),  # wide
            keras.layers.Dense(10),  # narrow
        ])
        model.compile("adam", "mse")
        x, y = np.ones([320, 64], "float32"), np.ones([320, 10], "float32")
        data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(320).batch(32).prefetch(2)  # data
        model.fit(data, epochs=2, verbose=0)  # fit
        model.evaluate(data, verbose=0)
        model.predict(x, batch_size=32, verbose=0)
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                assert pool.map(square, [1, 2, 3]) == [1, 4, 9]
        print(helper.WORDS)
        sys.exit(0)

    if __name__ == "__main__":
        main()
"""


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("keras")
    (folder / "helper.py").write_text("WORDS = 'to standard output'")
    return run(folder, KERAS, "--epochs", "2", "--out", "x")


def test_a_script_has_its_own_arguments_guard_processes_imports_and_exit(fitted: Ran) -> None:
    assert fitted.done.returncode == 0, fitted.done.stderr
    assert fitted.done.stdout == "to standard output\n"
    assert fitted.recording.outcome.exit_code == 0
    assert fitted.recording.notes == ()


def test_keras_steps_are_counted_by_what_they_are_for(fitted: Ran) -> None:
    kinds = [step.kind for step in fitted.recording.steps]
    assert [kinds.count(kind) for kind in ("fit", "evaluate", "predict")] == [20, 10, 10]
    lines = {step.source.line for step in fitted.recording.steps if step.kind == "fit" and step.source}
    assert lines == {fitted.line("# fit")}


def test_a_keras_step_has_its_layers_and_optimizer(fitted: Ran) -> None:
    check_sums(fitted.recording)
    detail = details_of(fitted.recording, "fit", "after warm-up")[0]
    weights = (64 * 512 + 512 + 512 * 10 + 10) * 4
    assert weights <= requested(detail, "parameters") <= weights + 1024
    assert 2 * weights <= requested(detail, "optimizer state") <= 2 * weights + 1024
    slots = {detail.sites[a.site].source for a in detail.allocations if a.category == "optimizer state"}
    assert {source and source.line for source in slots} == {fitted.line("model.compile(")}
    assert set(by_layer(detail)) - {""} == {"dense", "dense_1"}
    for layer, name in (("dense", "wide"), ("dense_1", "narrow")):
        sites = [site for site in detail.sites if site.layer == layer]
        assert {site.source.line for site in sites if site.source} == {fitted.line(f"# {name}")}
    kept = [a for a in detail.allocations if a.category == "activations" and a.requested_bytes == 32 * 512 * 4]
    assert {detail.sites[a.site].layer for a in kept} == {"dense"}  # TensorFlow's name for its scope is dense_1


def test_ops_have_the_names_that_they_were_traced_with(fitted: Ran) -> None:
    names = [site.op for detail in fitted.recording.details for site in detail.sites]
    assert not [name for name in names if "PartitionedCall/" in name]


def test_pipeline_stages_have_bytes_and_lines(fitted: Ran) -> None:
    assert {data.what for data in fitted.recording.data} == set()  # too small to tell of
    lines = {stage.source.line for stage in fitted.recording.stages if stage.source is not None}
    assert lines <= {fitted.line("# data"), fitted.line("model.predict(")}  # whichever were seen while they ran


def test_what_rss_is_made_of_sums_to_it(fitted: Ran) -> None:
    assert fitted.recording.splits
    for split in fitted.recording.splits:
        assert sum(split.parts.values()) == split.rss_bytes
    inside = [sample for sample in fitted.recording.samples if sample.by == "inside"]
    assert {sample.traces for sample in inside if sample.traces} != set()
    peak = host_peak(fitted.recording)
    assert peak is not None
    assert peak.rss_bytes is not None


# --- v1 ---

SESSION = """
    import numpy as np
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    x = tf.placeholder(tf.float32, [None, 64])
    w = tf.get_variable("w", [64, 2048])
    loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, w))))  # forward
    train = tf.train.AdamOptimizer().minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        size = len(session.graph.get_operations())
        for _ in range(6):
            session.run(train, {x: np.ones([128, 64], "float32")})
        assert len(session.graph.get_operations()) == size
"""


def test_a_script_may_set_threads_and_divide_devices_before_it_computes(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        """
        import tensorflow as tf

        tf.config.threading.set_inter_op_parallelism_threads(2)
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        print(tf.function(lambda x: x + 1)(tf.ones(3)).numpy().tolist())
        """,
    )
    assert ran.done.returncode == 0, ran.done.stderr
    assert ran.said() == [2.0, 2.0, 2.0]
    assert [device.name for device in ran.recording.run.machine.devices] == ["CPU:0"]
    assert ran.recording.details


def test_a_large_graph_is_made_ready_before_its_first_step_is_recorded_and_runs_no_more_often(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        """
        import tensorflow as tf

        calls = tf.Variable(0)

        @tf.function
        def step(x):
            calls.assign_add(1)
            for _ in range(600):
                x = tf.tanh(x) + 1.0
            return x

        for _ in range(3):
            step(tf.ones([64, 64]))
        print(int(calls))
        """,
    )
    assert ran.said() == 3
    check_sums(ran.recording)
    first = ran.recording.details[0]
    assert first.reason == "first call"
    assert {site.kind for site in first.sites} >= {"Tanh"}
    assert [trace.function for trace in ran.recording.traces] == ["step"]


STEPLESS = """
    import keras
    import tensorflow as tf

    recalls = [keras.metrics.Recall(thresholds=0.5),
               keras.metrics.Recall(thresholds=[0.1, 0.7, 0.8])]

    def attend(q, k, bias):
        scores = tf.matmul(q, k, transpose_b=True)
        bias = tf.tile(bias, [1, 8, 1, 1])
        return tf.nn.softmax(scores + bias)

    bias = tf.zeros([4, 1, 768, 768])
    for _ in range(20):
        q = tf.random.normal([4, 8, 768, 32])
        attend(q, q, bias)
        for recall in recalls:
            recall.update_state(tf.ones([4096]), tf.ones([4096]))
"""


def test_eager_code_without_steps_is_recorded_in_full_for_a_moment(tmp_path: Path) -> None:
    ran = run(tmp_path, STEPLESS)
    assert ran.done.returncode == 0, ran.done.stderr
    assert {step.kind for step in ran.recording.steps} == {"stretch"}
    check_sums(ran.recording)
    peak = device_peak(ran.recording)
    assert peak is not None
    assert peak.detail is not None, "what the run's peak was made of"
    lines = {site.source.line for site in peak.detail.sites if site.source}
    assert {ran.line("tf.matmul"), ran.line("tf.tile"), ran.line("softmax")} <= lines
    assert {ran.line("thresholds=0.5"), ran.line("thresholds=[")} <= lines, "each metric has the line that made it"
    first = diagnose(ran.recording)[0]
    assert (first.id, first.source and first.source.line) == ("copies-written-out", ran.line("tf.tile"))


ONCE = """
    import numpy as np
    import tensorflow as tf

    def make():
        return tf.random.uniform((1024, 1024, 48))  # made once

    data = tf.constant(np.ones((1024, 1024), "float32"))  # converted
    big = make()
    kept = [big * 2.0]  # kept
    for _ in range(5):
        print(float(tf.reduce_max(big)))
"""


def test_what_eager_code_makes_once_and_holds_has_its_line_and_is_no_input(tmp_path: Path) -> None:
    ran = run(tmp_path, ONCE)
    assert ran.done.returncode == 0, ran.done.stderr
    detail = fullest_detail(ran.recording)
    assert detail is not None
    sizes = by_line(detail)
    lines = {source.line: size for source, size in sizes.items() if source is not None}
    assert lines[ran.line("# made once")] >= 192 << 20
    assert lines[ran.line("# kept")] >= 192 << 20
    assert lines[ran.line("# converted")] >= 4 << 20
    assert sizes.get(None, 0) < 1 << 20
    categories = by_category(detail)
    assert categories["activations"] == 0
    assert categories["other"] >= 384 << 20
    assert 4 << 20 <= categories["inputs"] < 8 << 20, "an array that became a tensor"
    made = {row.made.line for row in ran.recording.census if row.made}
    assert made >= {ran.line("# made once"), ran.line("# kept"), ran.line("# converted")}


def test_a_session_is_recorded_and_its_graph_left_alone(tmp_path: Path) -> None:
    ran = run(tmp_path, SESSION)
    assert ran.done.returncode == 0, ran.done.stderr
    assert main_kind(ran.recording) == "session"
    assert len(main_steps(ran.recording)) == 6
    check_sums(ran.recording)
    detail = details_of(ran.recording, "session", "after warm-up")[0]
    assert requested(detail, "parameters") == 64 * 2048 * 4
    assert requested(detail, "optimizer state") == 2 * 64 * 2048 * 4 + 8
    activations = [detail.sites[a.site] for a in detail.allocations if a.category == "activations"]
    assert {site.source.line for site in activations if site.source} == {ran.line("# forward")}


def test_a_session_that_traces_its_runs_has_tensorflows_profiler_to_itself(tmp_path: Path) -> None:
    asked = "options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=traced"
    ran = run(
        tmp_path,
        SESSION.replace("for _ in range(6):", "for _ in range(6):\n            traced = tf.RunMetadata()").replace(
            '"float32")})', f'"float32")}}, {asked})\n            assert traced.step_stats.dev_stats'
        ),
    )
    assert ran.done.returncode == 0, ran.done.stderr
    assert len(main_steps(ran.recording)) == 6
    assert not details_of(ran.recording, "session", "after warm-up")


def test_a_graph_that_grows_has_the_line_that_adds_to_it_or_imports_into_it(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        """
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
        with tf.Graph().as_default() as frozen:
            tf.constant([1.0], name="answer")

        def load():
            return tf.import_graph_def(frozen.as_graph_def(), return_elements=["answer:0"])[0]

        with tf.Session() as session:
            for _ in range(3):
                answer = load()  # imports
                session.run(answer)
            for _ in range(2):
                answer = tf.constant([2.0])  # adds
                session.run(answer)
        """,
    )
    assert ran.done.returncode == 0, ran.done.stderr
    grew = [trace.called for trace in ran.recording.traces if trace.cause.startswith("the graph grew")]
    assert [line.line for line in grew if line] == [ran.line("# imports")] * 2 + [ran.line("# adds")] * 2


# --- the ways to end ---

DIES = """
    import os, signal
    import tensorflow as tf

    w = tf.Variable(tf.random.normal((512, 512)))
    x = tf.random.normal((256, 512))

    def die(x):
        if len(seen) == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append(1)
        return x

    seen = []

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.tanh(x @ w))
        gradient = tf.py_function(die, [tape.gradient(loss, w)], tf.float32)
        w.assign_sub(gradient)

    while True:
        step(x)
"""


def test_a_child_killed_in_the_middle_of_a_step_leaves_a_recording_that_reports(tmp_path: Path) -> None:
    ran = run(tmp_path, DIES)
    assert ran.done.returncode == 1
    outcome = ran.recording.outcome
    assert (outcome.how, outcome.signal, outcome.exit_code) == ("signal", "SIGKILL", None)
    assert ran.recording.samples[-1].time <= outcome.seconds
    assert "was ended by SIGKILL" in ran.done.stderr
    again = lowtide("report", str(tmp_path / "run.db"))
    assert again.returncode == 0, again.stderr
    assert "SIGKILL" in again.stdout


OUT_OF_MEMORY = """
    import os
    os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = "200"
    import tensorflow as tf

    kept = []
    for _ in range(50):
        kept.append(tf.ones((1024, 1024, 8)))  # too much
"""


def test_an_allocation_that_is_refused_is_told_with_its_size_and_line(tmp_path: Path) -> None:
    ran = run(tmp_path, OUT_OF_MEMORY)
    assert ran.done.returncode == 1
    outcome = ran.recording.outcome
    assert outcome.exception == "ResourceExhaustedError"
    assert outcome.out_of_memory
    assert outcome.refusal is not None
    assert outcome.refusal.requested_bytes == 1024 * 1024 * 8 * 4
    assert outcome.source is not None
    assert outcome.source.line == ran.line("# too much")
    assert "ResourceExhaustedError" in ran.done.stderr
    assert "lowtide/tf" not in ran.done.stderr


CAUGHT = """
    import os
    os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = "200"
    import tensorflow as tf

    rows = 32768
    while True:
        try:
            x = tf.ones((rows, 1024))
            y = x * 2.0  # too much
            break
        except tf.errors.ResourceExhaustedError:
            rows //= 4
    print(rows)
"""


def test_a_refusal_that_the_script_catches_is_a_finding_and_no_death(tmp_path: Path) -> None:
    ran = run(tmp_path, CAUGHT)
    outcome = ran.recording.outcome
    assert ran.done.returncode == 0
    assert (outcome.how, outcome.out_of_memory, ran.done.stdout.split()[-1]) == ("done", False, "8192")
    assert outcome.refusal is not None and outcome.refusal.time is not None
    first = diagnose(ran.recording)[0]
    assert first.id == "out-of-memory" and first.source is not None
    assert first.source.line == ran.line("# too much")
    assert first.title.startswith("128.0 MiB (float32 (32768, 1024) Mul) was asked for and refused while 128.0 MiB")
    assert "float32 (32768, 1024) in x (global of train.py)" in first.holder


def test_growth_is_seen_from_step_to_step(loops: Ran) -> None:
    eager = [step for step in loops.recording.steps if step.kind == "gradient"]
    alone = Recording(loops.recording.run, loops.recording.outcome, steps=tuple(eager))
    found = growth(alone, lambda step: step.device_bytes)
    assert found is not None
    assert found.bytes_per_step == pytest.approx(4 << 20, rel=0.05)


def test_what_puts_the_cpu_on_the_counting_allocator_is_not_seen_by_subprocesses(tmp_path: Path) -> None:
    script = """
        import json, subprocess, sys

        NAMES = ("TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB")
        LOOK = f"import os; print([name for name in {NAMES} if name in os.environ])"

        def seen():
            return subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True).stdout.strip()

        before = seen()
        import tensorflow as tf

        held = tf.ones(1000)
        print(json.dumps([before, seen(), tf.config.experimental.get_memory_info("CPU:0")["current"] > 0]))
    """
    ran = run(tmp_path, script)
    assert ran.said() == ["[]", "[]", True]
    (device,) = ran.recording.run.machine.devices
    assert device.allocator == "bfc"
    assert device.limit_bytes


def test_a_variable_that_the_user_has_set_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPU_BFC_MEM_LIMIT_IN_MB", "500")
    script = """
        import json, os
        import tensorflow as tf

        held = tf.ones(1000)
        print(json.dumps([name in os.environ for name in ("TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB")]))
    """
    assert run(tmp_path, script).said() == [False, True]


ASIDE = """
    import keras, numpy as np, tensorflow as tf

    class Attention(keras.layers.Layer):
        def call(self, x):
            return self.attend(x)
        def attend(self, x):
            scores = tf.matmul(x, x, transpose_b=True)
            return tf.matmul(scores, x)

    def shards(number):
        ready = [np.ones(1 << 18) for _ in range(number)]
        for shard in ready:
            yield shard

    net = keras.Sequential([keras.Input((512, 8)), Attention()])
    one, other = tf.Variable(tf.ones((64, 64))), tf.Variable(tf.ones((64, 64)))
    for shard in shards(12):
        net(tf.ones((1, 512, 8)))
        with tf.GradientTape(persistent=True) as tape:
            y = tf.reduce_sum(one @ other)
        tape.gradient(y, one), tape.gradient(y, other), tape.gradient(y, other)
    """


def test_lines_of_helpers_tapes_asked_twice_and_generators_that_wait_are_seen(tmp_path: Path) -> None:
    ran = run(tmp_path, ASIDE)
    scores = [
        detail.sites[a.site] for detail in ran.recording.details for a in detail.allocations
        if a.start and a.requested_bytes == 512 * 512 * 4
    ]  # fmt: skip
    assert {site.source.line for site in scores if site.source} == {ran.line("scores = tf.matmul")}
    (tape,) = ran.recording.tapes
    assert (tape.watched, tape.used) == (2, 2), "a persistent tape gives each its gradient in a call of its own"
    holders = {row.holder for row in ran.recording.census if row.kind == "array" and row.objects > 6}
    assert holders == {"ready (list of 12, local of shards)"}
