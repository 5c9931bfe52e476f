"""The text generation example of Keras 2: from 40 characters, as 0 and 1, the one that follows.

Source: https://github.com/keras-team/keras/blob/2.0.0/examples/lstm_text_generation.py, whose text has 57
characters; measured in minimaxir's "Benchmarking TensorFlow on Cloud CPUs", 2017. Keras 2 has a hard sigmoid
at the LSTM's gates, which PyTorch and Flux have not.
"""

from polybench.core.layers import Dense
from polybench.core.model import Model
from polybench.core.optimizers import Optimizer
from polybench.core.sequence_layers import LSTM

_CHARACTERS = 57

CHAR_LSTM = Model(
    name="char-lstm",
    summary="the text generation of Keras 2: an LSTM on characters",
    input_shape=(40, _CHARACTERS),
    classes=_CHARACTERS,
    layers=(LSTM("lstm", _CHARACTERS, 128), Dense("dense", 128, _CHARACTERS)),
    batch_size=128,
    optimizer=Optimizer("rmsprop", learning_rate=0.01),
    parity_batch_size=8,
    published_parameters=102_585,
)
