"""Recordings made by hand, small and with everything in them: hostile names, stages, a census, a refusal."""

from __future__ import annotations

from dataclasses import replace

from lowtide.program import Source
from lowtide.record import (
    HOST_PARTS,
    Allocation,
    Constant,
    Data,
    Detail,
    Device,
    Held,
    HostLine,
    HostSplit,
    Machine,
    Outcome,
    Recording,
    Refusal,
    Run,
    Sample,
    Site,
    Stage,
    Step,
    Tape,
    Trace,
)

MIB = 1 << 20
SCRIPT = "<script>alert(1)</script>"
IMAGE = '<img src=x onerror="alert(2)">'
ENDS = "</script><script>alert(3)</script>"
HOSTILE = (SCRIPT, IMAGE, ENDS, "[red]x[/red]", "{b} & \u2028 \u2029 \x00 \x1b[31m", "a" * 300)
CODE = f"import tensorflow\nmodel = build()  # {ENDS}\nmodel.fit(x)\nkept.append(y)\n"
LINE, OTHER_LINE = Source("/home/me/train.py", 2), Source("/home/me/train.py", 4)


def a_detail(scale: int = 1, step: int = 1, line: Source = LINE, extra: int = 0) -> Detail:
    """Weights and a batch from before; two activations; a scratch buffer on top of them at the peak."""
    sites = (
        Site("dense/kernel", "Variable", SCRIPT, line, "build", "graph"),
        Site("adam/kernel_momentum", "Variable", "", None, "", "graph"),
        Site("x", "input", "", OTHER_LINE, "main", "eager"),
        Site(f"model/{ENDS}/MatMul", "MatMul", SCRIPT, line, "build", "graph"),
        Site(f"model/{IMAGE}/Relu", "Relu", IMAGE, line, "build", "graph"),
        Site("Conv2D", "Conv2D", "conv", OTHER_LINE, "main", "eager"),
    )
    allocations = (
        Allocation(0, "parameters", 4 * MIB - 100, 4 * MIB, 0, None, dtype="float32", shape="[1024,1024]"),
        Allocation(1, "optimizer state", 8 * MIB, 8 * MIB, 0, None),
        Allocation(2, "inputs", MIB, MIB, 0, None),
        Allocation(3, "activations", scale * 6 * MIB, scale * 6 * MIB + 256, 1, 7, dtype="float32", shape=IMAGE),
        Allocation(4, "activations", scale * 3 * MIB, scale * 3 * MIB, 2, 6),
        Allocation(5, "temporaries", 2 * MIB + extra, 2 * MIB + extra, 3, 4, temporary=True),
        Allocation(4, "gradients", MIB, MIB, 5, 8),
    )
    begin = 13 * MIB
    return Detail(
        step=step, reason="after warm-up", start=1.0, stop=1.2, sites=sites, allocations=allocations,
        times=tuple(1.0 + i / 50 for i in range(9)), begin_bytes=begin, end_bytes=begin,
        peak_bytes=begin + scale * 9 * MIB + 256 + 2 * MIB + extra,
        peak_requested_bytes=begin - 100 + scale * 9 * MIB + 2 * MIB + extra, peak_at=3, peak_site=5,
        reserved_bytes=64 * MIB, largest_free_bytes=20 * MIB,
    )  # fmt: skip


def a_run(script: str = "train.py", arguments: tuple[str, ...] = ("--epochs", "3")) -> Run:
    machine = Machine(2, 16 << 30, 0, 8 << 30, (Device("CPU:0", "bfc", None),))
    versions = {"lowtide": "0.1.0", "tensorflow": "2.21.0", "keras": "3.15.1"}
    return Run(
        script, arguments, "/home/me", 1.7e9, machine, versions, "tracemalloc",
        {"TF_CPU_ALLOCATOR_USE_BFC": "1"},
    )  # fmt: skip


