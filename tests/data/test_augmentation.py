import hashlib
import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from polybench.data.augmentation import augment, decision_stream, epoch_decisions

sizes = st.integers(5, 12)
shifts = st.integers(-4, 4)


def test_golden():
    # Changes only with the definition: then say so in the CHANGELOG, no saved study compares with new ones.
    assert epoch_decisions(4, seed=0, epoch=0).tolist() == [[0, 1, 0], [1, 2, -4], [0, 1, -4], [0, 3, 0]]
    decisions = epoch_decisions(50_000, seed=0, epoch=0)
    assert hashlib.sha256(decisions.tobytes()).hexdigest() == (
        "c58e75e2b38a79823f3f79f12c9e142df8fb9426cee8ad4990a8b5de3937abf2"
    )


def test_by_hand():
    """The module's description, followed with whole numbers."""
    bits = np.random.PCG64(np.random.SeedSequence([3, 2, zlib.crc32(b"augmentation")]))
    by_hand = []
    for raw in map(int, bits.random_raw(20)):
        dy, dx = ((raw >> 32) % 2**31) * 9 >> 31, (raw % 2**32) * 9 >> 32
        by_hand.append([raw >> 63, dy - 4, dx - 4])
    assert epoch_decisions(20, seed=3, epoch=2).tolist() == by_hand


def test_every_decision_is_taken_equally_often():
    decisions = epoch_decisions(90_000, seed=1, epoch=0)
    # 45,000 flips, standard deviation 150; each shift 10,000 times, 94.
    assert abs(decisions[:, 0].sum() - 45_000) < 5 * 150
    for column in (1, 2):
        values, counts = np.unique(decisions[:, column], return_counts=True)
        assert values.tolist() == list(range(-4, 5))
        assert abs(counts - 10_000).max() < 5 * 94


def test_a_stream_goes_on_over_epochs():
    stream = decision_stream(per_epoch=3, batch_size=2, seed=5, steps=7)
    assert stream.shape == (7, 2, 3)
    for step, batch in enumerate(stream):
        epoch, place = divmod(step, 3)
        np.testing.assert_array_equal(batch, epoch_decisions(6, 5, epoch)[2 * place : 2 * place + 2])


@given(sizes, sizes, st.integers(0, 1), shifts, shifts)
def test_each_pixel_is_the_flipped_image_s_at_its_shifted_place(height, width, flip, dy, dx):
    image = np.random.default_rng(0).integers(1, 256, (3, height, width), np.uint8)
    (varied,) = augment(image[None], np.array([[flip, dy, dx]], np.int8))
    for y in range(height):
        for x in range(width):
            inside = 0 <= y + dy < height and 0 <= x + dx < width
            column = width - 1 - (x + dx) if flip else x + dx
            expected = image[:, y + dy, column] if inside else np.zeros(3)
            np.testing.assert_array_equal(varied[:, y, x], expected)


def test_images_larger_than_a_decision_can_count():
    image = np.random.default_rng(0).integers(0, 256, (1, 3, 140, 300), np.uint8)
    varied = augment(image, np.array([[0, 3, -2]], np.int8))
    np.testing.assert_array_equal(varied[..., :137, 2:], image[..., 3:, :298])
