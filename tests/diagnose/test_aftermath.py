"""How a run ended: killed, or refused memory and going on."""

from __future__ import annotations

from dataclasses import replace

from lowtide.diagnose import diagnose
from lowtide.record import Outcome, Refusal
from tests.diagnose.examples import LIST, LOOP, MIB, at, census, held, recording


def test_a_kill_is_put_down_to_the_leak_that_filled_the_process() -> None:
    rows = census(held("array", LIST, 20, 400, 3))
    killed = Outcome("signal", 21.0, None, "SIGKILL", out_of_memory=True, why="100 MiB were available")
    found = diagnose(replace(recording(LOOP, host=20, census=rows), outcome=killed))
    assert [f.id for f in found] == ["out-of-memory", "arrays-kept"]
    assert found[0].source == at(4)
    assert found[0].fix.startswith("ending arrays-kept at line 4 saves 360.0 MiB")
    assert found[0].holder == f"400.0 MiB of arrays float32 (256, 1024) in {LIST}"


def test_what_a_script_caught_is_told_as_it_was_then() -> None:
    run = recording("while True:\n    try:\n        f(batch)\n    except OOM:\n        batch //= 2\n")
    refusal = Refusal(512 * MIB, "(128, 1024, 1024)", "float32", "Mul", "CPU:0", at(3), 5.0)
    then = held("tensor", "batch (global of train.py)", 1, 256)._replace(time=5.1)
    later = held("tensor", "small (global of train.py)", 1, 900)
    sizes = [10 if s.time < 5 else 300 if s.time == 5 else 310 for s in run.samples]
    samples = tuple(s._replace(device_peak_bytes=n * MIB) for s, n in zip(run.samples, sizes, strict=True))
    went_on = replace(
        run, outcome=Outcome("done", 21.0, 0, refusal=refusal), samples=samples, census=(then, later)
    )
    (found,) = diagnose(went_on)
    assert (found.id, found.source, found.bytes) == ("out-of-memory", at(3), 300 * MIB)
    assert found.title.endswith("while 300.0 MiB were in use; the script went on")
    assert found.holder == "256.0 MiB of tensors float32 (256, 1024) in batch (global of train.py)"


def test_no_change_helps_against_a_request_that_is_more_than_there_is() -> None:
    run = recording("x = tf.ones((1 << 20, 1 << 16))\n")
    refusal = Refusal(run.run.machine.memory_bytes + MIB, "(1048576, 65536)", "float32", "Fill", "CPU:0", at(1), 5.0)
    (found,) = diagnose(replace(run, outcome=Outcome("exception", 6.0, 1, out_of_memory=True, refusal=refusal)))
    assert found.fix.startswith("what this line asks for is by itself more than the")
    assert found.saving_bytes == refusal.requested_bytes
