"""What it looks like when memory ran out."""

from __future__ import annotations

from lowtide.tf.refusals import out_of_memory


def test_tensorflow_says_that_memory_ran_out_in_several_ways() -> None:
    assert out_of_memory("ResourceExhaustedError", "OOM when allocating tensor")
    assert out_of_memory("InternalError", "Dst tensor is not initialized.")
    assert out_of_memory("InvalidArgumentError", "Cannot parse tensor from proto: dtype: DT_FLOAT")
    assert not out_of_memory("ValueError", "OOM")
