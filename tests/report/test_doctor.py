"""`lowtide doctor`: what it says of a machine. The GPU here is one that nvidia-smi describes in its own words."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from lowtide.known import KNOWN, MEASURED_ON, known_on
from lowtide.machine import Group, Memory
from lowtide.report.doctor import Checkup, doctor_json, doctor_view
from lowtide.surroundings import WATCHED, KernelLimits, gpus, kernel_limits, parse_gpus, watched_variables
from lowtide.tf.look import look
from tests.report.test_prediction import byte_counts

GIB = 1 << 30
CARDS = [
    "0, NVIDIA A100-SXM4-40GB, GPU-1111, 40960, 39936, 1024",
    "1, NVIDIA A100-SXM4-40GB, GPU-2222, 40960, 4, 40956",
]
RUNNING = ["GPU-1111, 4242, /usr/bin/python3, 38912", "GPU-1111, 4343, trainer, a fork, [N/A]"]
THESE = {"tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6"}
CPU = {"name": "CPU:0", "kind": "CPU", "counts": False}
GPU = {"name": "GPU:0", "kind": "GPU", "counts": True, "model": "NVIDIA A100-SXM4-40GB"}
PLAIN = Checkup(
    "0.1.0", {"python": "3.11.7", "linux": "6.1", "glibc": "2.36"}, Memory(16 * GIB, 9 * GIB, 0, 0, None),
    KernelLimits(None, "heuristic: large requests succeed"), {}, (), {"versions": THESE, "devices": [CPU]},
)  # fmt: skip
WITH_GPU = replace(
    PLAIN, gpus=tuple(parse_gpus(CARDS, RUNNING)), tensorflow={"versions": THESE, "devices": [CPU, GPU]},
    variables={"TF_FORCE_GPU_ALLOW_GROWTH": "true"},
)  # fmt: skip
CHECKUPS = {
    "plain": PLAIN,
    "gpu": WITH_GPU,
    "broken": replace(PLAIN, tensorflow={"error": "ImportError: [red]libcuda.so"}),
    "container": replace(PLAIN, memory=Memory(16 * GIB, 9 * GIB, GIB, GIB, Group("/sys/fs/cgroup", 4 * GIB, GIB))),
    "another release": replace(PLAIN, tensorflow={"versions": {"tensorflow": "2.18.0"}, "devices": [CPU]}),
}
KEYS = {
    "versions", "tensorflow_error", "devices", "memory", "control_group", "address_space_bytes", "overcommit",
    "environment", "gpus", "switches", "known", "known_measured_on",
}  # fmt: skip
DOCUMENT = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()


def text_of(checkup: Checkup, width: int = 80) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(doctor_view(checkup))
    return " ".join(captured.get().split())


@pytest.mark.parametrize("name", CHECKUPS)
def test_the_json_has_the_documented_keys_and_whole_bytes(name: str) -> None:
    made = json.loads(json.dumps(doctor_json(CHECKUPS[name])))
    assert set(made) == KEYS
    assert all(f"`{key}`" in DOCUMENT for key in KEYS)
    assert all(type(count) is int for count in byte_counts(made) if count is not None)


@pytest.mark.parametrize("name", CHECKUPS)
def test_the_text_fits_eighty_columns(name: str) -> None:
    console = Console(width=80, force_terminal=False)
    with console.capture() as captured:
        console.print(doctor_view(CHECKUPS[name]))
    assert max(map(len, captured.get().splitlines())) <= 80


def test_of_a_nearly_full_gpu_it_says_what_is_reserved_by_whom_and_what_helps() -> None:
    full, empty = WITH_GPU.gpus
    assert (full.nearly_full, empty.nearly_full) == (True, False)
    assert [(p.pid, p.name, p.reserved) for p in full.processes] == [
        (4242, "/usr/bin/python3", 38 * GIB), (4343, "trainer, a fork", None)
    ]  # fmt: skip
    text = text_of(WITH_GPU)
    assert "39.00 GiB of 40.00 GiB (98%), 1.00 GiB free" in text
    assert "38.00 GiB reserved by /usr/bin/python3" in text
    assert "not what their tensors use" in text
    assert text.count("nearly full") == 1
    for switch in ("memory growth", "a limit", "cuda_malloc_async"):
        assert switch in text
    assert text.count("(set here)") == 1


def test_a_gpu_that_tensorflow_does_not_see_is_pointed_out() -> None:
    blind = replace(WITH_GPU, tensorflow=PLAIN.tensorflow)
    assert "the driver sees NVIDIA A100" in text_of(blind)


def test_what_the_driver_says_oddly_is_left_out() -> None:
    assert parse_gpus(["No devices were found"], []) == []
    assert parse_gpus(["0, X, GPU-1, [N/A], [N/A], [N/A]", *CARDS], ["", "GPU-1111, x"])[0].processes == ()


def test_gpus_come_from_the_drivers_own_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    cases = f'case "$1" in *compute-apps*) echo "{RUNNING[0]}";; *) echo "{CARDS[0]}";; esac'
    program.write_text(f"#!/bin/sh\n{cases}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (gpu,) = gpus()
    assert (gpu.name, gpu.reserved, len(gpu.processes)) == ("NVIDIA A100-SXM4-40GB", 39 * GIB, 1)
    program.write_text("#!/bin/sh\necho NVIDIA-SMI has failed; exit 9\n")
    assert gpus() == []


def test_a_control_group_bounds_what_is_usable() -> None:
    assert doctor_json(CHECKUPS["container"])["memory"]["usable_bytes"] == 3 * GIB
    assert "1.00 GiB used of 4.00 GiB" in text_of(CHECKUPS["container"])


def test_a_cpu_that_counts_nothing_says_so() -> None:
    assert doctor_json(PLAIN)["devices"][0]["allocator"] == "malloc"
    assert "lowtide run puts it on BFC" in text_of(PLAIN)
    counted = replace(PLAIN, tensorflow={"versions": THESE, "devices": [{**CPU, "counts": True}]})
    assert doctor_json(counted)["devices"][0]["allocator"] == "bfc"


def test_known_bugs_are_claimed_for_the_measured_versions_only() -> None:
    assert known_on(THESE) == KNOWN
    assert {known.id for known in known_on({"tensorflow": "2.21.1", "keras": "3.14.0"})} == {
        known.id for known in KNOWN if "keras" not in known.needs
    }
    assert known_on({"tensorflow": "2.210", "keras": "3.15.1"}) == tuple(k for k in KNOWN if k.needs == ("keras",))
    assert "never freed" in text_of(PLAIN)
    assert "was measured on tensorflow 2.21 and keras 3.15" in text_of(CHECKUPS["another release"])


def test_the_table_of_known_bugs_is_whole() -> None:
    assert len({known.id for known in KNOWN}) == len(KNOWN)
    for known in KNOWN:
        assert known.kind in ("leak", "cost", "myth")
        assert known.title and known.symptom and known.remedy
        assert set(known.needs) <= set(MEASURED_ON)


def test_a_tensorflow_that_does_not_import_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tensorflow.py").write_text("raise ImportError('libcuda.so is\\nnot here')")
    (tmp_path / "keras.py").write_text("import tensorflow")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    answer = look()
    assert answer == {"error": "ImportError: libcuda.so is"}
    assert "TensorFlow cannot be used here: ImportError: [red]libcuda.so" in text_of(CHECKUPS["broken"])


def test_a_tensorflow_that_dies_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tensorflow.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    (tmp_path / "keras.py").write_text("import tensorflow")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert look() == {"error": "TensorFlow's process was ended by SIGSEGV"}


def test_only_variables_that_matter_are_shown() -> None:
    found = watched_variables({"TF_GPU_ALLOCATOR": "cuda_malloc_async", "SECRET": "x", "HOME": "/root"})
    assert found == {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}
    assert len(set(WATCHED)) == len(WATCHED)
    assert kernel_limits().overcommit
