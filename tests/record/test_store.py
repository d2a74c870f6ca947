"""A recording's file: what was written comes back, whatever became of the writer; what is no recording is told so."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from lowtide.errors import BadFile
from lowtide.record import (
    Outcome,
    Recording,
    Sample,
    Writer,
    create_recording,
    finish_recording,
    is_recording,
    load_recording,
)
from lowtide.record.rows import TABLES
from lowtide.record.types import INSIDE
from tests.report.recordings import RECORDINGS, a_recording, a_run

ROOT = Path(__file__).resolve().parents[2]


def written(recording: Recording, file: Path) -> Path:
    """The recording in a file, as a run would have left it."""
    create_recording(file, recording.run)
    writer = Writer(file)
    for name in TABLES:
        writer.add(getattr(recording, name))
    for detail in recording.details:
        writer.add_detail(detail)
    for source, text in recording.sources.items():
        writer.source(source, text)
    for note in recording.notes:
        writer.note(note)
    writer.outcome(recording.outcome)
    writer.close()
    finish_recording(file)
    return file


def refused(file: Path) -> str:
    with pytest.raises(BadFile) as raised:
        load_recording(file)
    message = str(raised.value)
    assert str(file) in message
    assert "\n" not in message
    assert raised.value.exit_code == 2
    return message


def test_the_sample_recordings_fill_every_table() -> None:
    recordings = list(RECORDINGS.values())
    assert all(any(getattr(r, name) for r in recordings) for name in TABLES)
    assert any(recording.details for recording in recordings)


@pytest.mark.parametrize("name", RECORDINGS)
def test_what_was_written_comes_back(name: str, tmp_path: Path) -> None:
    recording = RECORDINGS[name]
    recording = replace(recording, samples=tuple(sorted(recording.samples, key=lambda sample: sample.time)))
    back = load_recording(written(recording, tmp_path / "run.db"))
    for part in (*TABLES, "run", "outcome", "sources", "notes"):
        assert getattr(back, part) == getattr(recording, part), part
    for before, after in zip(recording.details, back.details, strict=True):
        assert replace(after, times=before.times) == before
        assert after.times == pytest.approx(before.times, abs=1e-6)


def test_a_finished_recording_is_one_file(tmp_path: Path) -> None:
    written(a_recording(), tmp_path / "run.db")
    assert [path.name for path in tmp_path.iterdir()] == ["run.db"]


def test_a_recording_reads_while_it_is_being_written(tmp_path: Path) -> None:
    file = tmp_path / "run.db"
    create_recording(file, a_run())
    writer = Writer(file)
    for number in range(3):
        writer.add([Sample(float(number), INSIDE, rss_bytes=number)])
        assert writer.flush()
        assert len(load_recording(file).samples) == number + 1
    writer.close()


KILLED = """
    import os, signal, sys
    from lowtide.record import Sample, Writer
    writer = Writer(sys.argv[1])
    for number in range(1000):
        writer.add([Sample(float(number), "inside", rss_bytes=number)])
        writer.flush()
        if number == 600:
            writer.add([Sample(1e9, "inside")])
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_writer_that_is_killed_loses_what_it_had_not_flushed_and_no_more(tmp_path: Path) -> None:
    file = tmp_path / "run.db"
    create_recording(file, a_run())
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(file)], check=False)
    assert done.returncode == -signal.SIGKILL
    recording = load_recording(file)
    assert [sample.rss_bytes for sample in recording.samples] == list(range(601))
    assert recording.outcome == Outcome("unknown", 600.0, why=recording.outcome.why)
    assert recording.outcome.why


FULL = """
    import resource, signal, sys
    from pathlib import Path
    from lowtide.record import Sample, Writer
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    file = Path(sys.argv[1])
    writer = Writer(file)
    writer.add([Sample(0.0, "inside")])
    assert writer.flush()
    room = file.with_name(file.name + "-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    for number in range(1, 3000):
        writer.add([Sample(float(number), "inside", device_bytes=number)])
    print("written" if writer.flush() else "full")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print("written" if writer.flush() else "full")
    writer.close()
"""


def test_a_full_disk_stops_neither_the_run_nor_what_comes_after_it(tmp_path: Path) -> None:
    file = tmp_path / "run.db"
    create_recording(file, a_run())
    script = textwrap.dedent(FULL)
    done = subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["full", "written"]), done.stderr
    assert len(load_recording(file).samples) == 3000


def test_rows_that_could_not_be_kept_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.record.store._MOST_WAITING", 10)
    file = tmp_path / "run.db"
    create_recording(file, a_run())
    writer = Writer(file)
    writer.add(Sample(float(number), INSIDE) for number in range(15))
    writer.close()
    recording = load_recording(file)
    assert len(recording.samples) == 10
    assert "5 rows from 10.0 s to 14.0 s lost" in recording.notes[0]


