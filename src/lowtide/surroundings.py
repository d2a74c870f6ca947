"""What around a process bounds or changes its memory: the kernel's limits, variables, GPUs as their driver sees them.

Nothing here asks TensorFlow. A driver counts what a process has reserved of a GPU; what its tensors use of that
only the process itself can say.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
NEARLY_FULL = 0.9
"""Of a GPU's memory, from where on a new process is likely to be refused."""

WATCHED = (
    "TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB", "TF_GPU_ALLOCATOR", "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_ENABLE_GPU_GARBAGE_COLLECTION", "TF_XLA_FLAGS", "XLA_FLAGS", "TF_ENABLE_ONEDNN_OPTS", "CUDA_VISIBLE_DEVICES",
    "KERAS_BACKEND", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "LD_PRELOAD",
)  # fmt: skip
"""Variables that change how TensorFlow, Keras or malloc use memory."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A setting that decides how TensorFlow takes a GPU's memory. `variable` is "" where only code can set it."""

    name: str
    variable: str
    code: str
    does: str


SWITCHES = (
    Switch(
        "memory growth", "TF_FORCE_GPU_ALLOW_GROWTH=true", "tf.config.experimental.set_memory_growth(gpu, True)",
        "Reserves as it needs instead of nearly all at the start, so that others can have the rest. What was once "
        "reserved is kept until the process ends, and pieces from different times fragment more.",
    ),
    Switch(
        "a limit", "",
        "tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=MIB)])",
        "Reserves no more than this. A step that needs more gets ResourceExhaustedError; lowtide predict says how much "
        "it needs, lowtide fit makes it fit.",
    ),
    Switch(
        "cuda_malloc_async", "TF_GPU_ALLOCATOR=cuda_malloc_async", "",
        "CUDA's own pool in place of BFC: for when a request fails although enough is free in pieces. It uses no less.",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GpuProcess:
    pid: int
    name: str
    reserved: int | None


@dataclass(frozen=True, slots=True)
class Gpu:
    """Bytes as the driver counts them; `reserved` is by all processes and by the driver itself."""

    index: int
    name: str
    total: int
    reserved: int
    free: int
    processes: tuple[GpuProcess, ...] = ()

    @property
    def nearly_full(self) -> bool:
        return self.reserved >= NEARLY_FULL * self.total


def gpus() -> list[Gpu]:
    """What NVIDIA's driver reports; none where there is no such driver."""
    cards = _nvidia("--query-gpu=index,name,uuid,memory.total,memory.used,memory.free")
    running = _nvidia("--query-compute-apps=gpu_uuid,pid,process_name,used_memory") if cards else []
    return parse_gpus(cards, running)


def parse_gpus(cards: list[str], running: list[str]) -> list[Gpu]:
    """The two answers of nvidia-smi, lines of comma-separated values in MiB, as Gpus."""
    processes: dict[str, list[GpuProcess]] = {}
    for line in running:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) < 4 or not fields[1].isdecimal():
            continue
        name = ", ".join(fields[2:-1])
        processes.setdefault(fields[0], []).append(GpuProcess(int(fields[1]), name, _mib(fields[-1])))
    found = []
    for line in cards:
        fields = [field.strip() for field in line.split(",")]
        sizes = [_mib(field) for field in fields[-3:]]
        if len(fields) < 6 or not fields[0].isdecimal() or None in sizes:
            continue
        total, used, free = (size or 0 for size in sizes)
        uuid, name = fields[-4], ", ".join(fields[1:-4])
        found.append(Gpu(int(fields[0]), name, total, used, free, tuple(processes.get(uuid, ()))))
    return found


def _mib(text: str) -> int | None:
    """A number of MiB as bytes; None for what the driver does not tell, such as "[N/A]"."""
    return int(text) * MIB if text.isdecimal() else None


def _nvidia(query: str) -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def watched_variables(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Those of `WATCHED` that are set."""
    environment = os.environ if environment is None else environment
    return {name: environment[name] for name in WATCHED if name in environment}


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """`address_space` bounds a process's memory (ulimit -v); `overcommit` is the kernel's policy, in words."""

    address_space: int | None
    overcommit: str


_OVERCOMMIT = {
    "0": "heuristic: large requests succeed, and the process is killed when they are used and RAM runs out",
    "1": "always: every request succeeds, and the process is killed when RAM runs out",
    "2": "never: requests beyond RAM and swap fail at once",
}


def kernel_limits() -> KernelLimits:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    try:
        policy = Path("/proc/sys/vm/overcommit_memory").read_text().strip()
    except OSError:
        policy = ""
    return KernelLimits(None if soft == resource.RLIM_INFINITY else soft, _OVERCOMMIT.get(policy, "unknown"))


def system_versions() -> dict[str, str]:
    """Python, kernel and C library."""
    library, version = platform.libc_ver()
    return {"python": platform.python_version(), "linux": platform.release(), library or "libc": version or "unknown"}
