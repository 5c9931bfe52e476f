import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.data.batches import batch_stream, epoch_order, order_sha256
from polybench.errors import BadInput

images = st.integers(1, 300)
seeds = st.integers(0, 2**32)


def test_order_has_its_golden_hash():
    # Changes only with the definition. Then note it in the CHANGELOG: saved studies are not comparable.
    assert epoch_order(10, 3, seed=0, epoch=0).tolist() == [[9, 1, 3], [8, 5, 4], [7, 0, 2]]
    order = epoch_order(50_000, 128, seed=0, epoch=0)
    assert order_sha256(order) == "5364fa0c4fe513e04eaa2718a3bc810ba524fc705f56fc98587e02a4a23b2d1a"


def test_order_matches_a_hand_calculation():
    """The module's definition, in integers and fractions."""
    bits = np.random.PCG64(np.random.SeedSequence([3, 2]))
    values = list(range(20))
    for i in range(19, 0, -1):
        j = (int(bits.random_raw()) >> 11) * (i + 1) >> 53
        values[i], values[j] = values[j], values[i]
    assert epoch_order(20, 4, seed=3, epoch=2).ravel().tolist() == values


@given(images, st.data(), seeds, st.integers(0, 5))
def test_each_image_is_in_an_epoch_at_most_once(n, data, seed, epoch):
    batch_size = data.draw(st.integers(1, n))
    order = epoch_order(n, batch_size, seed, epoch)
    assert order.shape == (n // batch_size, batch_size)
    assert order.dtype == np.int64
    flat = order.ravel().tolist()
    assert len(set(flat)) == len(flat)
    assert set(flat) <= set(range(n))
    np.testing.assert_array_equal(order, epoch_order(n, batch_size, seed, epoch))


@given(images, seeds)
def test_single_batch_is_a_permutation(n, seed):
    assert sorted(epoch_order(n, n, seed, 0)[0].tolist()) == list(range(n))


@given(st.integers(0, 20), st.integers(1, 7))
def test_stream_continues_over_epochs(steps, batch_size):
    stream = batch_stream(20, batch_size, 4, steps)
    assert stream.shape == (steps, batch_size)
    for step, batch in enumerate(stream):
        epoch, index = divmod(step, 20 // batch_size)
        np.testing.assert_array_equal(batch, epoch_order(20, batch_size, 4, epoch)[index])


def test_orders_of_seeds_and_epochs_differ():
    hashes = {order_sha256(epoch_order(100, 10, seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(hashes) == 9


def test_order_is_uniform():
    # 3,000 shuffles of 5: each value at each index 600 times, standard deviation 22.
    counts = sum(np.eye(5)[epoch_order(5, 5, 0, epoch)[0]] for epoch in range(3000))
    assert abs(counts - 600).max() < 5 * 22


@pytest.mark.parametrize(("batch_size", "message"), [(0, "at least 1"), (-3, "at least 1"), (11, "10 images; use")])
@pytest.mark.parametrize("function", [epoch_order, batch_stream])
def test_invalid_batch_size_is_rejected(function, batch_size, message):
    with pytest.raises(BadInput, match=message):
        function(10, batch_size, 0, 1)
