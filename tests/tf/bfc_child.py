"""The child's side of `test_bfc_is_the_real_allocator`: runs traces of calls on TensorFlow's own allocator.

TensorFlow makes its CPU allocator once a process and never again. So this process imports TensorFlow, without
touching a device, and forks for each trace: every trace meets a new allocator, under a limit of its own.

A line on stdin is a trace, a line on stdout is what happened: the refusals and the numbers after each step.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

# The linker's names for functions of ProcessState and BFCAllocator.
SINGLETON = "_ZN10tensorflow12ProcessState9singletonEv"
GET_CPU_ALLOCATOR = "_ZN10tensorflow12ProcessState15GetCPUAllocatorEi"
ALLOCATE_RAW = "_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE"
DEALLOCATE_RAW = "_ZN3tsl12BFCAllocator13DeallocateRawEPv"
TENSOR_ALIGNMENT = 64


class AllocationAttributes(ctypes.Structure):
    _fields_ = (
        ("retry_on_failure", ctypes.c_bool),
        ("allocation_will_be_logged", ctypes.c_bool),
        ("freed_by_func", ctypes.c_void_p),
    )


class Door:
    """CPU:0's allocator itself, for the one question that a tensor answers only after ten seconds."""

    def __init__(self) -> None:
        library = ctypes.CDLL(str(Path(tf.__file__).parent / "libtensorflow_framework.so.2"))
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        singleton = ctypes.CFUNCTYPE(pointer)((SINGLETON, library))
        get_cpu_allocator = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_int)((GET_CPU_ALLOCATOR, library))
        self._allocate = ctypes.CFUNCTYPE(pointer, pointer, size, size, pointer)((ALLOCATE_RAW, library))
        self._deallocate = ctypes.CFUNCTYPE(None, pointer, pointer)((DEALLOCATE_RAW, library))
        self._allocator = get_cpu_allocator(singleton(), 0)

    def refuses(self, size: int) -> bool:
        """Asks for `size` bytes, without retries, and gives them back, for a tensor to get the same ones."""
        at_once = AllocationAttributes(retry_on_failure=False)
        address = self._allocate(self._allocator, TENSOR_ALIGNMENT, size, ctypes.addressof(at_once))
        if address is not None:
            self._deallocate(self._allocator, address)
        return address is None and size > 0  # an empty tensor needs no address


def run(steps: list[tuple[str, int]], patient: bool) -> list[tuple[bool, int, int]]:
    """Runs the steps with eager tensors: [refused, current, peak] after each. The test's `replay` mirrors it.

    `patient`: does not ask the allocator first, but waits for the tensor's own error.
    """
    # The shape of a tensor is itself a tensor, of 4 bytes; here all are made before the first step.
    shapes = [tf.constant([size]) if call == "allocate" else None for call, size in steps]
    door = Door()
    live: list[tf.Tensor] = []
    seen = []
    for (call, argument), shape in zip(steps, shapes, strict=True):
        refused = False
        if call == "allocate":
            refused = not patient and door.refuses(argument)
            if not refused:
                try:
                    live.append(tf.raw_ops.Empty(shape=shape, dtype=tf.uint8))
                except tf.errors.ResourceExhaustedError:
                    refused = True
        elif call == "free" and live:
            del live[argument % len(live)]
        elif call == "reset_peak":
            tf.config.experimental.reset_memory_stats("CPU:0")
        info = tf.config.experimental.get_memory_info("CPU:0")
        seen.append((refused, info["current"], info["peak"]))
    return seen


def serve_one(request: dict[str, Any]) -> None:
    os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(request["limit_mb"])
    if room := request["host_room"]:
        tf.raw_ops.Empty(shape=[1], dtype=tf.uint8)  # brings up the device while there is room
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + room, mapped + room))
    print(json.dumps(run(request["steps"], request["patient"])), flush=True)


def serve() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            serve_one(json.loads(line))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            print(json.dumps(f"the child ended with status {status}"), flush=True)


if __name__ == "__main__":
    serve()
