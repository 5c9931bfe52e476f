"""`polybench data`: download, check and locate CIFAR-10."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from polybench.commands.terminal import echo

app = typer.Typer(help="CIFAR-10: download, check, locate.", no_args_is_help=True)


class Version(StrEnum):
    """The two forms in which CIFAR-10 is published; both give the same images."""

    binary = "binary"
    python = "python"


@app.command()
def fetch(
    version: Annotated[Version, typer.Option(help="Which of the two published archives.")] = Version.binary,
    folder: Annotated[Path | None, typer.Option(help="Where to put it instead of the data folder.")] = None,
) -> None:
    """Download CIFAR-10 (170 MB), check it and unpack it."""
    from polybench.data import data_folder
    from polybench.data.fetch import ARCHIVES
    from polybench.data.fetch import fetch as fetch_archive

    place = folder or data_folder()
    echo(f"fetching {ARCHIVES[version.value].url} into {place}", err=True)
    echo(str(fetch_archive(version.value, place)))


@app.command()
def verify(
    path: Annotated[
        Path | None, typer.Argument(help="Archive or folder; the data folder if left out.")
    ] = None,
) -> None:
    """Read every record of both splits and say what is there."""
    from polybench.data import data_folder
    from polybench.data.fetch import verify as verify_files

    checked = verify_files(path or data_folder())
    counts = ", ".join(f"{count:,} {split}" for split, count in checked.images.items())
    published = "the published ones" if checked.official else "not the published ones, by their checksums"
    echo(f"{checked.source}: {counts} images, all records valid; {published}")


@app.command()
def path() -> None:
    """Print the data folder (POLYBENCH_DATA overrides it)."""
    from polybench.data import data_folder

    echo(str(data_folder()))
