"""Fuzz targets: each accepts any bytes and raises only if there is a bug."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from typer.testing import CliRunner

from polybench.cli import app
from polybench.data import cifar10, image_folder
from polybench.data.cifar10 import read_pickle
from polybench.errors import BadInput, ConfigurationFailed, EngineUnavailable, PolybenchError
from polybench.planning.study_file import parse
from polybench.protocol import calls
from polybench.protocol.process import WorkerProcess
from polybench.render import FORMATS, render
from polybench.runner.checkpoint import CheckpointStore, StudyCheckpoint
from polybench.schema.study import StudyDocument, from_json

_FOLDER = Path(tempfile.gettempdir()) / f"polybench-fuzz-{os.getpid()}"


def document(data: bytes) -> None:
    """Read a saved study, and render it in every format if it is valid."""
    try:
        found = from_json(data)
    except msgspec.MsgspecError:
        return
    show(found)


def show(found: StudyDocument) -> None:
    """Render in every format; raise if one fails."""
    for name in FORMATS:
        with contextlib.suppress(PolybenchError):
            render(found, name)


def checkpoint(data: bytes) -> None:
    """Read the checkpoint of an unfinished study."""
    folder = _FOLDER / "unfinished" / "id"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study").write_bytes(data)
    with contextlib.suppress(BadInput):
        CheckpointStore(_FOLDER).read("id", StudyCheckpoint)


def study(data: bytes) -> None:
    """Read a study file."""
    with contextlib.suppress(BadInput):
        parse(data.decode("utf-8", "replace"), "study.toml")


def pickled(data: bytes) -> None:
    """Read a file of CIFAR-10's Python version."""
    with contextlib.suppress(ValueError):
        read_pickle(io.BytesIO(data), len(data))


def archive(data: bytes) -> None:
    """Read an archive of CIFAR-10."""
    _FOLDER.mkdir(exist_ok=True)
    path = _FOLDER / "archive.tar.gz"
    path.write_bytes(data)
    with contextlib.suppress(BadInput):
        for _ in cifar10.read(path, "train"):
            pass


def unpacked(data: bytes) -> None:
    """Read the content of an archive, because few random inputs pass gzip's checksum."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name in [
            f"{cifar10.ARCHIVES['binary'].folder}/{name}.bin" for names in cifar10.FILES.values() for name in names
        ]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    archive(stream.getvalue())


def image(data: bytes) -> None:
    """Read a file in a folder of images."""
    _FOLDER.mkdir(exist_ok=True)
    path = _FOLDER / "image.png"
    path.write_bytes(data)
    with contextlib.suppress(BadInput):
        list(image_folder.read_images(image_folder.ImageFolder([path], [0], ["class"]), (3, 8, 8)))


class _Heard(WorkerProcess):
    """The parent's end of a connection without a worker process."""

    def __init__(self, data: bytes) -> None:
        self._responses_fd, write = os.pipe()
        os.set_blocking(write, False)
        with contextlib.suppress(BlockingIOError):
            os.write(write, data)
        os.close(write)
        self._buffer = bytearray()

    def kill(self) -> None:
        pass

    def _describe_exit(self) -> str:
        return "it ended"


def message(data: bytes) -> None:
    """Decode a worker's reply."""
    heard = _Heard(data)
    try:
        for _ in range(data.count(b"\n") + 1):
            with contextlib.suppress(ConfigurationFailed, EngineUnavailable):
                heard._next_answer(calls.load("x"), 1.0)
    finally:
        os.close(heard._responses_fd)


def options(data: bytes) -> None:
    """Parse the options of `compare` without measuring."""
    try:
        arguments = shlex.split(data.decode("utf-8", "surrogateescape"))
    except ValueError:
        return
    result = CliRunner().invoke(app, ["compare", *arguments, "--dry-run"])
    if result.exception is not None and not isinstance(result.exception, PolybenchError | SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2), result.exit_code


TARGETS: dict[str, Callable[[bytes], None]] = {
    one.__name__: one for one in (document, checkpoint, study, pickled, archive, unpacked, image, message, options)
}


def seeds(golden: Path) -> dict[str, list[bytes]]:
    """Return valid inputs of each target as seeds; `golden` is a saved study."""
    whole = msgspec.json.decode(golden.read_bytes())
    for result in whole["results"]:
        if result["step_times"]:
            result["step_times"]["values"] = [[[0.5], [0.6]]] * 2
        result["interference"]["blocks"] = []
        result["parity"]["tensors"] = result["parity"]["tensors"][:2]
    whole["interference"] = whole["interference"][:1]
    text = "engines = ['torch', 'tf']\nbatch_size = 8\ntarget_accuracy = 0.5\n[prices]\ncpu = 0.5\n"
    return {
        "document": [msgspec.json.encode(whole)],
        "study": [text.encode(), _toml(whole["study"]), b"[sweep]\nthreads = [1, 2]\n"],
        "pickled": [_pickle()],
        "archive": [_archive()],
        "unpacked": [b"\x03" + bytes(3072), bytes(3073 * 2)],
        "image": _images(),
        "message": [b'{"type":"block_measured","step_times":[0.1],"steps_per_value":1,"peak_rss_bytes":1}\n'],
        "options": [
            b"--engines torch,tf+xla --batch-size 8 --precision fp32,bf16",
            b"--price cpu=0.5 --lr-schedule 10=0.1 --margin 5% --budget 3s --data synthetic",
            b"--model resnet32@40 --target-accuracy 0.5 --columns speed --format csv",
        ],
    }


def _toml(text: Any) -> bytes:
    return str(text).encode()


def _pickle() -> bytes:
    import pickle

    return pickle.dumps({b"labels": [1, 2], b"data": [b"x" * 3072]}, 2)


def _archive() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name in (*cifar10.FILES["train"], *cifar10.FILES["test"]):
            info = tarfile.TarInfo(f"{cifar10.ARCHIVES['binary'].folder}/{name}.bin")
            info.size = 3073
            tar.addfile(info, io.BytesIO(bytes(3073)))
    return stream.getvalue()


def _images() -> list[bytes]:
    from PIL import Image

    found = []
    for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"):
        stream = io.BytesIO()
        Image.new("RGB", (9, 7), (1, 2, 3)).save(stream, kind)
        found.append(stream.getvalue())
    return found
