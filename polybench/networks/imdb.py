"""The IMDb sentiment examples of Keras 2: a bidirectional LSTM, and fastText.

Source: https://github.com/keras-team/keras/blob/2.0.0/examples, imdb_bidirectional_lstm.py and
imdb_fasttext.py; measured in minimaxir's "Benchmarking TensorFlow on Cloud CPUs" and "Benchmarking Modern
GPUs", 2017.

Two details differ. The examples end in one sigmoid; these networks end in two logits whose difference is the
sigmoid's input, which adds 129 or 51 parameters. Keras 2 uses a hard sigmoid at the LSTM's gates; PyTorch and
Flux lack it.
"""

from polybench.networks.layers import LSTM, Dense, Dropout, Embedding, MeanOverTime
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer

WORD_TOKENS = 20_000
PAIR_BUCKETS = 1 << 20
"""Number of hash buckets for pairs of words. The example numbers the pairs of its training set, about as
many. Here the hash selects a bucket, as in fastText itself, so the network does not depend on the data.
Joulin et al., 2016: https://arxiv.org/abs/1607.01759"""

_CLASSES = 2
_OPTIMIZER = Optimizer("adam", learning_rate=1e-3)

IMDB_BILSTM = Model(
    name="imdb-bilstm",
    summary="the IMDb example of Keras 2: an embedding and a bidirectional LSTM",
    input_shape=(100,),
    classes=_CLASSES,
    layers=(
        Embedding("embedding", WORD_TOKENS, 128),
        LSTM("lstm", 128, 64, bidirectional=True),
        Dropout("dropout", 0.5),
        Dense("dense", 128, _CLASSES),
    ),
    batch_size=32,
    optimizer=_OPTIMIZER,
    parity_batch_size=4,
)


def fasttext(buckets: int) -> Model:
    """Build the mean of the embeddings of words and of hashed pairs of adjacent words."""
    return Model(
        name="imdb-fasttext",
        summary="fastText on IMDb as in Keras 2: the mean of word and word-pair embeddings",
        input_shape=(400,),
        classes=_CLASSES,
        layers=(
            Embedding("embedding", WORD_TOKENS + buckets, 50),
            MeanOverTime(),
            Dense("dense", 50, _CLASSES),
        ),
        batch_size=32,
        optimizer=_OPTIMIZER,
        parity_batch_size=8,
    )


IMDB_FASTTEXT = fasttext(PAIR_BUCKETS)
