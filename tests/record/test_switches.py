"""Which plain values of the user's modules are taken down."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lowtide.tf.switches import LONGEST, switches


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """A module of the user's."""
    module = ModuleType("train")
    module.__file__ = str(tmp_path / "train.py")
    monkeypatch.setitem(sys.modules, "train", module)
    return module


def seen(module: ModuleType) -> dict[str, Any]:
    return dict(switches()[str(module.__file__)])


def test_flags_numbers_and_short_texts_are_switches(train: ModuleType) -> None:
    vars(train).update(DEBUG=False, epochs=3, rate=0.1, mode="fast", nothing=None)
    assert seen(train) == {"DEBUG": False, "epochs": 3, "rate": 0.1, "mode": "fast", "nothing": None}


def test_options_of_argparse_are_named_as_the_code_names_them(train: ModuleType) -> None:
    vars(train)["args"] = Namespace(keep=True, data=[1, 2])
    assert seen(train) == {"args.keep": True}


def test_data_and_objects_are_none(train: ModuleType) -> None:
    vars(train).update(rows=[1], text="x" * LONGEST, make=dict, __private__=1)
    assert seen(train) == {}


def test_modules_of_libraries_are_left_out() -> None:
    files = switches()
    assert str(Path(pytest.__file__).absolute()) not in files
    assert not [file for file in files if "/src/lowtide/" in file]
