"""Download of CIFAR-10 from its authors' site, safe unpacking, and verification of the files on disk."""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

from polybench.data import cifar10
from polybench.data.array_chunks import Split
from polybench.data.disk import check_free_space
from polybench.errors import BadInput

DatasetVersion = Literal["binary", "python"]


class Archive(NamedTuple):
    """A published file: its URL, its hash, and the folder that it unpacks to."""

    url: str
    sha256: str
    folder: str


ARCHIVES: dict[DatasetVersion, Archive] = {
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

_NEEDED_BYTES = 360_000_000
"""An archive of 170 MB, and 184 MB unpacked."""

_TIMEOUT_SECONDS = 30


class VerifiedArchive(NamedTuple):
    """Result of `verify`: images in each split, and whether they are, bit for bit, the published ones."""

    source: Path
    images: dict[Split, int]
    is_official: bool


def fetch(version: DatasetVersion, folder: Path) -> Path:
    """Download one version to `folder` and unpack it, unless it is already there.

    Returns:
        The unpacked folder.

    Raises:
        BadInput: the network is unreachable, the disk is too small, or the file is not the published one.
    """
    archive = ARCHIVES[version]
    target = folder / archive.folder
    if target.is_dir():
        verify(target)
        return target
    with check_free_space(folder, _NEEDED_BYTES):
        extract(_download(archive, folder), target)
    return target


def verify(path: Path) -> VerifiedArchive:
    """Read both splits of the CIFAR-10 that `path` is or contains.

    Raises:
        BadInput: CIFAR-10 is missing, or a file is missing, truncated, damaged or unknown; the message names
            it.
    """
    source = cifar10.locate(path)
    if source is None:
        raise BadInput(f"CIFAR-10 not found in {path}; {cifar10.HINT}")
    splits: tuple[Split, ...] = ("train", "test")
    images = {split: sum(len(chunk.labels) for chunk in cifar10.read(source, split)) for split in splits}
    return VerifiedArchive(source, images, all(cifar10.is_official_archive(source, split) for split in splits))


def extract(archive: Path, target: Path) -> None:
    """Unpack the folder `target.name` of a .tar.gz archive to `target`, completely or not at all.

    Raises:
        BadInput: the archive is invalid, lacks the folder, or has a member that is a link, a device, or
            outside of the folder.
    """
    # Next to the target, so that the rename stays on one disk.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpacking-") as temporary:
        try:
            with tarfile.open(archive, "r:gz") as tar:
                for member in tar:
                    _reject_unsafe(member, temporary, archive)
                    tar.extract(member, temporary, filter="data")
        except (tarfile.TarError, EOFError, OSError) as error:
            # gzip raises OSError for an invalid file. `check_free_space` handles a full disk.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise BadInput(f"cannot unpack {archive}: {error}; delete it and fetch again") from error
        unpacked = Path(temporary) / target.name
        if not unpacked.is_dir():
            raise BadInput(f"{archive} lacks the folder {target.name}; delete it and fetch again")
        if target.exists():
            shutil.rmtree(target)
        unpacked.rename(target)


def _reject_unsafe(member: tarfile.TarInfo, folder: str, archive: Path) -> None:
    # The "data" filter would make some of these harmless. The official archive has none of them.
    root = Path(folder).resolve()
    is_inside = (root / member.name).resolve().is_relative_to(root)
    if not is_inside or not (member.isreg() or member.isdir()):
        problem = "is a link or a device" if is_inside else "is outside of the folder"
        raise BadInput(f"unsafe archive {archive}: its member {member.name!r} {problem}; it was not unpacked")


def _download(archive: Archive, folder: Path) -> Path:
    import pooch

    # Only the progress bar prints, and only to a terminal; the command reports the result.
    pooch.get_logger().setLevel("ERROR")
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=_TIMEOUT_SECONDS)
    name = archive.url.rsplit("/", 1)[1]
    manual_hint = f"download {archive.url} manually and pass the file's path to --data"
    try:
        return Path(pooch.retrieve(archive.url, f"sha256:{archive.sha256}", name, folder, downloader=downloader))
    except OSError as error:
        # requests raises OSErrors without a number; those with a number come from the disk.
        if error.errno is not None:
            raise
        raise BadInput(
            f"cannot download {archive.url} ({type(error).__name__}): check the network, or {manual_hint}"
        ) from error
    except ValueError as error:  # after OSError: an invalid proxy URL raises an error of both types
        raise BadInput(
            f"the file from {archive.url} is not CIFAR-10 (wrong SHA-256); try again, or {manual_hint}"
        ) from error
