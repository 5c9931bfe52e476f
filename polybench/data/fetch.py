"""Download CIFAR-10 from its authors' site, unpack it without trusting it, check what is on disk."""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

from polybench.core.errors import BadInput
from polybench.data import cifar10
from polybench.data.chunks import Split
from polybench.data.disk import room

Version = Literal["binary", "python"]


class Archive(NamedTuple):
    """A published file: where it is, what it must be, and the folder that it unpacks to."""

    url: str
    sha256: str
    folder: str


ARCHIVES: dict[Version, Archive] = {
    "binary": Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        cifar10.OFFICIAL_ARCHIVES[0],
        "cifar-10-batches-bin",
    ),
    "python": Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        cifar10.OFFICIAL_ARCHIVES[1],
        "cifar-10-batches-py",
    ),
}

_DOWNLOADED_AND_UNPACKED = 360_000_000
"""Bytes: an archive of 170 MB, 184 MB unpacked."""

_SECONDS_WITHOUT_DATA = 30


class Checked(NamedTuple):
    """What `verify` found: images in each split, and whether they are, bit for bit, the published ones."""

    source: Path
    images: dict[Split, int]
    official: bool


def fetch(version: Version, folder: Path) -> Path:
    """Download one version into `folder`, unless it is there already, and unpack it.

    Returns:
        The unpacked folder.

    Raises:
        BadInput: no network, no room, or the file is not the published one.
    """
    archive = ARCHIVES[version]
    target = folder / archive.folder
    if target.is_dir():
        verify(target)
        return target
    with room(folder, _DOWNLOADED_AND_UNPACKED):
        extract(_download(archive, folder), target)
    return target


def verify(path: Path) -> Checked:
    """Read all of CIFAR-10 that `path` is or contains, both splits.

    Raises:
        BadInput: there is none, or a file is missing, truncated, damaged or foreign; the message names it.
    """
    source = cifar10.locate(path)
    if source is None:
        raise BadInput(f"there is no CIFAR-10 in {path}; {cifar10.REMEDY}")
    splits: tuple[Split, ...] = ("train", "test")
    images = {split: sum(len(chunk.labels) for chunk in cifar10.read(source, split)) for split in splits}
    return Checked(source, images, all(cifar10.is_official(source, split) for split in splits))


def extract(archive: Path, target: Path) -> None:
    """Unpack the folder `target.name` of a .tar.gz archive to `target`: all of it or nothing.

    Raises:
        BadInput: it is no such archive, has no such folder, or has a member that is a link, a device,
            or would land outside of the folder.
    """
    # Beside the target, so that the rename stays on one disk.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpacking-") as temporary:
        try:
            with tarfile.open(archive, "r:gz") as tar:
                for member in tar:
                    _refuse_unsafe(member, temporary, archive)
                    tar.extract(member, temporary, filter="data")
        except (tarfile.TarError, EOFError, OSError) as error:
            # OSError too: gzip says with it that something is no gzip file. A full disk goes on to `room`.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise BadInput(f"cannot unpack {archive}: {error}; delete it and fetch again") from error
        unpacked = Path(temporary) / target.name
        if not unpacked.is_dir():
            raise BadInput(f"{archive} has no folder {target.name}; delete it and fetch again")
        if target.exists():
            shutil.rmtree(target)
        unpacked.rename(target)


def _refuse_unsafe(member: tarfile.TarInfo, folder: str, archive: Path) -> None:
    # The "data" filter would make some of these harmless. The real archive has none, so here is a stranger.
    root = Path(folder).resolve()
    inside = (root / member.name).resolve().is_relative_to(root)
    if not inside or not (member.isreg() or member.isdir()):
        what = "is a link or a device" if inside else "would land outside of the folder"
        raise BadInput(f"{archive} is not unpacked: its member {member.name!r} {what}")


def _download(archive: Archive, folder: Path) -> Path:
    import pooch

    # Only the progress bar speaks, and only to a terminal; what happened is said by the command.
    pooch.get_logger().setLevel("ERROR")
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=_SECONDS_WITHOUT_DATA)
    name = archive.url.rsplit("/", 1)[1]
    by_hand = f"download {archive.url} by hand and give --data the path of the file"
    try:
        return Path(
            pooch.retrieve(archive.url, f"sha256:{archive.sha256}", name, folder, downloader=downloader)
        )
    except OSError as error:
        # requests' errors are OSErrors without a number; those with one come from the disk.
        if error.errno is not None:
            raise
        raise BadInput(
            f"cannot download {archive.url} ({type(error).__name__}): no network? {by_hand}"
        ) from error
    except ValueError as error:  # last: a proxy that is no URL is an error of both kinds
        raise BadInput(
            f"what {archive.url} sent is not CIFAR-10 (wrong SHA-256); try again, or {by_hand}"
        ) from error
