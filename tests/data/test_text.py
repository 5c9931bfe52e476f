"""Text files as sequences of characters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polybench.data import Dataset, data_files, open_dataset
from polybench.errors import BadInput

TEXT = "to be, or not to be: that is the question.\n" * 20


def opened(file: Path, split: str = "train", vocabulary: int = 30, classes: int = 30) -> Dataset:
    file.parent.joinpath("scratch").mkdir(exist_ok=True)
    return open_dataset(
        str(file),
        0,
        file.parent / "scratch",
        split,
        (16,),
        classes,
        vocabulary,
        label_shape=(16,),  # type: ignore[arg-type]
    )


def characters(file: Path) -> str:
    return "".join(sorted(set(file.read_text("utf-8").removeprefix("\ufeff"))))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "play.txt"
    path.write_text(TEXT, "utf-8")
    return path


def test_labels_are_the_next_characters_and_the_splits_follow_each_other(file: Path) -> None:
    train, test = opened(file), opened(file, "test")
    known = characters(file)
    texts = ["".join(known[token] for token in data.images.ravel()) for data in (train, test)]
    boundary = int(0.9 * len(TEXT))
    assert texts[0] == TEXT[: len(texts[0])]
    assert texts[1] == TEXT[boundary : boundary + len(texts[1])]
    assert (len(train.images), len(test.images)) == ((boundary - 1) // 16, (len(TEXT) - boundary - 1) // 16)
    for data in (train, test):
        flat, labels = data.images.ravel(), data.labels.ravel()
        np.testing.assert_array_equal(flat[1:], labels[:-1])
    assert (train.name, train.source) == ("text", str(file))
    assert train.sha256 != test.sha256
    assert data_files(file) == [file]


@pytest.mark.parametrize(("characters_to_train", "sequences"), [(32, 1), (33, 2), (48, 2), (49, 3)])
def test_the_last_character_of_a_sequence_has_a_next_one(
    characters_to_train: int, sequences: int, tmp_path: Path
) -> None:
    path = tmp_path / "play.txt"
    path.write_text(TEXT[: -(-10 * characters_to_train // 9)])
    assert int(0.9 * len(path.read_text())) == characters_to_train
    data = opened(path)
    assert data.images.shape == data.labels.shape == (sequences, 16)
    assert [characters(path)[token] for token in data.labels[-1]] == list(TEXT[1 : 16 * sequences + 1][-16:])


def test_characters_beyond_ascii_are_one_token_each(tmp_path: Path) -> None:
    path = tmp_path / "mixed.txt"
    path.write_text("\ufeff" + "äöü€😀\n" * 40, "utf-8")
    data = opened(path)
    assert data.images.max() == 5
    assert [characters(path)[token] for token in data.images[0, :6]] == list("äöü€😀\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"abc" * 20, "has 6 characters to test, but a sequence and its next character have 17: expected"),
        (b"", "has 0 characters to test, but"),
        ("naïve ".encode("latin-1") * 99, r"is not UTF-8: byte 0xef at 2: expected a text file in UTF-8: convert"),
        (TEXT.encode("utf-16"), r"is not UTF-8: byte 0xff at 0"),
        (bytes(range(128)) * 20, "has 128 different characters, but this network takes 30: use a network file with"),
    ],
)
def test_a_text_that_does_not_fit_is_rejected(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=message):
        opened(path, "test")


def test_a_text_for_a_network_without_a_prediction_at_each_position_is_rejected(file: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="this network takes 3 x 32 x 32 in 10 classes; use --model char-gpt"):
        open_dataset(str(file), 0, tmp_path)


def test_a_missing_text_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.txt: no such file or folder: expected .* or a text file"):
        opened(tmp_path / "none.txt")
