"""Small Recordings made by hand: for each rule one that breaks it and its fixed twin, with the line to be named.

The host's peak is 1000 MiB in all of them, so sizes in MiB are thousandths of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lowtide.program import Source
from lowtide.record import (
    Allocation,
    Constant,
    Data,
    Detail,
    Device,
    Held,
    Machine,
    Made,
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
FILE = "/home/me/train.py"
STEPS = 20
PEAK = 1000 * MIB


class Example(NamedTuple):
    bad: Recording
    good: Recording
    line: int | None


def at(line: int) -> Source:
    return Source(FILE, line)


def recording(
    code: str = "", device: float = 0, host: float = 0, kind: str = "gradient", steps: int = STEPS, line: int = 1,
    **parts: Any,
) -> Recording:  # fmt: skip
    """Steps after whose end the device has `device` MiB more each time, and the process `host` MiB."""
    machine = Machine(2, 16 << 30, 0, None, (Device("CPU:0", "bfc", None),))
    run = Run("train.py", (), "/home/me", 1.7e9, machine, {"tensorflow": "2.21.0", "keras": "3.15.1"})
    begin = PEAK - round(steps * host * MIB)
    made = tuple(
        Step(
            kind, "f", at(line), i + 0.1, i + 0.9, round((50 + i * device) * MIB), 60 * MIB,
            begin + round(i * host * MIB),
        )
        for i in range(steps)
    )
    samples = tuple(
        Sample(i * 0.5, "inside", int(i * 0.5), step.device_bytes, step.device_peak_bytes, 128 * MIB, step.rss_bytes)
        for i, step in ((i, made[min(i // 2, steps - 1)]) for i in range(2 * steps))
    )
    last = Sample(
        steps + 1.0, "inside", steps - 1, 50 * MIB, 60 * MIB, 128 * MIB, PEAK, heap_bytes=1, heap_free_bytes=0
    )
    defaults: dict[str, Any] = {"samples": (*samples, last), "steps": made, "sources": {FILE: code}}
    return Recording(run, Outcome("done", steps + 1.0, 0), **{**defaults, **parts})


def census(*rows: Held, before: int = 2) -> tuple[Held, ...]:
    """A census early, with `before` of each row's things, and a late one with all."""
    early = tuple(
        row._replace(time=3.0, step=2, objects=before, bytes=row.bytes * before // row.objects,
                     viewed_bytes=row.viewed_bytes * before // row.objects)
        for row in rows
    )  # fmt: skip
    return early + rows


def held(
    kind: str, holder: str, objects: int, size: float, made: int | None = None, shown: float | None = None
) -> Held:
    viewed = size if shown is None else shown
    return Held(
        20.0, STEPS - 1, kind, at(made) if made else None, holder, None, objects, round(size * MIB),
        round(viewed * MIB), "float32 (256, 1024)",
    )  # fmt: skip


def detail(
    allocations: Sequence[tuple[Site, str, float, int, int | None, str]], step: int = 3, reason: str = "after warm-up",
    events: int = 100, peak_at: int = 50,
) -> Detail:  # fmt: skip
    """Each allocation is (site, category, MiB, start, stop, shape)."""
    sites = tuple(dict.fromkeys(row[0] for row in allocations))
    rows = tuple(
        Allocation(sites.index(site), category, round(size * MIB), round(size * MIB), start, stop, shape=shape)
        for site, category, size, start, stop, shape in allocations
    )
    alive = [a for a in rows if a.start <= peak_at and (a.stop is None or peak_at < a.stop)]
    begin = sum(a.chunk_bytes for a in rows if not a.start)
    end = sum(a.chunk_bytes for a in rows if a.stop is None)
    peak = sum(a.chunk_bytes for a in alive)
    times = tuple(step + i / (2 * events) for i in range(events))
    return Detail(step, reason, float(step), step + 0.5, sites, rows, times, begin, end, peak, peak, peak_at, None)


def site(op: str, line: int | None, kind: str = "", layer: str = "", mode: str = "eager") -> Site:
    return Site(op, kind or op, layer, at(line) if line else None, "", mode)


def traces(
    number: int, cause: Callable[[int], str], owner: Callable[[int], int] = lambda i: 0, size: float = 5, line: int = 3,
) -> tuple[Trace, ...]:  # fmt: skip
    return tuple(
        Trace(
            i + 0.5, i, "train_step", at(1), at(line), owner(i), cause(i), 0.1, 300, round(size * MIB), 0, (), 0,
            {"MatMul": 9},
        )
        for i in range(number)
    )


LOOP = "kept = []\nfor step in range(20):\n    y = f(x)\n    kept.append(y)\n"
LIST = "kept (list of 20, global of train.py)"
ONCE = "f = make()\nfor step in range(20):\n    f(x)\n"


def kept(kind: str) -> Example:
    bad = recording(LOOP, device=0 if kind == "array" else 5, host=5, census=census(held(kind, LIST, 20, 100, 3)))
    good = recording(LOOP, census=census(held(kind, LIST, 2, 10, 3)))
    return Example(bad, good, 4)


def view() -> Example:
    bad = recording(LOOP, host=5, census=census(held("array", LIST, 20, 100, 3, shown=0.1)))
    return Example(bad, recording(LOOP, host=0, census=census(held("array", LIST, 20, 0.1, 3))), 4)


def device_growth() -> Example:
    surviving = detail([(site("MatMul", 3), "activations", 5, 10, None, "(256, 1024)")])
    bad = recording(LOOP, device=5, details=(surviving,))
    return Example(bad, recording(LOOP, device=0, details=(surviving,)), 3)


def host_growth() -> Example:
    bad = recording(ONCE, host=6)
    there = tuple(s._replace(source=at(3)) for s in bad.samples)
    return Example(replace(bad, samples=there), recording(ONCE), 3)


def new_shapes() -> Example:
    bad = host_growth().bad
    larger = tuple(detail([], step=step, reason="larger input") for step in range(3))
    return Example(replace(bad, details=larger), recording(ONCE, details=larger), 3)


def retention() -> Example:
    def with_free(free: int) -> Recording:
        base = recording(LOOP)
        return replace(base, samples=(*base.samples[:-1], base.samples[-1]._replace(heap_free_bytes=free * MIB)))

    return Example(with_free(200), with_free(5), None)


def tape(**facts: int | bool) -> Tape:
    base = Tape(at(3), True, True, 20, 0, 1, 0.1, 0, 20, 0)
    return base._replace(**facts)  # type: ignore[arg-type]


TAPES = (
    "tapes = []\nfor step in range(20):\n    with tf.GradientTape() as tape:\n        y = f(x)\n"
    "    tapes.append(tape)\n"
)


def tapes_kept() -> Example:
    rows = census(held("tensor", "", 20, 100, 4))
    bad = recording(TAPES, device=5, census=rows, tapes=(tape(alive=20, most_alive=20),))
    return Example(bad, recording(TAPES, tapes=(tape(alive=1),)), 5)


def tape_spans() -> Example:
    rows = census(held("tensor", "", 20, 100, 4))
    bad = recording(TAPES, device=5, census=rows, tapes=(tape(made=1, alive=1, most_steps=20),))
    return Example(bad, recording(TAPES, tapes=(tape(most_steps=1),)), 3)


def gradient_inside() -> Example:
    code = "for step in range(20):\n    with tape:\n        y = f(x)\n        g = tape.gradient(y, w)\n"
    backward = detail([(site("MatMul", 4), "temporaries", 60, 30, 80, "(9, 9)")])
    bad = recording(code, line=4, details=(backward,), tapes=(tape(gradients_inside=20),))
    return Example(bad, recording(code, line=4, details=(backward,), tapes=(tape(),)), 4)


def tape_unused() -> Example:
    code = (
        "for step in range(20):\n    pass\n    with tf.GradientTape() as tape:\n        y = f(x)\n"
        "    tape.gradient(y, h)\n"
    )
    both = detail([
        (site("Sigmoid", 4), "activations", 80, 10, 60, "(9, 9)"),
        (site("SigmoidGrad", 5), "temporaries", 10, 40, 45, "(9, 9)"),
    ])  # fmt: skip
    bad = recording(code, line=5, details=(both,), tapes=(tape(watched=9, used=1),))
    return Example(bad, recording(code, line=5, details=(both,), tapes=(tape(watched=1, used=1),)), 3)


def retrace(by_value: bool) -> Example:
    change = "Python int {} became Python int {}" if by_value else "float32 tensor ({},) became float32 tensor ({},)"
    causes = traces(20, lambda i: "first call" if not i else f"argument n: {change.format(i - 1, i)}")
    return Example(recording(ONCE, host=5, traces=causes), recording(ONCE, traces=causes[:2]), 3)


def function_made_again() -> Example:
    code = "def g(x): ...\nfor step in range(20):\n    tf.function(g)(x)\n"
    many = traces(20, lambda i: "first call", owner=lambda i: i)
    made = (Made("function", "Function", at(3), 20),)
    return Example(recording(code, host=5, traces=many, made=made), recording(code, traces=many[:1]), 3)


def baked() -> Example:
    code = "@tf.function\ndef g(x):\n    return x @ table\n"
    constants = (Constant("c", 100 * MIB, "(5000, 5000)", "float32", at(3)),)
    trace = traces(1, lambda i: "first call", size=100)[0]._replace(constants=constants, constant_bytes=100 * MIB)
    small = trace._replace(constants=(), constant_bytes=0, graph_bytes=MIB)
    return Example(recording(code, traces=(trace,)), recording(code, traces=(small,)), 3)


def unrolled() -> Example:
    code = "@tf.function\ndef g(x):\n    for _ in range(900):\n        x = tf.tanh(x)\n    return x\n"
    trace = traces(1, lambda i: "first call", size=60)[0]._replace(nodes=5000, kinds={"Tanh": 900})
    return Example(recording(code, traces=(trace,)), recording(code, traces=(trace._replace(nodes=30, kinds={}),)), 3)


MODELS = "members = []\nfor k in range(20):\n    model = build()\n    members.append(model)\n"


def models(named: bool) -> Example:
    holder = "members (list of 20, global of train.py)" if named else ""
    rows = (held("model", holder, 20, 0, 3), held("variable", "", 20, 300, 3))
    made = (Made("model", "Sequential", at(3), 20),)
    bad = recording(MODELS, device=5, kind="fit", census=rows, made=made)
    return Example(bad, recording(MODELS, kind="fit", made=made), 4 if named else 3)


def optimizer_made() -> Example:
    code = "for step in range(20):\n    opt = Adam()\n    opt.apply(g)\n"
    slots = site("adam/w_momentum", 3, "Variable")
    fresh = detail([(slots, "optimizer state", 40, 10, None, "(9, 9)")])
    old = detail([(slots, "optimizer state", 40, 0, None, "(9, 9)")])
    made = (Made("optimizer", "Adam", at(2), 20),)
    return Example(recording(code, details=(fresh,), made=made), recording(code, details=(old,)), 2)


def compiled() -> Example:
    code = "for episode in range(6):\n    model.compile('adam')\n    model.fit(x)\n"
    made = (Made("optimizer", "Adam", at(2), 6),)
    return Example(recording(code, host=5, kind="fit", made=made), recording(code, kind="fit", made=made[:0]), 2)


def made_in_loop(kind: str, text: str) -> Example:
    code = f"for step in range(20):\n    d = {text}\n    use(d)\n"
    name = {"variable": "ResourceVariable"}.get(kind, kind.title())
    made = (Made(kind, name, at(2), 20),)
    return Example(recording(code, host=5, made=made), recording(code, host=0, made=made), 2)


def profiler() -> Example:
    code = "tf.profiler.experimental.start(d)\nfor step in range(20):\n    f(x)\n"
    made = (Made("profiler", "ProfilerSession", at(1), 1),)
    return Example(recording(code, host=5, made=made), recording(code, made=made), 1)


def watcher(made: str, uses: str) -> Example:
    code = f"{made}\nfor step in range(20):\n    {uses}\n"
    return Example(recording(code, host=5), recording(code), 1)


def given(what: str, size: int, dtype: str = "float32", mapped: bool = False, line: int = 2) -> Data:
    return Data(0.2, None, what, at(line), size * MIB, dtype, "(1000, 50)", mapped)


def array_alive(dtype: str = "float32") -> tuple[Held, ...]:
    return (held("array", "x (global of train.py)", 1, 300)._replace(example=f"{dtype} (1000, 50)"),)


def float64() -> Example:
    code = "x = rng.random((1000, 50))\nmodel.fit(x)\n"
    bad = recording(code, data=(given("fit", 300, "float64"),), census=array_alive("float64"))
    return Example(bad, recording(code, data=(given("fit", 150),)), 1)


def copied(what: str) -> Example:
    code = "x = load()\nds = copy(x)\n"
    bad = recording(code, data=(given(what, 300),), census=array_alive())
    return Example(bad, recording(code, data=(given(what, 10),), census=array_alive()), 2)


def to_fit() -> Example:
    code = "x = load()\nmodel.fit(x)\n"
    return Example(recording(code, data=(given("fit", 300),)), recording(code, data=(given("fit", 10),)), 2)


def collected() -> Example:
    code = "x = load()\nm = model.predict(x).mean()\n"
    what = "returned by predict"
    return Example(recording(code, data=(given(what, 300),)), recording(code, data=(given(what, 9),)), 2)


def stage(name: str, method: str) -> Example:
    code = f"ds = source()\nds = ds.{method}(4000)\n"

    def with_buffer(size: int, elements: int) -> Recording:
        return recording(code, stages=(Stage(2.0, 1, 0, name, at(2), size * MIB, elements),))

    return Example(with_buffer(300, 4000), with_buffer(3, 2), 2)


def dense() -> Example:
    code = "model = Sequential([\n    Embedding(9),\n])\nmodel.fit(x)\n"
    table = site("embedding/table", 2, "Variable", "embedding")
    shape = "(30000, 128)"
    both = [
        (table, "parameters", 50, 0, None, shape),
        (site("AddN/inputs", 4, "UnsortedSegmentSum", mode="graph"), "gradients", 90, 10, 80, "[30000,128]"),
    ]
    bad = recording(code, kind="fit", details=(detail(both),))
    return Example(bad, recording(code, kind="fit", details=(detail(both[:1]),)), 2)


def loop_stack() -> Example:
    code = "for _ in range(2):\n    h = unroll(h, 200)\n"
    turns = [(site("while/body/Tanh", 9, mode="graph"), "other", 3, i + 1, None, "(9, 9)") for i in range(40)]
    bad = recording(code, kind="call", line=2, details=(detail(turns),))
    return Example(bad, recording(code, kind="call", line=2, details=(detail(turns[:4]),)), 2)


def by_pfor(call: str) -> Example:
    code = f"for _ in range(2):\n    rows = {call}\n"
    at_once = site("loop_body/pfor/MatMul", 2, mode="graph")

    def taken(size: int) -> Recording:
        return recording(code, line=2, details=(detail([(at_once, "temporaries", size, 5, 90, "(9, 9)")]),))

    return Example(taken(200), taken(2), 2)


def tiled() -> Example:
    code = "for _ in range(9):\n    mask = tf.tile(mask, [1, 12, 1, 1])\n    y = scores + mask\n"

    def masked(size: float) -> Recording:
        used = (site("AddV2", 3), "temporaries", 200.0, 5, 90, "(4, 12, 800, 800)")
        return recording(code, line=3, details=(detail([used, (site("Tile", 2), "temporaries", size, 4, 90, "")]),))

    return Example(masked(200), masked(2), 2)


def everything() -> Example:
    code = "x = load()\ny = model(x)\n"

    def called(rows: int, size: float) -> Recording:
        one = detail([(site("Relu", 2), "activations", size, 5, 90, f"({rows}, 64)")], step=0)
        return recording(code, kind="call", line=2, steps=1, details=(one,))

    return Example(called(16384, 300), called(128, 3), 2)


def evaluated() -> Example:
    code = "model.fit(x, validation_data=v, validation_batch_size=n)\n"

    def validated(peak: int) -> Recording:
        run = recording(code, kind="fit")
        last = run.steps[-1]._replace(kind="evaluate", source=at(1), device_peak_bytes=peak * MIB)
        return replace(run, steps=(*run.steps[:-1], last))

    return Example(validated(400), validated(60), 1)


def grouped() -> Example:
    code = "ds = source()\nds = ds.group_by_window(key, batch, 4096)\n"

    def waiting(rows: int) -> Recording:
        row = Site("tf.data 0", "tf.data", "", at(1), "", "graph")
        return recording(code, details=(detail([(row, "inputs", 2, 0, None, "(500,)")] * rows),))

    return Example(waiting(200), waiting(2), 2)


def queued() -> Example:
    code = "data = Batches(workers=2, max_queue_size=500)\nmodel.fit(data)\n"

    def with_queue(most: int) -> Recording:
        run = recording(code, kind="fit", line=2)
        samples = list(run.samples)
        samples[9] = samples[9]._replace(rss_bytes=(samples[9].rss_bytes or 0) + most * MIB)
        return replace(run, samples=tuple(samples))

    return Example(with_queue(300), with_queue(1), 1)


def held_by_name() -> Example:
    code = "x = resize(images)\nmodel.fit(x)\n"

    def with_array(size: int) -> Recording:
        row = held("array", "x (global of train.py)", 1, size)
        return recording(code, kind="fit", line=2, census=(row,))

    return Example(with_array(300), with_array(9), 1)


def unfused_norm() -> Example:
    code = "def norm(h):\n    m, v = tf.nn.moments(h, [0])\n    return tf.nn.batch_normalization(h, m, v)\nstep(x)\n"

    def normalized(buffers: int) -> Recording:
        made = [site(f"batchnorm/mul_{i}", 3, mode="graph") for i in range(buffers)]
        parts = [(one, "temporaries", 60, 5 + i, 90, "") for i, one in enumerate(made)]
        return recording(code, kind="function", line=4, details=(detail(parts),))

    return Example(normalized(6), normalized(1), 3)


def eager_step() -> Example:
    code = "model.compile(\"sgd\", run_eagerly=True)\nmodel.evaluate(x)\n"

    def evaluated(results: int) -> Recording:
        parts = [(site(f"Relu_{i}", 2), "activations", 60, 5 + i, 90, "") for i in range(results)]
        return recording(code, kind="evaluate", line=2, details=(detail(parts),))

    return Example(evaluated(6), evaluated(1), 1)


def iterators_kept() -> Example:
    code = "its = []\nfor epoch in range(12):\n    it = iter(ds)\n    its.append(it)\n"

    def alive(number: int) -> Recording:
        stages = tuple(Stage(19.0, 1, i, "Shuffle", at(9), 20 * MIB, 10) for i in range(number))
        return recording(code, kind="next", line=3, stages=stages)

    return Example(alive(12), alive(1), 4)


def sessions_open() -> Example:
    code = "for fold in range(20):\n    session = tf.compat.v1.Session()\n    session.run(init)\n"

    def opened(device: int) -> Recording:
        return recording(code, device=device, kind="session", line=3, made=(Made("session", "Session", at(2), 20),))

    return Example(opened(10), opened(0), 2)


def tuned() -> Example:
    code = "ds = source()\nds = ds.map(load, num_parallel_calls=tf.data.AUTOTUNE)\n"

    def with_buffer(size: int, elements: int) -> Recording:
        return recording(code, stages=(Stage(2.0, 1, 0, "ParallelMapV2", at(2), size * MIB, elements),))

    return Example(with_buffer(300, 40), with_buffer(3, 2), 2)


def swapped() -> Example:
    def out(size: int) -> Recording:
        run = recording(ONCE)
        return replace(run, samples=tuple(s._replace(swap_bytes=size * MIB, source=at(1)) for s in run.samples))

    return Example(out(300), out(0), 1)


def known_bug() -> Example:
    code = "with keras.RematScope(\"full\"):\n    model = build()\nmodel.fit(x)\n"
    kept_anyway = detail([(site("Relu", 3, mode="graph"), "activations", 200, 5, 90, "(9, 9)")])
    bad = recording(code, kind="fit", line=3, details=(kept_anyway,))
    return Example(bad, replace(bad, sources={FILE: code.replace("RematScope", "Scope")}), 1)


def many_times() -> Example:
    code = "x = load()\nwide = np.concatenate([x, x[:, ::-1], x + noise])\nmodel.fit(wide)\n"

    def joined(size: float) -> Recording:
        rows = [held("array", f"{name} (global of train.py)", 1, s) for name, s in (("x", 60), ("wide", size))]
        return recording(code, kind="fit", line=3, census=tuple(rows))

    return Example(joined(180), joined(100), 2)


def padded() -> Example:
    code = "ds = ds.padded_batch(64)\nfor batch in ds:\n    loss(batch)\n"

    def given(filled: float) -> Recording:
        row = Data(0.2, None, "padded_batch", at(1), 60 * MIB, "float32", "(64, 4000, 64)", False, round(filled * MIB))
        made_of_it = [(site("Relu", 3), "temporaries", 100, 5, 90, "[64,4000,256]")]
        return recording(code, kind="next", line=2, data=(row,), details=(detail(made_of_it),))

    return Example(given(2), given(40), 1)


def optimizer_state() -> Example:
    code = "opt = Adam()\nmodel.fit(x)\n"
    parts = [
        (site("w", 1, "Variable"), "parameters", 150, 0, None, "(9, 9)"),
        (site("m", 1, "Variable"), "optimizer state", 300, 0, None, "(9, 9)"),
    ]
    made = (Made("optimizer", "Adam", at(1), 1),)
    bad = recording(code, kind="fit", details=(detail(parts),), made=made)
    return Example(bad, recording(code, kind="fit", details=(detail(parts[:1]),), made=made), 1)


def activations() -> Example:
    code = "model = build()\nmodel.fit(x)\n"

    def trained(size: int) -> Recording:
        layers = [site(f"Relu_{i}", 1, layer=f"relu_{i}", mode="graph") for i in range(5)]
        kept = [(layer, "activations", size / 5, 5, 90, "(9, 9)") for layer in layers]
        return recording(code, kind="fit", line=2, details=(detail(kept),))

    return Example(trained(500), trained(20), 2)


def out_of_memory() -> Example:
    good = activations().good
    refusal = Refusal(512 * MIB, "(128, 1024, 1024)", "float32", "model/Relu", "CPU:0", at(2))
    died = Outcome("exception", 9.0, 1, "", "ResourceExhaustedError", "OOM", at(2), refusal, True, "it says so")
    return Example(replace(activations().bad, outcome=died), good, 2)


def graph_grows() -> Example:
    code = "v1.disable_eager_execution()\nfor step in range(20):\n    session.run(-c)\n"
    rows = traces(20, lambda i: "the graph grew by 3 ops" if i else "first call", lambda i: -1)
    grown = tuple(row._replace(function="Session.run", nodes=10 + 3 * i) for i, row in enumerate(rows))
    return Example(recording(code, host=5, kind="run", traces=grown), recording(code, kind="run", traces=grown[:1]), 3)


def peak_by_line() -> Example:
    code = "for step in range(2):\n    scores = q @ tf.transpose(k)\n"

    def stepped(size: int) -> Recording:
        one = detail([(site("MatMul", 2), "temporaries", size, 5, 90, "(9, 9)")])
        return recording(code, kind="call", line=2, details=(one,))

    return Example(stepped(400), stepped(30), 2)


def host_peak() -> Example:
    code = "x = np.concatenate(parts)\nmodel.fit(x)\n"

    def built(size: int) -> Recording:
        run = recording(code, kind="fit", line=2)
        high = Sample(0.05, "inside", None, 0, 0, 0, PEAK, source=at(1))
        low = tuple(s._replace(rss_bytes=PEAK - size * MIB) for s in run.samples)
        return replace(run, samples=(high, *low))

    return Example(built(400), built(20), 1)


def reserved() -> Example:
    def on_gpu(unused: int) -> Recording:
        run = recording(ONCE)
        machine = replace(run.run.machine, devices=(Device("GPU:0", "bfc", 8 << 30),))
        taken = tuple(s._replace(reserved_bytes=(60 + unused) * MIB) for s in run.samples)
        return replace(run, run=replace(run.run, machine=machine), samples=taken)

    return Example(on_gpu(700), on_gpu(5), None)


def fragmented() -> Example:
    example = out_of_memory()
    pieces = replace(example.bad.details[0], reserved_bytes=900 * MIB, largest_free_bytes=100 * MIB, begin_bytes=0)
    return Example(replace(example.bad, details=(pieces,)), example.good, 2)


EXAMPLES: dict[str, Example] = {
    "out-of-memory": out_of_memory(),
    "tensors-kept": kept("tensor"),
    "arrays-kept": kept("array"),
    "variables-kept": kept("variable"),
    "view-pins-buffer": view(),
    "device-growth": device_growth(),
    "host-growth": host_growth(),
    "kernels-per-shape": new_shapes(),
    "malloc-retention": retention(),
    "tapes-kept": tapes_kept(),
    "tape-spans-steps": tape_spans(),
    "gradient-inside-tape": gradient_inside(),
    "tape-records-unused": tape_unused(),
    "retrace-by-value": retrace(True),
    "retrace-by-shape": retrace(False),
    "function-made-again": function_made_again(),
    "graph-grows": graph_grows(),
    "constants-in-graph": baked(),
    "python-loop-unrolled": unrolled(),
    "models-kept": models(True),
    "models-never-freed": models(False),
    "optimizer-made-again": optimizer_made(),
    "compiled-again": compiled(),
    "iterators-kept": iterators_kept(),
    "sessions-left-open": sessions_open(),
    "layers-made-again": made_in_loop("layer", "StringLookup()"),
    "dataset-made-again": made_in_loop("dataset", "Dataset.from_generator(g)"),
    "variables-made-again": made_in_loop("variable", "tf.Variable(1)"),
    "closures-kept": made_in_loop("function", "tf.function(lambda: tf.numpy_function(g))"),
    "profiler-left-on": profiler(),
    "debugger-left-on": watcher("tf.debugging.experimental.enable_dump_debug_info(d)", "f(x)"),
    "summaries-waiting": watcher(
        "w = tf.summary.create_file_writer(d, max_queue=9999)", "tf.summary.image('a', x, step)"
    ),
    "float64-data": float64(),
    "dataset-in-constant": copied("tf.constant"),
    "dataset-copied": copied("from_tensor_slices"),
    "array-given-to-fit": to_fit(),
    "array-many-times": many_times(),
    "mostly-padding": padded(),
    "predict-collects": collected(),
    "shuffle-buffer": stage("Shuffle", "shuffle"),
    "cached-in-memory": stage("MemoryCacheImpl", "cache"),
    "prefetch-buffer": stage("Prefetch", "prefetch"),
    "interleave-buffers": stage("ParallelInterleaveV4", "interleave"),
    "parallel-map-buffer": stage("ParallelMapV2", "map"),
    "autotune-buffers": tuned(),
    "grouped-in-memory": grouped(),
    "queued-batches": queued(),
    "dense-gradient": dense(),
    "loop-keeps-every-turn": loop_stack(),
    "jacobian-all-at-once": by_pfor("tape.jacobian(y, x)"),
    "vectorized-at-once": by_pfor("tf.vectorized_map(energy, clouds)"),
    "copies-written-out": tiled(),
    "called-on-everything": everything(),
    "evaluated-at-once": evaluated(),
    "step-runs-eagerly": eager_step(),
    "batchnorm-unfused": unfused_norm(),
    "optimizer-state": optimizer_state(),
    "peak-by-line": peak_by_line(),
    "host-peak": host_peak(),
    "held-by-name": held_by_name(),
    "reserved-unused": reserved(),
    "fragmentation": fragmented(),
    "swapped-out": swapped(),
    "known-bug": known_bug(),
    "activations-rule": activations(),
}
