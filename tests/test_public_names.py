"""The package from outside: few names, and no TensorFlow until it is needed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import lowtide

HEAVY = ("tensorflow", "keras")


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after running `statement`."""
    script = f"{statement}\nimport json, sys\nprint(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "statement",
    [
        "import lowtide; dir(lowtide); lowtide.__version__",
        "import lowtide; lowtide.predict, lowtide.largest_batch, lowtide.Prediction",
        "import lowtide.cli.main; lowtide.cli.main.parser()",
        "import lowtide.program, lowtide.ops, lowtide.simulate, lowtide.plan, lowtide.report.prediction",
        "import lowtide.tf.child, lowtide.tf.worker",
        "import lowtide.tf.watched, lowtide.tf.supervise, lowtide.tf.measured, lowtide.runs, lowtide.record.views",
        "import lowtide.pytest_plugin, lowtide.jupyter",
    ],
)
def test_nothing_imports_tensorflow_before_it_is_needed(statement: str) -> None:
    assert not modules_after(statement).intersection(HEAVY)


def test_importing_lowtide_imports_next_to_nothing() -> None:
    assert not modules_after("import lowtide").intersection({"numpy", "rich", "psutil", "ortools"})


def test_there_are_at_most_twenty_public_names_and_each_resolves() -> None:
    assert len(lowtide.__all__) <= 20
    assert dir(lowtide) == sorted(lowtide.__all__)
    for name in lowtide.__all__:
        assert getattr(lowtide, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'lowtide' has no attribute 'manager'"):
        lowtide.manager  # noqa: B018


@pytest.mark.parametrize("name", ["lowtide.plan.save_plan", "lowtide.keras.MemoryCallback"])
def test_parts_are_there_without_an_import_of_their_own(name: str) -> None:
    subprocess.run([sys.executable, "-c", f"import lowtide; {name}"], capture_output=True, check=True)
