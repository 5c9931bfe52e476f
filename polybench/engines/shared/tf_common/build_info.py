"""Build details of TensorFlow."""

from __future__ import annotations

import os

CUDNN_AUTOTUNE = "TF_CUDNN_USE_AUTOTUNE"  # TensorFlow's default is to benchmark cuDNN's algorithms


def build_info() -> dict[str, str]:
    """Return compiler, CUDA and cuDNN versions, and cuDNN autotuning."""
    import tensorflow as tf

    info = tf.sysconfig.get_build_info()
    build = {key: str(info[key]) for key in ("cpu_compiler", "cuda_version", "cudnn_version") if key in info}
    if tf.test.is_built_with_cuda():
        build["cudnn_autotune"] = "on" if os.environ.get(CUDNN_AUTOTUNE, "1") == "1" else "off"
    return build
