"""`lowtide.keras.MemoryCallback`: memory in the logs, progress bar and TensorBoard of `fit`; stops above a limit."""

from __future__ import annotations

import os
from typing import Any

import keras
import tensorflow as tf

from lowtide.record.host import ProcessMemory
from lowtide.tf.device import PeakSince
from lowtide.tf.measured import InProcess, count_cpu_bytes
from lowtide.tf.profile import counts_bytes
from lowtide.units import format_size, parse_size

MIB = 1 << 20


class _Scalars:
    """TensorBoard scalars by TensorFlow's own ops: unlike `tf.summary.scalar`, they do not need TensorBoard here."""

    def __init__(self, folder: str) -> None:
        self._writer = tf.raw_ops.SummaryWriter(shared_name=f"lowtide {folder}", container="")
        tf.raw_ops.CreateSummaryFileWriter(
            writer=self._writer, logdir=folder, max_queue=100, flush_millis=10_000, filename_suffix=".lowtide"
        )

    def write(self, step: int, scalars: dict[str, int]) -> None:
        for tag, value in scalars.items():
            tf.raw_ops.WriteScalarSummary(
                writer=self._writer, step=tf.constant(step, tf.int64), tag=tag, value=tf.constant(float(value))
            )

    def flush(self) -> None:
        tf.raw_ops.FlushSummaryWriter(writer=self._writer)


class MemoryCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
    """Adds memory to what Keras logs while it trains.

        model.fit(x, y, callbacks=[lowtide.keras.MemoryCallback(stop_above="8 GiB")])

    `device_mib` is what the device has in use after the batch, `device_peak_mib` the most since this `fit` began,
    `host_mib` the RSS of the process. `stop_above` ends training after the batch that exceeds it: by the device's peak
    where the device counts its bytes (a GPU does; a CPU with TF_CPU_ALLOCATOR_USE_BFC=1), else by RSS. `log_dir` gets
    TensorBoard scalars, `recording` a file for `lowtide report`.
    """

    def __init__(
        self,
        stop_above: str | int | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        recording: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        count_cpu_bytes()
        self._limit = None if stop_above is None else parse_size(stop_above)
        self._log_dir, self._file = log_dir, recording
        self._memory = ProcessMemory()
        self._writer: Any = None
        self._watching: InProcess | None = None
        self._batches = 0
        self._peak: PeakSince | None = None
        self.stopped_at: int | None = None
        """The bytes that ended training, when `stop_above` did."""

    def on_train_begin(self, logs: Any = None) -> None:
        self._peak = PeakSince() if counts_bytes() else None
        if self._log_dir is not None and self._writer is None:
            self._writer = _Scalars(os.fspath(self._log_dir))
        if self._file is not None:
            self._watching = InProcess(self._file)
            self._watching.start()
            self._watch_this_fit()

    def _watch_this_fit(self) -> None:
        """The train function was made before anyone watched; have it made again."""
        self.model.make_train_function(force=True)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._batches += 1
        found = self._measure()
        if logs is not None:
            logs.update({f"{name}_mib": size / MIB for name, size in found.items()})
        if self._writer is not None:
            self._writer.write(self._batches, {f"memory/{name}_bytes": size for name, size in found.items()})
        highest = found.get("device_peak", found["host"])
        if self._limit is not None and highest > self._limit and self.stopped_at is None:
            self.stopped_at = highest
            self.model.stop_training = True
            what = "the device's peak" if "device_peak" in found else "the process"
            limit, reached = format_size(self._limit), format_size(highest)
            print(f"\nlowtide: training stops: {what} is at {reached}, above {limit}", flush=True)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs.update({f"{name}_mib": size / MIB for name, size in self._measure().items()})

    def on_train_end(self, logs: Any = None) -> None:
        if self._writer is not None:
            self._writer.flush()
        if self._peak is not None:
            self._peak.close()
        if self._watching is not None:
            watching, self._watching = self._watching, None
            watching.stop()
            self.model.make_train_function(force=True)

    def _measure(self) -> dict[str, int]:
        found = {"host": self._memory.rss()}
        if self._peak is not None:
            found["device"], found["device_peak"] = self._peak.read()
        return found
