"""The device that TensorFlow may see: set, never inherited."""

from __future__ import annotations

from polybench.engines.support.frameworks import cuda_index

CUDA_INSTALL = "pip install 'tensorflow[and-cuda]'"


def show_only(device: str, count: int = 1) -> None:
    """Hide every GPU but the one asked for, so that TensorFlow cannot place anything anywhere else.

    Args:
        device: as in a Job.
        count: so many GPUs, from that one on.
    """
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if device == "cpu":
        wanted = []
    else:
        first = int(device.partition(":")[2] or 0)
        cuda_build = tf.test.is_built_with_cuda()
        wanted = [
            gpus[cuda_index(f"cuda:{number}", len(gpus), cuda_build=cuda_build, install=CUDA_INSTALL)]
            for number in range(first, first + count)
        ]
        for gpu in wanted:
            if not tf.config.experimental.get_memory_growth(gpu):
                # By itself TensorFlow takes all of a GPU's memory, and says nothing about what it needs.
                tf.config.experimental.set_memory_growth(gpu, True)
    if tf.config.get_visible_devices("GPU") != wanted:
        tf.config.set_visible_devices(wanted, "GPU")
