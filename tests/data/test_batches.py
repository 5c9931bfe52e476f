import hashlib
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.data.batches import (
    augment,
    augmentation_stream,
    batch_stream,
    epoch_augmentations,
    epoch_order,
    order_sha256,
    repeated_rows,
)
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


@given(batch_size=st.integers(2, 300), different=st.integers(2, 40))
def test_no_part_of_repeated_rows_has_the_shares_of_the_whole(batch_size, different):
    rows = repeated_rows(batch_size, different)
    assert len(rows) == batch_size
    assert set(rows) <= set(range(different))
    counts = np.bincount(rows)
    assert counts[counts > 0].min() == 1  # so the shares are multiples of 1 / batch_size
    assert batch_size > different or rows.tolist() == list(range(batch_size))


@pytest.mark.parametrize(("batch_size", "message"), [(0, "at least 1"), (-3, "at least 1"), (11, "10 images; use")])
@pytest.mark.parametrize("function", [epoch_order, batch_stream])
def test_invalid_batch_size_is_rejected(function, batch_size, message):
    with pytest.raises(BadInput, match=message):
        function(10, batch_size, 0, 1)


sizes = st.integers(5, 12)
offsets = st.integers(-4, 4)


def test_augmentations_have_their_golden_hash():
    # Changes only with the definition. Then note it in the CHANGELOG: saved studies are not comparable.
    assert epoch_augmentations(4, seed=0, epoch=0).tolist() == [[0, 1, 0], [1, 2, -4], [0, 1, -4], [0, 3, 0]]
    augmentations = epoch_augmentations(50_000, seed=0, epoch=0)
    assert hashlib.sha256(augmentations.tobytes()).hexdigest() == (
        "c58e75e2b38a79823f3f79f12c9e142df8fb9426cee8ad4990a8b5de3937abf2"
    )


def test_augmentations_match_a_hand_calculation():
    """The module's definition, in integer arithmetic."""
    bits = np.random.PCG64(np.random.SeedSequence([3, 2, zlib.crc32(b"augmentation")]))
    expected = []
    for raw in map(int, bits.random_raw(20)):
        dy, dx = ((raw >> 32) % 2**31) * 9 >> 31, (raw % 2**32) * 9 >> 32
        expected.append([raw >> 63, dy - 4, dx - 4])
    assert epoch_augmentations(20, seed=3, epoch=2).tolist() == expected


def test_augmentations_continue_over_epochs():
    stream = augmentation_stream(per_epoch=3, batch_size=2, seed=5, steps=7)
    assert stream.shape == (7, 2, 3)
    for step, batch in enumerate(stream):
        epoch, index = divmod(step, 3)
        np.testing.assert_array_equal(batch, epoch_augmentations(6, 5, epoch)[2 * index : 2 * index + 2])


@given(sizes, sizes, st.integers(0, 1), offsets, offsets)
def test_each_pixel_is_the_flipped_images_at_its_offset(height, width, flip, dy, dx):
    image = np.random.default_rng(0).integers(1, 256, (3, height, width), np.uint8)
    (augmented,) = augment(image[None], np.array([[flip, dy, dx]], np.int8))
    for y in range(height):
        for x in range(width):
            is_inside = 0 <= y + dy < height and 0 <= x + dx < width
            column = width - 1 - (x + dx) if flip else x + dx
            expected = image[:, y + dy, column] if is_inside else np.zeros(3)
            np.testing.assert_array_equal(augmented[:, y, x], expected)


def test_augmentation_of_images_larger_than_an_int8():
    image = np.random.default_rng(0).integers(0, 256, (1, 3, 140, 300), np.uint8)
    augmented = augment(image, np.array([[0, 3, -2]], np.int8))
    np.testing.assert_array_equal(augmented[..., :137, 2:], image[..., 3:, :298])
