"""`polybench data`: downloads, verifies and locates CIFAR-10."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from polybench.cli.output import echo

app = typer.Typer(no_args_is_help=True)


class DatasetVersion(StrEnum):
    """The two published archives of CIFAR-10, with the same images."""

    binary = "binary"
    python = "python"


@app.command()
def fetch(
    version: Annotated[
        DatasetVersion, typer.Option(help="Published archive: binary or python.")
    ] = DatasetVersion.binary,
    folder: Annotated[Path | None, typer.Option(help="Folder to write.", show_default="the data folder")] = None,
) -> None:
    """Download CIFAR-10 (170 MB), verify and unpack it.

    Example: polybench data fetch
    """
    from polybench.data import cifar10, data_folder

    target = folder or data_folder()
    echo(f"fetching {cifar10.ARCHIVES[version.value].url} into {target}", err=True)
    echo(str(cifar10.fetch(version.value, target)))


@app.command()
def verify(
    path: Annotated[Path | None, typer.Argument(help="Archive or folder.", show_default="the data folder")] = None,
) -> None:
    """Read every record of the training and test images, and print their numbers.

    Example: polybench data verify cifar-10-python.tar.gz
    """
    from polybench.data import cifar10, data_folder

    verified = cifar10.verify(path or data_folder())
    counts = ", ".join(f"{count:,} {split}" for split, count in verified.images.items())
    official = "official archive" if verified.is_official else "not the official archive: checksums differ"
    echo(f"{verified.source}: {counts} images, all records valid; {official}")


@app.command()
def path() -> None:
    """Print the data folder (POLYBENCH_DATA overrides it).

    Example: polybench data path
    """
    from polybench.data import data_folder

    echo(str(data_folder()))
