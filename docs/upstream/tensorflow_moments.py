"""TensorFlow's mean and variance of a batch on the CPU: four running float32 sums, which lose small values.

python tensorflow_moments.py
"""

import numpy as np
import tensorflow as tf

print(f"tensorflow {tf.__version__}")
random = np.random.default_rng(0)
for pixels in (1_024, 16_384, 262_144, 4_194_304):
    x = (3 + random.standard_normal((1, 1, pixels, 16))).astype(np.float32)
    _, variance = tf.nn.moments(tf.constant(x), [0, 1, 2])
    exact = x.astype(np.float64).var(axis=(0, 1, 2))
    pairwise = np.ascontiguousarray(x.reshape(-1, 16).T).var(axis=1)
    print(
        f"{pixels:>9,} pixels a channel: variance {np.abs(variance / exact - 1).max():.1e} from exact,"
        f" NumPy's float32 {np.abs(pairwise / exact - 1).max():.1e}"
    )
