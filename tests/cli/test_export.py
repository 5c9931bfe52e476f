"""`polybench export`: its three modes, and the options of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import printed, refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("lenet", "--output: expected a file to write, such as -o net.py"),
        ("--weights", "--output: expected a file to write, such as -o start.npz"),
        ("lenet -o net.py", "--framework: expected a framework, such as torch; or add --train or --weights"),
        ("lenet --engines torch -o net.py", "--engines: needs --train: add it"),
        ("lenet --pin-cpus -o net.py", "--pin-cpus: needs --train: add it"),
        ("lenet --batch-size 8 -o net.py", "--batch-size: needs --train or --weights: add one of them"),
        ("lenet --steps 60 -o net.py", "--steps: needs --train or --weights: add one of them"),
        ("--train --framework torch", "--framework: has no effect with --train: use --engines"),
        ("--train --weights", "--weights: the folder of --train contains them: leave it out"),
        ("--weights --framework torch -o x.npz", "--framework: has no effect with --weights: leave it out"),
        ("--weights --optimizer adam -o x.npz", "--optimizer: has no effect with --weights: leave it out"),
        ("lenet --model lenet --weights -o x.npz", "--model: the network is already lenet: leave out one of them"),
        ("lenet --framework torch -o net.py --seed -1", "--seed: Expected `int` >= 0"),
    ],
)
def test_an_option_of_another_mode_is_refused(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused("export", *arguments.split()).startswith(message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "mode", ["--framework torch -o 1.py", "--train --engines torch", "--weights --steps 2 -o 1.npz"]
)
def test_each_mode_takes_the_network_with_and_without_its_option(
    mode: str, small_data: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = [] if "--framework" in mode else ["--data", "synthetic"]

    def written(*network: str) -> tuple[str, list[bytes]]:
        text = printed("export", *network, *mode.split(), *data, "--force")
        return text, [path.read_bytes() for path in sorted(tmp_path.iterdir())]

    default = written()
    assert default == written("lenet") == written("--model", "lenet")
    assert default != written("keras-cnn")


def test_the_weights_beside_the_code_are_those_of_the_seed(tmp_path: Path) -> None:
    def weights(seed: int) -> bytes:
        printed("export", "lenet", "--framework", "torch", "--seed", seed, "--force", "-o", tmp_path / "net.py")
        return (tmp_path / "net.npz").read_bytes()

    assert weights(0) == weights(0) != weights(7)
