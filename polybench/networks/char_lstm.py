"""The text generation example of Keras 2: predicts the next character from 40 one-hot characters.

Source: https://github.com/keras-team/keras/blob/2.0.0/examples/lstm_text_generation.py, whose text has 57
different characters; measured in minimaxir's "Benchmarking TensorFlow on Cloud CPUs", 2017. Keras 2 uses a
hard sigmoid at the LSTM's gates; PyTorch and Flux lack it.
"""

from polybench.networks.layers import LSTM, Dense
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer

_CHARACTERS = 57

CHAR_LSTM = Model(
    name="char-lstm",
    summary="the text generation example of Keras 2: a character-level LSTM",
    input_shape=(40, _CHARACTERS),
    classes=_CHARACTERS,
    layers=(LSTM("lstm", _CHARACTERS, 128), Dense("dense", 128, _CHARACTERS)),
    batch_size=128,
    optimizer=Optimizer("rmsprop", learning_rate=0.01),
    parity_batch_size=8,
    published_parameters=102_585,
)
