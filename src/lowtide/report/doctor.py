"""What `lowtide doctor` found, as text and as JSON. Computes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lowtide.known import KNOWN, MEASURED_ON, Known, known_on
from lowtide.machine import Memory
from lowtide.surroundings import SWITCHES, Gpu, KernelLimits
from lowtide.units import format_size

KINDS = {"leak": "never given back", "cost": "given back, and large", "myth": "said of it, and not so here"}


@dataclass(frozen=True, slots=True)
class Checkup:
    """This machine, as a training process would find it. `tensorflow` is what `lowtide.tf.look` answered."""

    lowtide: str
    system: Mapping[str, str]
    memory: Memory
    limits: KernelLimits
    variables: Mapping[str, str]
    gpus: tuple[Gpu, ...]
    tensorflow: Mapping[str, Any]

    @property
    def versions(self) -> dict[str, str]:
        return {"lowtide": self.lowtide, **self.tensorflow.get("versions", {}), **self.system}

    @property
    def known(self) -> tuple[Known, ...]:
        return known_on(self.versions)

    @property
    def measured_here(self) -> bool:
        """Whether the table was measured on all of these versions."""
        return len(self.known) == len(KNOWN)


def doctor_json(checkup: Checkup) -> dict[str, Any]:
    """The `--json` object. Its keys are a contract: added to, never renamed."""
    memory, group = checkup.memory, checkup.memory.group
    return {
        "versions": checkup.versions,
        "tensorflow_error": checkup.tensorflow.get("error"),
        "devices": [_device_json(device, checkup.variables) for device in checkup.tensorflow.get("devices", ())],
        "memory": {
            "total_bytes": memory.total,
            "available_bytes": memory.available,
            "usable_bytes": memory.usable,
            "swap_total_bytes": memory.swap_total,
            "swap_free_bytes": memory.swap_free,
        },
        "control_group": group
        and {"path": group.path, "limit_bytes": group.limit, "used_bytes": group.used, "left_bytes": group.left},
        "address_space_bytes": checkup.limits.address_space,
        "overcommit": checkup.limits.overcommit.partition(":")[0],
        "environment": dict(checkup.variables),
        "gpus": [_gpu_json(gpu) for gpu in checkup.gpus],
        "switches": [{"name": s.name, "variable": s.variable, "code": s.code, "does": s.does} for s in SWITCHES],
        "known": [
            {"id": k.id, "kind": k.kind, "title": k.title, "symptom": k.symptom, "remedy": k.remedy}
            for k in checkup.known
        ],
        "known_measured_on": dict(MEASURED_ON),
    }


def allocator_of(device: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    """Which allocator TensorFlow has on a device."""
    if device["kind"] == "GPU":
        return "cuda_malloc_async" if variables.get("TF_GPU_ALLOCATOR") == "cuda_malloc_async" else "bfc"
    return "bfc" if device.get("counts") else "malloc"


def _device_json(device: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": device["name"],
        "kind": device["kind"],
        "model": device.get("model", ""),
        "allocator": allocator_of(device, variables),
        "counts": bool(device.get("counts")),
        "trouble": device.get("trouble"),
    }


def _gpu_json(gpu: Gpu) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "name": gpu.name,
        "total_bytes": gpu.total,
        "reserved_bytes": gpu.reserved,
        "free_bytes": gpu.free,
        "nearly_full": gpu.nearly_full,
        "processes": [{"pid": p.pid, "name": p.name, "reserved_bytes": p.reserved} for p in gpu.processes],
    }


def doctor_view(checkup: Checkup) -> RenderableType:
    """Versions, memory, devices, switches, known bugs."""
    return Group(*_parts(checkup))


def _parts(checkup: Checkup) -> Iterator[RenderableType]:
    if error := checkup.tensorflow.get("error"):
        yield Text(f"TensorFlow cannot be used here: {error}", style="bold red")
    yield _titled("Versions", checkup.versions.items())
    yield _titled("Memory of this machine", _memory_rows(checkup))
    yield _titled("Devices", _device_rows(checkup))
    if checkup.variables:
        yield _titled("Set in the environment", checkup.variables.items())
    for gpu in checkup.gpus:
        yield _titled(f"GPU {gpu.index}: {gpu.name}", _gpu_rows(gpu))
    if checkup.gpus or _has_gpu(checkup):
        yield _titled("How TensorFlow takes a GPU's memory", _switch_rows(checkup))
    yield from _known_parts(checkup)


def _titled(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"\n{title}", title_justify="left", title_style="bold")
    table.show_header = False
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


def _memory_rows(checkup: Checkup) -> Iterator[tuple[str, str]]:
    memory, limits = checkup.memory, checkup.limits
    yield "RAM", f"{format_size(memory.available)} available of {format_size(memory.total)}"
    swap = f"{format_size(memory.swap_free)} free of {format_size(memory.swap_total)}"
    yield "swap", swap if memory.swap_total else "none: what does not fit in RAM is killed"
    group = memory.group
    if group is not None:
        used = f"{format_size(group.used)} used of {format_size(group.limit)}"
        yield "control group", f"{used}: beyond that the kernel kills a process of the group"
    else:
        yield "control group", "no limit below the machine's RAM"
    yield "usable", f"{format_size(memory.usable)} for a process that starts now"
    space = limits.address_space
    yield "address space", "no limit" if space is None else f"{format_size(space)} (ulimit -v)"
    yield "overcommit", limits.overcommit


def _device_rows(checkup: Checkup) -> Iterator[tuple[str, str]]:
    for device in checkup.tensorflow.get("devices", ()):
        yield device["name"], " ".join(filter(None, (device.get("model", ""), _allocator_words(device, checkup))))
        if device.get("trouble"):
            yield "", device["trouble"]
    if not checkup.tensorflow.get("devices"):
        yield "none", "TensorFlow could not be asked"
    elif checkup.gpus and not _has_gpu(checkup):
        seen = ", ".join(gpu.name for gpu in checkup.gpus)
        yield "no GPU", f"the driver sees {seen}, TensorFlow does not: a CPU wheel, or CUDA's libraries are missing"


def _has_gpu(checkup: Checkup) -> bool:
    return any(device["kind"] == "GPU" for device in checkup.tensorflow.get("devices", ()))


def _allocator_words(device: Mapping[str, Any], checkup: Checkup) -> str:
    return {
        "bfc": "BFC allocator: counts bytes, keeps what it reserved, refuses beyond a limit",
        "cuda_malloc_async": "cuda_malloc_async: CUDA's own pool",
        "malloc": "malloc: counts nothing and has no limit; lowtide run puts it on BFC to measure it",
    }[allocator_of(device, checkup.variables)]


def _gpu_rows(gpu: Gpu) -> Iterator[tuple[str, str]]:
    taken = f"{format_size(gpu.reserved)} of {format_size(gpu.total)} ({gpu.reserved / gpu.total:.0%})"
    yield "reserved", f"{taken}, {format_size(gpu.free)} free"
    for process in gpu.processes:
        size = "bytes not told" if process.reserved is None else format_size(process.reserved)
        yield f"pid {process.pid}", f"{size} reserved by {process.name}"
    if gpu.nearly_full:
        yield "nearly full", (
            "The driver counts what processes reserved, not what their tensors use. TensorFlow reserves nearly all "
            "of a GPU when it starts. What is used is known inside that process: "
            f"tf.config.experimental.get_memory_info('GPU:{gpu.index}'), or run it under lowtide run. "
            "The switches below make it reserve less."
        )


def _switch_rows(checkup: Checkup) -> Iterator[tuple[str, str]]:
    for switch in SWITCHES:
        name, _, value = switch.variable.partition("=")
        on = bool(name) and checkup.variables.get(name, "").lower() == value
        yield switch.name, f"(set here) {switch.does}" if on else switch.does
        yield "", " or ".join(filter(None, (switch.variable, switch.code)))


def _known_parts(checkup: Checkup) -> Iterator[RenderableType]:
    measured = " and ".join(f"{name} {release}" for name, release in MEASURED_ON.items())
    if not checkup.known:
        have = checkup.tensorflow.get("versions", {})
        yours = ", ".join(f"{name} {have.get(name, 'missing')}" for name in MEASURED_ON)
        yield Text("\nKnown memory bugs of these versions", style="bold")
        yield Text(f"not known: the table was measured on {measured}, and here are {yours}")
        return
    for kind, meaning in KINDS.items():
        rows = [known for known in checkup.known if known.kind == kind]
        if rows:
            yield Text(f"\nKnown of these versions: {meaning}", style="bold")
            for known in rows:
                yield Padding(Text(known.title, style="" if kind == "myth" else "yellow"), (0, 0, 0, 2))
                yield Padding(Text(known.remedy, style="dim"), (0, 0, 0, 4))
    if not checkup.measured_here:
        yield Text(f"\nMore is known of {measured}; for the versions here it was not measured.", style="dim")
