import numpy as np
import pytest

from polybench.data.array_chunks import dataset_sha256
from polybench.data.synthetic import image_chunks, image_count
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


def test_images_are_smooth_like_photographs(images_and_labels):
    images = images_and_labels[0][:400].astype(float)
    neighbours = np.corrcoef(images[..., 1:].ravel(), images[..., :-1].ravel())[0, 1]
    assert 0.9 < neighbours < 0.999


@pytest.mark.parametrize("shape", [(3, 64, 64), (3, 32, 50), (3, 20, 128)])
def test_images_of_other_shapes_and_classes(shape):
    parts = list(image_chunks(300, 0, "train", shape, 4))
    images = np.concatenate([part.images for part in parts])
    assert images.shape == (300, *shape)
    assert np.bincount(np.concatenate([part.labels for part in parts])).tolist() == [75] * 4
    np.testing.assert_allclose(images.mean(axis=(0, 2, 3)) / 255, [0.491, 0.482, 0.447], atol=0.03)
    neighbours = np.corrcoef(images[..., 1:].ravel().astype(float), images[..., :-1].ravel())[0, 1]
    assert neighbours > 0.9
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