def test_without_room_even_for_the_note_it_waits_for_whoever_tells(tmp_path: Path) -> None:
    file = tmp_path / "run.db"
    create_recording(file, a_run())
    writer = Writer(file)
    writer.add([Sample(7.0, INSIDE)])
    with sqlite3.connect(file) as database:  # as a full disk does, every write fails
        database.execute("CREATE TRIGGER full BEFORE INSERT ON samples BEGIN SELECT RAISE(ABORT, 'full'); END")
        database.execute("CREATE TRIGGER no_note BEFORE INSERT ON notes BEGIN SELECT RAISE(ABORT, 'full'); END")
    writer.close()
    (note,) = writer.unwritten()
    assert note.startswith("1 row from 7.0 s to 7.0 s lost: the recording could not be written (full); make room")


def test_a_note_on_lost_rows_is_written_though_nothing_else_waits(tmp_path: Path) -> None:
    file = tmp_path / "run.db"
    create_recording(file, a_run())
    with sqlite3.connect(file) as database:
        database.execute("CREATE TRIGGER full BEFORE INSERT ON samples BEGIN SELECT RAISE(ABORT, 'full'); END")
    writer = Writer(file)
    writer.add([Sample(7.0, INSIDE)])
    writer.close()
    assert not writer.unwritten()
    assert "1 row from 7.0 s to 7.0 s lost" in load_recording(file).notes[0]


def test_a_fork_of_the_writer_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "run.db"
    create_recording(file, a_run())
    writer = Writer(file)
    writer.add([Sample(1.0, INSIDE)])
    writer.flush()
    child = os.fork()
    if child == 0:
        writer.add([Sample(2.0, INSIDE)])
        writer.close()
        os._exit(0)
    os.waitpid(child, 0)
    writer.add([Sample(3.0, INSIDE)])
    writer.close()
    assert [sample.time for sample in load_recording(file).samples] == [1.0, 3.0]


@pytest.mark.parametrize("part", [0.02, 0.3, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_told_in_one_line(part: float, tmp_path: Path) -> None:
    file = written(a_recording(), tmp_path / "run.db")
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * part)])
    refused(file)


def test_a_damaged_file_is_told_in_one_line(tmp_path: Path) -> None:
    file = written(a_recording(), tmp_path / "run.db")
    whole = file.read_bytes()
    middle = len(whole) // 2
    file.write_bytes(whole[: middle - 3000] + b"\xff" * 6000 + whole[middle + 3000 :])
    assert "damaged" in refused(file)


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    text, empty, other = tmp_path / "a.txt", tmp_path / "empty", tmp_path / "other.db"
    text.write_text("import tensorflow\n" * 200)
    empty.touch()
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE samples (time)")
    assert "no Lowtide recording" in refused(text)
    assert "empty" in refused(empty)
    assert "another program" in refused(other)
    assert "no such file" in refused(tmp_path / "nowhere.db")
    assert "is a directory" in refused(tmp_path)
    assert "is a device" in refused(Path("/dev/null"))
    assert not any(is_recording(file) for file in (text, empty, other))


def test_a_recording_of_a_newer_lowtide_says_what_to_do(tmp_path: Path) -> None:
    file = written(a_recording(), tmp_path / "run.db")
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA user_version=99")
    assert "upgrade" in refused(file)


def test_a_recording_of_an_older_lowtide_lacks_columns_and_reads(tmp_path: Path) -> None:
    recording = a_recording()
    file = written(recording, tmp_path / "run.db")
    with sqlite3.connect(file) as database:
        database.execute("ALTER TABLE steps DROP COLUMN repeats")
    assert [step.repeats for step in load_recording(file).steps] == [1] * len(recording.steps)


def test_a_file_that_is_something_else_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "thesis.txt"
    file.write_text("chapter 1")
    with pytest.raises(BadFile, match="left alone"):
        create_recording(file, a_run())
    assert file.read_text() == "chapter 1"


def test_an_older_recording_is_replaced_whole(tmp_path: Path) -> None:
    file = written(a_recording(), tmp_path / "run.db")
    create_recording(file, a_run())
    assert load_recording(file).samples == ()


def test_a_recording_reads_where_nothing_can_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "read only"
    folder.mkdir()
    file = written(a_recording(), folder / "a ?#% name.db")
    folder.chmod(0o500)
    file.chmod(0o400)
    try:
        assert load_recording(file).steps
    finally:
        folder.chmod(0o700)