def a_recording(scale: int = 1, line: Source = LINE, code: str = CODE, leak: int = 0) -> Recording:
    """Twelve steps, the second of them in full."""
    detail = a_detail(scale, line=line)
    steps = tuple(
        Step(
            "fit", "model", OTHER_LINE, 0.5 + i * 0.4, 0.8 + i * 0.4, 13 * MIB + i * leak,
            detail.peak_bytes - (0 if i == 1 else MIB), 300 * MIB + i * leak, detailed=i == 1,
        )
        for i in range(12)
    )  # fmt: skip
    samples = tuple(
        Sample(
            i / 10, "inside" if i % 2 else "outside", min(11, i // 4) if i > 3 else None,
            device_bytes=13 * MIB if i % 2 else None, device_peak_bytes=20 * MIB if i % 2 else None,
            reserved_bytes=64 * MIB if i % 2 else None, rss_bytes=(200 + i) * MIB, available_bytes=8 << 30,
            swap_bytes=0, data_bytes=3 * MIB, eager_tensors=10 + i, eager_bytes=i * MIB, tapes=1, traces=2,
            graph_bytes=MIB,
        )
        for i in range(54)
    )  # fmt: skip
    parts = dict.fromkeys(HOST_PARTS, 10 * MIB)
    return Recording(
        run=a_run(),
        outcome=Outcome("done", 5.4, 0),
        samples=samples,
        steps=steps,
        details=(detail,),
        traces=(
            Trace(
                0.4, None, ENDS, LINE, OTHER_LINE, 0, "first call", 0.2, 500, MIB, 4 * MIB,
                (Constant("c", 4 * MIB, "[1024]", "float32", LINE),), 8 * MIB, {"MatMul": 3},
            ),
        ),
        stages=tuple(
            Stage(time, 0, 0, name, LINE, round(time * MIB), 4, {"buffer_size": 16.0})
            for time in (1.0, 2.0, 3.0)
            for name in ("Shuffle", IMAGE)
        ),
        splits=tuple(HostSplit(time, 0, sum(parts.values()), parts) for time in (1.0, 2.0, 3.0)),
        lines=(HostLine(3.0, 5, LINE, "numpy", 5 * MIB, 3),),
        census=(Held(3.0, 5, "tensor", LINE, f"list {IMAGE}", OTHER_LINE, 12, 6 * MIB, 6 * MIB, "float32 (2, 3)"),),
        tapes=(Tape(LINE, True, True, 12, 1, 2, 0.1, 1, 12, 0),),
        data=(Data(0.3, None, "tf.constant", LINE, 9 * MIB, "float64", "(3, 4)"),),
        sources={"/home/me/train.py": code},
        notes=(f"could not see {ENDS}",),
    )  # fmt: skip


def without_tensorflow() -> Recording:
    """A script that never touched TensorFlow: the host is all there is."""
    full = a_recording()
    samples = tuple(Sample(s.time, s.by, rss_bytes=s.rss_bytes) for s in full.samples)
    return Recording(full.run, Outcome("exit", 5.4, 3), samples=samples)


def killed() -> Recording:
    """Ended by the kernel in the middle of a step, an allocation refused before."""
    refusal = Refusal(512 * MIB, "[128,1024,1024]", "float32", ENDS, "CPU:0", LINE)
    outcome = Outcome("signal", 3.0, None, "SIGKILL", refusal=refusal, out_of_memory=True, why="the kernel said so")
    return replace(a_recording(), outcome=outcome)


RECORDINGS = {
    "whole": a_recording(),
    "without tensorflow": without_tensorflow(),
    "killed": killed(),
    "empty": Recording(a_run(), Outcome("unknown", 0.0)),
    "no detail": replace(a_recording(), details=(), sources={}),
}
FINDINGS = (
    {
        "id": "tensors-kept", "severity": "problem", "title": f"a list keeps {ENDS}", "bytes": 6 * MIB,
        "bytes_per_step": MIB, "file": "/home/me/train.py", "line": 4, "code": "kept.append(y)",
        "holder": f"list {IMAGE}", "fix": "keep float(y)", "saving_bytes": 6 * MIB,
    },
    {
        "id": "batch", "severity": "advice", "title": "a smaller batch", "bytes": None, "bytes_per_step": None,
        "file": None, "line": None, "code": None, "holder": None, "fix": "batch 16", "saving_bytes": 3 * MIB,
    },
)  # fmt: skip
"""As `--json` lists them."""
