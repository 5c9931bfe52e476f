from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from polybench.data import open_dataset, synthetic
from polybench.data.array_chunks import Chunk, dataset_sha256
from polybench.data.batch_files import open_epoch, write_epoch
from polybench.data.batches import epoch_order
from polybench.data.synthetic import character_chunks, feature_chunks, image_chunks, image_count, token_chunks
from polybench.errors import BadInput


def generate(images, seed, split="train"):
    parts = list(image_chunks(images, seed, split))
    return np.concatenate([part.images for part in parts]), np.concatenate([part.labels for part in parts])


@pytest.fixture(scope="module")
def images_and_labels():
    return generate(4000, 0)


def test_images_have_their_golden_hash():
    # Changes only with the definition. Then note it in the CHANGELOG: saved studies are not comparable.
    assert dataset_sha256(*generate(250, 0)) == "5f4aa6f757a6482bc5e345f1622110fe6e22a80a9e544766935ec2a1015900e0"
    assert (
        dataset_sha256(*generate(250, 1, "test")) == "845c11bc6f0d792562dc03caef7e66075d6837120d35ede6cf56bd077e4d117e"
    )


def test_first_images_do_not_depend_on_their_number(images_and_labels):
    images, _ = generate(150, 0)
    np.testing.assert_array_equal(images, images_and_labels[0][:150])


def test_images_have_the_shape_and_statistics_of_cifar10(images_and_labels):
    images, labels = images_and_labels
    assert images.shape == (4000, 3, 32, 32)
    assert images.dtype == labels.dtype == np.uint8
    assert np.bincount(labels).tolist() == [400] * 10
    np.testing.assert_allclose(images.mean(axis=(0, 2, 3)) / 255, [0.491, 0.482, 0.447], atol=0.006)
    np.testing.assert_allclose(images.std(axis=(0, 2, 3)) / 255, [0.247, 0.243, 0.262], atol=0.006)


@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 64, 64), (3, 32, 50), (3, 20, 128)])
def test_images_of_any_shape_are_smooth_like_photographs(shape):
    parts = list(image_chunks(300, 0, "train", shape, 4))
    images = np.concatenate([part.images for part in parts])
    assert images.shape == (300, *shape)
    assert np.bincount(np.concatenate([part.labels for part in parts])).tolist() == [75] * 4
    np.testing.assert_allclose(images.mean(axis=(0, 2, 3)) / 255, [0.491, 0.482, 0.447], atol=0.03)
    neighbours = np.corrcoef(images[..., 1:].ravel().astype(float), images[..., :-1].ravel())[0, 1]
    assert 0.9 < neighbours < 0.999
    assert len({image.tobytes() for image in images}) == 300


def test_total_size_of_large_images_is_the_same():
    assert (image_count("train"), image_count("test")) == (50_000, 10_000)
    assert (image_count("train", (3, 64, 64)), image_count("train", (3, 256, 256))) == (12_500, 781)
    assert image_count("train", (3, 8, 8)) == 50_000


@pytest.mark.parametrize(("shape", "classes"), [((2, 28, 28), 10), ((3, 32, 32), 257), ((100,), 10)])
def test_invalid_shape_or_number_of_classes_is_rejected(shape, classes):
    with pytest.raises(BadInput, match="no synthetic images of shape"):
        next(image_chunks(10, 0, "train", shape, classes))


def test_no_image_occurs_twice_even_across_splits(images_and_labels):
    train = {image.tobytes() for image in images_and_labels[0]}
    test = {image.tobytes() for image in generate(500, 0, "test")[0]}
    assert len(train) == 4000
    assert len(test) == 500
    assert not train & test


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_classes_can_be_learned_but_not_perfectly(seed):
    images, labels = generate(3000, seed)
    unseen, truth = generate(1000, seed, "test")

    # Least squares on 4 x 4 averages, a very simple model.
    def features(x):
        means = x.reshape(len(x), 3, 4, 8, 4, 8).mean(axis=(3, 5)).reshape(len(x), -1) / 255
        return np.hstack([means, np.ones((len(x), 1))])

    weights = np.linalg.lstsq(features(images), np.eye(10)[labels], rcond=None)[0]
    accuracy = (np.argmax(features(unseen) @ weights, axis=1) == truth).mean()
    assert 0.5 < accuracy < 0.99


