"""What a tape records for nothing, which line to change for it, and inner gradients that it has to go back through."""

from __future__ import annotations

from lowtide.diagnose import diagnose
from lowtide.program import Source
from lowtide.record import Recording, Tape
from tests.diagnose.examples import at, census, detail, held, recording, site, tape

UNUSED = tape(watched=9, used=1)


def run(code: str, gradient: int, forward: int, mode: str = "eager", tapes: tuple[Tape, ...] = (UNUSED,)) -> Recording:
    """A tape at line 3 that keeps much of line `forward` until the gradient at line `gradient`."""
    both = detail([
        (site("Sigmoid", forward, mode=mode), "activations", 80, 10, 60, "(9, 9)"),
        (site("SigmoidGrad", gradient), "temporaries", 10, 40, 45, "(9, 9)"),
    ])  # fmt: skip
    return recording(code, line=gradient, details=(both,), tapes=tapes)


def named(found: Recording) -> tuple[str, Source | None]:
    first = diagnose(found)[0]
    return first.id, first.source


HEAD = "for step in range(20):\n    pass\n    with tf.GradientTape() as tape:\n"


def test_what_a_caller_does_while_a_tape_is_open_is_blamed_on_the_yield() -> None:
    code = HEAD + "        y = f(x)\n        yield y\n    tape.gradient(y, h)\n"
    assert named(run(code, 6, 4)) == ("tape-records-unused", at(5))


def test_what_needs_nothing_of_the_trained_is_to_leave_the_tape() -> None:
    code = HEAD + "        soft = teach(x)\n        loss = (student(x) - soft) ** 2\n"
    code += "    tape.gradient(loss, student.weights)\n"
    assert named(run(code, 6, 4)) == ("tape-records-unused", at(4))
    assert named(run(code, 6, 4, mode="graph")) == ("tape-records-unused", at(4)), "a tf.function keeps as much"


def test_what_needs_what_the_trained_gave_cannot_leave_it_so_the_tape_is_to_watch_less() -> None:
    code = HEAD + "        action = policy(x)\n        x, reward = imagine(x, action)\n        loss = reward * action\n"
    code += "    tape.gradient(loss, policy.weights)\n"
    assert named(run(code, 7, 5)) == ("tape-records-unused", at(3))


def test_a_name_for_the_trained_weights_stands_for_their_model() -> None:
    code = HEAD + "        fake = self.generator(z)\n        loss = self.critic(fake)\n"
    code += "    weights = self.critic.weights\n    tape.gradient(loss, weights)\n"
    assert named(run(code, 7, 4)) == ("tape-records-unused", at(4))


def test_bytes_are_of_the_tape_that_was_asked_for_its_gradient() -> None:
    """Another tape inside, that watches as much for its own small gradient, keeps little."""
    code = HEAD + "        with tf.GradientTape() as inner:\n            y = critic(x)\n        inner.gradient(y, x)\n"
    code += "        loss = y\n    tape.gradient(loss, w)\n"
    inner = UNUSED._replace(source=at(4))
    big = detail([
        (site("Sigmoid", 5), "activations", 80, 10, 60, "(9, 9)"),
        (site("SigmoidGrad", 8), "temporaries", 10, 40, 45, "(9, 9)"),
    ])  # fmt: skip
    found = recording(code, line=8, details=(big,), tapes=(inner, UNUSED))
    small = found.steps[0]._replace(source=at(6))
    found = Recording(found.run, found.outcome, found.samples, (small, *found.steps[1:]), details=found.details,
                      tapes=found.tapes, sources=found.sources)  # fmt: skip
    assert [f.source for f in diagnose(found) if f.id == "tape-records-unused"] == [at(3)]


MAML = """\
def adapt(x):
    fast = [tf.identity(v) for v in theta]
    for _ in range(8):
        with tf.GradientTape() as inner:
            loss = mse(fast, x)
        fast = [f - g for f, g in zip(fast, inner.gradient(loss, fast))]
    return fast
with tf.GradientTape() as outer:
    fast = adapt(support)
    loss = mse(fast, query)
outer.gradient(loss, theta)
"""


def spans(code: str, line: int) -> list[Source | None]:
    rows = census(held("tensor", "", 20, 100, 4))
    around = tape(made=1, alive=0, most_steps=8)._replace(source=at(line))
    found = diagnose(recording(code, device=5, census=rows, tapes=(around,), line=6))
    return [f.source for f in found if f.id == "tape-spans-steps"]


def test_a_tape_that_goes_back_through_inner_gradients_is_needed() -> None:
    assert spans(MAML, 8) == []


def test_one_that_is_asked_for_what_was_made_under_it_is_not() -> None:
    assert spans(MAML.replace("(loss, theta)", "(loss, fast)"), 8) == [at(9)]


def test_without_a_loop_under_the_tape_its_steps_are_of_one_turn() -> None:
    """A GAN's critic is called three times, once inside a penalty with a gradient of its own."""
    code = "def penalty(mix):\n    return tf.norm(mix)\ncritic = build()\nwith tf.GradientTape() as tape:\n"
    code += "    loss = critic(fake) - critic(real) + penalty(mix)\ntape.gradient(loss, w)\n"
    assert spans(code, 4) == []
    looping = code.replace("return tf.norm(mix)", "return sum(critic(m) for m in mix)")
    assert spans(looping, 4) != []
