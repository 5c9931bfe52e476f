"""What is fuzzed: each target takes any bytes, and raises only where there is something to mend."""

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
from polybench.core.document.study import StudyDocument, from_json
from polybench.core.errors import BadInput, CellFailed, PolybenchError, Unavailable
from polybench.data import cifar10, fetch, image_folder
from polybench.data.cifar10_pickle import read_pickle
from polybench.export import FORMATS
from polybench.export.rendering import rendered
from polybench.measuring.checkpoint import Unfinished
from polybench.planning.study_file import parse
from polybench.wire.messages import Load
from polybench.wire.process import WorkerProcess

_FOLDER = Path(tempfile.gettempdir()) / f"polybench-fuzz-{os.getpid()}"


def document(data: bytes) -> None:
    """A saved study, also shown in every format where it can be read."""
    try:
        found = from_json(data)
    except msgspec.MsgspecError:
        return
    show(found)


def show(found: StudyDocument) -> None:
    """In every format; raises where one cannot."""
    for name in FORMATS:
        with contextlib.suppress(PolybenchError):
            rendered(found, name, None)


def checkpoint(data: bytes) -> None:
    """What is kept of a study that is not finished."""
    folder = _FOLDER / "unfinished" / "id"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state").write_bytes(data)
    with contextlib.suppress(BadInput):
        Unfinished(_FOLDER).read("id")


def study(data: bytes) -> None:
    """A study file."""
    with contextlib.suppress(BadInput):
        parse(data.decode("utf-8", "replace"), "study.toml")


def pickled(data: bytes) -> None:
    """A file of CIFAR-10's python version."""
    with contextlib.suppress(ValueError):
        read_pickle(io.BytesIO(data), len(data))


def archive(data: bytes) -> None:
    """An archive of CIFAR-10, read, and unpacked into a folder that nothing may leave."""
    _FOLDER.mkdir(exist_ok=True)
    path = _FOLDER / "archive.tar.gz"
    path.write_bytes(data)
    with contextlib.suppress(BadInput):
        for _ in cifar10.read(path, "train"):
            pass
    with tempfile.TemporaryDirectory(dir=_FOLDER) as name:
        parent = Path(name) / "parent"
        parent.mkdir()
        with contextlib.suppress(BadInput):
            fetch.extract(path, parent / cifar10.FOLDERS[0])
        assert [one.name for one in Path(name).iterdir()] == ["parent"], "something was written outside"
        assert {one.name for one in parent.iterdir()} <= {cifar10.FOLDERS[0]}, "something is left"


def unpacked(data: bytes) -> None:
    """What is in an archive: few inputs get through gzip's checksum."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name in [
            f"{cifar10.FOLDERS[0]}/{name}.bin" for names in cifar10.FILES.values() for name in names
        ]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    archive(stream.getvalue())


def image(data: bytes) -> None:
    """A file in a folder of images."""
    _FOLDER.mkdir(exist_ok=True)
    path = _FOLDER / "image.png"
    path.write_bytes(data)
    with contextlib.suppress(BadInput):
        list(image_folder.read_images(image_folder.ImageFolder([path], [0], ["class"]), (3, 8, 8)))


class _Heard(WorkerProcess):
    """The parent's end of a conversation, without a process at the other."""

    def __init__(self, data: bytes) -> None:
        self._answers, write = os.pipe()
        os.set_blocking(write, False)
        with contextlib.suppress(BlockingIOError):
            os.write(write, data)
        os.close(write)
        self._unread = bytearray()

    def kill(self) -> None:
        pass

    def _how_it_ended(self) -> str:
        return "it ended"


def message(data: bytes) -> None:
    """What a worker answers."""
    heard = _Heard(data)
    try:
        for _ in range(data.count(b"\n") + 1):
            with contextlib.suppress(CellFailed, Unavailable):
                heard._next_answer(Load("x"), 1.0)
    finally:
        os.close(heard._answers)


def options(data: bytes) -> None:
    """The options of `compare`; nothing is measured."""
    try:
        arguments = shlex.split(data.decode("utf-8", "surrogateescape"))
    except ValueError:
        return
    result = CliRunner().invoke(app, ["compare", *arguments, "--dry-run"])
    if result.exception is not None and not isinstance(result.exception, PolybenchError | SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2), result.exit_code


TARGETS: dict[str, Callable[[bytes], None]] = {
    one.__name__: one
    for one in (document, checkpoint, study, pickled, archive, unpacked, image, message, options)
}


def seeds(golden: Path) -> dict[str, list[bytes]]:
    """Sound inputs of each target, from which others are made; `golden` is a saved study."""
    whole = msgspec.json.decode(golden.read_bytes())
    for result in whole["results"]:
        if result["samples"]:
            result["samples"]["step_seconds"] = [[[0.5], [0.6]]] * 2
        result["disturbance"]["blocks"] = []
        result["parity"]["tensors"] = result["parity"]["tensors"][:2]
    whole["host"]["noise"] = whole["host"]["noise"][:1]
    text = "engines = ['torch', 'tf']\nbatch_size = 8\n[prices]\ncpu = 0.5\n[until]\naccuracy = 0.5\n"
    return {
        "document": [msgspec.json.encode(whole)],
        "study": [text.encode(), _toml(whole["study"]), b"[sweep]\nthreads = [1, 2]\n"],
        "pickled": [_pickle()],
        "archive": [_archive()],
        "unpacked": [b"\x03" + bytes(3072), bytes(3073 * 2)],
        "image": _images(),
        "message": [b'{"type":"measured","step_seconds":[0.1],"steps_per_sample":1,"peak_rss_bytes":1}\n'],
        "options": [
            b"--engines torch,tf+xla --batch-size 8 --precision fp32,bf16",
            b"--price cpu=0.5 --schedule 10=0.1 --target 5% --budget 3s --data synthetic",
            b"--model resnet32@40 --until accuracy=0.5 --columns times --format csv",
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
            info = tarfile.TarInfo(f"{cifar10.FOLDERS[0]}/{name}.bin")
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
