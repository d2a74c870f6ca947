"""Memory where people already are: a with block, a Keras callback, pytest, a notebook."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from lowtide.jupyter import run_cell
from lowtide.record import load_recording
from lowtide.record.views import by_category
from lowtide.tf.child import CONTROLLED
from tests.tf.children import run_script

pytestmark = pytest.mark.tensorflow

MEASURE = """
    import json
    import lowtide
    import tensorflow as tf

    w = tf.Variable(tf.random.normal((256, 256)))
    x = tf.random.normal((1024, 256))

    @tf.function
    def step(x):
        return tf.reduce_sum(tf.tanh(x @ w))

    step(x)
    tf.config.experimental.reset_memory_stats("CPU:0")
    with lowtide.measure() as m:
        step(x)
        kept = tf.ones((1024, 1024))
    told = tf.config.experimental.get_memory_info("CPU:0")
    try:
        with lowtide.measure() as failed:
            raise KeyError("mine")
    except KeyError:
        pass
    try:
        with lowtide.measure():
            with lowtide.measure():
                pass
    except lowtide.LowtideError as error:
        nested = str(error)
    print(json.dumps({
        "peak": m.peak, "told": told["current"], "by_category": m.by_category, "host": m.host_peak,
        "timeline": [m.timeline.chunk_peak, len(m.timeline.buffers)], "table": str(m),
        "failed": failed.recording.outcome.exception, "nested": nested,
    }))
"""


def test_a_block_is_measured_to_the_byte() -> None:
    answer = run_script(MEASURE)
    assert answer["peak"] == sum(answer["by_category"].values()) == answer["timeline"][0]
    assert answer["peak"] >= answer["told"] >= 4 << 20
    assert answer["by_category"]["parameters"] >= 256 * 256 * 4
    assert answer["host"] > 100 << 20
    assert "device peak" in answer["table"]
    assert answer["failed"] == "KeyError"
    assert "inside another" in answer["nested"]


CALLBACK = """
    import json, sys
    import keras
    import numpy as np
    import lowtide.keras

    model = keras.Sequential([keras.Input([64]), keras.layers.Dense(512), keras.layers.Dense(10)])
    model.compile("adam", "mse")
    x, y = np.ones([320, 64], "float32"), np.ones([320, 10], "float32")
    watching = lowtide.keras.MemoryCallback(recording=sys.argv[1] + "/run.db", log_dir=sys.argv[1] + "/logs")
    history = model.fit(x, y, batch_size=32, epochs=2, verbose=2, callbacks=[watching]).history
    seen = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(dict(logs)))
    stopping = lowtide.keras.MemoryCallback(stop_above="100 KiB")
    model.fit(x, y, batch_size=32, epochs=5, verbose=0, callbacks=[stopping, count])
    print(json.dumps({"history": history, "seen": seen, "stopped": stopping.stopped_at}))
"""


def test_the_callback_logs_records_and_stops(tmp_path: Path) -> None:
    answer = run_script(CALLBACK, str(tmp_path))
    history, seen = answer["history"], answer["seen"]
    names = {"host_mib", "device_mib", "device_peak_mib"}
    assert names <= set(history)
    assert all(len(history[name]) == 2 for name in names)
    assert history["device_peak_mib"][-1] > history["device_mib"][-1] > 0.4  # weights and Adam's slots
    assert len(seen) == 1  # one batch, and no more
    assert names <= set(seen[0])
    assert answer["stopped"] > 100 << 10
    recording = load_recording(tmp_path / "run.db")
    assert [step.kind for step in recording.steps] == ["fit"] * 20
    assert recording.details
    assert all(sum(by_category(d).values()) == d.peak_bytes for d in recording.details)
    (events,) = (tmp_path / "logs").iterdir()
    assert b"memory/device_peak_bytes" in events.read_bytes()


BEFORE_FIT = """
    import json
    import keras
    import numpy as np
    import tensorflow as tf
    import lowtide.keras

    device = "CPU:0"
    big = tf.ones([1024, 1024, 16])
    del big
    told = [tf.config.experimental.get_memory_info(device)["peak"]]
    model = keras.Sequential([keras.Input([64]), keras.layers.Dense(10)])
    model.compile("adam", "mse")
    x, y = np.ones([320, 64], "float32"), np.ones([320, 10], "float32")
    watching = lowtide.keras.MemoryCallback(stop_above="32 MiB")
    history = model.fit(x, y, batch_size=32, epochs=2, verbose=0, callbacks=[watching]).history
    told.append(tf.config.experimental.get_memory_info(device)["peak"])
    tf.config.experimental.reset_memory_stats(device)
    told.append(tf.config.experimental.get_memory_info(device)["peak"])
    print(json.dumps({"history": history, "stopped": watching.stopped_at, "told": told}))
