"""One root, and exit codes that are documented."""

from __future__ import annotations

import pytest

import lowtide
from lowtide import errors

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]


def test_catching_the_public_root_catches_everything_lowtide_says() -> None:
    assert lowtide.LowtideError is errors.LowtideError
    assert all(issubclass(kind, lowtide.LowtideError) for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_says_what_it_is_and_how_the_command_ends(kind: type[errors.LowtideError]) -> None:
    assert kind.__doc__
    assert kind.exit_code in (1, 2, 3)


def test_infeasible_is_an_answer() -> None:
    error = errors.Infeasible("needs 3 GiB", 3 << 30)
    assert (str(error), error.smallest_bytes, error.exit_code) == ("needs 3 GiB", 3 << 30, 3)
