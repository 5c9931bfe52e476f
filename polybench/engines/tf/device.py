"""Devices visible to TensorFlow, always set explicitly."""

from __future__ import annotations

from polybench.engines.shared.frameworks import cuda_index

CUDA_INSTALL = "pip install 'tensorflow[and-cuda]'"


def set_visible_devices(device: str, count: int = 1) -> None:
    """Hide all other GPUs so that TensorFlow cannot use them.

    Args:
        device: device name, as in a Job.
        count: number of GPUs, starting with that device.
    """
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if device == "cpu":
        visible = []
    else:
        first = int(device.partition(":")[2] or 0)
        cuda_build = tf.test.is_built_with_cuda()
        visible = [
            gpus[cuda_index(f"cuda:{number}", len(gpus), cuda_build=cuda_build, install=CUDA_INSTALL)]
            for number in range(first, first + count)
        ]
        for gpu in visible:
            if not tf.config.experimental.get_memory_growth(gpu):
                # By default, TensorFlow allocates all of a GPU's memory, which hides how much it needs.
                tf.config.experimental.set_memory_growth(gpu, True)
    if tf.config.get_visible_devices("GPU") != visible:
        tf.config.set_visible_devices(visible, "GPU")
