"""What the real TensorFlow says of this machine to `lowtide doctor`."""

from __future__ import annotations

import importlib.metadata

import pytest

from lowtide.tf.look import look


@pytest.mark.parametrize("bfc", [True, False])
def test_versions_and_whether_the_cpu_keeps_count(bfc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if bfc:
        monkeypatch.setenv("TF_CPU_ALLOCATOR_USE_BFC", "1")
    else:
        monkeypatch.delenv("TF_CPU_ALLOCATOR_USE_BFC", raising=False)
    answer = look()
    assert "error" not in answer
    assert answer["versions"]["keras"] == importlib.metadata.version("keras")
    cpu = next(device for device in answer["devices"] if device["kind"] == "CPU")
    assert (cpu["name"], cpu["counts"]) == ("CPU:0", bfc)
