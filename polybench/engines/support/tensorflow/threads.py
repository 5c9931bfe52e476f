"""TensorFlow's thread pools: set, never inherited."""

from __future__ import annotations


def set_threads(threads: int) -> None:
    """Of both pools, intra-op and inter-op."""
    import tensorflow as tf

    pools = tf.config.threading
    # Not possible any more once the process has computed something; then they have this size already.
    if pools.get_intra_op_parallelism_threads() != threads:
        pools.set_intra_op_parallelism_threads(threads)
    if pools.get_inter_op_parallelism_threads() != threads:
        pools.set_inter_op_parallelism_threads(threads)
