"""An empty program of a user's own, which `polybench export --template` writes."""

from __future__ import annotations

TEXT = '''"""A training step of your own, which polybench times like that of an engine.

polybench compare --engines torch,./THIS_FILE
"""

# Constants at the top as text: polybench runs the file with other values for the check
# in float64 and on other devices. Without DTYPE, it is checked as it is timed.
DTYPE = "float32"
DEVICE = "cpu"


def setup(weights):
    """Return the start of a training: model, optimizer and what else a step changes.

    `weights` are arrays by name ("conv1.weight"), as `polybench export --weights` writes
    them. With setup() in place of setup(weights), the network is your own, and nothing is
    checked: add --no-parity.
    """
    raise NotImplementedError


def reset(state, weights, step=0):
    """Start again in place, without compiling anything anew. Without it, setup is called again."""
    raise NotImplementedError


def load(images, labels):
    """Return a batch as `train_step` takes it, before the clock starts.

    images: (batch, channels, height, width), float32 in 0..1, or sequences of tokens; labels: (batch,), int64.
    """
    raise NotImplementedError


def train_step(state, batch):
    """Train on a batch; return the loss before the update. It may be asynchronous."""
    raise NotImplementedError


def batches(images, labels, order):
    """Yield the batches of your own input pipeline, for --input pipeline; without it, only `load` is used.

    images: all of the training set, (images, channels, height, width), uint8; labels: (images,), int64;
    order: the indices of each batch, (steps, batch).
    """
    raise NotImplementedError


def weights(state):
    """Return the weights as arrays by name, for the check. Without it, only losses are compared."""
    raise NotImplementedError
'''
