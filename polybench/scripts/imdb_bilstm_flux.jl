# initial_state.npz has Flux's layout, except that Flux stores a token's row of the embedding as a column.
lstm(way) = LSTM(LSTMCell(start["lstm.$(way)weight"], start["lstm.$(way)recurrent"], start["lstm.$(way)bias"]))
from_the_end(x) = reverse(x; dims = 2)  # x is (features, time, batch)
last_output(x) = x[:, end, :]

# The IMDb example of Keras 2: LSTMs in both directions over embedded words.
network() = Chain(
    Embedding(permutedims(start["embedding.weight"])),
    Parallel(vcat, Chain(lstm(""), last_output), Chain(from_the_end, lstm("reverse_"), last_output)),
    Dropout(0.5), Dense(start["dense.weight"], start["dense.bias"]),
)
