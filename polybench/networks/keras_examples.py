"""Examples of Keras 2, as measured in minimaxir's articles of 2017: images of CIFAR-10 and MNIST, reviews, characters.

Source: https://github.com/keras-team/keras/blob/2.0.0/examples, with the file that each network names; measured
in "Benchmarking TensorFlow on Cloud CPUs" and "Benchmarking Modern GPUs", 2017.

What differs from the originals:
- The original CNN for MNIST is trained with Adadelta, which polybench lacks; polybench uses Adam with its default
  learning rate.
- The examples for IMDb end in one sigmoid; these networks end in two logits whose difference is the sigmoid's
  input, which adds 129 or 51 parameters.
- Keras 2 uses a hard sigmoid at the LSTM's gates; PyTorch and Flux lack it.
"""

from polybench.networks.layers import LSTM, Conv, Dense, Dropout, Embedding, Flatten, MaxPool, MeanOverTime, ReLU
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer

KERAS_CNN = Model(  # cifar10_cnn.py
    name="keras-cnn",
    summary="the CIFAR-10 example of Keras 2: 4 convolutions, 2 dense layers, dropout",
    input_shape=(3, 32, 32),
    classes=10,
    layers=(
        Conv("conv1", 3, 32, kernel=3, padding="same"),
        ReLU(),
        Conv("conv2", 32, 32, kernel=3),
        ReLU(),
        MaxPool(2),
        Dropout("dropout1", 0.25),
        Conv("conv3", 32, 64, kernel=3, padding="same"),
        ReLU(),
        Conv("conv4", 64, 64, kernel=3),
        ReLU(),
        MaxPool(2),
        Dropout("dropout2", 0.25),
        Flatten(),
        Dense("dense1", 2304, 512),
        ReLU(),
        Dropout("dropout3", 0.5),
        Dense("dense2", 512, 10),
    ),
    batch_size=32,
    optimizer=Optimizer("rmsprop", learning_rate=1e-4),
    parity_batch_size=8,
    published_parameters=1_250_858,
)

MNIST_MLP = Model(  # mnist_mlp.py
    name="mnist-mlp",
    summary="the MNIST perceptron of Keras 2: 3 dense layers, dropout",
    input_shape=(1, 28, 28),
    classes=10,
    layers=(
        Flatten(),
        Dense("dense1", 784, 512),
        ReLU(),
        Dropout("dropout1", 0.2),
        Dense("dense2", 512, 512),
        ReLU(),
        Dropout("dropout2", 0.2),
        Dense("dense3", 512, 10),
    ),
    batch_size=128,
    optimizer=Optimizer("rmsprop", learning_rate=1e-3),
    parity_batch_size=32,
    published_parameters=669_706,
)

MNIST_CNN = Model(  # mnist_cnn.py
    name="mnist-cnn",
    summary="the MNIST CNN of Keras 2: 2 convolutions, 2 dense layers, dropout",
    input_shape=(1, 28, 28),
    classes=10,
    layers=(
        Conv("conv1", 1, 32, kernel=3),
        ReLU(),
        Conv("conv2", 32, 64, kernel=3),
        ReLU(),
        MaxPool(2),
        Dropout("dropout1", 0.25),
        Flatten(),
        Dense("dense1", 9216, 128),
        ReLU(),
        Dropout("dropout2", 0.5),
        Dense("dense2", 128, 10),
    ),
    batch_size=128,
    optimizer=Optimizer("adam", learning_rate=1e-3),
    parity_batch_size=8,
    published_parameters=1_199_882,
)

WORD_TOKENS = 20_000
"""Tokens of the examples for IMDb, including those that are not words."""

PAIR_BUCKETS = 1 << 20
"""Number of hash buckets for pairs of words. The example numbers the pairs of its training set, about as
many. Here the hash selects a bucket, as in fastText itself, so the network does not depend on the data.
Joulin et al., 2016: https://arxiv.org/abs/1607.01759"""

IMDB_BILSTM = Model(  # imdb_bidirectional_lstm.py
    name="imdb-bilstm",
    summary="the IMDb example of Keras 2: an embedding and a bidirectional LSTM",
    input_shape=(100,),
    classes=2,
    layers=(
        Embedding("embedding", WORD_TOKENS, 128),
        LSTM("lstm", 128, 64, bidirectional=True),
        Dropout("dropout", 0.5),
        Dense("dense", 128, 2),
    ),
    batch_size=32,
    optimizer=Optimizer("adam", learning_rate=1e-3),
    parity_batch_size=4,
)


def fasttext(buckets: int) -> Model:
    """Build imdb_fasttext.py: the mean of the embeddings of words and of hashed pairs of adjacent words."""
    return Model(
        name="imdb-fasttext",
        summary="fastText on IMDb as in Keras 2: the mean of word and word-pair embeddings",
        input_shape=(400,),
        classes=2,
        layers=(Embedding("embedding", WORD_TOKENS + buckets, 50), MeanOverTime(), Dense("dense", 50, 2)),
        batch_size=32,
        optimizer=Optimizer("adam", learning_rate=1e-3),
        parity_batch_size=8,
    )


IMDB_FASTTEXT = fasttext(PAIR_BUCKETS)

CHAR_LSTM = Model(  # lstm_text_generation.py, whose text has 57 different characters
    name="char-lstm",
    summary="the text generation example of Keras 2: a character-level LSTM",
    input_shape=(40, 57),
    classes=57,
    layers=(LSTM("lstm", 57, 128), Dense("dense", 128, 57)),
    batch_size=128,
    optimizer=Optimizer("rmsprop", learning_rate=0.01),
    parity_batch_size=8,
    published_parameters=102_585,
)
