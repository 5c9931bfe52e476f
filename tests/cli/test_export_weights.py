"""`polybench export --weights`: initial weights and batch order."""

import os

import numpy as np
import pytest

from polybench.data.batches import batch_stream, epoch_order, order_sha256
from polybench.networks import MODELS
from polybench.networks.initial_weights import initial_weights, weights_sha256
from tests.commands import invoke, printed, refused

pytestmark = pytest.mark.usefixtures("small_data")  # 600 images
WEIGHTS = ("export", "--weights", "--data", "synthetic")


def test_writes_the_initial_weights_and_batches(tmp_path):
    output = tmp_path / "folder" / "start.npz"
    result = invoke(*WEIGHTS, "--seed", 3, "--batch-size", 64, "--steps", 9, "--output", output)
    assert result.exit_code == 0, result.output
    assert [path.name for path in output.parent.iterdir()] == ["start.npz"]
    with np.load(output) as file:
        arrays = dict(file)
    batches = arrays.pop("batches")
    np.testing.assert_array_equal(batches, batch_stream(600, 64, 3, 9))
    assert batches.dtype == np.int64
    expected = initial_weights(MODELS["lenet"], 3)
    assert list(arrays) == list(expected)
    for name, value in expected.items():
        assert arrays[name].dtype == np.float32
        np.testing.assert_array_equal(arrays[name], value)
    printed = dict(line.split() for line in result.stdout.splitlines())
    assert printed["weights_sha256"] == weights_sha256(expected)
    assert printed["batches_sha256"] == order_sha256(epoch_order(600, 64, 3, 0))
    assert printed["written_batches_sha256"] == order_sha256(batches)
    assert len(printed["data_sha256"]) == 64
    assert "600 synthetic images" in result.stderr


def test_the_default_batch_size_is_the_models(tmp_path):
    printed(*WEIGHTS, "--output", tmp_path / "start.npz")
    assert np.load(tmp_path / "start.npz")["batches"].shape == (60, MODELS["lenet"].batch_size)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "lenett"], "lenet"),
        (["--batch-size", "601"], "batch size 601 is larger than the data, which has 600 images"),
        (["--batch-size", "0"], "--batch-size: Expected `int` >= 1"),
        (["--seed", "-1"], "--seed: Expected `int` >= 0"),
        (["--data", "/nowhere"], "no such file"),
        (["--steps", 10**6, "--batch-size", 300], "--steps 1000000: too many batches of 300; try --steps 894784"),
    ],
)
def test_bad_input_writes_nothing(tmp_path, arguments, message):
    assert message in refused(*WEIGHTS, "--output", tmp_path / "start.npz", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_folder_is_bad_input_and_a_device_is_not_replaced(tmp_path):
    (tmp_path / "file").touch()
    assert "cannot write to" in refused(*WEIGHTS, "--output", tmp_path / "file" / "start.npz")
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(*WEIGHTS, "--output", tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_is_followed_and_the_umask_applies(tmp_path):
    (tmp_path / "link.npz").symlink_to(tmp_path / "there.npz")
    before = os.umask(0o077)
    try:
        printed(*WEIGHTS, "--output", tmp_path / "link.npz")
    finally:
        os.umask(before)
    assert (tmp_path / "link.npz").is_symlink()
    assert (tmp_path / "there.npz").stat().st_mode & 0o777 == 0o600
