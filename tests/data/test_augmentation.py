import hashlib
import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from polybench.data.batches import augment, augmentation_stream, epoch_augmentations

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


def test_all_augmentations_are_equally_frequent():
    augmentations = epoch_augmentations(90_000, seed=1, epoch=0)
    # 45,000 flips with standard deviation 150; 10,000 of each offset with standard deviation 94.
    assert abs(augmentations[:, 0].sum() - 45_000) < 5 * 150
    for column in (1, 2):
        values, counts = np.unique(augmentations[:, column], return_counts=True)
        assert values.tolist() == list(range(-4, 5))
        assert abs(counts - 10_000).max() < 5 * 94


def test_stream_continues_over_epochs():
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