def test_grey_images_are_the_red_channel_of_colour_images():
    grey, colour = (next(image_chunks(10, 0, "train", (channels, 28, 28))).images for channels in (1, 3))
    np.testing.assert_array_equal(grey, colour[:, :1])


def joined(chunks: list[Chunk]) -> tuple[np.ndarray, np.ndarray]:
    assert [chunk.first for chunk in chunks] == np.cumsum([0, *(len(c.labels) for c in chunks[:-1])]).tolist()
    return np.concatenate([c.images for c in chunks]), np.concatenate([c.labels for c in chunks])


def tokens(split: str = "train", n: int = 2000, vocabulary: int = 1000, classes: int = 2):  # type: ignore[no-untyped-def]
    return joined(list(token_chunks(n, 0, split, 50, vocabulary, classes)))


def characters(split: str = "train", n: int = 600):  # type: ignore[no-untyped-def]
    return joined(list(character_chunks(n, 0, split, (20, 13))))


def test_sequences_have_their_golden_hash() -> None:
    for found, golden in ((tokens(), TOKENS), (characters(), CHARACTERS)):
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in found))
        assert digest.hexdigest()[:16] == golden


TOKENS, CHARACTERS, FEATURES = "c6bd03342b48177a", "4ccfcc3c1aff222d", "09bb0518c6ce48a7"


