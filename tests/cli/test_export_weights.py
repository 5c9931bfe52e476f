"""`polybench weights`: initial weights and batch order."""

import os

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from polybench.cli.export_weights import weights
from polybench.data import synthetic
from polybench.data.batches import batch_stream, epoch_order, order_sha256
from polybench.errors import BadInput
from polybench.networks import MODELS
from polybench.networks.initial_weights import initial_weights, weights_sha256


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setitem(synthetic.IMAGES, "train", 300)
    app = typer.Typer()
    app.command()(weights)
    return lambda *arguments: CliRunner().invoke(app, ["--data", "synthetic", *map(str, arguments)])


def test_writes_the_initial_weights_and_batches(run, tmp_path):
    output = tmp_path / "folder" / "start.npz"
    result = run("--seed", 3, "--batch-size", 64, "--steps", 9, "--output", output)
    assert result.exit_code == 0, result.output
    assert [path.name for path in output.parent.iterdir()] == ["start.npz"]
    with np.load(output) as file:
        arrays = dict(file)
    batches = arrays.pop("batches")
    np.testing.assert_array_equal(batches, batch_stream(300, 64, 3, 9))
    assert batches.dtype == np.int64
    expected = initial_weights(MODELS["lenet"], 3)
    assert list(arrays) == list(expected)
    for name, value in expected.items():
        assert arrays[name].dtype == np.float32
        np.testing.assert_array_equal(arrays[name], value)
    printed = dict(line.split() for line in result.stdout.splitlines())
    assert printed["weights_sha256"] == weights_sha256(expected)
    assert printed["batches_sha256"] == order_sha256(epoch_order(300, 64, 3, 0))
    assert printed["written_batches_sha256"] == order_sha256(batches)
    assert len(printed["data_sha256"]) == 64
    assert "300 synthetic images" in result.stderr


def test_the_default_batch_size_is_the_models(run, tmp_path):
    run("--output", tmp_path / "start.npz")
    assert np.load(tmp_path / "start.npz")["batches"].shape == (60, MODELS["lenet"].batch_size)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "lenett"], "lenet"),
        (["--batch-size", "301"], "batch size 301 is larger than the data, which has 300 images"),
        (["--batch-size", "0"], "--batch-size: Expected `int` >= 1"),
        (["--seed", "-1"], "--seed: Expected `int` >= 0"),
        (["--data", "/nowhere"], "no such file"),
    ],
)
def test_bad_input_writes_nothing(run, tmp_path, arguments, message):
    result = run("--output", tmp_path / "start.npz", *arguments)
    assert isinstance(result.exception, BadInput)
    assert message in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_folder_is_bad_input(run, tmp_path):
    (tmp_path / "file").touch()
    result = run("--output", tmp_path / "file" / "start.npz")
    assert isinstance(result.exception, BadInput)
    assert "cannot write to" in str(result.exception)


def test_a_device_is_not_replaced(run, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    result = run("--output", tmp_path / "pipe")
    assert isinstance(result.exception, BadInput)
    assert "not a regular file" in str(result.exception)
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_is_followed_and_the_umask_applies(run, tmp_path):
    (tmp_path / "link.npz").symlink_to(tmp_path / "there.npz")
    before = os.umask(0o077)
    try:
        assert run("--output", tmp_path / "link.npz").exit_code == 0
    finally:
        os.umask(before)
    assert (tmp_path / "link.npz").is_symlink()
    assert (tmp_path / "there.npz").stat().st_mode & 0o777 == 0o600


def test_too_many_batches_are_rejected(run, tmp_path):
    assert run("--steps", 10**11, "--output", tmp_path / "x.npz").exit_code == 2
    result = run("--steps", 10**6, "--batch-size", 300, "--output", tmp_path / "x.npz")
    assert "--steps 1000000: too many batches of 300; try --steps 894784" in str(result.exception)
    assert not [*tmp_path.iterdir()]
