"""`polybench data`: download, verify and locate CIFAR-10."""

import pytest
from typer.testing import CliRunner

from polybench.cli.data import app
from polybench.data import cifar10
from polybench.errors import BadInput


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYBENCH_DATA", str(tmp_path))
    return tmp_path


def write_cifar10(folder):
    place = folder / "cifar-10-batches-bin"
    place.mkdir()
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        (place / f"{name}.bin").write_bytes(bytes(2 * 3073))
    return place


def test_path_prints_the_data_folder(folder):
    assert CliRunner().invoke(app, ["path"]).stdout == f"{folder}\n"


def test_verify_counts_the_images(folder):
    place = write_cifar10(folder)
    for arguments in (["verify"], ["verify", str(place)]):
        result = CliRunner().invoke(app, arguments)
        expected = f"{place}: 10 train, 2 test images, all records valid; "
        assert result.stdout == expected + "not the official archive: checksums differ\n"


def test_verify_without_data_is_bad_input(folder):
    result = CliRunner().invoke(app, ["verify"])
    assert isinstance(result.exception, BadInput)


def test_fetch_downloads_the_archive(folder, monkeypatch):
    calls = []
    monkeypatch.setattr(cifar10, "fetch", lambda *arguments: calls.append(arguments) or folder / "done")
    result = CliRunner().invoke(app, ["fetch", "--version", "python"])
    assert result.stdout == f"{folder / 'done'}\n"
    assert "cifar-10-python.tar.gz" in result.stderr
    CliRunner().invoke(app, ["fetch", "--folder", str(folder / "other")])
    assert calls == [("python", folder), ("binary", folder / "other")]


def test_an_unknown_version_is_rejected(folder):
    assert CliRunner().invoke(app, ["fetch", "--version", "matlab"]).exit_code == 2