def test_octaves_of_tokens_are_equally_likely_and_an_eighth_are_class_tokens() -> None:
    found, labels = tokens(vocabulary=1 << 12, classes=3)
    assert found.dtype == np.int32
    assert (found.min(), found.max() < 1 << 12) == (0, True)
    np.testing.assert_array_equal(labels, np.arange(2000) % 3)
    # 64 to 127 belong to the second class; 255 to 4094 are five octaves without class tokens.
    class_shares = [(found[labels == label] // 64 == 1).mean() for label in range(3)]
    assert class_shares[1] - class_shares[0] == pytest.approx(1 / 8, abs=0.01)
    ranks = np.floor(np.log2(found + 1.0))
    shares = [(ranks == octave).mean() for octave in range(8, 12)]
    assert shares == pytest.approx([7 / 8 / 12] * 4, abs=0.005)


def test_characters_have_few_successors_and_the_label_is_one_of_them() -> None:
    found, labels = characters(n=4000)
    assert found.shape == (4000, 20, 13)
    assert set(np.unique(found)) == {0, 255}
    assert (found.sum(axis=2, dtype=int) == 255).all()
    text = found.argmax(axis=2)
    successors = {(a, b) for a, b in zip(text[:, :-1].ravel(), text[:, 1:].ravel(), strict=True)}
    assert len(successors) <= 13 * 8
    assert {(a, b) for a, b in zip(text[:, -1], labels, strict=True)} <= successors
    commonest = [np.bincount(labels[text[:, -1] == last]).max() for last in range(13) if (text[:, -1] == last).any()]
    assert sum(commonest) / 4000 > 0.45


def test_texts_have_the_next_character_as_the_label_of_each_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 40)
    data = open_dataset("auto", 0, tmp_path, image_shape=(20,), classes=13, vocabulary=13, label_shape=(20,))
    assert (data.images.shape, data.labels.shape) == ((40, 20), (40, 20))
    np.testing.assert_array_equal(data.images[:, 1:], data.labels[:, :-1])
    one_hot, last = characters(n=40)
    np.testing.assert_array_equal(data.images, one_hot.argmax(axis=2))
    np.testing.assert_array_equal(data.labels[:, -1], last)
    epoch = write_epoch(data, epoch_order(40, 8, seed=0, epoch=0), tmp_path)
    inputs, labels = open_epoch(epoch)
    np.testing.assert_array_equal(inputs[:, :, 1:], labels[:, :, :-1])
    assert epoch.bytes == Path(epoch.images_path).stat().st_size + Path(epoch.labels_path).stat().st_size


@pytest.mark.parametrize(
    ("shape", "classes", "vocabulary", "label_shape"),
    [
        ((1, 113), 3, None, ()),
        ((20, 14), 2, None, ()),
        ((20, 14), 14, None, (20,)),
        ((20, 14), 256, None, (20,)),
        ((1, 3), 2, None, ()),
        ((20,), 12, 13, (20,)),
        ((20,), 13, 13, (21,)),
        ((3, 16, 16), 5, None, (9,)),
        ((1, 16, 16), 2, None, (9,)),
    ],
)
def test_every_network_has_data(  # type: ignore[no-untyped-def]
    shape, classes, vocabulary, label_shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 600)
    data = open_dataset("synthetic", 0, tmp_path, "train", shape, classes, vocabulary, label_shape)
    assert data.images.shape == (600, *shape)
    assert data.images.dtype == (np.int32 if vocabulary else np.uint8)
    assert data.labels.shape == (600, *label_shape)
    assert set(np.unique(data.labels)) == set(range(classes))


def features(split: str = "train", n: int = 600):  # type: ignore[no-untyped-def]
    return joined(list(feature_chunks(n, 0, split, (7, 5), 3)))


def test_features_differ_by_their_class_and_have_a_golden_hash() -> None:
    found, labels = features()
    assert found.shape == (600, 7, 5)
    np.testing.assert_array_equal(labels, np.arange(600) % 3)
    means = np.stack([found[labels == label].mean(axis=(0, 1)) for label in range(3)])
    noise = found[labels == 0].std(axis=(0, 1))
    np.testing.assert_allclose(noise, 0.75 * 256 / np.sqrt(12), rtol=0.05)
    assert 5 < np.ptp(means, axis=0).max() < 64
    assert hashlib.sha256(found.tobytes()).hexdigest()[:16] == FEATURES


def test_first_features_do_not_depend_on_the_number_of_sequences() -> None:
    np.testing.assert_array_equal(features(n=40)[0], features()[0][:40])


@pytest.mark.parametrize("generate", [tokens, characters, features])
def test_splits_have_no_sequence_in_common(generate) -> None:  # type: ignore[no-untyped-def]
    train, test = ({row.tobytes() for row in generate(split)[0]} for split in ("train", "test"))
    assert not train & test


def test_batches_have_the_sequences_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 40)
    data = open_dataset("auto", 0, tmp_path, image_shape=(50,), classes=2, vocabulary=1000)
    assert data.source == "40 synthetic sequences of 50 from 1,000 tokens, seed 0"
    order = epoch_order(40, 8, seed=0, epoch=0)
    epoch = write_epoch(data, order, tmp_path)
    assert (epoch.dtype, Path(epoch.images_path).name) == ("int32", "tokens.i32")
    batches, labels = open_epoch(epoch)
    np.testing.assert_array_equal(batches, data.images[order])
    np.testing.assert_array_equal(labels, data.labels[order])
    text = open_dataset("auto", 0, tmp_path, image_shape=(20, 13), classes=13)
    batches, _ = open_epoch(write_epoch(text, order, tmp_path))
    assert set(np.unique(batches)) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("shape", "classes", "vocabulary", "message"),
    [
        ((20, 13), 257, None, "no synthetic sequences in 257 classes: expected at most 256"),
        ((20, 300), 300, None, "no synthetic sequences in 300 classes"),
        ((50,), 300, 1000, "at most 2,147,483,648 tokens and 256 classes"),
        ((50,), 2, 1 << 40, "2,147,483,648 tokens"),
    ],
)
def test_invalid_shape_or_vocabulary_is_rejected(
    tmp_path: Path, shape: tuple[int, ...], classes: int, vocabulary: int | None, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        open_dataset("synthetic", 0, tmp_path, image_shape=shape, classes=classes, vocabulary=vocabulary)
