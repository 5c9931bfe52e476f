"""Thread pools of TensorFlow, always set explicitly."""

from __future__ import annotations


def set_threads(threads: int) -> None:
    """Set the sizes of the intra-op and inter-op pools."""
    import tensorflow as tf

    pools = tf.config.threading
    # Once the process has computed something, the sizes are fixed; then they are already correct.
    if pools.get_intra_op_parallelism_threads() != threads:
        pools.set_intra_op_parallelism_threads(threads)
    if pools.get_inter_op_parallelism_threads() != threads:
        pools.set_inter_op_parallelism_threads(threads)
