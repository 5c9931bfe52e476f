"""The device that TensorFlow may see: set, never inherited."""

from __future__ import annotations

from polybench.engines.support.frameworks import cuda_index

CUDA_INSTALL = "pip install 'tensorflow[and-cuda]'"


def show_only(device: str) -> None:
    """Hide every GPU but the one asked for, so that TensorFlow cannot place anything anywhere else."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if device == "cpu":
        wanted = []
    else:
        index = cuda_index(device, len(gpus), cuda_build=tf.test.is_built_with_cuda(), install=CUDA_INSTALL)
        wanted = [gpus[index]]
        if not tf.config.experimental.get_memory_growth(gpus[index]):
            # By itself TensorFlow takes all of the GPU's memory, and says nothing about what it needs.
            tf.config.experimental.set_memory_growth(gpus[index], True)
    if tf.config.get_visible_devices("GPU") != wanted:
        tf.config.set_visible_devices(wanted, "GPU")
