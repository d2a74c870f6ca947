"""What TensorFlow says of this machine, asked in a process of its own: a broken TensorFlow breaks nothing else.

`look()` starts `python -m lowtide.tf.look`, which prints one JSON object. On a GPU the child turns memory growth on
before it opens the device, so that looking takes next to nothing of its memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

SECONDS = 120


def look() -> dict[str, Any]:
    """`versions`, `devices` and `notes`; with `error`, one line, when TensorFlow could not be asked."""
    command = [sys.executable, "-m", "lowtide.tf.look"]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"TensorFlow did not answer within {SECONDS} s"}
    try:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, IndexError):
        return {"error": _last_words(done)}


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        return f"TensorFlow's process was ended by {signal.Signals(-done.returncode).name}"
    words = [line for line in done.stderr.splitlines() if line.strip()]
    return words[-1] if words else f"TensorFlow's process ended with {done.returncode}"


def main() -> None:
    """The child: import, look, print."""
    answer: dict[str, Any] = {}
    try:
        import keras
        import numpy
        import tensorflow as tf
    except Exception as error:  # noqa: BLE001  # whatever is wrong with it is what was asked
        answer["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
    else:
        answer["versions"] = {"tensorflow": tf.__version__, "keras": keras.__version__, "numpy": numpy.__version__}
        answer["backend"] = keras.backend.backend()
        build = tf.sysconfig.get_build_info()
        answer["built_for"] = {name: str(build[name]) for name in ("cuda_version", "cudnn_version") if build.get(name)}
        answer["devices"] = [_device(tf, device) for device in tf.config.list_physical_devices()]
    print(json.dumps(answer))


def _device(tf: Any, device: Any) -> dict[str, Any]:
    """A device, and whether its allocator keeps count: an uncounted CPU says zero whatever is on it."""
    found: dict[str, Any] = {"name": device.name.rpartition("physical_device:")[2], "kind": device.device_type}
    found["counts"] = False
    try:
        if device.device_type == "GPU":
            tf.config.experimental.set_memory_growth(device, True)
            found["model"] = str(tf.config.experimental.get_device_details(device).get("device_name", ""))
        with tf.device(found["name"]):
            kept = tf.zeros([1024])
        found["counts"] = tf.config.experimental.get_memory_info(found["name"])["current"] >= kept.dtype.size * 1024
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        if device.device_type == "GPU":
            found["trouble"] = str(error).splitlines()[0]
    return found


if __name__ == "__main__":
    main()