"""


def test_the_callback_counts_from_where_fit_began_and_the_script_is_told_its_own_peak() -> None:
    answer = run_script(BEFORE_FIT)
    assert answer["stopped"] is None, "what was freed before fit is not its own"
    assert max(answer["history"]["device_peak_mib"]) < 32
    before, after, since_reset = answer["told"]
    assert before >= 64 << 20
    assert after == before, "as if nobody had reset the peak"
    assert since_reset < 32 << 20


TESTS = """
    import numpy as np
    import pytest
    import tensorflow as tf

    kept = []

    @pytest.mark.peak_memory("1 MiB")
    def test_small():
        tf.ones((100, 100))

    @pytest.mark.peak_memory("1 MiB")
    def test_large():
        tf.ones((1024, 1024))  # large

    @pytest.mark.peak_memory("20 MiB")
    def test_array():
        assert np.ones((1024, 1024, 10)).sum() > 0

    @pytest.mark.peak_memory("60 MiB")
    def test_small_array():
        assert np.ones((1024, 1024)).sum() > 0

    @pytest.mark.no_leak(steps=5)
    def test_tidy():
        tf.ones((256, 256))

    @pytest.mark.no_leak(steps=5)
    def test_leaks():
        kept.append(tf.ones((256, 256)))  # leak

    def test_keeps_once():
        kept.append(None)
"""

LATE = """
    import pytest

    @pytest.mark.peak_memory("20 MiB")
    def test_late():
        import tensorflow as tf
        held = tf.ones((1024, 1024, 8))  # first op
        return None
"""


def run_tests(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "lowtide.pytest_plugin", "-p", "no:cacheprovider", "--lowtide"]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = {**os.environ, **quiet, **CONTROLLED}
    options = ["-W", "ignore", "--strict-markers", "--rootdir", str(file.parent), str(file)]
    return subprocess.run(
        [*command, *options], env=environment, cwd=file.parent, capture_output=True, text=True, check=False
    )


def test_a_test_that_opens_the_device_itself_has_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "test_memory.py"
    file.write_text(textwrap.dedent(LATE))
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "# first op" in text)
    said = run_tests(file).stdout
    assert "peak memory: limit 20.00 MiB, measured 32.00 MiB on the device" in said
    assert f"32.00 MiB  {file}:{line}" in said


def test_pytest_fails_with_limit_measure_and_lines(tmp_path: Path) -> None:
    file = tmp_path / "test_memory.py"
    file.write_text(textwrap.dedent(TESTS))
    lines = file.read_text().splitlines()
    large, leak = (next(n for n, text in enumerate(lines, 1) if mark in text) for mark in ("# large", "# leak"))
    done = run_tests(file)
    said = done.stdout
    assert done.returncode == 1, done.stdout + done.stderr
    assert "3 failed, 4 passed" in said
    array = re.search(r"peak memory: limit 20.00 MiB, measured ([0-9.]+) MiB of the process", said)
    assert array, "an array is the process's, whatever ran before"
    assert 76 < float(array[1]) < 110
    assert "peak memory: limit 1.00 MiB, measured 4.00 MiB" in said
    assert f"test_memory.py:{large}" in said
    assert "memory leak: limit 4.00 KiB a step, measured 256.0 KiB a step on the device, over 5 steps" in said
    assert f"test_memory.py:{leak}" in said
    assert "tests that need most memory" in said


def test_a_notebook_cell_is_measured_and_drawn() -> None:
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    shell: Any = interactive.InteractiveShell.instance()
    shell.run_line_magic("load_ext", "lowtide.jupyter")
    shown = run_cell(shell, "", "import tensorflow as tf\nheld = tf.ones((10, 10))")
    assert "held" in shell.user_ns
    assert "host peak" in shown._repr_html_()
    assert "host peak" in repr(shown)
    with pytest.raises(ZeroDivisionError):
        shell.run_cell_magic("lowtide", "", "1 / 0")
    interactive.InteractiveShell.clear_instance()


CELL = """
    import json
    from IPython.core.interactiveshell import InteractiveShell
    from lowtide.jupyter import run_cell
    from lowtide.record.views import by_line, fullest_detail

    shell = InteractiveShell.instance()
    shown = run_cell(shell, "", "import tensorflow as tf\\na = tf.ones((1024, 1024))\\nb = a * 2")
    recording = shown.measured.recording
    lines = [(s.file, s.line) for s in by_line(fullest_detail(recording)) if s]
    print(json.dumps({"lines": lines, "texts": list(recording.sources.values())}))
"""


def test_the_lines_of_a_cell_are_named() -> None:
    pytest.importorskip("IPython")
    answer = run_script(CELL)
    assert sorted(line for _, line in answer["lines"]) == [2, 3]
    assert {file.partition("-")[0] for file, _ in answer["lines"]} == {"<ipython"}
    assert any("b = a * 2" in text for text in answer["texts"])
