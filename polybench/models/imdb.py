"""The IMDb examples of Keras 2, which tell good reviews from bad ones: a bidirectional LSTM, and fastText.

Source: https://github.com/keras-team/keras/blob/2.0.0/examples, imdb_bidirectional_lstm.py and
imdb_fasttext.py; measured in minimaxir's "Benchmarking TensorFlow on Cloud CPUs" and "Benchmarking Modern
GPUs", 2017.

Two things are ours. The examples end in one sigmoid, these in two logits, whose difference is that one's: 129
or 51 parameters more. And Keras 2 has a hard sigmoid at the LSTM's gates, which PyTorch and Flux have not.
"""

from polybench.core.layers import Dense, Dropout
from polybench.core.model import Model
from polybench.core.optimizers import Optimizer
from polybench.core.sequence_layers import LSTM, Embedding, MeanOverTime

WORDS = 20_000
BUCKETS = 1 << 20
"""Of pairs of words. The example numbers those that its training set has, about as many; here each has the
bucket that its hash says, as in fastText itself, so that the network does not depend on the data.
Joulin et al., 2016: https://arxiv.org/abs/1607.01759"""

_CLASSES = 2
_OPTIMIZER = Optimizer("adam", learning_rate=1e-3)

IMDB_BILSTM = Model(
    name="imdb-bilstm",
    summary="the IMDb example of Keras 2: an embedding, LSTMs in both directions",
    input_shape=(100,),
    classes=_CLASSES,
    layers=(
        Embedding("embedding", WORDS, 128),
        LSTM("lstm", 128, 64, bidirectional=True),
        Dropout("dropout", 0.5),
        Dense("dense", 128, _CLASSES),
    ),
    batch_size=32,
    optimizer=_OPTIMIZER,
    parity_batch_size=4,
)


def fasttext(buckets: int) -> Model:
    """The mean of the embeddings of words, and of pairs of neighbours, which have so many buckets."""
    return Model(
        name="imdb-fasttext",
        summary="fastText on IMDb as in Keras 2: the mean of embeddings of words and pairs of them",
        input_shape=(400,),
        classes=_CLASSES,
        layers=(
            Embedding("embedding", WORDS + buckets, 50),
            MeanOverTime(),
            Dense("dense", 50, _CLASSES),
        ),
        batch_size=32,
        optimizer=_OPTIMIZER,
        parity_batch_size=8,
    )


IMDB_FASTTEXT = fasttext(BUCKETS)
